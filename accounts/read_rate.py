"""Rate limit of expensive reads per client address: files of facts, requests and proofs, long parts of a batch's JSON,
searches by a slot, and pages that read a chain.
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

# Maximum per client address, and the items of a file that count as one. A read takes up to about 0.1 s of a processor.
READS_PER_MINUTE, ITEMS_PER_READ = 30, 1000

_P = ParamSpec("_P")


def count(client: str, reads: int = 1) -> int:
    """Count reads by this address and return 0, or return the seconds that the client has to wait."""
    # Reads stay possible if the database takes no writes.
    with suppress(DatabaseError):
        return throttle.take("reads", client, READS_PER_MINUTE, reads)
    return 0


def refusal_of_items(request: HttpRequest, items: int) -> HttpResponse | None:
    """Count reads for this number of items, beside the one of the request. Return 429 if the client has to wait."""
    reads = min(items // ITEMS_PER_READ, READS_PER_MINUTE - 1)
    return refusal(request, reads) if reads else None


def refusal(request: HttpRequest, reads: int = 1) -> HttpResponse | None:
    """Count reads. Return the answer 429 if the client has to wait."""
    if seconds := count(client_address(request), reads):
        limit = f"You may read files and search by a slot {READS_PER_MINUTE} times a minute; a large file counts more."
        sentence = f"{limit} Ask again in {seconds} s."
        return error_answer(429, "too_many_requests", sentence, retry_after=seconds)
    return None


def counted(view: Callable[Concatenate[HttpRequest, _P], HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Count each request to the view. Answer 429 if the client has to wait."""

    @wraps(view)
    def counting(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponseBase:
        return refusal(request) or view(request, *args, **kwargs)

    return counting
