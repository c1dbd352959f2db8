"""Whether the database can store anything, and what clients are told when it can't: a full disk, or a lock.

Nothing is lost then. What could not be stored was neither confirmed nor broadcast, and workers try again.
"""

import logging
import shutil
import sqlite3
import threading
import time
from pathlib import Path

from django.db import DatabaseError, OperationalError, connection
from django.utils import timezone

from queries.models import StorageCheck

logger = logging.getLogger(__name__)

# When clients should try again.
RETRY_SECONDS = 10
# A check syncs the disk, and anybody may ask for one. So a process waits this long between two checks, by a clock that
# can't be set back. A check may wait for the lock; whoever asks meanwhile gets the last result.
_CHECK_SECONDS = 10
# How long a request waits for the first check, before which there is no result.
_FIRST_CHECK_SECONDS = 10
# The largest batches take so much, in SQLite's log and then in its file. Small writes may succeed with less.
_LEAST_FREE_BYTES = 16_000_000
_checking = threading.Lock()
_last_check: tuple[float, str | None] | None = None  # when it ended, by `time.monotonic`, and what it found

_SENTENCES = {
    sqlite3.SQLITE_FULL: "The disk of this service is full, so nothing can be stored.",
    sqlite3.SQLITE_IOERR: "The disk of this service fails or is full, so nothing can be stored.",
    sqlite3.SQLITE_BUSY: "The database of this service is locked for longer than usual.",
    sqlite3.SQLITE_LOCKED: "The database of this service is locked for longer than usual.",
    sqlite3.SQLITE_READONLY: "The database of this service can't be written to.",
    sqlite3.SQLITE_CANTOPEN: "The database of this service can't be opened.",
}


def why_unavailable(error: BaseException) -> str | None:
    """Why the database can't be used for now, a sentence. None for any other error, such as a defect."""
    if not isinstance(error, OperationalError):
        return None
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    if code is None:
        return "The database of this service is not available."
    # The lowest byte is the kind (https://www.sqlite.org/rescode.html). A missing table is an OperationalError too.
    return _SENTENCES.get(code & 0xFF)


def problem() -> str | None:
    """Why nothing can be stored, a sentence. None if a small write has succeeded and there is room for large ones."""
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


def _try_to_write() -> str | None:
    try:
        row = StorageCheck(pk=1, at=timezone.now())
        StorageCheck.objects.bulk_create([row], update_conflicts=True, unique_fields=["pk"], update_fields=["at"])
    except DatabaseError as error:
        logger.exception("a small write failed")
        return why_unavailable(error) or "The database of this service can't be written to."
    if connection.vendor == "sqlite":
        free = shutil.disk_usage(Path(connection.settings_dict["NAME"]).parent).free
        if free < _LEAST_FREE_BYTES:
            return f"The disk of this service is nearly full: {free / 1e6:.1f} MB are left."
    return None
