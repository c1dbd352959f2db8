"""Each request gets an id, which its answer and its log lines have, and is counted."""

import os
import re
import time
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from config import log_context, parked_requests
from config.process_metrics import count_request

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
        request_id = (settings.REQUEST_ID_HEADER and _id_of_proxy(request)) or os.urandom(8).hex()
        request.META[ENVIRON] = request_id
        # Until the thread's next request: Django's line about an error is written after the last middleware.
        log_context.enter({"request": request_id})
        response = self.get_response(request)
        response.headers[HEADER] = request_id
        if parked_requests.is_parked(request):
            return response  # It is answered later, as another request.
        match = request.resolver_match
        count_request(match.route if match else None, response.status_code, time.monotonic() - began)
        return response


def _id_of_proxy(request: HttpRequest) -> str:
    told = request.headers.get(settings.REQUEST_ID_HEADER, "")
    return told if _ID.fullmatch(told) else ""
