"""A reader requests one path again and again, as fast as eight connections allow. Another user's page must go on.

The paths come from the URL configuration, so a new path is attacked without being listed here. Each path is requested
from an address of its own on this machine.
"""

import itertools
import json
import re
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.benchmarks.measured import processor_seconds
from campaigns.bodies import balances
from demo.client import signed_in, submit
from demo.installation import CHAIN_ID
from devnet.devchain import ACCOUNTS
from devnet.servers import Postgres

_PROCESSES, _CONNECTIONS = 2, 8
# Seconds in which the reader uses up what an address may be ahead, and of polls beside the requests and alone.
_AHEAD_SECONDS, _BESIDE_SECONDS, _ALONE_SECONDS = 2, 4, 1
_FLOOD_SECONDS = _AHEAD_SECONDS + _BESIDE_SECONDS
# A visible page polls each second. So many pages poll at the same time.
_PAGES = 10
_MOST_TIMES = 3
# Seconds, and requests at most, for the cost of one request.
_COST_SECONDS, _COST_REQUESTS = 0.5, 30
_ACCOUNTS = 300
_ENOUGH = 60  # seconds after which a batch counts as stuck
_OTHER_USER = "127.0.0.2"

# The first parts of the API's paths that need a key.
_WITH_KEY = {
    *("batch-queries", "batch-query-status", "chain-connections", "estimate-batch-query", "find-slots", "get_actions"),
    *("get_queries", "read-proofs", "submit-batch-query", "submit-request", "webhook-deliveries"),
}

# Prints the routes of all patterns.
_ROUTES = """
import json
from django.urls import URLResolver, get_resolver
def routes(patterns, before=""):
    for each in patterns:
        route = before + str(each.pattern)
        yield from routes(each.url_patterns, route) if isinstance(each, URLResolver) else [route]
print(json.dumps(sorted(set(routes(get_resolver().url_patterns)))))
"""
_PART = re.compile(r"<(?:\w+:)?(\w+)>")


@dataclass(frozen=True)
class _Request:
    path: str
    method: str
    headers: Mapping[str, str]
    body: str | None
    address: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def connect(self, port: int) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", port, timeout=_ENOUGH, source_address=(self.address, 0))

    def send(self, connection: HTTPConnection) -> tuple[int, int]:
        """Return the status and the length of the answer."""
        connection.request(self.method, self.path, self.body, {**self.headers})
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = connection.getresponse()
        return answer.status, len(answer.read())


def run(_: int) -> Iterator[Seen]:
    with (
        Postgres() as server,
        target(DATABASE_URL=server.url(), WEB_CONCURRENCY=str(_PROCESSES), PROCESSOR_PERCENT="25") as attacked,
    ):
        reader, other = attacked.key(0), attacked.key(1)
        accounts = [f"0x{2**100 + number:040x}" for number in range(_ACCOUNTS)]
        head = attacked.chain.head()
        batch = submit(attacked.url, reader, balances([head], accounts))
        watched = [submit(attacked.url, other, balances([head], [account])) for account in accounts[:_PAGES]]
        attacked.seconds_to_done(other, balances([attacked.chain.head()], [ACCOUNTS[1][0]]), _ENOUGH)
        polls = _Polls(attacked, watched)
        for request in _requests(attacked, reader, batch):
            if isinstance(request, Seen):
                yield request
            else:
                yield _flooded(attacked, request, polls)


def _requests(attacked: Target, key: str, batch: str) -> Iterator[_Request | Seen]:
    """Yield a request for each route, of a signed-in user, or with a key."""
    session = signed_in(attacked.url, *ACCOUNTS[0], CHAIN_ID)
    cookies = "; ".join(f"{name}={value}" for name, value in session.cookies.items())
    parts = {"internal_id": batch, "internalId": batch, "request_id": batch, "number": "1", "query_id": f"{batch}-1"}
    parts |= {"delivery_id": "none", "deliveryId": "none", "key_id": "1"}
    body = json.dumps(balances([attacked.chain.head()], [ACCOUNTS[0][0]]))
    # The last is an asset of a page.
    routes = [*json.loads(attacked.service.manage("shell", "--no-imports", "-c", _ROUTES)), _style(attacked)]
    for number, route in enumerate(routes):
        # Operators alone have the admin's pages. `make attack ONLY=parameters` searches its paths.
        if route.startswith("admin/") and route != "admin/":
            continue
        path = "/" + _PART.sub(lambda part: parts.get(part[1], part[0]), route)
        if "<" in path or "(" in path:
            yield Seen(f"a request for {path}", "this campaign can fill in the path", "it can't", kept=None)
            continue
        address = f"127.1.{number // 250}.{number % 250 + 1}"
        headers = {"Host": attacked.url.partition("//")[2], "Accept": "text/html,*/*;q=0.5", "Cookie": cookies}
        headers |= {"api-key": key} if route.partition("/")[0] in _WITH_KEY else {}
        get = _Request(path, "GET", headers, None, address)
        status, _ = get.send(get.connect(attacked.service.port))
        if status == 405:
            headers |= {"Content-Type": "application/json"}
            yield _Request(path, "POST", headers, body, address)
        else:
            yield get


def _style(attacked: Target) -> str:
    """Return the path of the style sheet, as pages name it."""
    connection = HTTPConnection("127.0.0.1", attacked.service.port, timeout=_ENOUGH)
    connection.request("GET", "/sign-in")
    (path,) = re.findall(r'href="/(static/[^"]*\.css)"', connection.getresponse().read().decode())
    return str(path)


class _Polls:
    """The pages of another user, which poll."""

    def __init__(self, attacked: Target, batches: list[str]) -> None:
        self._port = attacked.service.port
        host = {"Host": attacked.url.partition("//")[2], "HX-Request": "true"}
        pages = [_Request(f"/explorer/query/{each}", "GET", host, None, _OTHER_USER) for each in batches]
        self._next = itertools.cycle(pages)

    def milliseconds(self, seconds: float) -> float:
        """Poll for `seconds` seconds, and return the median milliseconds of an answer."""
        taken, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            page = next(self._next)
            connection, began = page.connect(self._port), time.monotonic()
            status, _ = page.send(connection)
            taken.append(1000 * (time.monotonic() - began))
            connection.close()
            assert status == 200, f"A poll is answered with {status}."
            time.sleep(1 / _PAGES)
        return statistics.median(taken)


def _flooded(attacked: Target, request: _Request, polls: _Polls) -> Seen:
    port, web = attacked.service.port, attacked.service.process("web").pid
    # The processes may only now do what they do once, such as compiling a template.
    for _ in range(2 * _PROCESSES):
        status, length = request.send(request.connect(port))
    before, began, count = processor_seconds(web), time.monotonic(), 0
    while count < _COST_REQUESTS and time.monotonic() < began + _COST_SECONDS:
        request.send(request.connect(port))
        count += 1
    cost = 1000 * (processor_seconds(web) - before) / count
    alone = polls.milliseconds(_ALONE_SECONDS)
    # A process of its own, because the threads would delay the polls.
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        flood = pool.submit(_flood, request, port)
        time.sleep(_AHEAD_SECONDS)
        beside = polls.milliseconds(_BESIDE_SECONDS)
        answers = flood.result()
    rates = ", ".join(f"{count / (_FLOOD_SECONDS):.1f} of {status}" for status, count in sorted(answers.items()))
    return Seen(
        f"{request} by {_CONNECTIONS} connections of one address, again and again",
        f"half of another user's polls take at most {_MOST_TIMES} times as long as alone",
        f"a request takes {cost:.1f} ms of a processor, and is answered with {status} and {length} bytes; each second "
        f"{rates}; a poll takes {alone:.0f} ms alone and {beside:.0f} ms beside it, {beside / alone:.1f} times as long",
        kept=beside <= _MOST_TIMES * alone,
    )


def _flood(request: _Request, port: int) -> Counter[str]:
    """Send the request again and again. Return the answers by their status."""
    answers, end = Counter[str](), time.monotonic() + _FLOOD_SECONDS

    def send() -> None:
        connection = request.connect(port)
        while time.monotonic() < end:
            try:
                answers[str(request.send(connection)[0])] += 1
            except (OSError, HTTPException) as error:
                answers[type(error).__name__] += 1
                with suppress(OSError):
                    connection.close()

    threads = [threading.Thread(target=send) for _ in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
