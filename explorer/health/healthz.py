"""Whether this service is able to work, for monitors. Takes a few small statements, and sometimes a write.

It asks no chain.
"""

import logging
import tomllib
from functools import cache

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from config.metrics_access import may_read
from proving.health import report
from proving.health.problems import Problem
from proving.worker import heartbeats

logger = logging.getLogger(__name__)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if nothing keeps the service from working, else 503.

    `{"status": "ok" | "degraded", "database": "ok" | "unavailable", "worker": {"running", "lastBeat"}, "version",
    "problems", "codes", "notices"}`. `problems` says in sentences what is wrong, and `codes` has the stable code of
    each in the same order, and behind them those of notices that have one. `lastBeat` is an ISO 8601 time in UTC, or
    null when no worker was ever heard of. `notices` are sentences about what its operator must look into, although the
    service works. Sentences name signers, what they hold, and nodes: who may not read the metrics and isn't the
    operator gets the codes alone.
    """
    last_beat, notices = None, list[Problem]()
    database = "ok"
    is_for_operator = may_read(request.META.get("REMOTE_ADDR", ""), request.headers, behind_proxy=True)
    try:
        # The session is in the database, which a monitor asks for nothing else.
        is_for_operator = is_for_operator or request.user.is_staff
        problems, notices = report.findings()
        last_beat = heartbeats.last_beat()
    except DatabaseError:
        logger.exception("the database does not answer a health check")
        database = "unavailable"
        problems = [
            Problem("database_unavailable", "The database does not answer, so nothing is known of the worker."),
        ]
    codes = [problem.code for problem in problems]
    state = {
        "status": "degraded" if problems else "ok",
        "database": database,
        "worker": {
            "running": not {"no_worker", "database_unavailable"}.intersection(codes),
            "lastBeat": last_beat.isoformat() if last_beat else None,
        },
        "version": _version(),
        "problems": [problem.sentence for problem in problems if is_for_operator],
        "codes": [*codes, *(notice.code for notice in notices if notice.code)],
        "notices": [notice.sentence for notice in notices if is_for_operator],
    }
    return JsonResponse(state, status=503 if problems else 200)


@cache
def _version() -> str:
    project: dict[str, str] = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    return project["version"]
