"""Two concurrent database transactions, one of which the test holds open."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import psycopg
from django.db import connections, transaction

from tests.databases import same_database

_First = TypeVar("_First")
_Second = TypeVar("_Second")

_SECONDS = 20
# Concurrent tests use other databases on this server, and must not count.
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@dataclass(frozen=True)
class Met(Generic[_First, _Second]):
    """The results of two concurrent functions."""

    first: _First
    second: _Second
    waited: bool
    """True if the second function waited for the end of the first function's transaction."""


def meet(
    first: Callable[[], _First], second: Callable[[], _Second], meanwhile: Callable[[], None] = lambda: None
) -> Met[_First, _Second]:
    """Run `first` in a transaction that stays open until `second`, in another connection, waits for it or has ended.

    `meanwhile` runs before the transaction ends. An error of any of the functions is raised.
    """
    with ThreadPoolExecutor(1) as pool, psycopg.connect(same_database()["DATABASE_URL"], autocommit=True) as watching:
        with transaction.atomic():
            of_first = first()
            running = pool.submit(_in_own_connection, second)
            waited = _waits(running, watching)
            meanwhile()
        return Met(of_first, running.result(_SECONDS), waited)


def _in_own_connection(second: Callable[[], _Second]) -> _Second:
    try:
        return second()
    finally:
        connections.close_all()


def _waits(running: "Future[_Second]", watching: "psycopg.Connection[tuple[int]]") -> bool:
    deadline = time.monotonic() + _SECONDS
    while not running.done():
        row = watching.execute(_WAITING).fetchone()
        if row and row[0]:
            return True
        assert time.monotonic() < deadline, "it neither waits nor ends"
        time.sleep(0.01)
    return False
