"""Errors of the database that pass, each said in a sentence."""

import sqlite3

from django.db import InterfaceError, InternalError, OperationalError

FULL = "The disk of this service is full or fails, so nothing can be stored."
LOCKED = "The database of this service is locked for longer than usual."
READ_ONLY = "The database of this service can't be written to."
AWAY = "The database of this service can't be reached, or takes no more connections."

# By the kind of SQLite's code (https://www.sqlite.org/rescode.html), or by SQLSTATE
# (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_SENTENCES: dict[int | str, str] = {
    **dict.fromkeys((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, "53100", "58030"), FULL),
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, "55P03", "57014", "40001", "40P01"), LOCKED),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, "25006"), READ_ONLY),
    **dict.fromkeys((sqlite3.SQLITE_CANTOPEN, "25P03"), AWAY),
}


def why_unavailable(error: BaseException) -> str | None:
    """Return why the database can't be used for now, a sentence. None for any other error, such as a defect."""
    # PostgreSQL raises the last where it may only be read.
    if not isinstance(error, OperationalError | InterfaceError | InternalError):
        return None
    cause = error.__cause__
    if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
        # The lowest byte is the kind. A missing table is an OperationalError too.
        return _SENTENCES.get(code & 0xFF)
    # Without a connection there is no SQLSTATE.
    return _SENTENCES.get(getattr(cause, "sqlstate", None) or "", None if isinstance(error, InternalError) else AWAY)
