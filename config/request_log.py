"""Give each request an id, which its answer and its log lines have, count it, and log its answer."""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress

from django.http import HttpRequest, HttpResponse

from config import logs
from config.metrics_server import count_request

HEADER = "X-Request-Id"
# In characters. The service's own are shorter; the log writes control characters with four.
_MOST_LOGGED_OF_PATH = 200
# Of 64 KiB.
_MOST_PIECES_UNREAD = 1024

logger = logging.getLogger("gunicorn.access")


class RequestMiddleware:
    """Gives each request an id. A client's own is not believed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.monotonic()
        request_id = os.urandom(8).hex()
        # Until the thread's next request: Django's line about an error is written after the last middleware.
        logs.enter({"request": request_id})
        response = self.get_response(request)
        response.headers[HEADER] = request_id
        _read_rest(request)
        match = request.resolver_match
        seconds = time.monotonic() - began
        count_request(match.route if match else None, response.status_code, seconds)
        _log(request, response, seconds)
        return response


def _read_rest(request: HttpRequest) -> None:
    """Read what no view has read: gunicorn closes the connection otherwise, and nginx takes that for a failure."""
    with suppress(OSError):
        for _ in range(_MOST_PIECES_UNREAD):
            if not request.read(2**16):
                break


def _log(request: HttpRequest, response: HttpResponse, seconds: float) -> None:
    """Log neither the query string nor the referrer, which may hold an API key."""
    client, path = request.META.get("REMOTE_ADDR", ""), request.path
    shown = path if len(path) <= _MOST_LOGGED_OF_PATH else f"{path[:_MOST_LOGGED_OF_PATH]}..."
    length = None if response.streaming else len(response.content)
    fields = {"client": client, "method": request.method, "path": shown, "status": response.status_code}
    fields |= {"milliseconds": round(seconds * 1000)} | ({} if length is None else {"bytes": length})
    logger.info(
        '%s "%s %s" %s %s %.0fms',
        *(client, request.method, shown, response.status_code, length or "-", seconds * 1000),
        extra=fields,
    )
