"""The one form of an error: `{"error": sentence, "code": stable word}`, in the API, the dashboard and the attester.

`details` lists several faults of one request. `Retry-After` says when it is worth trying again.
"""

from collections.abc import Mapping, Sequence

from django.conf import settings
from django.http import HttpRequest, JsonResponse


class Refused(Exception):
    """The request is refused: a stable `code` for programs, and a sentence for people.

    `retry_after` is the number of seconds after which to try again. None: waiting does not help.
    """

    def __init__(self, code: str, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.retry_after = retry_after


def error_answer(
    status: int,
    code: str,
    sentence: str,
    *,
    details: Sequence[Mapping[str, str]] = (),
    retry_after: int | None = None,
) -> JsonResponse:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    body = {"error": sentence, "code": code} | ({"details": list(details)} if details else {})
    return JsonResponse(body, status=status, headers=headers)


def refused_answer(status: int, refused: Refused) -> JsonResponse:
    return error_answer(status, refused.code, refused.sentence, retry_after=refused.retry_after)


# --- Who gets JSON ----------------------------------------------------------------------------------------------------


def is_json(request: HttpRequest) -> bool:
    """Return whether the request's body is JSON."""
    return request.content_type == "application/json"


def wants_json(request: HttpRequest) -> bool:
    """Return whether a program asks: its body is JSON, or it prefers JSON to HTML. People get pages."""
    return is_json(request) or request.get_preferred_type(["text/html", "application/json"]) == "application/json"


def is_page(request: HttpRequest) -> bool:
    """Return whether a browser asks for the page at a path that the API has too. Whoever sends a key is a program."""
    return (
        request.path in settings.PAGES_OF_API_PATHS
        and request.method in {"GET", "HEAD"}
        and request.get_preferred_type(["application/json", "text/html"]) == "text/html"
        and not getattr(request, "presented_key", None)
    )


def is_of_api(request: HttpRequest) -> bool:
    """Return whether the API answers the request."""
    return request.path in settings.API_PATHS and not is_page(request)
