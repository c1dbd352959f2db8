"""Keeps the database connection of each thread between requests, as long as it leads to the database.

To open one takes longer than to answer the status of a batch. SQLite's connection is to a file, not to a name: where
an operator has put another file in its place, as from a backup, the old connection would go on with the old file.
"""

import os
import sys
from typing import Any

from django.core.signals import got_request_exception, request_started
from django.db import Error as DatabaseError
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

_File = tuple[int, int]
_ATTRIBUTE = "opened_file"


def watch() -> None:
    """Begin, in a process that answers requests."""
    connection_created.connect(_note_file)
    request_started.connect(_close_if_replaced)
    got_request_exception.connect(_close_after_error)


def _note_file(connection: BaseDatabaseWrapper, **_: Any) -> None:
    setattr(connection, _ATTRIBUTE, _file(connection))


def _close_if_replaced(**_: Any) -> None:
    if connection.connection is not None and getattr(connection, _ATTRIBUTE, None) != _file(connection):
        connection.close()


def _close_after_error(**_: Any) -> None:
    # Raised by the view: a full disk, a lock, or a file that is no database. Whatever it left behind is gone with it.
    if isinstance(sys.exception(), DatabaseError) and not connection.in_atomic_block:
        connection.close()


def _file(connection: BaseDatabaseWrapper) -> _File | None:
    """None for a database that is no file, and for a file that is gone."""
    if connection.vendor != "sqlite":
        return None
    try:
        found = os.stat(connection.settings_dict["NAME"])  # noqa: PTH116 (a path object for each request)
    except OSError:
        return None
    return found.st_dev, found.st_ino
