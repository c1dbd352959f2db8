"""gunicorn's worker makes pauses between the requests of a client that is ahead of its share."""

import selectors
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.workers.gthread import TConn

from config import gunicorn

KEPT_ALIVE: Future[bool] = Future()
KEPT_ALIVE.set_result(True)


@pytest.fixture
def worker() -> Iterator[Any]:
    worker: Any = gunicorn.worker_class(0, 0, [], None, 30, Config(), None)
    worker.poller = selectors.DefaultSelector()
    yield worker
    worker.poller.close()
    worker.tmp.close()


@pytest.fixture
def answered(worker) -> Iterator[Callable[..., TConn]]:
    """Return a function that makes a connection whose request gunicorn has just answered, with pauses or without."""
    with ExitStack() as opened:

        def answered(*, pauses: bool) -> TConn:
            for end in (sockets := socket.socketpair()):
                opened.enter_context(end)
            connection = TConn(worker.cfg, sockets[0], None, None)
            connection.init()
            environ = {"gunicorn.socket": connection.sock, "batch_query_service.pauses": pauses}
            gunicorn.post_request(worker, None, environ, None)
            worker.finish_request(connection, KEPT_ALIVE)
            return connection

        yield answered


def test_the_next_request_of_a_client_that_is_ahead_has_to_wait_and_no_other(worker, answered, pass_time):
    paused, free = answered(pauses=True), answered(pauses=False)
    worker.murder_pending()
    assert [*worker.keepalived_conns] == [free]
    pass_time(gunicorn._PAUSE_SECONDS)
    worker.murder_pending()
    assert [*worker.keepalived_conns] == [free, paused]
    # The client sends another request, and isn't ahead any more.
    worker.keepalived_conns.remove(paused)
    worker.poller.unregister(paused.sock)
    worker.finish_request(paused, KEPT_ALIVE)
    assert [*worker.keepalived_conns] == [free, paused]


def test_a_server_that_stops_makes_no_pauses(worker, answered):
    before = answered(pauses=True)
    worker.alive = False
    worker.murder_pending()
    after = answered(pauses=True)
    assert [*worker.keepalived_conns] == [before, after]


def test_so_many_clients_wait_that_others_find_room(worker, answered, monkeypatch):
    assert worker.cfg.worker_connections > 2 * gunicorn._MAX_PAUSED
    monkeypatch.setattr(gunicorn, "_MAX_PAUSED", 2)
    *_, third = [answered(pauses=True) for _ in range(3)]
    assert [*worker.keepalived_conns] == [third]
