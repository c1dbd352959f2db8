"""Requests made by hand to break a server, for every operation that the API's description has, and what must become of
each.

Much of a request is right, so that it gets past the first checks.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from devnet.devchain import ACCOUNTS
from queries.error_codes import ERROR_CODES
from tests.queries.nasty_bodies import NASTY
from tests.serving.process import Answer

_DOCUMENTED = {(status, code) for status, code, _ in ERROR_CODES}
# A defect, and what a proxy says that isn't there.
_NEVER = {500, 502}
# What RFC 9110 5.5 forbids in the value of a field: the web server refuses it before the service sees it.
_CONTROLS = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
# One in so many bodies is as large as may be.
_LARGE = 400


# --- What there is to ask ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """A method of a path, as the API's description has it."""

    method: str
    path: str  # with parameters in braces
    parameters: tuple[tuple[str, str, str], ...]  # where each is, its name, and its type in the end
    takes_body: bool
    statuses: frozenset[int]
    is_of_api: bool  # every answer of its path is JSON; else those that are described, if no page is preferred

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def is_at(self, path: bytes) -> bool:
        """Return whether the operation is what such a path asks for."""
        of_type = {name: "[0-9]+" if kind == "integer" else "[^/]+" for _, name, kind in self.parameters}
        parts = re.split(r"\{(\w+)\}", self.path)
        pattern = "".join(of_type[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
        return re.fullmatch(pattern.encode(), unquote_to_bytes(path)) is not None


def operations(description: Mapping[str, Any]) -> list[Operation]:
    """All of an OpenAPI document."""
    return [
        Operation(
            method.upper(),
            path,
            tuple((each["in"], each["name"], each["schema"].get("type", "")) for each in operation["parameters"]),
            "requestBody" in operation,
            frozenset(map(int, operation["responses"])),
            not ({"Explorer", "Health"} & set(operation["tags"]) or path.endswith(".json")),
        )
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


@dataclass(frozen=True)
class Known:
    """Existing batches and blocks, for requests to name."""

    keys: Sequence[str]
    batches: Sequence[str] = ()
    deliveries: Sequence[str] = ()
    etags: list[str] = field(default_factory=list)
    """The ETags of answers so far."""


# --- Requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    operation: Operation
    method: str
    path: bytes  # without the query string
    raw: bytes
    is_http: bool
    """Else something is wrong with it before anybody knows what it asks for."""

    def fault(self, answer: Answer | None) -> str:
        """Return what is wrong with the answer; empty if nothing is. An `answer` of None stands for no answer."""
        if answer is None:
            return "no answer" if self.is_http else ""
        if answer.status in _NEVER or answer.status >= 600:
            return "a defect"
        if answer.status in {204, 304} or self.method == "HEAD" or (self.method == "OPTIONS" and not answer.body):
            return ""
        if not (answer.headers["Content-Type"] or "").startswith("application/json"):
            return "no JSON" if self._promises_json(answer.status) else ""
        # Pages have errors of their own.
        return _fault_of_json(answer, is_documented=self._promises_json(answer.status))

    def _promises_json(self, status: int) -> bool:
        if not self.is_http or not self.operation.is_at(self.path):
            return False
        if status == 400 and _CONTROLS.search(self.raw.partition(b"\r\n\r\n")[0]):
            return False
        is_described = self.method == "GET" and status in self.operation.statuses
        return self.operation.is_of_api or (is_described and b"Accept: text/html" not in self.raw)


def _fault_of_json(answer: Answer, *, is_documented: bool) -> str:
    try:
        told = json.loads(answer.body)
    except ValueError:
        return "not the JSON that it says it is"
    is_of_health = answer.status == 503 and "codes" in told
    if answer.status < 400 or is_of_health:
        return ""
    if not isinstance(told.get("error"), str) or not isinstance(told.get("code"), str):
        return "an error without a sentence and a code"
    is_known = (answer.status, told["code"]) in _DOCUMENTED
    return "" if is_known or not is_documented else "an error that is not documented"


def made(choice: random.Random, operation: Operation, known: Known) -> Request:
    method = operation.method
    if choice.random() < 0.1:
        method = choice.choice(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
    path = re.sub(r"\{(\w+)\}", lambda match: _path_value(choice, match[1], known), operation.path)
    query = _query(choice, operation, known)
    body = _body(choice) if operation.takes_body or choice.random() < 0.1 else b""
    fields = _fields(choice, operation, known, body)
    line = f"{method} {path}{'?' if query else ''}{query} HTTP/1.1".encode("latin-1")
    raw = b"\r\n".join([line, *fields, b"", body])
    is_http = choice.random() >= 0.1
    if not is_http:
        raw = _broken(choice, raw)
    return Request(operation, method, path.encode("latin-1"), raw, is_http)


def _path_value(choice: random.Random, name: str, known: Known) -> str:
    existing = known.deliveries if "delivery" in name else known.batches
    kind = choice.random()
    if name == "number" and kind < 0.7:
        return choice.choice(["1", "2", "0", "-1", "01", "999999999", "9" * 30, "1.0", "%D9%A1"])
    if existing and kind < 0.7:
        return choice.choice(existing)
    # An empty part would make another path.
    return _quoted(choice, _value(choice)) or "x"


def _query(choice: random.Random, operation: Operation, known: Known) -> str:
    given = []
    for place, name, _ in operation.parameters:
        if place == "query" and choice.random() < 0.6:
            value = _plausible(choice, name, known) if choice.random() < 0.7 else _quoted(choice, _value(choice))
            given.append(f"{name}={value}")
    if choice.random() < 0.15:
        given.append(
            choice.choice(
                ["apiKey=", f"apiKey={choice.choice(known.keys)}", "&&&", "=", "a", "%=%", "wait=1&wait=0", "a[]=1"]
            )
        )
    if choice.random() < 0.05:
        given *= 2
    choice.shuffle(given)
    return "&".join(given)


def _plausible(choice: random.Random, name: str, known: Known) -> str:
    values: list[str] = {
        "batchQueryId": [*known.batches],
        "internalId": [*known.batches],
        "account": [ACCOUNTS[0][0], ACCOUNTS[1][0].lower()],
        "block": ["1", "2", "3"],
        "destinationChainId": ["31337"],
        "sourceChainId": ["31337"],
        "status": ["DONE", "REJECTED", "RECEIVED", "PENDING", "DELIVERED"],
        "property": ["BALANCE", "SLOT", "BLOCK_AT_TIMESTAMP", "TIMESTAMP"],
        "slot": ["0x1", "2", "0x" + "f" * 64],
        "limit": ["1", "2", "50", "100"],
        "cursor": ["0.0.0", "1.2.3", "5", *known.batches],
        # 25 would be waited for.
        "wait": ["0", "1"],
        "createdAfter": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00%2B14:00"],
        "createdBefore": ["2099-01-01T00:00:00Z", "1700000000"],
        "from": ["1", "2", "51"],
    }.get(name, [])
    return choice.choice(values or ["1"])


def _fields(choice: random.Random, operation: Operation, known: Known, body: bytes) -> list[bytes]:
    """The header, in no order."""
    fields = [b"Host: 127.0.0.1"]
    if choice.random() < 0.92:
        name = choice.choice([b"api-key", b"api-key", b"Api-Key", b"API-KEY"])
        wrong = [b"", b"bqs_", b"bqs_" + b"x" * 43, b"\xff\xfe", b"x" * 3000, b"a b", b'"']
        fields.append(
            name + b": " + (choice.choice(known.keys).encode() if choice.random() < 0.95 else choice.choice(wrong))
        )
    if body or operation.method == "POST":
        fields.append(b"Content-Length: %d" % len(body))
        fields.append(b"Content-Type: " + choice.choice(_CONTENT_TYPES) if choice.random() < 0.3 else _JSON)
    if choice.random() < 0.1:
        fields.append(b"If-None-Match: " + choice.choice([*_ETAGS, *(etag.encode() for etag in known.etags)]))
    if operation.takes_body and choice.random() < 0.2:
        fields.append(b"Idempotency-Key: " + choice.choice(_IDEMPOTENCY_KEYS))
    others = choice.choices(_OTHER_FIELDS, k=choice.choice([0, 0, 0, 1, 2]))
    # Without a body no client may send it (RFC 9110, 10.1.1), and a server may wait for one.
    fields += [each for each in others if body or each != _EXPECT]
    choice.shuffle(fields)
    return fields


_JSON = b"Content-Type: application/json"
_CONTENT_TYPES = [
    *(b"", b"text/plain", b"application/json;charset=utf-16", b"application/x-www-form-urlencoded", b"\xff", b"*/*"),
    *(b"multipart/form-data", b"multipart/form-data; boundary=", b"application/json, text/html", b"a" * 2000),
]
_ETAGS = [b"*", b'"', b'W/"x"', b"," * 1000, b"\xff\xfe", b"", b'W/"' + b"a" * 9000 + b'"']
_IDEMPOTENCY_KEYS = [
    *(b"", b'"', b'""', b'"a', b"a", b'"a"', b"a,b", b"a" * 255, b"a" * 256, b"\xe9", b"a\tb", b'"\\"', b"\x7f"),
    *(b'"a\\\\"', b"'; DROP TABLE", b'"a";q=1', b"a" * 9000),
]
_EXPECT = b"Expect: 100-continue"
_OTHER_FIELDS = [
    *(b"Accept: */*;q=x", b"Accept: text/html", b"Accept: ", b"Accept: application/xml", b"Accept-Encoding: gzip"),
    *(b"Origin: null", b"Origin: https://a.example", b"Access-Control-Request-Method: POST", b"Range: bytes=-1"),
    *(b"Content-Encoding: gzip", b"Cookie: sessionid=" + b"x" * 3000, b"Cookie: =;=;csrftoken", b"Referer: \xff"),
    *(b"X-Forwarded-Proto: https", b"X-Request-Id: \xff", b"SCRIPT_NAME: /x", b"If-Modified-Since: x"),
    *(
        b"Accept-Language: " + b"a," * 500,
        _EXPECT,
        b"Forwarded: for=\x22[::1]\x22",
        b"HX-Request: true",
    ),
    *(b"User-Agent: ", b"X-Http-Method-Override: DELETE", b"Authorization: Basic \xff", b"Connection: close"),
]


def _broken(choice: random.Random, raw: bytes) -> bytes:
    """No longer HTTP, or another request than it was."""
    kind = choice.randrange(6)
    head, _, body = raw.partition(b"\r\n\r\n")
    if kind == 0:
        spoilt = bytearray(head)
        for _ in range(choice.randrange(1, 6)):
            spoilt[choice.randrange(len(spoilt))] = choice.randrange(256)
        return bytes(spoilt) + b"\r\n\r\n" + body
    if kind == 1:
        return raw[: choice.randrange(len(head))]
    if kind == 2:
        return head.replace(b"HTTP/1.1", choice.choice(_VERSIONS), 1) + b"\r\n\r\n" + body
    if kind == 3:
        return raw.replace(b" ", choice.choice([b"", b"  ", b"\t", b" \0", b" http://[", b" //"]), 1)
    return head + b"\r\n" + choice.choice(_BROKEN_FIELDS) + b"\r\n\r\n" + body


_VERSIONS = [
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/0.9",
    b"HTTP/1.1 ",
    b"http/1.1",
    b"",
    b"HTTP/1.1\0",
    b"ICAP/1",
    b"HTTP/9" * 99,
]
_BROKEN_FIELDS = [
    *(b"Host: a b", b"Host: b.example", b"Content-Length: 2, 3", b"Content-Length: +2", b"Content-Length: 0x2"),
    *(b"Content-Length: " + b"1" * 5000, b"Content-Length: -1", b"Transfer-Encoding: chunked", b"Expect: tea"),
    *(b"Transfer-Encoding: \x0bchunked", b"transfer-encoding:identity", b" folded", b": empty", b"no colon"),
    *(b"a\0b: c", b"a: b\rc", b"a: b\nc: d", b"a" * 9000 + b": b", b"a: " + b"b" * 33_000, b"a: b\r\n" * 70 + b"c: d"),
]


# --- Values -----------------------------------------------------------------------------------------------------------


def _value(choice: random.Random) -> str:
    return choice.choice(_VALUES) if choice.random() < 0.8 else _text(choice)


def _quoted(choice: random.Random, value: str) -> str:
    """For a URL, mostly as it should be."""
    if choice.random() < 0.8:
        return quote(value, safe="", errors="surrogatepass")
    return re.sub(r"[^!-~]|[?#/]", "%", value)


_VALUES = [
    *("", " ", "\0", "%", "%zz", "%u0041", "+", "..", "../..", ".", "'", '"', "';--", "{}", "[]", "null", "true"),
    *("NaN", "Infinity", "-Infinity", "1e999", "-1", "-0", "+1", "01", "1e3", "1.0", "0x1", "1_000", " 1", "1\n"),
    *(str(2**31), str(2**63 - 1), str(2**63), str(2**64), str(2**256), "9" * 18, "9" * 100, "9" * 1500),
    *("\u0661\u0662", "\uff11", "\u00b2", "\u2168", "\ud800", "\udcff", "\ufeff", "\u202e", "\U0001f600", "\u0130"),
    *("01M7W1MRHW703BTRFFPT53VVP5", "Z" * 26, "z" * 26, "I" * 26, "7" + "Z" * 25, "8" + "Z" * 25, "0" * 27, "msg_"),
    *("msg_01M7W1MRHW703BTRFFPT53VVP5", "msg_" + "Z" * 26, "MSG_" + "0" * 26, "bqs_" + "x" * 43, "whsec_" + "A" * 32),
    *("0x", "0x" + "0" * 40, "0x" + "g" * 40, "0x" + "f" * 41, "0X" + "F" * 40, "f" * 40, "0x" + "\uff11" * 40),
    *("0x" + "f" * 64, "0x" + "f" * 65, ACCOUNTS[0][0].swapcase(), "vitalik.eth", "a..eth", ".eth", "xn--ls8h.eth"),
    *(
        "0.0.0",
        "1.2",
        "0.0.0.0",
        "9" * 18 + "." + "9" * 18 + "." + "9" * 9,
        "-1.0.0",
        "0.0.\u0660",
        "1" * 19,
        "0.0.0\n",
    ),
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z"),
    *("2026-01-01", "2026-01-01T00:00:00", "2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z", "1e10", "-62135596801"),
    *("253402300800", "P1D", "2026-01-01T00:00:00+99:99", "2026-01-01T00:00:00.0000000001Z", "26", "25.0", "24.9"),
    *("done", "DONE ", "DONE\0", "SELF", "self", "operator", "balance", "SLOT", "<script>", "a" * 3000, "\u00e9" * 300),
]


def _text(choice: random.Random) -> str:
    letters = "0123456789abcdefx:./\\\"'{}[]%&=?#\0\n\t\r\u202e\u2028\u00e9\U0001f600 "
    return "".join(choice.choices(letters, k=choice.choice([0, 1, 5, 20, 40, 66, 300])))


# --- Bodies -----------------------------------------------------------------------------------------------------------


def good(block: int) -> dict[str, Any]:
    accounts = {ACCOUNTS[0][0]: {"props": ["BALANCE", "NONCE"], "slots": ["0x1", "0x2"]}}
    data = {"31337": {f"block:{block}": {"accounts": accounts, "header": ["TIMESTAMP"]}}}
    return {"destinationChainId": "31337", "fee": "0", "data": data}


def _body(choice: random.Random) -> bytes:
    if choice.randrange(_LARGE) == 0:
        return choice.choice(list(NASTY.values()))()
    kind = choice.randrange(10)
    if kind == 0:
        return choice.choice(_BODIES)
    document = _elaborate(choice)
    if kind > 5:
        document = _spoilt(choice, document)
    body = json.dumps(document, ensure_ascii=choice.random() < 0.5).encode(errors="surrogatepass")
    if kind == 1:
        return body[: choice.randrange(len(body) + 1)]
    if kind == 2:
        place = choice.randrange(len(body) + 1)
        return body[:place] + choice.randbytes(choice.randrange(1, 9)) + body[place:]
    if kind == 3:
        return choice.choice([b"\xef\xbb\xbf" + body, body.decode(errors="replace").encode("utf-16"), body + body])
    return body


def _elaborate(choice: random.Random) -> dict[str, Any]:
    """A good request, with more or less in it."""
    document = good(choice.randrange(1, 10))
    blocks = document["data"]["31337"]
    for selector in choice.sample(["latest", "finalized", "timestamp:1", "timestamp:1700000000", "block:0"], 2):
        blocks[selector] = {"header": ["PARENT_HASH"]}
    if choice.random() < 0.3:
        headers = {"authorization": "Bearer x", "Content-Type": "application/json"}
        document["webhook"] = {"url": "http://127.0.0.1:9/hook", "headers": headers, "events": ["DONE", "STEP"]}
    if choice.random() < 0.3:
        document["sender"] = "self"
    if choice.random() < 0.2:
        blocks["block:1"] = {"accounts": {"alice.eth": {"props": ["NONCE"]}, choice.choice(_VALUES): {"slots": ["1"]}}}
    return document


def _spoilt(choice: random.Random, value: Any) -> Any:
    """The value with something of it replaced."""
    if isinstance(value, dict) and value and choice.random() < 0.8:
        name = choice.choice(list(value))
        if choice.random() < 0.3:
            return {(_key(choice) if one == name else one): other for one, other in value.items()}
        return value | {name: _spoilt(choice, value[name])}
    if isinstance(value, list) and value and choice.random() < 0.8:
        place = choice.randrange(len(value))
        return [*value[:place], _spoilt(choice, value[place]), *value[place + 1 :]]
    others: list[Any] = [
        *(
            None,
            True,
            0,
            -1,
            10**30,
            10**400,
            1.5,
            1e308,
            float("nan"),
            float("-inf"),
            [],
            {},
            [[]],
            {"": {}},
            [None] * 70,
        ),
        *(_value(choice), _value(choice), _text(choice), [_text(choice)] * 20, choice.choice(_URLS)),
    ]
    return choice.choice(others)


def _key(choice: random.Random) -> str:
    return choice.choice([*_SELECTORS, *_VALUES]) if choice.random() < 0.8 else _text(choice)


_SELECTORS = [
    *("block:", "block:-1", "block:01", "block:1e3", f"block:{2**63}", "block:" + "9" * 900, "block:0x1", "BLOCK:1"),
    *(
        "timestamp:",
        f"timestamp:{2**63 - 1}",
        "timestamp:-1",
        "timestamp:1.5",
        "latest ",
        "pending",
        "earliest",
        "31337",
    ),
]
_URLS = [
    *("http://127.0.0.1", "https://127.0.0.1:22/", "http://[::1]/", "https://0x7f000001/", "https://2130706433/"),
    *(
        "https://[::ffff:127.0.0.1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://a.example:0/",
        "ftp://a.example",
    ),
    *("https://a.example:99999/", "https://user:pass@a.example/", "https://a.example/#x", "https://a.example\r\nX: y"),
    *("https://\u0430.example/", "https://a..example/", "https://" + "a" * 64 + ".example/", "javascript:alert(1)"),
    *("https://localhost/", "https://a.example/" + "a" * 3000, "https://[", "//a.example", "https:///x", "file:///etc"),
]
_BODIES = [
    *(b"", b" ", b"\0", b"{", b"}", b"null", b"[]", b"{}", b'""', b"0", b"nan", b"NaN", b"Infinity", b"-", b"1e999"),
    *(b"\xff\xfe", b"\xef\xbb\xbf{}", b"{}" * 2, b"{'fee': 1}", b'{"fee": 1,}', b"// x\n{}", b'{"fee": "\\ud800"}'),
    *(b'{"\\u0000": 1}', b'{"fee": "\x01"}', b'{"fee": "\xed\xa0\x80"}', b'{"fee": 0, "fee": 0}', b"[" * 100_000),
    *(b'{"a":' * 50_000, b"9" * 100_000, b'{"data": ' + b"[" * 900 + b"]" * 900 + b"}", b"1" + b"0" * 4000),
    *(b"apiKey=x&fee=1", b"--x\r\nContent-Disposition: form-data\r\n\r\n\r\n--x--", b"<x/>", b"GET / HTTP/1.1\r\n\r\n"),
]
