"""Rate limit of expensive reads per client address: files of facts, requests and proofs, searches by a slot, and pages
that read a chain.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Concatenate, ParamSpec

from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from accounts import throttle
from accounts.throttle import client_address
from config.error_answers import error_answer

# Maximum per client address. The proofs of the largest batch occupy the interpreter for more than a second.
READS_PER_MINUTE = 30

_P = ParamSpec("_P")


def count(client: str) -> int:
    """Count a read by this address and return 0, or return the seconds that the client has to wait."""
    # Reads stay possible if the database takes no writes.
    with suppress(DatabaseError):
        return throttle.take("reads", client, READS_PER_MINUTE)
    return 0


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Count a read. Return the answer 429 if the client has to wait."""
    if seconds := count(client_address(request)):
        limit = f"You may read files and search by a slot {READS_PER_MINUTE} times a minute."
        sentence = f"{limit} Ask again in {seconds} s."
        return error_answer(429, "too_many_requests", sentence, retry_after=seconds)
    return None


def counted(view: Callable[Concatenate[HttpRequest, _P], HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Count each request to the view. Answer 429 if the client has to wait."""

    @wraps(view)
    def counting(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponseBase:
        return refusal(request) or view(request, *args, **kwargs)

    return counting
