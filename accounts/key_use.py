"""How often keys are used, counted in memory and written every few seconds.

If each request wrote to the database, every status poll would wait for SQLite's one write lock, behind whatever batch
is being stored. So requests are counted in memory, and the first one after a write sets a timer for the next write. The
numbers are exact, but a few seconds late, and they lose what a killed process had not written yet.
"""

import atexit
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Q, Sum
from django.utils import timezone

from accounts.models import ApiKey, KeyUse

FLUSH_SECONDS = 5
DAY, MONTH = timedelta(hours=24), timedelta(days=30)

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_requests: dict[tuple[int, datetime], int] = {}  # by key and hour
_last_used: dict[int, datetime] = {}
_timer: threading.Timer | None = None


@dataclass(frozen=True)
class Requests:
    """Counted in whole hours: the last 24 hours and the last 720, including the current one."""

    day: int = 0
    month: int = 0


def note(key_id: int) -> None:
    """Count one request with the key, without touching the database."""
    now = timezone.now()
    with _lock:
        hour = now.replace(minute=0, second=0, microsecond=0)
        _requests[key_id, hour] = _requests.get((key_id, hour), 0) + 1
        _last_used[key_id] = now
        _set_timer()


def flush() -> None:
    """Write what this process has counted. Counts that can't be written now are kept for the next time."""
    with _lock:
        requests, last_used = dict(_requests), dict(_last_used)
        _requests.clear()
        _last_used.clear()
    if not requests:
        return
    try:
        with transaction.atomic():
            # Processes write at the same time: in the same order none waits for another in a circle.
            for (key_id, hour), count in sorted(requests.items()):
                _add(key_id, hour, count)
            for key_id, at in sorted(last_used.items()):
                unnoted = Q(last_used_at=None) | Q(last_used_at__lt=at)
                ApiKey.objects.filter(unnoted, pk=key_id).update(last_used_at=at)
    except DatabaseError:
        _log.warning(
            "The use of %d keys could not be written. It is kept for the next time.", len(last_used), exc_info=True
        )
        with _lock:
            for slot, count in requests.items():
                _requests[slot] = _requests.get(slot, 0) + count
            for key_id, at in last_used.items():
                _last_used.setdefault(key_id, at)
            _set_timer()


def requests_by_key(keys: Iterable[ApiKey]) -> dict[int, Requests]:
    """Return how often each key was used, by the key's id. A key without requests is absent."""
    now = timezone.now()
    rows = (
        KeyUse.objects.filter(key__in=[key.pk for key in keys], hour__gt=now - MONTH)
        .values("key_id")
        .annotate(month=Sum("requests"), day=Sum("requests", filter=Q(hour__gt=now - DAY), default=0))
    )
    return {row["key_id"]: Requests(day=row["day"], month=row["month"]) for row in rows}


def _add(key_id: int, hour: datetime, count: int) -> None:
    row = KeyUse.objects.filter(key=key_id, hour=hour)
    if row.update(requests=F("requests") + count):
        return
    if (days := settings.KEEP_KEY_USES_DAYS) is not None:
        # Once an hour for each key; those of keys that are used no more are pruned by workers.
        KeyUse.objects.filter(key=key_id, hour__lte=hour - timedelta(days=days)).delete()
    try:
        with transaction.atomic():
            KeyUse.objects.create(key_id=key_id, hour=hour, requests=count)
    except IntegrityError:  # Another process has made the row in the meantime.
        row.update(requests=F("requests") + count)


def _set_timer() -> None:
    global _timer
    if _timer is None:
        _timer = threading.Timer(FLUSH_SECONDS, _on_timer)
        _timer.daemon = True  # The process does not wait for it at its end; it flushes instead.
        _timer.start()


def _on_timer() -> None:
    global _timer
    with _lock:
        _timer = None
    try:
        flush()
    finally:
        connection.close()  # The connection belongs to this thread, which ends here.


atexit.register(flush)
