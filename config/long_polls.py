"""Bound how many threads of a web process hold long polls: a quarter of them.

Half of the threads may wait for nodes (`config.rpc_bulkhead`), so a quarter is left for requests that wait for nobody.
"""

import threading
import time
from collections.abc import Callable

_LOOK_SECONDS = 0.5

_places = threading.Semaphore(1)
_ends = threading.Event()


def share(threads: int) -> None:
    """Set how many threads the process has."""
    global _places
    _places = threading.Semaphore(max(1, threads // 4))


def end() -> None:
    """Answer all that wait, because the process ends."""
    _ends.set()


def wait(seconds: float, is_over: Callable[[], bool]) -> bool:
    """Wait until `is_over`, for `seconds` at most. Return False at once where too many wait already."""
    if not _places.acquire(blocking=False):
        return False
    try:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not _ends.wait(min(left, _LOOK_SECONDS)):
            if is_over():
                break
    finally:
        _places.release()
    return True
