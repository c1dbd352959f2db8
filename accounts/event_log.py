"""The log of what happened to a user's keys and sessions. It holds neither keys nor whole client addresses."""

from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpRequest
from django.utils import timezone

from accounts import throttle
from accounts.models import AccountEvent, ApiKey, EventKind, User
from config.error_answers import Refused

PAGE = 25
# Changes to keys and secrets, of one user: each is written down, and a key that ended stays.
MAX_CHANGES_PER_MINUTE = 60


@dataclass(frozen=True)
class EventPage:
    events: list[AccountEvent]  # newest first
    older: int | None  # `before` of the next page; None at the end


def record(request: HttpRequest, user: User, kind: EventKind, key: ApiKey | None = None, detail: str = "") -> None:
    now = timezone.now()
    AccountEvent.objects.create(
        user=user,
        at=now,
        kind=kind,
        key_name=key.name if key else "",
        key_ends=key.ends if key else "",
        detail=detail,
        client_network=throttle.client_network(request),
    )


def check_pace(user: User) -> None:
    """Check that the user may make, show or rotate another key. Raises `Refused`: too_many_changes.

    To revoke a key is never too much.
    """
    if seconds := throttle.take("key changes", user.pk, MAX_CHANGES_PER_MINUTE):
        raise Refused(
            "too_many_changes",
            f"Keys and secrets were made, shown or rotated {MAX_CHANGES_PER_MINUTE} times in a minute. Try later.",
            retry_after=seconds,
        )


def read(user: User, before: int | None = None, size: int = PAGE) -> EventPage:
    """Return the user's events before the id `before`, newest first. New events do not move them to another page."""
    # Workers delete them some time after that.
    events = user.events.filter(at__gte=timezone.now() - timedelta(days=AccountEvent.KEPT_DAYS)).order_by("-id")
    if before is not None:
        events = events.filter(id__lt=before)
    rows = list(events[: size + 1])
    return EventPage(rows[:size], older=rows[size - 1].pk if len(rows) > size else None)
