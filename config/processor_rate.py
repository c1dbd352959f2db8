"""Limit of the processor time that a client address may use for pages and files.

Only measured time counts, so a costly answer counts much. Each process of the web server counts for itself, in memory,
because a count in the database would cost more than a small page. `accounts.read_rate` also limits reads that cost the
database or a node more than the process.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from threading import Lock
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template import loader

from config import client_addresses
from config.error_answers import error_answer, is_of_api, wants_json, with_retry_after
from config.query_strings import presents_key

# Seconds by which a client may be ahead of its share. If it is further ahead, the service refuses its requests, and
# `config.gunicorn` makes pauses between them.
_AHEAD = 4
# Clients of an address: its readers; its open pages, which refresh; and its programs, which use probes and the API. No
# client can use up the share of another. Programs are never refused, because the API has limits per user. The share of
# open pages is that of readers times this.
_OF_REFRESHES = 2
# Seconds by which a client can be ahead at most: an address that others share is answered again after a flood.
_MOST_AHEAD = 60
_MAX_ADDRESSES = 10_000
# Processor seconds that gunicorn takes for a request outside the application, where nothing measures them.
_OF_SERVER = 0.0005

_SECONDS_TO_WAIT, _PAUSES = "batch_query_service.seconds_to_wait", "batch_query_service.pauses"


class ProcessorRate:
    """The processor time that clients have used beyond `share`, the part of a processor that each may use.

    The table has the time at which each client will be even. If the table is full, it forgets the half that will be
    even first. So a client that is refused isn't forgotten, and no client is refused because of others.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._even_at: dict[str, float] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._even_at)

    def ahead(self, client: str) -> float:
        """Return the seconds until the client is even."""
        return max(0, self._even_at.get(client, 0) - time.monotonic())

    def count(self, client: str, seconds: float) -> None:
        """Count processor time of the client."""
        now = time.monotonic()
        with self._lock:
            if client not in self._even_at and len(self._even_at) >= _MAX_ADDRESSES:
                for first in nsmallest(_MAX_ADDRESSES // 2, self._even_at, key=self._even_at.__getitem__):
                    del self._even_at[first]
            even_at = max(now, self._even_at.get(client, 0)) + seconds / self._share
            self._even_at[client] = min(even_at, now + _MOST_AHEAD)


def limited(application: WSGIApplication) -> WSGIApplication:
    """Return the application with a count of each request. `ProcessorRateMiddleware` refuses requests."""
    rate = ProcessorRate(settings.PROCESSOR_PERCENT / 100)

    def limited_application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        client, path, weight, may_refuse = client_addresses.of(environ), environ["PATH_INFO"], 1.0, True
        if not client or settings.IS_CLIENT_HIDDEN:
            # All clients look like one.
            return application(environ, start_response)
        if path in settings.PROBED_PATHS or _is_of_api(environ):
            client, may_refuse = f"{client} program", False
        elif environ["REQUEST_METHOD"] == "GET" and "HTTP_HX_REQUEST" in environ:
            client, weight = f"{client} refresh", 1 / _OF_REFRESHES

        def count(seconds: float) -> None:
            rate.count(client, weight * seconds)
            # A proxy may send requests of several clients on one connection.
            environ[_PAUSES] = not settings.CLIENT_ADDRESS_HEADER and rate.ahead(client) > _AHEAD

        environ[_SECONDS_TO_WAIT] = max(0, math.ceil(rate.ahead(client) - _AHEAD)) if may_refuse else 0
        began = time.thread_time()
        try:
            answer = application(environ, start_response)
        finally:
            count(time.thread_time() - began + _OF_SERVER)
        return _counted(answer, count) if getattr(answer, "streaming", False) else answer

    return limited_application


def _is_of_api(environ: WSGIEnvironment) -> bool:
    """Return whether the API answers. At a path that is a page too, it answers only programs with a key."""
    path: str = environ["PATH_INFO"]
    # The API also answers its paths with a slash.
    return path.removesuffix("/") in settings.API_PATHS and (
        path not in settings.PAGES_OF_API_PATHS or presents_key(environ)
    )


def _counted(answer: Iterable[bytes], count: Callable[[float], None]) -> Iterator[bytes]:
    """Yield the parts of an answer that is made while it is sent, and count the time of each."""
    parts = iter(answer)
    try:
        while True:
            began = time.thread_time()
            try:
                part = next(parts)
            except StopIteration:
                return
            finally:
                count(time.thread_time() - began)
            yield part
    finally:
        answer.close()  # type: ignore[attr-defined]  # Django's streaming answers have it


class ProcessorRateMiddleware:
    """Middleware that refuses requests of a client that is too far ahead of its share.

    It comes after the middleware for static files, which are never refused.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not (seconds := request.META.get(_SECONDS_TO_WAIT, 0)):
            return self.get_response(request)
        response: HttpResponse
        if is_of_api(request) or wants_json(request) or "." in request.path or "HX-Request" in request.headers:
            sentence = f"Your network has used its share of this service. Ask again in {seconds} s."
            response = error_answer(429, "too_many_requests", sentence, retry_after=seconds)
        else:
            page = loader.render_to_string("429.html", {"seconds": seconds})
            response = with_retry_after(HttpResponse(page, status=429), seconds)
        response.headers["Cache-Control"] = "no-store"
        return response
