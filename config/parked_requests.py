"""Requests that wait for news without a thread.

The application parks a request, and answers something that is dropped. When the request is woken, it is answered anew,
like one that has just come. `config.web_server` can do that. Other servers can't: there `parking` is None, and nobody
waits.
"""

from typing import Protocol

from django.http import HttpRequest

ENVIRON = "batchquery.parking"


class Parked(Protocol):
    """A request that waits."""

    @property
    def is_gone(self) -> bool:
        """Whether its client has closed the connection."""

    def wake(self) -> None:
        """Has it answered, as soon as a thread is free. From any thread; once more does nothing."""


class Parking(Protocol):
    """Where one request may wait."""

    @property
    def has_waited(self) -> bool:
        """Whether it was parked before, and is to be answered now."""

    @property
    def is_parked(self) -> bool: ...

    def park(self) -> Parked | None:
        """From now on it waits. None: too many do already, so it is to be answered now."""


def parking(request: HttpRequest) -> Parking | None:
    found: Parking | None = request.META.get(ENVIRON)
    return found


def is_parked(request: HttpRequest) -> bool:
    found = parking(request)
    return found is not None and found.is_parked


def has_waited(request: HttpRequest) -> bool:
    found = parking(request)
    return found is not None and found.has_waited
