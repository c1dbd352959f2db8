"""A check for probes whether the database takes writes. While it doesn't, requests get 503 (`queries.api_endpoint`).

The check writes to all tables that a submission writes to, and rolls that back. PostgreSQL may have room for a changed
row, but not for a new one. One of the tables may be locked, or the role may have only read access.

Nothing is lost while writes fail. Nothing is confirmed or broadcast before it is stored, and workers try again.
"""

import json
import logging
import secrets
import shutil
import time

from django.db import Error as DatabaseError
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from accounts.models import ThrottleCount
from config.database import statements
from config.database.sqlite import sqlite_file
from config.error_answers import READ_ONLY, why_unavailable
from queries.models import Batch, Block, Query, Step, StepKind, StorageCheck, new_batch_id

logger = logging.getLogger(__name__)

# Seconds until clients should try again.
RETRY_SECONDS = 10
# Minimum seconds between two checks of a process. Anybody may request a check, and each syncs the disk.
_CHECK_SECONDS = 10
# The space that the largest batches need in SQLite's log and then in its file. Small writes may succeed with less.
_LEAST_FREE_BYTES = 16_000_000
# A check inserts this number of rows of 2 kB, which PostgreSQL doesn't compress. They exceed a page of 8 KiB.
_CHECKED_QUERIES = 5
_SLOTS = json.dumps([f"0x{0:064x}"] * 26)
# Probes wait for at most 10 s (docs/operating/watching.md).
_LOCK_TIMEOUT = "5s"
_last_check: tuple[float, str] = (float("-inf"), "")  # its `time.monotonic` and the problem


def problem() -> str:
    """Return a sentence that says why nothing can be stored. Empty: a write succeeded, and large writes have room."""
    global _last_check
    now = time.monotonic()
    if now - _last_check[0] >= _CHECK_SECONDS:
        # This check may wait for a lock. Other callers get the last result meanwhile.
        _last_check = (now, _last_check[1])
        _last_check = (now, _check())
    return _last_check[1]


def _check() -> str:
    try:
        _write()
    except DatabaseError as error:
        logger.exception("a write like a submission's failed")
        return why_unavailable(error) or READ_ONLY
    if connection.vendor == "sqlite":
        free = shutil.disk_usage(sqlite_file().parent).free
        if free < _LEAST_FREE_BYTES:
            return f"The disk of this service is nearly full: {free / 1e6:.1f} MB are left."
    return ""


def _write() -> None:
    """Insert a batch as a submission does, roll that back, and commit another row. Raises `DatabaseError`."""
    now = timezone.now()
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        # The rows are never committed, so nobody sees them and no foreign key is checked.
        ThrottleCount.objects.create(what_and_who=secrets.token_hex(), began_at=now)
        batch = Batch(pk=new_batch_id(), user_id=0, api_key_id=0, destination_chain_id=0, fee=0, deadline_at=now)
        batch.request = _SLOTS
        statements.insert(batch, (), [()])
        # The number is random. If two checks inserted the same block, one would wait for the other.
        block = Block(destination_chain_id=0, source_chain_id=0, number=secrets.randbits(63))
        statements.insert(block, (), [()])
        query = Query(batch=batch, source_chain_id=0)
        statements.insert(query, ("position", "slots"), [(position, _SLOTS) for position in range(_CHECKED_QUERIES)])
        step = Step(kind=StepKind.INITIAL_STATE, started_at=now)
        statements.insert_for_each(step, "query_id", "FROM queries_query WHERE batch_id = %s", (batch.pk,))
        transaction.set_rollback(True)
    row = StorageCheck(pk=1, at=Now())
    StorageCheck.objects.bulk_create([row], update_conflicts=True, unique_fields=["pk"], update_fields=["at"])
