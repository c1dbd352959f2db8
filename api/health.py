"""Endpoints for monitors and load balancers: `/healthz`, `/livez`, `/readyz`, `/metrics`. No chain is asked."""

import logging

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Max
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from ninja import Router, Schema
from ninja.decorators import decorate_view
from pydantic import Field

from chains.chains_file import ChainsError
from config import metrics_server, static_files
from config.configured_chains import get_chains
from config.database import pooler, schema
from config.error_answers import error_answer, wants_json
from config.metrics_server import may_read
from proving.health import current_problems
from proving.health.current_problems import CurrentProblems, SeenProblem
from proving.health.problem_kinds import ProblemKind
from proving.health.service_metrics import ServiceMetrics
from proving.models import WorkerHeartbeat
from queries import database_check

logger = logging.getLogger(__name__)
router = Router(tags=["Health"])
service_metrics = ServiceMetrics()
_migrated = False


class WorkerHealth(Schema):
    running: bool
    lastBeat: str | None = Field(description="ISO 8601, UTC. null: no worker has ever run.")


class Health(Schema):
    status: str = Field(description="`ok` or `degraded`.")
    database: str = Field(description="`ok` or `unavailable`.")
    worker: WorkerHealth
    standstillSeconds: dict[str, float] = Field(
        description="For each stage of the work: how long due work has not advanced. Empty: not known."
    )
    version: str
    problems: list[str] = Field(description="Sentences for the operator about what keeps the service from working.")
    codes: list[str] = Field(description="The problems' codes.")
    critical: list[str] = Field(
        description="Those of them that can't wait: money is lost, or all batches to a chain of value stand still."
    )
    notices: list[str] = Field(description="Sentences for the operator about what to look into.")


@router.get(
    "/healthz",
    operation_id="get_health",
    summary="Health",
    response={200: Health, 503: Health},
    openapi_extra={"responses": {200: {"description": "Nothing"}, 503: {"description": "Something"}}},
    url_name="health",
)
@decorate_view(never_cache)
def get_health(request: HttpRequest) -> JsonResponse:
    """Return the problems that keep the service from working. The status is 200 if there are none, otherwise 503.

    Sentences name signers, their balances and nodes. Only the operator and clients that may read the metrics get them.
    """
    last_beat, found, by_stage = None, CurrentProblems(), dict[str, float]()
    is_for_operator = _is_for_operator(request)
    try:
        if lacking := _schema_problem():
            found = CurrentProblems([SeenProblem(ProblemKind.DATABASE_UNAVAILABLE, lacking)])
        elif unusable := _chains_problem():
            found = CurrentProblems([SeenProblem(ProblemKind.CHAINS_FILE, unusable)])
        else:
            # Reading the session needs the database, so it comes after the check of the schema.
            is_for_operator = is_for_operator or request.user.is_staff
            found = current_problems.read()
            # A heartbeat in the future comes from a wrong clock.
            beats = WorkerHeartbeat.objects.filter(beat_at__lt=Now() + WorkerHeartbeat.SILENCE)
            last_beat, by_stage = beats.aggregate(last=Max("beat_at"))["last"], current_problems.longest_standstills()
    except DatabaseError:
        logger.exception("the database does not answer a health check")
        why = "The database does not answer, so the worker's state is unknown."
        found = CurrentProblems([SeenProblem(ProblemKind.DATABASE_UNAVAILABLE, why)])
    codes = [problem.kind for problem in found.degrading]
    # Without chains nothing works.
    is_down = {ProblemKind.CHAINS_FILE, ProblemKind.DATABASE_UNAVAILABLE}.intersection(codes)
    critical = found.degrading if is_down else current_problems.critical(found.degrading)
    state = {
        "status": "degraded" if codes else "ok",
        "database": "unavailable" if ProblemKind.DATABASE_UNAVAILABLE in codes else "ok",
        "worker": {
            "running": not {ProblemKind.NO_WORKER, ProblemKind.DATABASE_UNAVAILABLE}.intersection(codes),
            "lastBeat": last_beat.isoformat() if last_beat else None,
        },
        "standstillSeconds": {stage: round(seconds, 1) for stage, seconds in by_stage.items()},
        "version": settings.VERSION,
        "problems": [problem.sentence for problem in found.degrading if is_for_operator],
        "codes": codes,
        "critical": [problem.kind for problem in critical],
        "notices": [problem.sentence for problem in found.harmless if is_for_operator],
    }
    return JsonResponse(state, status=503 if codes else 200)


@never_cache
@require_safe
def livez(request: HttpRequest) -> JsonResponse:
    """Answer 200 if the process works. Nothing else is checked, because a restart would mend nothing else."""
    return JsonResponse({"status": "ok"})


@never_cache
@csrf_exempt  # programs get the error about the method, as at other API paths, not an error about a missing token
@require_safe
def is_alive(request: HttpRequest) -> HttpResponse:
    """Answer 200 like `livez`, as clients of the replaced service expect it. Those of its present API accept JSON."""
    if wants_json(request):
        return JsonResponse({"message": "Alive!"})
    return HttpResponse("OK", content_type="text/plain; charset=utf-8")


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if chains.toml can be used and the database answers, accepts writes and has this version's migrations.

    A pooler's connections to it must have time limits, and the pages' files must be collected. Otherwise answer 503,
    with the reason.
    """
    try:
        problem = (
            _schema_problem()
            or database_check.problem()
            or pooler.problem()
            or _chains_problem(for_operator=_is_for_operator(request))
            or static_files.problem()
        )
    except DatabaseError:
        logger.exception("the database does not answer a readiness check")
        problem = "The database does not answer."
    return JsonResponse({"status": "unready" if problem else "ok", "problem": problem}, status=503 if problem else 200)


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics in the text format of Prometheus."""
    if not _is_for_operator(request):
        return error_answer(403, "forbidden", "The metrics are for the operator: see METRICS_ALLOWED_NETWORKS.")
    metrics = metrics_server.exposition(request.headers.get("Accept", ""), [service_metrics])
    return HttpResponse(metrics.content, content_type=metrics.content_type)


def _is_for_operator(request: HttpRequest) -> bool:
    return may_read(request.META.get("REMOTE_ADDR", ""), request.headers, behind_proxy=True)


def _chains_problem(*, for_operator: bool = True) -> str:
    """Return why the process has no chains. A file that has become wrong later is no problem before a reload."""
    try:
        get_chains()
    except ChainsError as error:
        faults = f": {'; '.join(error.faults)}" if for_operator else ""
        return f"{settings.CHAINS_FILE.name} can't be used{faults}."
    return ""


def _schema_problem() -> str:
    """Return the problem of the database's schema. After the first check without a problem, don't check again."""
    global _migrated
    problem = "" if _migrated else schema.problem(connection)
    _migrated = not problem
    return problem
