"""Wakes the requests that wait for another status of a batch.

One thread of the process looks for all of them, every half second and by one statement for some hundred batches. It
ends when nobody waits.
"""

import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from django.db import Error as DatabaseError
from django.db import connection

from accounts import statements
from config.parked_requests import Parked, Parking
from queries.chunks import chunks
from queries.status import query_status

logger = logging.getLogger(__name__)

MOST_SECONDS = 25
"""How long a request may wait: proxies and clients give up after half a minute, or later."""

_LOOK_SECONDS = 0.5
# Of one process. Each holds a connection, and all users share those.
_MOST_OF_USER = 50
_BATCHES_PER_STATEMENT = 500


@dataclass(frozen=True, eq=False)
class _Waiting:
    parked: Parked
    user_id: int
    batch_id: str
    query_status: str
    ends: float  # of `time.monotonic`


_lock = threading.Lock()
_waiting: list[_Waiting] = []
_thread: threading.Thread | None = None


def wait(parking: Parking, user_id: int, batch_id: str, is_now: str, seconds: float) -> bool:
    """Park the request until the batch's `queryStatus`, which `is_now` this, is another, or the time is over.

    False: there is no place to wait. The user of the client has a part of them.
    """
    global _thread
    with _lock:
        if sum(each.user_id == user_id for each in _waiting) >= _MOST_OF_USER:
            return False
        parked = parking.park()
        if parked is None:
            return False
        _waiting.append(_Waiting(parked, user_id, batch_id, is_now, time.monotonic() + seconds))
        if _thread is None:
            _thread = threading.Thread(target=_look_while_somebody_waits, name="status-watch", daemon=True)
            _thread.start()
    return True


def _look_while_somebody_waits() -> None:
    global _thread
    try:
        while True:
            time.sleep(_LOOK_SECONDS)
            with _lock:
                looked_for = list(_waiting)
                if not looked_for:
                    _thread = None
                    return
            over = _over(looked_for)
            with _lock:
                _waiting[:] = [each for each in _waiting if each not in over]
            for each in over:
                each.parked.wake()
    except Exception:
        logger.exception(
            "Nobody looks any more for the statuses that clients wait for; the next who waits has it done."
        )
        # Whoever was left to wait would have nobody to wake it.
        with _lock:
            left, _waiting[:], _thread = list(_waiting), [], None
        for each in left:
            each.parked.wake()
    finally:
        connection.close()


def _over(waiting: Collection[_Waiting]) -> set[_Waiting]:
    """Those that wait no longer."""
    try:
        statuses = _statuses({each.batch_id for each in waiting})
    except DatabaseError as error:
        # Whoever waits is told what anybody is told now.
        logger.warning("The statuses that clients wait for can't be read: %s", error)
        connection.close()
        return set(waiting)
    soon = time.monotonic() + _LOOK_SECONDS
    return {
        each
        for each in waiting
        if statuses.get(each.batch_id) != each.query_status or each.ends <= soon or each.parked.is_gone
    }


def _statuses(batches: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for chunk in chunks(sorted(batches), _BATCHES_PER_STATEMENT):
        places = ", ".join(["%s"] * len(chunk))
        rows = statements.every(f"SELECT id, status FROM queries_batch WHERE id IN ({places})", chunk)  # noqa: S608
        found |= {batch_id: query_status(status) for batch_id, status in rows}
    return found
