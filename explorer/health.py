"""Whether this service is able to work, for whatever watches it. Costs two small statements; no chain is asked."""

import logging
import tomllib
from functools import cache

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from proving import worker

logger = logging.getLogger(__name__)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:  # noqa: ARG001 (Django's signature)
    """200 when the database answers and a worker runs, else 503 with what is wrong in `problems`, in sentences.

    `{"status": "ok" | "degraded", "database": "ok" | "unavailable", "worker": {"running", "lastBeat"}, "version",
    "problems"}`. `lastBeat` is an ISO 8601 time in UTC, or null when no worker was ever heard of.
    """
    problems = []
    database, running, last_beat = "ok", False, None
    try:
        running, last_beat = worker.is_running(), worker.last_beat()
    except DatabaseError:
        logger.exception("the database does not answer a health check")
        database = "unavailable"
        problems.append("The database does not answer, so nothing is known of the worker.")
    else:
        if not running:
            problems.append("No worker is running: batches are stored, but none moves.")
    state = {
        "status": "degraded" if problems else "ok",
        "database": database,
        "worker": {"running": running, "lastBeat": last_beat.isoformat() if last_beat else None},
        "version": _version(),
        "problems": problems,
    }
    return JsonResponse(state, status=503 if problems else 200)


@cache
def _version() -> str:
    project: dict[str, str] = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    return project["version"]
