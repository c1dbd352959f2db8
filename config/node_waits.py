"""Threads of this process that wait for a node while somebody waits for a page: half of them at the most.

A node that is slow holds a thread, of which a web process has few; those of one chain leave a place to another's.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting = Counter[int]()  # by chain
_most = 2


class Busy(Exception):
    """As many wait as may."""


def share(threads: int) -> None:
    """Of so many threads, which the process has."""
    global _most
    _most = max(1, threads // 2)


@contextmanager
def waiting_for(chain_id: int) -> Iterator[None]:
    """Wait for nodes of a chain in this block. Raises `Busy` at once where too many do."""
    with _lock:
        if _waiting.total() >= _most or _waiting[chain_id] >= max(1, _most - 1):
            raise Busy
        _waiting[chain_id] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[chain_id] -= 1
