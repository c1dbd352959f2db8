"""`GET /batch-query-status?wait=…`: a limited number of waiting clients hold a thread each."""

import json
import select
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.serving.askers import Asker, askers
from tests.serving.batches import database
from tests.serving.process import ANSWER_SECONDS, Answer, read_answer, serving

THREADS = 8
# Seconds. The service checks every half second, and a busy machine needs more time.
SOON = 15


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


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_a_long_poll_is_answered_as_soon_as_the_status_changes(asker):
    with asker.waiting() as connection:
        assert not is_answered(connection, 0.7)
        # Clients of the API see ACCEPTED as IN_PROGRESS, so nothing has changed for them.
        asker.become("ACCEPTED")
        assert not is_answered(connection, 1.2)
        asker.become("DONE")
        assert is_answered(connection, SOON)
        assert status(read_answer(connection)) == "DONE"
        # The connection can be used again.
        connection.sendall(asker.request(0))
        assert status(read_answer(connection)) == "DONE"


@pytest.mark.long
def test_after_its_time_it_is_answered_as_before(asker):
    began = time.monotonic()
    answer = asker.ask(2)
    assert 1.4 < time.monotonic() - began < SOON
    assert (status(answer), answer.headers["Retry-After"]) == ("IN_PROGRESS", "2")
    began = time.monotonic()
    assert asker.ask(2, f"If-None-Match: {answer.headers['ETag']}").status == 304
    assert 1.4 < time.monotonic() - began < SOON


@pytest.mark.long
def test_news_is_told_at_once(asker):
    assert status(asker.ask(25, 'If-None-Match: W/"another"')) == "IN_PROGRESS"
    asker.become("DONE")
    answer = asker.ask(25)
    assert status(answer) == "DONE"
    # A client that knows DONE gets the change by a reorg.
    with asker.waiting(f"If-None-Match: {answer.headers['ETag']}") as connection:
        assert not is_answered(connection, 1.2)
        asker.become("IN_PROGRESS")
        assert status(read_answer(connection)) == "IN_PROGRESS"


@pytest.mark.long
def test_a_key_that_is_revoked_meanwhile_is_told_nothing(asker):
    with asker.waiting() as connection:
        assert not is_answered(connection, 0.7)
        with closing(sqlite3.connect(database(asker.server), isolation_level=None, timeout=20)) as other:
            ends = asker.key[-4:]
            other.execute("UPDATE accounts_apikey SET revoked_at = '2026-01-01' WHERE last_four = ?", (ends,))
            asker.become("DONE")
            assert read_answer(connection).status == 401
            other.execute("UPDATE accounts_apikey SET revoked_at = NULL WHERE last_four = ?", (ends,))


@pytest.mark.long
def test_beyond_the_bound_the_answer_comes_at_once_and_says_when_to_ask_again(asker):
    with all_places_taken(asker):
        began = time.monotonic()
        answer = asker.ask(25)
        assert time.monotonic() - began < 15
        assert (status(answer), answer.headers["Retry-After"]) == ("IN_PROGRESS", "2")


@contextmanager
def all_places_taken(asker: Asker) -> Iterator[None]:
    """Let two clients wait, each holding a thread."""
    with ExitStack() as opened:
        deadline = time.monotonic() + ANSWER_SECONDS
        held: list[socket.socket] = []
        while len(held) < 2:
            connection = opened.enter_context(asker.waiting())
            held += [] if is_answered(connection, 1) else [connection]
            assert time.monotonic() < deadline
        yield
        asker.become("DONE")
        # Open connections would delay the server's end.
        for connection in held:
            read_answer(connection)
