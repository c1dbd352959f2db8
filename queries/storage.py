"""Whether the database can store anything, and what clients are told when it can't: a full disk, or a lock.

Nothing is lost then. What could not be stored was neither confirmed nor broadcast, and workers try again.
"""

import logging
import shutil
import sqlite3
import threading
import time
from pathlib import Path

from django.db import Error as DatabaseError
from django.db import InterfaceError, InternalError, OperationalError, connection
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

_FULL = "The disk of this service is full, so nothing can be stored."
_FAILS = "The disk of this service fails or is full, so nothing can be stored."
_LOCKED = "The database of this service is locked for longer than usual."
_READ_ONLY = "The database of this service can't be written to."
_BUSY = "The database of this service can't be reached, or takes no more connections."
_AWAY = "The database of this service is not available."

_OF_SQLITE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _FAILS,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "The database of this service can't be opened.",
}
# By SQLSTATE, or by its class (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_OF_POSTGRESQL = {
    "53100": _FULL,
    "58030": _FAILS,
    "55P03": _LOCKED,
    "57014": _LOCKED,
    "40": _LOCKED,
    "25006": _READ_ONLY,
    "53300": _BUSY,
    "53": _AWAY,
    "57P": _AWAY,
    "08": _AWAY,
}


def why_unavailable(error: BaseException) -> str | None:
    """Why the database can't be used for now, a sentence. None for any other error, such as a defect."""
    # The last is that of a database that may only be read, from PostgreSQL.
    if not isinstance(error, OperationalError | InterfaceError | InternalError):
        return None
    cause = error.__cause__
    # Where SQLite is used, psycopg isn't imported.
    if type(cause).__name__ == "PoolTimeout":
        return _BUSY
    if sqlstate := getattr(cause, "sqlstate", None):
        return next((_OF_POSTGRESQL[sqlstate[:n]] for n in (5, 3, 2) if sqlstate[:n] in _OF_POSTGRESQL), None)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        # Of PostgreSQL: no connection could be made, or it was lost.
        return None if isinstance(error, InternalError) else _AWAY
    # The lowest byte is the kind (https://www.sqlite.org/rescode.html). A missing table is an OperationalError too.
    return _OF_SQLITE.get(code & 0xFF)


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
        return why_unavailable(error) or _READ_ONLY
    if connection.vendor == "sqlite":
        free = shutil.disk_usage(Path(connection.settings_dict["NAME"]).parent).free
        if free < _LEAST_FREE_BYTES:
            return f"The disk of this service is nearly full: {free / 1e6:.1f} MB are left."
    return None
