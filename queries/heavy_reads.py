"""How much one client may read of large batches in a minute, with no key, and have shown of large forms.

What is small isn't counted: it costs no more than any page, and counting is a write. For the rest, 10,000 accounts,
slots and headers take the interpreter a tenth of a second and more, in which nobody else is answered.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Concatenate, ParamSpec

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string

from accounts import throttle
from config.error_answers import Refused, refused_answer, wants_json
from queries.models import Batch, Query

_SMALL = 500  # accounts, slots and headers
# A multiple of the largest batch.
_LARGEST_PER_MINUTE = 30
# A batch's page in JSON counts the queries of the batch and shows some; that takes half as long as its whole request.
_PAGE_SHARE = 2
# All facts of a batch count so often: of 10,000 accounts they take the interpreter 0.8 s.
_FACTS_FACTOR = 8
# The proofs of all queries of a batch count so often. Of 10,000 accounts they take the interpreter more than a second,
# in parts of 500, between which others are answered; and 41 MB are kept until the client has read them.
_BUNDLE_FACTOR = 15

# Of an address on a line of its own, as forms hold thousands of them.
_ADDRESS_CHARACTERS = 43
# A row of a form counts so often, for all that can be ticked in it: it takes 15 ms.
_FORM_ROW = 180
# An estimate reads all of a form, and shows a line of each row.
_ESTIMATE_SHARE = 4

_P = ParamSpec("_P")


class TooManyReads(Refused):
    """The client must wait before it reads a large batch again: too_many_requests."""


def answering_429(view: Callable[Concatenate[HttpRequest, _P], HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Answer `TooManyReads`: a form with a page, and what programs read with JSON."""

    @wraps(view)
    def counted(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except TooManyReads as refused:
            answer = refused_answer(429, refused)
            if request.path not in settings.LARGE_FORM_PATHS or wants_json(request):
                return answer
            page = HttpResponse(render_to_string("429.html", {"why": refused.sentence}), status=429)
            page.headers["Retry-After"] = answer.headers["Retry-After"]
            return page

    return counted


def count_request(client_address: str, batch: Batch) -> None:
    """Count a read of a batch's request. Raises `TooManyReads`."""
    _count(client_address, batch.size)


def count_facts(client_address: str, batch: Batch) -> None:
    """Count a read of a batch's facts. Raises `TooManyReads`."""
    _count(client_address, _FACTS_FACTOR * batch.size)


def count_lines(client_address: str, lines: int) -> None:
    """Count a file of facts or batches with so many lines. Raises `TooManyReads`."""
    _count(client_address, _FACTS_FACTOR * lines)


def count_page(client_address: str, batch: Batch) -> None:
    """Count a read of a batch's page. Raises `TooManyReads`."""
    _count(client_address, batch.size // _PAGE_SHARE)


def count_bundle(client_address: str, query: Query) -> None:
    """Count a read of a query's proof bundle. Raises `TooManyReads`."""
    _count(client_address, len(query.slots))


def count_batch_bundle(client_address: str, batch: Batch) -> None:
    """Count a read of a batch's proof bundle. Raises `TooManyReads`."""
    _count(client_address, _BUNDLE_FACTOR * batch.size)


def count_form_of_signed_out(client_address: str) -> None:
    """Count a form with all that was typed, for a client who isn't signed in. It takes longer than the largest batch.

    Raises `TooManyReads`.
    """
    sentence = "You are signed out. Sign in, go back to the form, and send it again."
    _count(client_address, max(settings.MAX_QUERIES_PER_BATCH, _SMALL + 1), sentence)


def count_form(client_address: str, user_id: int, characters: int, rows: int) -> None:
    """Count a form that is shown with so much in it, by its user and by the address. Raises `TooManyReads`."""
    size = min(settings.MAX_QUERIES_PER_BATCH, characters // _ADDRESS_CHARACTERS + rows * _FORM_ROW)
    # The user first: who is refused as such takes nothing from others at the same address.
    for client in (user_id, client_address):
        _count(
            client,
            size,
            "You sent too many large forms. Go back, wait {seconds} s, and send the form again.",
        )


def count_form_estimate(client_address: str, user_id: int, characters: int, rows: int) -> None:
    """Count what stands beside the form, as `count_form` counts the form. Raises `TooManyReads`."""
    count_form(client_address, user_id, characters // _ESTIMATE_SHARE, rows // _ESTIMATE_SHARE)


def _count(client: str | int, size: int, sentence: str = "") -> None:
    """Count for an address, or for the user of this id."""
    if size <= _SMALL:
        return
    most = _LARGEST_PER_MINUTE * settings.MAX_QUERIES_PER_BATCH
    # A database that takes no writes keeps nobody from reading.
    with suppress(DatabaseError):
        # The largest may have been larger when the batch was stored.
        if seconds := throttle.take("heavy reads", client, most, min(size, most)):
            raise TooManyReads(
                "too_many_requests",
                sentence.format(seconds=seconds)
                or f"In a minute you may read large batches with {most} accounts, slots and headers in all; this needs "
                f"{size}. Ask again in {seconds} s. What has at most {_SMALL} isn't counted; CSV counts "
                f"{_FACTS_FACTOR}-fold, and the proofs of all queries at once {_BUNDLE_FACTOR}-fold.",
                retry_after=seconds,
            )
