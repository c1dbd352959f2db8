"""Floods of malformed requests: each gets a truthful answer, soon, and nobody else notices."""

import http.client
import json
import multiprocessing
import random
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from demo.installation import CHAIN_ID
from devnet.devchain import ACCOUNTS, PROJECT
from tests.attacks.table import Seen
from tests.attacks.target import Target, target
from tests.queries.nasty_bodies import NASTY

_FLOOD = 100_000
_CLIENTS = 4
_SCHEMATHESIS = PROJECT / ".venv-attack" / "bin" / "schemathesis"
_SCHEMATHESIS_SECONDS = 20
# On a machine that does all of this at once.
_SLOW_SECONDS, _P99_SECONDS = 10, 2
# One in so many bodies is as large as may be.
_LARGE = 100


def run(seed: int) -> Iterator[Seen]:
    with target() as attacked:
        yield from _throttle(attacked)
    with target(MAX_BATCHES_PER_MINUTE="1000000", MAX_QUERIES_PER_MINUTE="100000000") as attacked:
        yield from _flood(attacked, seed)
        yield from _schemathesis(attacked, seed)
        yield _goes_on(attacked)


# --- The throttle -----------------------------------------------------------------------------------------------------


def _throttle(attacked: Target) -> Iterator[Seen]:
    key, other, most = attacked.key(0), attacked.key(1), 60

    def post(body: bytes, key: str = key) -> requests.Response:
        headers = {"api-key": key, "Content-Type": "application/json"}
        return requests.post(f"{attacked.url}/submit-batch-query", body, headers=headers, timeout=30)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(post, [b"{"] * 60 + [json.dumps(_good(block)).encode() for block in range(140)]))
    statuses = Counter(answer.status_code for answer in answers)
    waits = [int(answer.headers["Retry-After"]) for answer in answers if answer.status_code == requests.codes.too_many]
    yield Seen(
        f"{len(answers)} submissions of one user by 16 connections at once, 60 of them malformed",
        f"{most} get through, refused ones count, the others are told when to come back",
        f"{_shown(statuses)}; Retry-After {min(waits)} to {max(waits)} s",
        statuses.total() - statuses[429] == most and all(1 <= wait <= most for wait in waits),
    )
    status = post(json.dumps(_good(1)).encode(), other).status_code
    yield Seen("another user meanwhile", "is not throttled", f"status {status}", status == requests.codes.ok)


# --- The flood --------------------------------------------------------------------------------------------------------


@dataclass
class _Tally:
    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    hung_up: int = 0
    broken: list[str] = field(default_factory=list)
    """What was sent, and what was answered that shouldn't be."""


def _flood(attacked: Target, seed: int) -> Iterator[Seen]:
    key, other = attacked.key(0), attacked.key(1)
    start = time.monotonic()
    # Each a process of its own: what attacks must not wait for itself.
    with ProcessPoolExecutor(_CLIENTS, mp_context=multiprocessing.get_context("spawn")) as pool:
        clients = [pool.submit(_send, attacked.url, key, seed * 100 + number) for number in range(_CLIENTS)]
        good: list[float] = []
        refused = 0
        while not all(client.done() for client in clients):
            began = time.monotonic()
            answer = requests.post(
                f"{attacked.url}/submit-batch-query", json=_good(len(good) + 1), headers={"api-key": other}, timeout=60
            )
            refused += not answer.ok
            good.append(time.monotonic() - began)
            time.sleep(0.5)
        tallies = [client.result() for client in clients]
    statuses = sum((tally.statuses for tally in tallies), Counter[int]())
    seconds = sorted(second for tally in tallies for second in tally.seconds)
    broken = [sentence for tally in tallies for sentence in tally.broken]
    p99 = statistics.quantiles(seconds, n=100)[98]
    yield Seen(
        f"{len(seconds)} malformed requests by {_CLIENTS} connections in {time.monotonic() - start:.0f} s, seed {seed}",
        f"each is answered truthfully, as JSON, 99 % within {_P99_SECONDS} s and all within {_SLOW_SECONDS} s",
        f"{_shown(statuses)}; half within {statistics.median(seconds) * 1000:.0f} ms, 99 % within {p99 * 1000:.0f} ms, "
        f"all within {seconds[-1] * 1000:.0f} ms; {sum(tally.hung_up for tally in tallies)} connections ended early"
        + "".join(f"; {sentence}" for sentence in broken[:3]),
        not broken and p99 < _P99_SECONDS and seconds[-1] < _SLOW_SECONDS,
    )
    yield Seen(
        f"{len(good)} good submissions of another user meanwhile",
        "all are taken, soon",
        f"{refused} refused; half within {statistics.median(good):.2f} s, all within {max(good):.2f} s",
        not refused and max(good) < _SLOW_SECONDS,
    )


def _send(url: str, key: str, seed: int) -> _Tally:
    """One client's part of the malformed requests, by a connection that is kept open."""
    choice, tally, address = random.Random(seed), _Tally(), urlsplit(url).netloc
    connection = http.client.HTTPConnection(address, timeout=60)
    for _ in range(_FLOOD // _CLIENTS):
        method, path, body, headers = _malformed(choice, key)
        began = time.monotonic()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            tally.hung_up += 1
            connection.close()
            continue
        tally.seconds.append(time.monotonic() - began)
        tally.statuses[answer.status] += 1
        if not _is_truthful(method, path, answer, content):
            tally.broken.append(f"{method} {path[:80]} {body[:200]!r} got {answer.status} {content[:200]!r}")
    return tally


def _is_truthful(method: str, path: str, answer: http.client.HTTPResponse, content: bytes) -> bool:
    if method == "HEAD":
        return 400 <= answer.status < 500 or answer.status == 200
    try:
        told = json.loads(content)
    except ValueError:
        return False
    if answer.status == 200:
        expected = {"/submit-batch-query": "internalId", "/batch-query-status": "queryStatus"}
        return expected.get(path.partition("?")[0], "connections") in told
    return 400 <= answer.status < 500 and isinstance(told.get("error"), str) and isinstance(told.get("code"), str)


def _malformed(choice: random.Random, key: str) -> tuple[str, str, bytes, dict[str, str]]:
    """Method, path, body and headers."""
    headers = {"api-key": key, "Content-Type": "application/json"}
    if choice.random() < 0.6:
        return "POST", "/submit-batch-query", _body(choice), headers
    kind = choice.randrange(5)
    if kind == 0:
        query = choice.choice([f"batchQueryId={quote(_text(choice))}", quote(_text(choice), safe="=&%")])
        return "GET", f"/batch-query-status?{query}", b"", headers
    if kind == 1:
        path = choice.choice(["/submit-batch-query", "/batch-query-status", "/chain-connections"])
        return choice.choice(["GET", "HEAD", "PUT", "DELETE", "PATCH", "TRACE", "FOO"]), path, b"", headers
    if kind == 2:
        headers["api-key"] = choice.choice(["", "bqs_", "bqs_" + "x" * 43, "\xff\xfe", "x" * 3000])
        return "POST", "/submit-batch-query", _body(choice), headers
    if kind == 3:
        headers["Content-Type"] = choice.choice(
            ["", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"]
        )
        return "POST", "/submit-batch-query", _body(choice), headers
    headers["Content-Encoding"] = choice.choice(["gzip", "br", "x"])
    return "POST", f"/submit-batch-query?{quote(_text(choice))}", _body(choice), headers


def _body(choice: random.Random) -> bytes:
    if choice.randrange(_LARGE) == 0:
        return choice.choice(list(NASTY.values()))()
    value = _spoilt(choice, _good(choice.randrange(10**6)))
    body = json.dumps(value).encode()
    kind = choice.randrange(5)
    if kind == 0:
        return body[: choice.randrange(len(body) + 1)]
    if kind == 1:
        place = choice.randrange(len(body) + 1)
        return body[:place] + choice.randbytes(choice.randrange(1, 9)) + body[place:]
    return body


def _spoilt(choice: random.Random, value: Any) -> Any:
    """The value with something of it replaced."""
    if isinstance(value, dict) and value and choice.random() < 0.8:
        name = choice.choice(list(value))
        if choice.random() < 0.3:
            return {(_text(choice) if one == name else one): other for one, other in value.items()}
        return value | {name: _spoilt(choice, value[name])}
    if isinstance(value, list) and value and choice.random() < 0.8:
        place = choice.randrange(len(value))
        return [*value[:place], _spoilt(choice, value[place]), *value[place + 1 :]]
    others: list[Any] = [
        None,
        True,
        0,
        -1,
        10**30,
        1.5,
        1e308,
        [],
        {},
        [[]],
        {"": {}},
        _text(choice),
        [_text(choice)] * 20,
    ]
    return choice.choice(others)


def _text(choice: random.Random) -> str:
    letters = "0123456789abcdefx:./\\\"'{}[]%&=?#\0\n\t\r\u202e\u2028é😀 "
    return "".join(choice.choices(letters, k=choice.choice([0, 1, 5, 20, 40, 66, 300])))


def _good(block: int) -> dict[str, Any]:
    accounts = {ACCOUNTS[0][0]: {"props": ["BALANCE", "NONCE"], "slots": ["0x1", "0x2"]}}
    data = {str(CHAIN_ID): {f"block:{block}": {"accounts": accounts, "header": ["TIMESTAMP"]}}}
    return {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data}


# --- What others have thought of --------------------------------------------------------------------------------------


def _schemathesis(attacked: Target, seed: int) -> Iterator[Seen]:
    if not _SCHEMATHESIS.exists():
        yield Seen("schemathesis", "is there", "make .venv-attack/ready installs it", kept=False)
        return
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [
        *(str(_SCHEMATHESIS), "run", f"{attacked.url}/api/openapi.json", "--no-color"),
        *("--header", f"api-key: {attacked.key(2)}"),
        *("--checks", checks, "--max-time", str(_SCHEMATHESIS_SECONDS), "--seed", str(seed)),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, cwd=attacked.service.folder
    )
    said = done.stdout.splitlines()
    cases = next((line.strip() for line in said if "generated" in line), "")
    failures = [line.strip() for line in said if done.returncode and line.strip().startswith("- ")]
    yield Seen(
        f"schemathesis on /api/openapi.json for {_SCHEMATHESIS_SECONDS} s: {checks}",
        "finds nothing",
        cases + "".join(f"; {failure}" for failure in failures[:5]),
        done.returncode == 0,
    )


def _goes_on(attacked: Target) -> Seen:
    log = attacked.service.log("web").read_text(errors="replace")
    tracebacks = log.count("Traceback (most recent call last)")
    healthy = requests.get(f"{attacked.url}/healthz", timeout=30).ok
    return Seen(
        "the service afterwards",
        "it is healthy, and its log has no exception",
        f"{'healthy' if healthy else 'not healthy'}, {tracebacks} exceptions in its log",
        healthy and not tracebacks,
    )


def _shown(statuses: Counter[int]) -> str:
    return ", ".join(f"{count} of {status}" for status, count in sorted(statuses.items()))
