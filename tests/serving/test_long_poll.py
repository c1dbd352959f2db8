"""`GET /batch-query-status?wait=…`: clients that wait for news hold a connection each, and no thread."""

import json
import os
import select
import signal
import socket
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from tests.serving.process import Answer, WebServer, ask, connect, is_closed, read_answer
from tests.serving.test_database import BODY, database

USERS = 7
# Of a user, and of a process of 500 connections.
MOST_OF_USER, MOST = 50, 250
# It looks every half second; the rest is for a busy machine.
SOON = 5
MAKE_KEYS = f"""
from accounts import keys
from accounts.models import User
for number in range(1, {USERS} + 1):
    print(keys.reveal(keys.issue(User.objects.for_address(f"0x{{number:040d}}"), "default")))
"""


@dataclass(frozen=True)
class Asker:
    """A user with an open batch."""

    server: WebServer
    key: str
    batch: str

    def request(self, wait: int, *fields: str) -> bytes:
        lines = (
            f"GET /batch-query-status?batchQueryId={self.batch}&wait={wait} HTTP/1.1",
            *("Host: 127.0.0.1", f"api-key: {self.key}", *fields),
        )
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    def ask(self, wait: int, *fields: str) -> Answer:
        return ask(self.server.port, self.request(wait, *fields))

    @contextmanager
    def waiting(self, *fields: str, source: str = "127.0.0.1") -> Iterator[socket.socket]:
        with connect(self.server.port, source) as connection:
            connection.sendall(self.request(25, *fields))
            yield connection

    def become(self, status: str) -> None:
        with closing(sqlite3.connect(database(self.server), isolation_level=None, timeout=20)) as other:
            other.execute("UPDATE queries_batch SET status = ? WHERE id = ?", (status, self.batch))


def askers(server: WebServer) -> list[Asker]:
    keys = server.installation.manage("shell", "--no-imports", "-c", MAKE_KEYS).splitlines()[-USERS:]
    url = f"{server.url}/submit-batch-query"
    answers = [requests.post(url, json=BODY, headers={"api-key": key}, timeout=20).json() for key in keys]
    return [Asker(server, key, answer["internalId"]) for key, answer in zip(keys, answers, strict=True)]


@pytest.fixture(scope="module")
def users(web) -> list[Asker]:
    return askers(web)


@pytest.fixture
def asker(users) -> Iterator[Asker]:
    yield users[0]
    users[0].become("RECEIVED")


def is_answered(connection: socket.socket, seconds: float) -> bool:
    return bool(select.select([connection], [], [], seconds)[0])


def status(answer: Answer) -> str:
    assert answer.status == 200
    return str(json.loads(answer.body)["queryStatus"])


# --- When it is answered ----------------------------------------------------------------------------------------------


def test_it_is_answered_as_soon_as_the_status_is_another(asker):
    with asker.waiting() as connection:
        assert not is_answered(connection, 0.7)
        # Which clients don't know.
        asker.become("ACCEPTED")
        assert not is_answered(connection, 1.2)
        asker.become("DONE")
        assert is_answered(connection, SOON)
        assert status(read_answer(connection)) == "DONE"
        # The connection goes on.
        connection.sendall(asker.request(0))
        assert status(read_answer(connection)) == "DONE"


def test_after_its_time_it_is_answered_as_before(asker):
    began = time.monotonic()
    answer = asker.ask(2)
    assert 1.4 < time.monotonic() - began < SOON
    assert (status(answer), answer.headers["Retry-After"]) == ("IN_PROGRESS", "2")
    began = time.monotonic()
    assert asker.ask(2, f"If-None-Match: {answer.headers['ETag']}").status == 304
    assert 1.4 < time.monotonic() - began < SOON


def test_news_is_told_at_once(asker):
    assert status(asker.ask(25, 'If-None-Match: W/"another"')) == "IN_PROGRESS"
    asker.become("DONE")
    answer = asker.ask(25)
    assert status(answer) == "DONE"
    # Who knows it is done hears of a reorg.
    with asker.waiting(f"If-None-Match: {answer.headers['ETag']}") as connection:
        assert not is_answered(connection, 1.2)
        asker.become("IN_PROGRESS")
        assert status(read_answer(connection)) == "IN_PROGRESS"


def test_a_key_that_is_revoked_meanwhile_is_told_nothing(asker):
    with asker.waiting() as connection:
        assert not is_answered(connection, 0.7)
        with closing(sqlite3.connect(database(asker.server), isolation_level=None, timeout=20)) as other:
            ends = asker.key[-4:]
            other.execute("UPDATE accounts_apikey SET revoked_at = '2026-01-01' WHERE last_four = ?", (ends,))
            asker.become("DONE")
            assert read_answer(connection).status == 401
            other.execute("UPDATE accounts_apikey SET revoked_at = NULL WHERE last_four = ?", (ends,))


# --- What it costs others ---------------------------------------------------------------------------------------------


def seconds_of_processor(server: WebServer) -> float:
    _, (pid,) = server.pids()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_however_many_wait_others_are_answered(users):
    """By four threads. The users may let 50 requests wait each, and the process 250."""
    *crowd, other = users
    with ExitStack() as open_connections:
        waiting = [
            open_connections.enter_context(user.waiting(source=f"127.0.1.{number}"))
            for number, user in enumerate(crowd, 1)
            for _ in range(MOST_OF_USER + 10)
        ]
        deadline = time.monotonic() + 4 * SOON
        while len(answered := [each for each in waiting if is_answered(each, 0)]) < len(waiting) - MOST:
            assert time.monotonic() < deadline, len(answered)
            time.sleep(0.1)
        assert {status(read_answer(each)) for each in answered} == {"IN_PROGRESS"}
        took = []
        used, since = seconds_of_processor(other.server), time.monotonic()
        while time.monotonic() < since + 3:
            began = time.monotonic()
            assert status(other.ask(0)) == "IN_PROGRESS"
            took.append(time.monotonic() - began)
            time.sleep(0.1)
        # Twenty requests, and six looks for all who wait.
        assert seconds_of_processor(other.server) - used < 1.0
        assert statistics.median(took) < 0.1, took
        assert len([each for each in waiting if is_answered(each, 0)]) == 0
        # Nor does it hold a database transaction: others write.
        for user in crowd:
            user.become("DONE")
        for each in waiting:
            if each not in answered:
                assert status(read_answer(each)) == "DONE"
    for user in crowd:
        user.become("RECEIVED")


def test_who_goes_makes_room(asker):
    with ExitStack() as open_connections:
        for _ in range(MOST_OF_USER):
            open_connections.enter_context(asker.waiting())
        deadline = time.monotonic() + SOON
        while not at_once(asker):
            assert time.monotonic() < deadline
    wait_for_room(asker)


def wait_for_room(asker: Asker) -> None:
    deadline = time.monotonic() + SOON
    while at_once(asker):
        assert time.monotonic() < deadline


def at_once(asker: Asker) -> bool:
    with asker.waiting() as connection:
        return is_answered(connection, 0.4)


def test_for_a_newcomer_the_one_ends_that_waits_longest(users):
    """An address may have 100 connections."""
    first, second, third, *_ = users
    with ExitStack() as open_connections:
        its_users = [user for user in (first, second) for _ in range(MOST_OF_USER)]
        waiting = [open_connections.enter_context(user.waiting()) for user in its_users]
        deadline = time.monotonic() + SOON
        # Some may be answered at once, as long as the server hasn't seen that others have gone.
        while select.select(waiting, [], [], 0.4)[0]:
            assert time.monotonic() < deadline
            for place, each in enumerate(waiting):
                if is_answered(each, 0):
                    each.close()
                    waiting[place] = open_connections.enter_context(its_users[place].waiting())
        assert status(third.ask(0)) == "IN_PROGRESS"
        assert select.select(waiting, [], [], SOON)[0]
        ended = [place for place, each in enumerate(waiting) if is_answered(each, 0)]
        # Several threads park them, so not quite in the order of their connections.
        assert max(ended) < 10
        longest = waiting[ended[0]]
        assert status(read_answer(longest)) == "IN_PROGRESS"
        assert is_closed(longest)


def test_when_the_process_ends_all_are_answered(asker):
    wait_for_room(asker)
    with asker.waiting() as connection:
        assert not is_answered(connection, 0.7)
        _, (pid,) = asker.server.pids()
        os.kill(pid, signal.SIGTERM)
        assert is_answered(connection, SOON)
        assert status(read_answer(connection)) == "IN_PROGRESS"
        assert is_closed(connection)
    asker.server.installation.wait_until(asker.server.answers)
