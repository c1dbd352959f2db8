"""Hundreds of requests for news (`?wait=25`), of which few find a place, while others ask, and many come and go."""

import json
import select
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException

import requests

from campaigns.attacks.hostile import good
from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from tests.serving.process import connect, read_answer

_USERS, _OF_EACH = 12, 60
# Of a process of eight threads.
_PLACES = 2
# That come, and go without an answer.
_GO = 1000
_SECONDS = 10
_MEDIAN_SECONDS, _SLOW_SECONDS = 0.1, 2.0
# Between two looks at what all wait for, and a busy machine.
_NEWS_SECONDS = 10
_MAKE_KEYS = f"""
from accounts import keys
from accounts.models import User
for number in range({_USERS} + 1):
    print(keys.reveal(keys.issue(User.objects.for_address(f"0x{{number:040d}}"), "default")))
"""


def run(seed: int) -> Iterator[Seen]:
    with target(MAX_BLOCKS_AHEAD="10000") as attacked:
        port = int(attacked.url.rpartition(":")[2])
        *keys, other = attacked.service.manage("shell", "--no-imports", "-c", _MAKE_KEYS).split()[-_USERS - 1 :]
        # A block that is to come: they stay open.
        batches = [_submit(attacked, key, attacked.chain.head() + 5000) for key in keys]
        with _crowd(port, keys, batches) as waiting:
            yield _others(attacked, other, f"{len(waiting)} requests of {_USERS} users that wait 25 s")
            yield _some_go(attacked, other, port, keys[0], batches[0])
        with _crowd(port, keys, batches) as waiting:
            yield _news(attacked, keys, batches, waiting)


@contextmanager
def _crowd(port: int, keys: Sequence[str], batches: Sequence[str]) -> Iterator[list[socket.socket]]:
    """Each user from an address of its own. Not all of them find a place."""
    with ExitStack() as opened:
        waiting = [
            opened.enter_context(_waiting(port, key, batch, f"127.0.2.{number}"))
            for number, (key, batch) in enumerate(zip(keys, batches, strict=True), 1)
            for _ in range(_OF_EACH)
        ]
        time.sleep(2)
        yield waiting


def _submit(attacked: Target, key: str, block: int) -> str:
    answer = requests.post(f"{attacked.url}/submit-batch-query", json=good(block), headers={"api-key": key}, timeout=30)
    return str(answer.json()["internalId"])


def _waiting(port: int, key: str, batch: str, source: str) -> socket.socket:
    connection = connect(port, source)
    line = f"GET /batch-query-status?batchQueryId={batch}&wait=25 HTTP/1.1"
    connection.sendall(f"{line}\r\nHost: 127.0.0.1\r\napi-key: {key}\r\n\r\n".encode())
    return connection


def _ask(attacked: Target, key: str, seconds: float) -> tuple[list[float], Counter[int]]:
    """One request after another of another user, for so long; how long each took, and the statuses."""
    took, statuses = [], Counter[int]()
    batch = _submit(attacked, key, 1)
    headers = {"api-key": key}
    asked = [f"/batch-query-status?batchQueryId={batch}", "/batch-queries", "/chain-connections", "/explorer"]
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        for path in asked:
            began = time.monotonic()
            statuses[requests.get(attacked.url + path, headers=headers, timeout=30).status_code] += 1
            took.append(time.monotonic() - began)
        time.sleep(0.05)
    return took, statuses


def _others(attacked: Target, key: str, tried: str) -> Seen:
    took, statuses = _ask(attacked, key, _SECONDS)
    median = statistics.median(took)
    return Seen(
        tried,
        f"others are answered, half within {_MEDIAN_SECONDS} s and all within {_SLOW_SECONDS} s",
        f"{len(took)} requests, {dict(statuses)}; half within {median * 1000:.0f} ms, all within "
        f"{max(took) * 1000:.0f} ms",
        set(statuses) == {200} and median < _MEDIAN_SECONDS and max(took) < _SLOW_SECONDS,
    )


def _some_go(attacked: Target, other: str, port: int, key: str, batch: str) -> Seen:
    for number in range(_GO):
        with suppress(OSError):
            _waiting(port, key, batch, f"127.0.3.{1 + number % 50}").close()
    return _others(attacked, other, f"besides, {_GO} that wait and go at once")


def _news(attacked: Target, keys: Sequence[str], batches: Sequence[str], waiting: Sequence[socket.socket]) -> Seen:
    for key, batch in zip(keys, batches, strict=True):
        url = f"{attacked.url}/batch-queries/{batch}/cancel"
        requests.post(url, headers={"api-key": key}, timeout=30).raise_for_status()
    left, over = set(waiting), time.monotonic() + _NEWS_SECONDS
    told: Counter[str] = Counter()
    while left and time.monotonic() < over:
        for each in select.select(list(left), [], [], 0.5)[0]:
            left.discard(each)
            with suppress(OSError, HTTPException):
                told[json.loads(read_answer(each).body)["queryStatus"]] += 1
    return Seen(
        f"the batches for which {len(waiting)} requests wait are cancelled",
        f"{_PLACES} hear it within {_NEWS_SECONDS} s, the others found no place and were answered without news",
        f"{dict(told)}; {len(left)} heard nothing",
        not left and told["REJECTED"] >= _PLACES and told["IN_PROGRESS"] <= len(waiting) - _PLACES,
    )
