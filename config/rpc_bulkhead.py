"""Limits how many threads of a web process wait for nodes: at most half of them.

A slow node holds a thread, and a web process has few threads. The nodes of one chain leave a place for another chain's.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_places = threading.Condition()
_waiting = Counter[int]()  # by chain
_most = 2


class Busy(Exception):
    """Too many threads are already waiting."""


def share(threads: int) -> None:
    """Set how many threads the process has: at most half of them wait for nodes."""
    global _most
    _most = max(1, threads // 2)


@contextmanager
def waiting_for(chain_id: int, *, patience_seconds: float = 0) -> Iterator[None]:
    """Count the thread as one that waits for nodes of a chain. Raises `Busy` if too many others do for so long."""
    with _places:
        if not _places.wait_for(lambda: _has_place(chain_id), patience_seconds):
            raise Busy
        _waiting[chain_id] += 1
    try:
        yield
    finally:
        with _places:
            _waiting[chain_id] -= 1
            _places.notify_all()


def _has_place(chain_id: int) -> bool:
    return _waiting.total() < _most and _waiting[chain_id] < max(1, _most - 1)
