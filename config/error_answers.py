"""The form of every error of the API, the dashboard and an attester: `{"error": sentence, "code": stable word}`.

`details` lists the faults of an invalid request. `Retry-After` has the seconds after which to try again.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse

FULL = "The disk of this service is full or fails, so nothing can be stored."
LOCKED = "The database of this service is locked for longer than usual."
READ_ONLY = "The database of this service can't be written to."
AWAY = "The database of this service can't be reached, or accepts no more connections."

# Keys are SQLite's primary result codes (https://www.sqlite.org/rescode.html) and PostgreSQL's SQLSTATE
# (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_SENTENCES: dict[int | str, str] = {
    **dict.fromkeys((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, "53100", "58030", "XX001", "XX002"), FULL),
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, "55P03", "57014", "40001", "40P01"), LOCKED),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, "25006", "42501"), READ_ONLY),
    **dict.fromkeys((sqlite3.SQLITE_CANTOPEN, "25P03", "25P04"), AWAY),
}
# With an error of such a severity the server ends the connection, whatever the SQLSTATE.
_ENDS_CONNECTION = {"FATAL", "PANIC"}


def why_unavailable(error: BaseException) -> str | None:
    """Return a sentence about why the database can't be used now. None for other errors, such as defects."""
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    cause = error.__cause__
    if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
        # The lowest byte is the primary code. A missing table is an OperationalError too, but its code isn't listed.
        return _SENTENCES.get(code & 0xFF)
    # Psycopg has other classes for a read-only database, a missing privilege and a timeout than for other outages.
    if sentence := _SENTENCES.get(getattr(cause, "sqlstate", None) or ""):
        return sentence
    severity = getattr(getattr(cause, "diag", None), "severity_nonlocalized", None)
    # Without a connection there is neither SQLSTATE nor severity.
    is_away = isinstance(error, OperationalError | InterfaceError) or severity in _ENDS_CONNECTION
    return AWAY if is_away else None


class Refused(Exception):
    """A refusal of the request, with a stable `code` for programs and a sentence for people.

    `retry_after` is the number of seconds after which to try again. None if waiting doesn't help.
    """

    def __init__(self, code: str, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.retry_after = retry_after


Answer = TypeVar("Answer", bound=HttpResponse)


def with_retry_after(response: Answer, seconds: int | None) -> Answer:
    """Say in the header `Retry-After` when to try again. 0 and None: nothing is said."""
    if seconds:
        response.headers["Retry-After"] = str(seconds)
    return response


def error_answer(
    status: int,
    code: str,
    sentence: str,
    *,
    details: Sequence[Mapping[str, str]] = (),
    retry_after: int | None = None,
) -> JsonResponse:
    body = {"error": sentence, "code": code} | ({"details": list(details)} if details else {})
    return with_retry_after(JsonResponse(body, status=status), retry_after)


def refused_answer(status: int, refused: Refused) -> JsonResponse:
    return error_answer(status, refused.code, refused.sentence, retry_after=refused.retry_after)


# --- Requests that get JSON -------------------------------------------------------------------------------------------


def is_json(request: HttpRequest) -> bool:
    """Return whether the request's body is JSON."""
    return request.content_type == "application/json"


def wants_json(request: HttpRequest) -> bool:
    """Return whether the client is a program, which gets JSON: the body is JSON, or JSON is preferred to HTML."""
    return is_json(request) or request.get_preferred_type(["text/html", "application/json"]) == "application/json"


def prefers_html(request: HttpRequest) -> bool:
    """Return whether the client asks for pages by name, as browsers do. Programs often take anything."""
    return request.get_preferred_type(["application/json", "text/html"]) == "text/html"


def is_page(request: HttpRequest) -> bool:
    """Return whether a browser requests a page at a path that the API has too.

    A client with an API key is a program.
    """
    return (
        request.path in settings.PAGES_OF_API_PATHS
        and request.method == "GET"
        and prefers_html(request)
        and not getattr(request, "presented_key", None)
    )


def is_of_api(request: HttpRequest) -> bool:
    """Return whether the API answers the request."""
    return request.path in settings.API_PATHS and not is_page(request)
