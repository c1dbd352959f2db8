"""Middleware that reads again if the database ended a read because of a deadlock, as locks of tables can cause it."""

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from config.database.statements import is_deadlock, retried


class RetriedReadsMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        match = request.resolver_match
        if request.method != "GET" or match is None or not is_deadlock(error):
            return None
        response: HttpResponseBase = retried(partial(match.func, request, *match.args, **match.kwargs))
        return response
