"""What runs processes asks of each of them: whether it lives, and whether it may be sent requests."""

import logging

from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from queries import schema, storage

logger = logging.getLogger(__name__)


@never_cache
@require_safe
def livez(request: HttpRequest) -> JsonResponse:
    """Answer 200: the process does. It asks nothing else, since a new process would help against nothing else."""
    return JsonResponse({"status": "ok"})


@never_cache
@csrf_exempt  # As the API's paths, of which it is one: programs are told the method, and not that they lack a token.
@require_safe
def is_alive(request: HttpRequest) -> HttpResponse:
    """Answer 200 as `livez` does, in the word that clients of older services read."""
    return HttpResponse("OK", content_type="text/plain; charset=utf-8")


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if the database answers, has this version's migrations and takes writes; else 503, with the reason."""
    try:
        problem = schema_problem() or storage.problem()
    except DatabaseError:
        logger.exception("the database does not answer a readiness check")
        problem = "The database does not answer."
    return JsonResponse({"status": "unready" if problem else "ok", "problem": problem}, status=503 if problem else 200)


_migrated = False


def schema_problem() -> str:
    """Look until there is none: then it stays so for the life of a process."""
    global _migrated
    problem = "" if _migrated else schema.problem(connection)
    _migrated = not problem
    return problem
