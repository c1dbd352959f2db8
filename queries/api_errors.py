"""Error answers of the API: always JSON, always the same shape. And what is answered when nothing can be stored."""

import sys
from collections.abc import Callable, Mapping, Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.template import loader
from django.views import defaults

from accounts.answers import wants_json
from queries import storage
from queries.batch_request import Fault


def error_response(
    status: int,
    code: str,
    sentence: str,
    *,
    faults: Sequence[Fault] = (),
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    body: dict[str, object] = {"error": sentence, "code": code}
    if faults:
        body["details"] = [{"path": fault.path, "message": fault.message, "code": fault.code} for fault in faults]
    return JsonResponse(body, status=status, headers=dict(headers or {}))


class ApiError(Exception):
    """Ends a request to the API with an error answer."""

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status, self.code, self.sentence, self.faults, self.headers = status, code, sentence, faults, headers

    def response(self) -> HttpResponse:
        return error_response(self.status, self.code, self.sentence, faults=self.faults, headers=self.headers)


_SENTENCES = {
    400: ("bad_request", "The request is malformed."),
    403: ("forbidden", "The request is not allowed."),
    404: ("not_found", "There is nothing at this path."),
    405: ("method_not_allowed", "This path doesn't take this method."),
    500: ("internal_error", "Something went wrong here; it has been logged. Nothing was stored unless you got an id."),
}


def server_error(request: HttpRequest) -> HttpResponse:
    """Whatever went wrong, in a view or in what surrounds it: 503 while nothing can be stored, else 500."""
    # Django calls this while it handles the exception.
    error = sys.exception()
    why = error and storage.why_unavailable(error)
    if not why:
        return defaults.server_error(request)
    headers = {"Retry-After": str(storage.RETRY_SECONDS), "Cache-Control": "no-store"}
    if request.path in settings.API_PATHS or wants_json(request):
        return error_response(503, "storage_unavailable", f"{why} Try again later.", headers=headers)
    return HttpResponse(loader.render_to_string("503.html", {"why": why}), status=503, headers=headers)


class JsonErrorsMiddleware:
    """What Django or a library answers in HTML or plain text on an API path becomes JSON, like every other error."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        is_json = response.get("Content-Type", "").startswith("application/json")
        if response.status_code < 400 or is_json or request.path not in settings.API_PATHS:  # noqa: PLR2004 (HTTP errors)
            return response
        code, sentence = _SENTENCES.get(response.status_code, _SENTENCES[400])
        answer = error_response(response.status_code, code, sentence)
        # What other middleware has set stays: browsers need the CORS headers to read the error.
        for name, value in response.items():
            if name not in {"Content-Type", "Content-Length"}:
                answer[name] = value
        return answer
