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
from ninja import Router, Schema
from ninja.decorators import decorate_view
from pydantic import Field

from config.metrics_access import may_read
from explorer.health.probes import schema_problem
from proving.health import findings
from proving.health.findings import Problem
from proving.worker import heartbeats
from queries.api_endpoint import READ

logger = logging.getLogger(__name__)
router = Router(tags=["Health"])


class WorkerHealth(Schema):
    running: bool
    lastBeat: str | None = Field(description="ISO 8601, UTC. null: no worker was ever heard of.")


class Health(Schema):
    status: str = Field(description="`ok` or `degraded`.")
    database: str = Field(description="`ok` or `unavailable`.")
    worker: WorkerHealth
    version: str
    problems: list[str] = Field(description="What keeps the service from working, in sentences for the operator.")
    codes: list[str] = Field(description="The stable words of the problems.")
    notices: list[str] = Field(description="What the operator must look into, in sentences for the operator.")


@router.api_operation(
    READ,
    "/healthz",
    operation_id="get_health",
    summary="Health",
    response={200: Health, 503: Health},
    openapi_extra={"responses": {200: {"description": "Nothing"}, 503: {"description": "Something"}}},
    url_name="health",
)
@decorate_view(never_cache)
def get_health(request: HttpRequest) -> JsonResponse:
    """Tell what keeps the service from working: with 200 if nothing does, else with 503.

    Sentences name signers, what they hold, and nodes: only the operator, and who may read the metrics, gets them.
    """
    last_beat, notices = None, list[Problem]()
    is_for_operator = may_read(request.META.get("REMOTE_ADDR", ""), request.headers, behind_proxy=True)
    try:
        if lacking := schema_problem():
            problems = [Problem("database_unavailable", lacking)]
        else:
            # The session is in the database, which a monitor asks for nothing else.
            is_for_operator = is_for_operator or request.user.is_staff
            problems, notices = findings.findings()
            last_beat = heartbeats.last_beat()
    except DatabaseError:
        logger.exception("the database does not answer a health check")
        why = "The database does not answer, so nothing is known of the worker."
        problems = [Problem("database_unavailable", why)]
    codes = [problem.code for problem in problems]
    state = {
        "status": "degraded" if problems else "ok",
        "database": "unavailable" if "database_unavailable" in codes else "ok",
        "worker": {
            "running": not {"no_worker", "database_unavailable"}.intersection(codes),
            "lastBeat": last_beat.isoformat() if last_beat else None,
        },
        "version": _version(),
        "problems": [problem.sentence for problem in problems if is_for_operator],
        "codes": codes,
        "notices": [notice.sentence for notice in notices if is_for_operator],
    }
    return JsonResponse(state, status=503 if problems else 200)


@cache
def _version() -> str:
    project: dict[str, str] = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    return project["version"]
