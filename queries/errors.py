"""Error answers of the API: always JSON, always the same shape."""

from collections.abc import Callable, Mapping, Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

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
