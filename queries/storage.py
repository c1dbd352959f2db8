"""A check for probes: does the database accept writes? While it doesn't, requests get 503 (`queries.api_endpoint`).

Nothing is lost then: nothing is confirmed or broadcast before it is stored, and workers try again.
"""

import logging
import shutil
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.db import Error as DatabaseError
from django.db import connection
from django.db.models.functions import Now

from config.error_answers import READ_ONLY, why_unavailable
from queries.models import StorageCheck


def sqlite_file() -> Path:
    """Return the path of the database's file. For SQLite only."""
    return Path(unquote(urlsplit(str(connection.settings_dict["NAME"])).path))


logger = logging.getLogger(__name__)

# When clients should try again.
RETRY_SECONDS = 10
# Anybody may ask for a check, and each syncs the disk: so a process checks no more often.
_CHECK_SECONDS = 10
# The largest batches take so much, in SQLite's log and then in its file. Small writes may succeed with less.
_LEAST_FREE_BYTES = 16_000_000
_last_check: tuple[float, str] = (float("-inf"), "")  # its time by `time.monotonic`, and the problem that it found


def problem() -> str:
    """Return why nothing can be stored, a sentence. Empty: a write has succeeded, and there is room for large ones."""
    global _last_check
    now = time.monotonic()
    if now - _last_check[0] >= _CHECK_SECONDS:
        # A check may wait for a lock. Others get the last result meanwhile.
        _last_check = (now, _last_check[1])
        _last_check = (now, _check())
    return _last_check[1]


def _check() -> str:
    try:
        row = StorageCheck(pk=1, at=Now())
        StorageCheck.objects.bulk_create([row], update_conflicts=True, unique_fields=["pk"], update_fields=["at"])
    except DatabaseError as error:
        logger.exception("a small write failed")
        return why_unavailable(error) or READ_ONLY
    if connection.vendor == "sqlite":
        free = shutil.disk_usage(sqlite_file().parent).free
        if free < _LEAST_FREE_BYTES:
            return f"The disk of this service is nearly full: {free / 1e6:.1f} MB are left."
    return ""
