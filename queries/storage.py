"""Whether the database takes what is to be stored, and what is said where it doesn't: a full disk, or a lock.

Nothing is lost then. What could not be stored was not answered for and not broadcast, and workers try again.
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

# When to try again, for clients; an operator is slower, and their watcher is to see it go.
RETRY_SECONDS = 10
# A check syncs the disk, and anybody may ask for one: this many seconds lie between two of a process, by a clock that
# can't be set back. It may wait for the lock; whoever asks meanwhile gets what was found before.
_CHECK_SECONDS = 10
# How long those wait who ask while the first check is made, before which nothing is known.
_FIRST_CHECK_SECONDS = 10
# What the largest batches take, in SQLite's log and then in its file. Small writes may find room where they don't.
_LEAST_FREE_BYTES = 16_000_000
_checking = threading.Lock()
_last_check: tuple[float, str | None] | None = None  # when it ended, as `time.monotonic` says, and what it found

_SENTENCES = {
    sqlite3.SQLITE_FULL: "The disk of this service is full, so nothing can be stored.",
    sqlite3.SQLITE_IOERR: "The disk of this service fails or is full, so nothing can be stored.",
    sqlite3.SQLITE_BUSY: "The database of this service is locked for longer than usual.",
    sqlite3.SQLITE_LOCKED: "The database of this service is locked for longer than usual.",
    sqlite3.SQLITE_READONLY: "The database of this service can't be written to.",
    sqlite3.SQLITE_CANTOPEN: "The database of this service can't be opened.",
}


def why_unavailable(error: BaseException) -> str | None:
    """Why the database can't be used for now, a sentence; None where the error is another one, or a defect."""
    if not isinstance(error, OperationalError):
        return None
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    if code is None:
        return "The database of this service is not available."
    # The lowest byte is the kind (https://www.sqlite.org/rescode.html). A missing table is an OperationalError too.
    return _SENTENCES.get(code & 0xFF)


def problem() -> str | None:
    """What is wrong with storing, a sentence; None when a small write has just succeeded, with room for large ones."""
    global _last_check
    known = _last_check
    if known and time.monotonic() - known[0] < _CHECK_SECONDS:
        return known[1]
    if _checking.acquire(timeout=0 if known else _FIRST_CHECK_SECONDS):
        try:
            if _last_check is known:  # Else another thread has checked since.
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
