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
    # Who waits for a lock or a connection for 5 s in vain is told to try again. And nobody's search may keep the
    # database from others: workers and migrations take as long as they need.
    options = connection.settings_dict["OPTIONS"]
    if connection.vendor == "postgresql":
        options["options"] += " -c lock_timeout=5s -c statement_timeout=10s"
        options["pool"]["timeout"] = 5
    else:
        options["timeout"] = 5
    got_request_exception.connect(_close_after_error)


def _close_after_error(**_: Any) -> None:
    # Raised by the view: a full disk, a lock, or a file that is no database. Whatever it left behind is gone with it.
    # The connection to a file that is gone leads to it again when it is back.
    error = sys.exception()
    is_gone = error is not None and isinstance(error.__cause__, FileGone)
    if isinstance(error, DatabaseError) and not is_gone and not connection.in_atomic_block:
        connection.close()
