"""A check for probes: does the database store submissions? While it doesn't, requests get 503 (`queries.api_endpoint`).

It writes to the tables that a submission writes to, and takes that back. PostgreSQL may have room for a row that is
replaced, and none for a new one. One of these tables may be locked, or the role may only read it.

Nothing is lost then: nothing is confirmed or broadcast before it is stored, and workers try again.
"""

import json
import logging
import secrets
import shutil
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.db import Error as DatabaseError
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from accounts.models import ThrottleCount
from config.error_answers import READ_ONLY, why_unavailable
from database import statements
from queries.models import Batch, Block, Query, Step, StepKind, StorageCheck, new_batch_id


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
# A check holds a row of 2 kB in each of these, which PostgreSQL stores as it is. They are more than a page of 8 KiB.
_CHECKED_QUERIES = 5
_SLOTS = json.dumps([f"0x{0:064x}"] * 26)
# Probes wait for 10 s at most (docs/operating/watching.md).
_LOCK_TIMEOUT = "5s"
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
    """Store a batch as a submission does, take it back, and commit a row. Raises `DatabaseError`."""
    now = timezone.now()
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        # Nobody sees these rows, and foreign keys are checked only where a transaction is committed.
        ThrottleCount.objects.create(what_and_who=secrets.token_hex(), began_at=now)
        batch = Batch(pk=new_batch_id(), user_id=0, api_key_id=0, destination_chain_id=0, fee=0, deadline_at=now)
        batch.request = _SLOTS
        statements.insert(batch, (), [()])
        # No two checks may make the same block: one would wait for the other.
        block = Block(destination_chain_id=0, source_chain_id=0, number=secrets.randbits(63))
        statements.insert(block, (), [()])
        query = Query(batch=batch, source_chain_id=0)
        statements.insert(query, ("position", "slots"), [(position, _SLOTS) for position in range(_CHECKED_QUERIES)])
        step = Step(kind=StepKind.INITIAL_STATE, started_at=now)
        statements.insert_for_each(step, "query_id", "FROM queries_query WHERE batch_id = %s", (batch.pk,))
        transaction.set_rollback(True)
    row = StorageCheck(pk=1, at=Now())
    StorageCheck.objects.bulk_create([row], update_conflicts=True, unique_fields=["pk"], update_fields=["at"])
