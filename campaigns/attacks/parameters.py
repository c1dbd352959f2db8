"""Thousands of distinct values for each parameter that strangers and users write. None costs much, and none is kept.

Each request has another client address, so that no limit by address ends an attack.
"""

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.benchmarks.measured import processor_seconds
from demo.client import csrf_token, signed_in, status, submit
from demo.installation import CHAIN_ID, CHAINS_TOML
from devnet.devchain import ACCOUNTS
from tests.names import Names

# Values of each form in a round. The first round fills caches. A later round is repeated, because the machine may be
# busy, and memory comes in pieces.
_VALUES, _MOST_ROUNDS = 60, 6
# Maximum processor time of a request, as a multiple of the home page's, and maximum bytes that a value leaves.
_MOST_TIMES, _MOST_BYTES = 8, 1024
_PAGES = 200
# Maximum characters that fit into a request line when they are percent-encoded, into a field of the header, and into a
# form that nginx takes.
_OF_LINE, _OF_FIELD, _OF_FORM = 2400, 30_000, 40_000
_MOST_SECONDS = 300  # for an answer

Form = Callable[[int, int], str]
"""Returns a value with this number, which no other value has, and with this maximum length."""

_FORMS: Mapping[str, Form] = {
    "numbers": lambda number, _: f"{number}",
    "long numbers": lambda number, most: f"{number}".ljust(most, "9"),
    "slots": lambda number, _: f"0x{number:x}",
    "addresses": lambda number, _: f"0x{number:040x}",
    "hashes": lambda number, _: f"0x{number:064x}",
    "identifiers": lambda number, _: f"01{number:024}",
    "times": lambda number, _: f"2026-01-01T00:00:00.{number}Z",
    "names": lambda number, _: f"name{number}.eth",
    "words": lambda number, _: f"word{number}",
    "long words": lambda number, most: f"{number}".ljust(most, "w"),
    "white space": lambda number, most: f"a{number}".ljust(most - 1) + "a",
    "backslashes": lambda number, most: f'"{number}'.ljust(most - 1, "\\") + '"',
    "quotes": lambda number, most: f"{number}".ljust(most, '"'),
    "brackets": lambda number, most: f"{number}".ljust(most, "("),
    "lists": lambda number, most: f"a{number}/b;q=0.1,".ljust(most, "a/b,"[number % 4]),
    "parameters": lambda number, most: f'a/b; a{number}="'.ljust(most, ";"),
    "dots": lambda number, most: f"{number}".ljust(most, "."),
}


def _signature(number: int, _: int) -> str:
    sizes = [number >> 5 * place & 31 for place in range(4)]
    return f"E({','.join(f'(uint{8 * size + 8} a,bytes{size + 1})[] b' for size in sizes)}) anonymous"


# A contract that emits its calldata as a log without topics, and a log of lists that all have the same items.
_EMITTER, _CODE = "0x" + "e3" * 20, "0x365f5f37365fa000"
_LISTS, _ITEMS = 15, 2000
_LOG = [32 * _LISTS] * _LISTS + [_ITEMS] + [2**159 + number for number in range(_ITEMS)]
_EVENTS: Mapping[str, Form] = {
    "signatures": _signature,
    "lists of the same items": lambda number, _: f"E{number}({','.join(['address[]'] * _LISTS)}) anonymous",
    "white space": lambda number, _: f"E{number}()".ljust(480) + "x",
}


@dataclass(frozen=True)
class _Parameter:
    name: str
    request: Callable[[str], dict[str, Any]]
    """Returns the arguments of the request with a value."""
    most: int = _OF_LINE
    forms: Mapping[str, Form] = field(default_factory=lambda: _FORMS)


def run(_: int) -> Iterator[Seen]:
    chains = f"[ens]\nchain = {CHAIN_ID}\n\n{CHAINS_TOML}"
    many = "100000000"
    with target(
        chains, CLIENT_ADDRESS_HEADER="X-Real-IP", MAX_BATCHES_PER_MINUTE=many, MAX_QUERIES_PER_MINUTE=many
    ) as attacked:
        Names(attacked.chain).set("alice.eth", ACCOUNTS[0][0])
        attacked.chain.mine(5)
        key = attacked.key()
        page, attacker = f"/explorer/query/{_batch_with_log(attacked, key)}", _Attacker(attacked)
        for parameter in (
            *_of_queries(page, {"api-key": key}),
            *_of_headers(page, {"api-key": key}, attacked.url),
            *_of_paths(page),
            *_of_sign_in(attacked.url),
            *_of_form(attacked.url),
            *_of_bodies({"api-key": key}),
        ):
            yield attacker.send(parameter)


def _batch_with_log(attacked: Target, key: str) -> str:
    """Return a DONE batch about a log that is costly to decode."""
    chain, batch = attacked.chain, ""
    chain.rpc("anvil_setCode", _EMITTER, _CODE)
    data = "0x" + "".join(f"{word:064x}" for word in _LOG)
    sent = chain.rpc(
        "eth_sendTransaction", {"from": ACCOUNTS[0][0], "to": _EMITTER, "data": data, "gas": hex(10_000_000)}
    )
    while not chain.rpc("eth_getTransactionReceipt", sent):
        time.sleep(0.2)
    batch = submit(attacked.url, key, _body({f"transaction:{sent}": {"transactions": {sent: {"logs": ["0"]}}}}))
    while status(attacked.url, key, batch) != "DONE":
        time.sleep(0.2)
    return batch


class _Attacker:
    """Sends values one after another, and watches the process of the web server."""

    def __init__(self, attacked: Target) -> None:
        self._server = attacked.service.process("web").pid
        self._url, self._session, self._answers = attacked.url, requests.Session(), Counter[int]()
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._numbers = itertools.count(10**6)
        self._of_page = min(self._seconds([{"path": "/"}] * _PAGES) for _ in range(2))

    def send(self, parameter: _Parameter) -> Seen:
        self._answers.clear()
        times, kept = {form: float("inf") for form in parameter.forms}, float("inf")
        for is_first in (True, *[False] * (_MOST_ROUNDS - 1)):
            before = self._bytes()
            for name, form in parameter.forms.items():
                values = [form(number, parameter.most) for number in itertools.islice(self._numbers, _VALUES)]
                seconds = self._seconds([parameter.request(value) for value in values])
                times[name] = min(times[name], seconds / self._of_page)
            if not is_first:
                kept = min(kept, (self._bytes() - before) / (_VALUES * len(parameter.forms)))
            if kept < _MOST_BYTES and max(times.values()) < _MOST_TIMES:
                break
        costliest = max(times, key=lambda name: times[name])
        return Seen(
            f"{self._answers.total():,} values of {parameter.name}",
            f"none takes {_MOST_TIMES} times a page's processor time, leaves {_MOST_BYTES} bytes, or makes an error",
            f"{times[costliest]:.1f} times for {costliest}; {max(0, kept):.0f} bytes; answers {dict(self._answers)}",
            kept=times[costliest] < _MOST_TIMES and kept < _MOST_BYTES and max(self._answers) < 500,
        )

    def _bytes(self) -> int:
        """Return the bytes of the server's processes that no other process has."""
        children = Path(f"/proc/{self._server}/task/{self._server}/children").read_text().split()
        memory = "".join(Path(f"/proc/{process}/smaps_rollup").read_text() for process in children)
        return 1024 * sum(map(int, re.findall(r"^Private_\w+: +(\d+) kB$", memory, re.MULTILINE)))

    def _seconds(self, sent: Sequence[dict[str, Any]]) -> float:
        """Return the processor seconds that the server takes for one of these requests."""
        before = processor_seconds(self._server)
        for arguments in sent:
            self._answers[self._answer(**arguments)] += 1
        return (processor_seconds(self._server) - before) / len(sent)

    def _answer(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, **more: Any) -> int:
        number = next(self._numbers)
        fields = {"X-Real-IP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", **(headers or {})}
        url, content = self._url + path, {name: text.encode() for name, text in fields.items()}
        return self._session.request(
            method, url, headers=content, timeout=_MOST_SECONDS, allow_redirects=False, **more
        ).status_code


# --- Parameters -------------------------------------------------------------------------------------------------------


def _body(blocks: Mapping[str, Any]) -> dict[str, Any]:
    return {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": {str(CHAIN_ID): blocks}}


def _of_queries(page: str, key: Mapping[str, str]) -> Iterator[_Parameter]:
    html = {"Accept": "text/html"}
    facts = "account block property slot sourceChainId destinationChainId cursor"
    batches = "q status chain source property since until before after of"

    def parameter(path: str, names: str, headers: Mapping[str, str]) -> _Parameter:
        given = names.split()
        return _Parameter(
            f"{', '.join(given)} of {path.replace(page, '/explorer/query/…')}",
            lambda text: {
                "path": path,
                "params": dict.fromkeys(given, text[: _OF_LINE // len(given)]),
                "headers": headers,
            },
        )

    for path, names in {
        "/": "q wallet",
        **dict.fromkeys(("/explorer", "/explorer.csv"), batches),
        **dict.fromkeys(("/facts", "/facts.csv"), facts),
        page: "page account chain state sort deliveries version",
        f"{page}.json": "cursor",
        f"{page}/1": "slots",
        "/sign-in": "next",
        "/admin/login/": "next",
        "/new-batch": "from",
        "/batch-query-status": "batchQueryId apiKey",
    }.items():
        yield parameter(path, names, html)
    for path, names in {
        "/facts": facts,
        "/batch-queries": "account status since until cursor limit",
        "/batch-query-status": "batchQueryId wait",
        "/webhook-deliveries": "cursor limit batchQueryId status",
    }.items():
        yield parameter(path, names, {**html, **key})

    def event(**headers: str) -> _Parameter:
        name = f"an event of /explorer/query/…/1 {headers or ''}"
        return _Parameter(
            name, lambda text: {"path": f"{page}/1", "params": {"event": text}, "headers": headers}, forms=_EVENTS
        )

    yield event()
    yield event(**{"HX-Request": "true"})
    yield _Parameter("a name of a parameter", lambda text: {"path": f"/explorer?{quote(text)}=1"})


def _of_headers(page: str, key: Mapping[str, str], url: str) -> Iterator[_Parameter]:
    def parameter(name: str, path: str, before: str = "", **more: Any) -> _Parameter:
        headers = more.pop("headers", {})
        return _Parameter(
            f"{name}: {before}… of {path.replace(page, '/explorer/query/…')}",
            lambda text: {"path": path, "headers": {**headers, name: before + text}, **more},
            most=_OF_FIELD,
        )

    for name in (
        *("Host", "Cookie", "Accept", "Accept-Language", "Accept-Encoding", "Content-Type", "If-None-Match", "Range"),
        *("If-Modified-Since", "Origin", "Referer", "User-Agent", "Authorization", "Forwarded", "X-Forwarded-For"),
        *("X-Real-IP", "X-Forwarded-Host", "HX-Current-URL", "HX-Target", "Sec-Fetch-Site", "Content-Encoding"),
    ):
        yield parameter(name, "/explorer/query/none")
    for name in (*signed_in(url, *ACCOUNTS[0], CHAIN_ID).cookies.keys(), "foreign"):
        yield parameter("Cookie", "/sign-in", f"{name}=")
    for before in ("text/plain; charset=", "text/plain; charset*=", "multipart/form-data; boundary="):
        yield parameter("Content-Type", "/chains", before)
    yield parameter("Content-Type", "/estimate-batch-query", "application/json; charset=", method="POST", headers=key)
    yield parameter("Idempotency-Key", "/submit-batch-query", method="POST", data=b"{}", headers=key)
    yield parameter("api-key", "/batch-queries")
    yield parameter("If-None-Match", f"{page}.json")
    yield parameter("Authorization", "/metrics", "Bearer ")
    for name in ("Accept-Encoding", "Range", "If-Modified-Since"):
        yield parameter(name, "/favicon.ico")
    preflight = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    for name in (*preflight, "Access-Control-Request-Headers"):
        yield parameter(name, "/submit-batch-query", method="OPTIONS", headers=preflight)


def _of_paths(page: str) -> Iterator[_Parameter]:
    def parameter(before: str, after: str = "") -> _Parameter:
        name = before.replace(page, "/explorer/query/…")
        return _Parameter(f"the path {name}…{after}", lambda text: {"path": f"{before}{quote(text, safe='')}{after}"})

    for before in (
        *("/", "/explorer/query/", f"{page}/", "/batch-queries/", "/get_queries/", "/get_actions/", "/static/"),
        *("/admin/", "/dashboard/keys/", "/webhooks/deliveries/", "/facts/"),
    ):
        yield parameter(before)
    yield parameter("/explorer/query/", ".json")
    words = {name: _FORMS[name] for name in ("numbers", "words", "long words")}
    yield _Parameter("the method", lambda text: {"path": "/chains", "method": f"M{text.upper()}"}, most=19, forms=words)


def _of_sign_in(url: str) -> Iterator[_Parameter]:
    ((name, csrf),) = requests.get(f"{url}/sign-in", timeout=_MOST_SECONDS).cookies.items()
    headers = {"Cookie": f"{name}={csrf}", "X-CSRFToken": csrf}

    def parameter(name: str, path: str, form: str, fields: Callable[[str], dict[str, str]]) -> _Parameter:
        post = {"path": f"/sign-in/{path}", "method": "POST", "headers": headers}
        return _Parameter(f"{name} at sign-in, as {form}", lambda text: {**post, form: fields(text)}, most=_OF_FORM)

    address = ACCOUNTS[0][0]
    for form in ("json", "data"):
        yield parameter("an address", "message", form, lambda text: {"address": text, "chainId": str(CHAIN_ID)})
        yield parameter("a chain id", "message", form, lambda text: {"address": address, "chainId": text})
        yield parameter("a message", "verify", form, lambda text: {"message": text, "signature": "0x12", "next": text})
        yield parameter("a signature", "verify", form, lambda text: {"message": "x", "signature": text})
        yield parameter(
            "a nonce", "verify", form, lambda text: {"message": f"x\n{address}\n\nNonce: {text}\n", "signature": "0x"}
        )
        yield parameter("a field's name", "verify", form, lambda text: {text: text})


def _of_form(url: str) -> Iterator[_Parameter]:
    session = signed_in(url, *ACCOUNTS[0], CHAIN_ID)
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in session.cookies.items())}
    chain = str(CHAIN_ID)
    usual = {"destination": chain, "sender": "service", "fee": "", "token": "a-token", "rows-0-source": chain}
    usual |= {"rows-0-at": "latest", "csrfmiddlewaretoken": csrf_token(session)}

    def parameter(name: str, do: str, fields: Callable[[str], dict[str, str]]) -> _Parameter:
        # Requests sends a form with a file as multipart/form-data.
        post = {"path": "/new-batch", "method": "POST", "headers": headers, "files": {"file": ("", b"")}}
        return _Parameter(
            f"{name} of a batch's form", lambda text: {**post, "data": {**usual, "do": do, **fields(text)}}, _OF_FORM
        )

    yield parameter("a table", "paste", lambda text: {"pasted": text})
    yield parameter("a cell", "paste", lambda text: {"pasted": f"chain,block,address\n{chain},{text},{text}"})
    yield parameter("the button", "", lambda text: {"do": text})
    columns = ("at", "block", "accounts", "slots", "slot_key", "logs", "transactions", "header", "props", "kind")
    for column in columns:
        yield parameter(f"the row's {column}", "estimate", lambda text, column=column: {f"rows-0-{column}": text})  # type: ignore[misc]  # it takes a text
    # Only a row with a token and a holder is searched for.
    for column in ("token", "holder", "found"):
        yield parameter(
            f"the row's {column}",
            "estimate",
            lambda text, column=column: {"rows-0-kind": "token", f"rows-0-{column}": text},  # type: ignore[misc]  # it takes a text
        )


def _of_bodies(key: Mapping[str, str]) -> Iterator[_Parameter]:
    account, good = ACCOUNTS[0][0], _body({"latest": {"header": ["TIMESTAMP"]}})

    def about(parts: Any) -> dict[str, Any]:
        return _body({"latest": parts})

    def slots(slot: Any) -> dict[str, Any]:
        return about({"accounts": {account: {"slots": [slot]}}})

    def webhook(**fields: Any) -> dict[str, Any]:
        return {**good, "webhook": {"url": "https://example.org", **fields}}

    bodies: Mapping[str, Callable[[str], Any]] = {
        "destinationChainId": lambda text: good | {"destinationChainId": text},
        "fee": lambda text: good | {"fee": text},
        "sender": lambda text: good | {"sender": text},
        "a field": lambda text: good | {text: text},
        "a source chain": lambda text: good | {"data": {text: {}}},
        "a block": lambda text: _body({text: {"header": ["TIMESTAMP"]}}),
        "a block's number": lambda text: _body({f"block:{text}": {"header": ["TIMESTAMP"]}}),
        "a block's time": lambda text: _body({f"timestamp:{text}": {"header": ["TIMESTAMP"]}}),
        "a block's transaction": lambda text: _body({f"transaction:{text}": {"header": ["TIMESTAMP"]}}),
        "a part of a block": lambda text: about({text: [text]}),
        "a property of a header": lambda text: about({"header": [text]}),
        "a transaction": lambda text: about({"transactions": {text: {"logs": [text], "props": [text]}}}),
        "an account": lambda text: about({"accounts": {text: {"props": ["NONCE"]}}}),
        "an ENS name": lambda text: about({"accounts": {f"{text[-40:]}.eth": {"props": ["NONCE"]}}}),
        "a property of an account": lambda text: about({"accounts": {account: {"props": [text], text: []}}}),
        "a slot": slots,
        "a name of a slot": lambda text: slots({"slot": text, "keys": [text], "layout": text, text: text}),
        "a key of a slot": lambda text: slots({"slot": "2", "keys": [text]}),
        "a text as a key of a slot": lambda text: slots({"slot": "2", "keys": [{"key": text, "type": "string"}]}),
        "an array's index": lambda text: slots({"slot": "2", "keys": [{"index": text, "size": text, "length": text}]}),
        "a webhook's URL": lambda text: webhook(url=text),
        "a webhook's host": lambda text: webhook(url=f"https://{text[:60]}.example.org/{text}"),
        "a webhook's header": lambda text: webhook(headers={text: text}),
        "a webhook's event": lambda text: webhook(events=[text], **{text: text}),
    }

    def parameter(name: str, path: str, body: Callable[[str], Any]) -> _Parameter:
        post = {"path": path, "method": "POST", "headers": key}
        return _Parameter(f"{name} in {path}", lambda text: {**post, "json": body(text)}, most=_OF_FORM // 2)

    for name, body in bodies.items():
        yield parameter(name, "/estimate-batch-query", body)
    yield parameter(
        "an account and a slot", "/read-proofs", lambda text: about({"accounts": {text: {"slots": [text]}}})
    )
    yield parameter(
        "fields", "/submit-request", lambda text: {"destination_chain_id": text, "data": {text: {}}, text: 1}
    )
