"""Each request gets an id, which its answer and its log lines have, and is counted."""

import re
import secrets
import time
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from config import log_context
from config.process_metrics import REQUEST_SECONDS, REQUESTS

HEADER = "X-Request-Id"
ENVIRON = "batchquery.request_id"
"""Where the web server finds it, for its own line."""

_ID = re.compile(r"[0-9A-Za-z._:-]{8,64}")


class RequestMiddleware:
    """A client's own id is not believed, unless `settings.REQUEST_ID_HEADER` names one that the proxy writes."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.monotonic()
        request_id = _id_of_proxy(request) or secrets.token_hex(8)
        request.META[ENVIRON] = request_id
        with log_context.about(request=request_id):
            response = self.get_response(request)
        response.headers[HEADER] = request_id
        route = _route(request)
        REQUESTS.labels(route, response.status_code).inc()
        REQUEST_SECONDS.labels(route).observe(time.monotonic() - began)
        return response


def _id_of_proxy(request: HttpRequest) -> str:
    header = settings.REQUEST_ID_HEADER
    told = request.headers.get(header, "") if header else ""
    return told if _ID.fullmatch(told) else ""


def _route(request: HttpRequest) -> str:
    """The route and never the path, which clients choose: there are few of them. Those of the admin are one."""
    match = request.resolver_match
    if match is None:
        return "unmatched"
    return "admin" if match.route.startswith("admin/") else match.route or "/"
