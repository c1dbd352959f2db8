"""Errors of the database that pass, each said in a sentence."""

import logging
import sqlite3

from django.db import InterfaceError, InternalError, OperationalError

FULL = "The disk of this service is full, so nothing can be stored."
FAILS = "The disk of this service fails or is full, so nothing can be stored."
LOCKED = "The database of this service is locked for longer than usual."
READ_ONLY = "The database of this service can't be written to."
BUSY = "The database of this service can't be reached, or takes no more connections."
SHORT = "The database of this service lacks memory or another resource."
AWAY = "The database of this service is not available."

_OF_SQLITE = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_IOERR: FAILS,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "The database of this service can't be opened.",
}
# By SQLSTATE, or by its class (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_OF_POSTGRESQL = {
    "53100": FULL,
    "58030": FAILS,
    "55P03": LOCKED,
    "57014": LOCKED,
    "40": LOCKED,
    "25006": READ_ONLY,
    "25P03": AWAY,
    "53300": BUSY,
    "53": SHORT,
    "57P": AWAY,
    "08": AWAY,
}


def why_unavailable(error: BaseException) -> str | None:
    """Return why the database can't be used for now, a sentence. None for any other error, such as a defect."""
    # The last is that of a database that may only be read, from PostgreSQL.
    if not isinstance(error, OperationalError | InterfaceError | InternalError):
        return None
    cause = error.__cause__
    # Where SQLite is used, psycopg isn't imported.
    if type(cause).__name__ == "PoolTimeout":
        return BUSY
    if sqlstate := getattr(cause, "sqlstate", None):
        return next((_OF_POSTGRESQL[sqlstate[:n]] for n in (5, 3, 2) if sqlstate[:n] in _OF_POSTGRESQL), None)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        # Of PostgreSQL: no connection could be made, or it was lost.
        return None if isinstance(error, InternalError) else AWAY
    # The lowest byte is the kind (https://www.sqlite.org/rescode.html). A missing table is an OperationalError too.
    return _OF_SQLITE.get(code & 0xFF)


class TracebackOnce(logging.Filter):
    """Say in a record's line why the database can't be used, and give the traceback once: a full disk fails all."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        why = why_unavailable(record.exc_info[1]) if record.exc_info and record.exc_info[1] else None
        if why in self._told:
            record.msg, record.args = f"{record.getMessage()}: {why}", None
            record.exc_info = record.exc_text = None
        elif why:
            self._told.add(why)
        return True
