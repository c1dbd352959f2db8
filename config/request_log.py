"""The middleware that logs and counts requests. Each request gets an id, which its answer and its log lines have.

Each answer gets the content security policy here, as text that is made once. `csp.middleware` makes it anew each time,
which takes a tenth of a poll.
"""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress

from csp.utils import build_policy
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from config import logs
from config.metrics_server import count_request

HEADER = "X-Request-Id"
# Maximum characters of a logged path, before control characters are escaped. The service's own paths are shorter.
_MOST_LOGGED_OF_PATH = 200
# Maximum number of unread pieces to read, each 64 KiB.
_MOST_PIECES_UNREAD = 1024

logger = logging.getLogger("gunicorn.access")


class RequestMiddleware:
    """Middleware that gives each request a new id. An id from the client is ignored."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._policy = build_policy()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.monotonic()
        request_id = os.urandom(8).hex()
        # The context stays until the thread's next request, because Django may log an error after the last middleware.
        logs.enter({"request": request_id})
        response = self.get_response(request)
        response.headers[HEADER] = request_id
        # An attester has none. Django's own pages for developers have styles in themselves.
        if self._policy and not (settings.DEBUG and response.status_code in {404, 500}):
            response.headers["Content-Security-Policy"] = self._policy
        _read_unread_body(request)
        match = request.resolver_match
        seconds = time.monotonic() - began
        count_request(match.route if match else None, response.status_code, seconds)
        # Monitors ask several times a minute. Metrics count their requests.
        if request.path not in settings.PROBED_PATHS:
            _log(request, response, seconds)
        return response


def _read_unread_body(request: HttpRequest) -> None:
    """Read the unread part of the body.

    Otherwise gunicorn closes the connection, which nginx reports as a failure.
    """
    with suppress(OSError):
        for _ in range(_MOST_PIECES_UNREAD):
            if not request.read(2**16):
                break


def _log(request: HttpRequest, response: HttpResponse, seconds: float) -> None:
    """Log the answer. The query string and the referrer are left out, because they may hold an API key."""
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
