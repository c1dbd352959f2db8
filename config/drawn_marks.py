"""Middleware that leaves out combining marks of pages where many of them would draw over other texts.

Labels that are stored may have any number, and so may texts of contracts, such as in logs.
"""

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from batch_query_client.combining_marks import is_mark, with_few_marks

_ASCII = bytes(range(0x80))
# Tags, and texts that a form sends again: a browser draws neither outside of its field.
_NOT_DRAWN = re.compile(r"(<textarea\b.*?</textarea>|<[^>]*>)", re.DOTALL)


class DrawnMarksMiddleware:
    """Middleware that leaves at most 4 combining marks at a character of a page."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        # Nearly no page has a mark. Finding that out takes a tenth of a millisecond.
        if response.get("Content-Type", "").startswith("text/html") and any(
            map(is_mark, set(response.content.translate(None, _ASCII).decode()))
        ):
            parts = _NOT_DRAWN.split(response.content.decode())
            parts[::2] = map(with_few_marks, parts[::2])
            response.content = "".join(parts).encode()
        return response
