"""Whether the database can store anything, and what clients are told when it can't: a full disk, or a lock.

Nothing is lost then. What could not be stored was neither confirmed nor broadcast, and workers try again.
"""

import logging
import shutil
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from django.core.signals import request_finished
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models.functions import Now
from prometheus_client import Counter

from config.database_errors import FAILS, FULL, LOCKED, READ_ONLY, SHORT, failed, why_unavailable
from queries.models import StorageCheck

logger = logging.getLogger(__name__)

# When clients should try again.
RETRY_SECONDS = 10
# A check syncs the disk, and anybody may ask for one. So a process waits this long between two checks, by a clock that
# can't be set back. A check may wait for the lock; a caller meanwhile gets the last result.
_CHECK_SECONDS = 10
# How long a request waits for the first check, before which there is no result.
_FIRST_CHECK_SECONDS = 10
# The largest batches take so much, in SQLite's log and then in its file. Small writes may succeed with less.
_LEAST_FREE_BYTES = 16_000_000
_checking = threading.Lock()
_last_check: tuple[float, str | None] | None = None  # when it ended, by `time.monotonic`, and what it found

# What small writes may still be spared, and large ones are refused for: it is told although the last check went well.
# By the row that keeps when it was refused last, for all processes.
_REFUSALS = {2: FULL, 3: FAILS, 4: READ_ONLY, 5: SHORT}
_REFUSED_COUNTS = timedelta(seconds=30)
_CHECKED = 1
REFUSALS = Counter("batchquery_database_refusals_total", "Statements that the database has refused.", ("reason",))
_REASONS = {FULL: "full", FAILS: "fails", READ_ONLY: "read_only", SHORT: "short", LOCKED: "locked"}
# What was refused since it was last told.
_refused: set[int] = set()


def _note(*, error: BaseException, **_: object) -> None:
    why = why_unavailable(error)
    if why:
        REFUSALS.labels(_REASONS.get(why, "away")).inc()
    _refused.update(kind for kind, sentence in _REFUSALS.items() if sentence == why)


failed.connect(_note)


def tell_refusals(**_: object) -> None:
    """Store what was refused to this process, for all of them. Does nothing where nothing was."""
    kinds = sorted(_refused)
    if not kinds:
        return
    try:
        _write_checks(kinds)
    except DatabaseError:
        # Then a check tells it, and this the next time.
        return
    _refused.difference_update(kinds)


# Each has ended its transaction by then.
request_finished.connect(tell_refusals)


def problem() -> str | None:
    """Return why not all can be stored, a sentence. None if a write has succeeded, and none was refused lately."""
    if found := check():
        return found
    tell_refusals()
    told = StorageCheck.objects.filter(pk__in=_REFUSALS, at__range=(Now() - _REFUSED_COUNTS, Now() + _REFUSED_COUNTS))
    refused = told.order_by("-at").values_list("pk", flat=True).first()
    return _REFUSALS[refused] if refused else None


def check() -> str | None:
    """Return why nothing can be stored, a sentence.

    None if a small write has succeeded and there is room for large ones.
    """
    global _last_check
    known = _last_check
    if known and time.monotonic() - known[0] < _CHECK_SECONDS:
        return known[1]
    if _checking.acquire(timeout=0 if known else _FIRST_CHECK_SECONDS):
        try:
            if _last_check is known:  # Otherwise another thread has just checked.
                found = _try_to_write()
                _last_check = (time.monotonic(), found)
        finally:
            _checking.release()
    return _last_check[1] if _last_check else "The database of this service takes longer to answer than usual."


def _write_checks(keys: Iterable[int]) -> None:
    rows = [StorageCheck(pk=key, at=Now()) for key in keys]
    StorageCheck.objects.bulk_create(rows, update_conflicts=True, unique_fields=["pk"], update_fields=["at"])


def _try_to_write() -> str | None:
    try:
        _write_checks([_CHECKED])
    except DatabaseError as error:
        logger.exception("a small write failed")
        # That one is told by this check.
        _refused.clear()
        return why_unavailable(error) or READ_ONLY
    if connection.vendor == "sqlite":
        free = shutil.disk_usage(Path(connection.settings_dict["NAME"]).parent).free
        if free < _LEAST_FREE_BYTES:
            return f"The disk of this service is nearly full: {free / 1e6:.1f} MB are left."
    return None
