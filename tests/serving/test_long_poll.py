"""`GET /batch-query-status?wait=…`: a bounded number of clients that wait for news hold a thread each."""

import heapq
import json
import os
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import requests

from devnet.devchain import PROJECT
from tests.docs.examples import blocks_of
from tests.serving.askers import Asker, askers
from tests.serving.batches import BODY, database
from tests.serving.process import ANSWER_SECONDS, Answer, WebServer, connect, is_closed, read_answer, serving

THREADS = 8
# It looks every half second; the rest is for a busy machine.
SOON = 5


@pytest.fixture(scope="module")
def users(tmp_path_factory) -> Iterator[list[Asker]]:
    limits = {"MAX_BATCHES_PER_MINUTE": "1000", "MAX_OPEN_BATCHES": "1000"}
    with serving(tmp_path_factory.mktemp("long_poll"), threads=THREADS, **limits) as server:
        yield askers(server)


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


class Pollers:
    """Clients that each wait for news again and again, and keep to `Retry-After` in between. A thread does it all."""

    def __init__(self, users: list[Asker], count: int) -> None:
        self.early = 0
        """Answers without news that came at once."""
        self._users, self._count = users, count
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        due = [(0.0, number) for number in range(self._count)]
        asked: dict[socket.socket, tuple[float, int]] = {}
        try:
            while not self._over.is_set():
                now = time.monotonic()
                while due and due[0][0] <= now:
                    _, number = heapq.heappop(due)
                    user = self._users[number % len(self._users)]
                    connection = connect(user.server.port, f"127.0.1.{1 + number % 200}")
                    connection.sendall(user.request(25, "Connection: close"))
                    asked[connection] = (now, number)
                for connection in select.select([*asked], [], [], 0.05)[0]:
                    since, number = asked.pop(connection)
                    answer = read_answer(connection)
                    connection.close()
                    assert status(answer) == "IN_PROGRESS"
                    self.early += time.monotonic() - since < 20
                    heapq.heappush(due, (time.monotonic() + int(answer.headers["Retry-After"]), number))
        finally:
            for connection in asked:
                connection.close()


def test_six_hundred_that_wait_hold_up_nobody(users):
    """Two of eight threads hold those that wait, and the others are told at once when to ask again."""
    *crowd, other = users
    pollers = Pollers(crowd, 600)
    took = []
    with pollers:
        time.sleep(2)
        until = time.monotonic() + 6
        while time.monotonic() < until:
            began = time.monotonic()
            submitted = requests.post(
                f"{other.server.url}/submit-batch-query", json=BODY, headers={"api-key": other.key}, timeout=20
            )
            took.append(time.monotonic() - began)
            assert submitted.status_code == 200
            time.sleep(0.2)
    assert pollers.early > 1000
    # One or the other may be late, on a machine that others use.
    assert sorted(took)[-3] < 0.5, took


def test_beyond_the_bound_the_answer_comes_at_once_and_says_when_to_ask_again(asker):
    with all_places_taken(asker):
        began = time.monotonic()
        answer = asker.ask(25)
        assert time.monotonic() - began < 1
        assert (status(answer), answer.headers["Retry-After"]) == ("IN_PROGRESS", "2")
    # Those who go make room.
    wait_for_room(asker)


@contextmanager
def all_places_taken(asker: Asker) -> Iterator[None]:
    """A quarter of the threads wait. Those of an earlier test may have to be seen to have gone."""
    with ExitStack() as opened:
        deadline = time.monotonic() + ANSWER_SECONDS
        held = 0
        while held < THREADS // 4:
            held += not is_answered(opened.enter_context(asker.waiting()), 1)
            assert time.monotonic() < deadline
        yield


def wait_for_room(asker: Asker) -> None:
    deadline = time.monotonic() + SOON
    while at_once(asker):
        assert time.monotonic() < deadline


def at_once(asker: Asker) -> bool:
    with asker.waiting() as connection:
        return is_answered(connection, 0.4)


def waits_in_python(_: Path) -> list[str]:
    script = """
import os
from batch_query_client import BatchQueryService
service = BatchQueryService(os.environ["BASE_URL"], api_key=os.environ["API_KEY"])
service.batch(os.environ["QUERY_ID"]).wait()
"""
    return [sys.executable, "-c", script]


def waits_in_a_shell(_: Path) -> list[str]:
    """Return the command that waits as docs/using/api.md says."""
    (block,) = (each for each in blocks_of("docs/using/api.md") if "WAITING_URL=" in each.code)
    return ["bash", "-c", "WAITING_URL=" + block.code.partition("WAITING_URL=")[2]]


def waits_in_typescript(folder: Path) -> list[str]:
    """Return a command that waits as docs/using/typescript.md says, without the chain."""
    code = next(each.code for each in blocks_of("docs/using/typescript.md") if "&wait=25" in each.code)
    code = re.sub(r"(?m)^(import|const chain) .*", "", code).replace("await chain.getBlockNumber()", "1")
    assert "chain.getBlock" not in code
    (folder / "waits.mts").write_text(code)
    return [str(PROJECT / ".venv/bin/node"), str(folder / "waits.mts")]


@pytest.mark.parametrize("loop", [waits_in_python, waits_in_a_shell, waits_in_typescript])
def test_who_finds_no_place_asks_again_when_told(asker, tmp_path, loop):
    with all_places_taken(asker):
        before = len(questions(asker.server))
        names = {"BASE_URL": asker.server.url, "API_KEY": asker.key, "QUERY_ID": asker.batch, "CHAIN_ID": "31337"}
        process = subprocess.Popen(loop(tmp_path), env=os.environ | names, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while len(asked := questions(asker.server)[before:]) < 3:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.2)
        finally:
            process.kill()
            process.wait()
    # Retry-After is 2. Some count it from when they asked.
    assert all(late - early > timedelta(seconds=1.2) for early, late in pairwise(asked)), asked


def questions(server: WebServer) -> list[datetime]:
    """Return when each question for a status was answered."""
    lines = server.installation.log("web").read_text().splitlines()
    return [datetime.fromisoformat(line[:23]) for line in lines if '"GET /batch-query-status"' in line]


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
