"""Whether this service is able to work, for whatever watches it. Costs three small statements, and a write at times."""

import logging
import tomllib
from functools import cache

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from config.chains import get_chains
from proving import worker
from proving.models import FactsRegistry
from queries import storage

logger = logging.getLogger(__name__)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:  # noqa: ARG001 (Django's signature)
    """200 when the database answers and takes writes, a worker runs and all registries may be used, else 503.

    What is wrong then is in `problems`, in sentences.

    `{"status": "ok" | "degraded", "database": "ok" | "unavailable", "worker": {"running", "lastBeat"}, "version",
    "problems", "notices"}`. `lastBeat` is an ISO 8601 time in UTC, or null when no worker was ever heard of. `notices`
    are sentences about what the service works in spite of, but its operator must look into.
    """
    problems = []
    notices: list[str] = []
    database, running, last_beat = "ok", False, None
    try:
        running, last_beat = worker.is_running(), worker.last_beat()
        registries = _registries()
        notices = [row.notice for row in registries if row.notice]
    except DatabaseError:
        logger.exception("the database does not answer a health check")
        database = "unavailable"
        problems.append("The database does not answer, so nothing is known of the worker.")
    else:
        if not running:
            problems.append("No worker is running: batches are stored, but none moves.")
        problems += [row.refused_with_remedy for row in registries if row.refused]
        if why := storage.problem():
            problems.append(why)
    state = {
        "status": "degraded" if problems else "ok",
        "database": database,
        "worker": {"running": running, "lastBeat": last_beat.isoformat() if last_beat else None},
        "version": _version(),
        "problems": problems,
        "notices": notices,
    }
    return JsonResponse(state, status=503 if problems else 200)


def _registries() -> list[FactsRegistry]:
    """Those of configured connections about which there is something to say: of another one nothing takes it back."""
    rows = FactsRegistry.in_use.exclude(notice="", refused="").order_by("pk")
    return [row for row in rows if get_chains().connection(row.source_chain_id, row.destination_chain_id)]


@cache
def _version() -> str:
    project: dict[str, str] = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    return project["version"]
