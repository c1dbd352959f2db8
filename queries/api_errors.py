"""Errors of the API, always as JSON, and the answer for when the database can store nothing."""

import sys
from collections.abc import Callable, Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template import loader
from django.views import defaults

from config.database_errors import why_unavailable
from config.error_answers import Refused, error_answer, is_of_api, wants_json
from queries import storage
from queries.batch_request import Fault


class ApiError(Refused):
    """Ends a request to the API with an error answer."""

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        faults: Sequence[Fault] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(code, sentence, retry_after=retry_after)
        self.status, self.faults = status, faults

    def response(self) -> HttpResponse:
        details = [{"path": fault.path, "message": fault.message, "code": fault.code} for fault in self.faults]
        return error_answer(self.status, self.code, self.sentence, details=details, retry_after=self.retry_after)


# Every other code of a limit is 429.
_REFUSED_STATUS = {
    **dict.fromkeys(("busy", "names_unavailable", "chain_unavailable"), 503),
    "too_large_for_limit": 403,
}


def status_of(refused: Refused) -> int:
    """Return the status of the answer to a submission or an estimate that is refused."""
    return refused.status if isinstance(refused, ApiError) else _REFUSED_STATUS.get(refused.code, 429)


_SENTENCES = {
    400: ("bad_request", "The request is malformed."),
    403: ("forbidden", "The request is not allowed."),
    404: ("not_found", "There is nothing at this path."),
    405: ("method_not_allowed", "This path does not accept this method."),
    500: (
        "internal_error",
        "Something went wrong here; it has been logged. Nothing was stored unless you received an id.",
    ),
}


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer any exception: 503 while nothing can be stored, else 500."""
    # Django calls this while it handles the exception.
    error = sys.exception()
    why = error and why_unavailable(error)
    if not why:
        return defaults.server_error(request)
    if is_of_api(request) or wants_json(request):
        code, sentence = "storage_unavailable", f"{why} Try again later."
        response: HttpResponse = error_answer(503, code, sentence, retry_after=storage.RETRY_SECONDS)
    else:
        response = HttpResponse(loader.render_to_string("503.html", {"why": why}), status=503)
        response.headers["Retry-After"] = str(storage.RETRY_SECONDS)
    response.headers["Cache-Control"] = "no-store"
    return response


class JsonErrorsMiddleware:
    """Turns errors that Django or a library answers in HTML or plain text on an API path into JSON."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        is_json = response.get("Content-Type", "").startswith("application/json")
        # Nothing is at a path of the API with a slash behind it, which programs are told as well.
        has_slash = request.path.endswith("/") and request.path[:-1] in settings.API_PATHS
        if response.status_code < 400 or is_json or not (has_slash or is_of_api(request)):
            return response
        code, sentence = _SENTENCES.get(response.status_code, _SENTENCES[400])
        answer = error_answer(response.status_code, code, sentence)
        # Headers of other middleware stay: browsers need the CORS headers to read the error.
        for name, value in response.items():
            if name not in {"Content-Type", "Content-Length", "Content-Encoding"}:
                answer[name] = value
        # Without it the web server would close the connection.
        answer["Content-Length"] = str(len(answer.content))
        return answer
