"""Keeps the database connection of each thread between requests, as long as it leads to the database.

To open one takes longer than to answer the status of a batch.
"""

import sys
from typing import Any

from django.core.signals import got_request_exception
from django.db import Error as DatabaseError
from django.db import connection

from config.sqlite.base import FileGone


def watch() -> None:
    """Begin, in a process that answers requests. Call it before the first statement."""
    if connection.vendor == "postgresql":
        # Nobody's search may keep the database from others. Workers and migrations take as long as they need.
        connection.settings_dict["OPTIONS"]["options"] += " -c statement_timeout=10s"
    got_request_exception.connect(_close_after_error)


def _close_after_error(**_: Any) -> None:
    # Raised by the view: a full disk, a lock, or a file that is no database. Whatever it left behind is gone with it.
    # The connection to a file that is gone leads to it again when it is back.
    error = sys.exception()
    is_gone = error is not None and isinstance(error.__cause__, FileGone)
    if isinstance(error, DatabaseError) and not is_gone and not connection.in_atomic_block:
        connection.close()
