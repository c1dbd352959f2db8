"""The log of events of a user's keys and sessions. It holds neither keys nor full client addresses."""

from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpRequest
from django.utils import timezone

from accounts import throttle
from accounts.models import AccountEvent, ApiKey, EventKind, User
from config.error_answers import Refused

PAGE = 25
# Maximum changes of a user's keys and secrets. Each change adds rows that are kept for a long time.
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
    """Count that the user makes, shows or rotates a key or secret. Raises `Refused`: too_many_changes.

    Revoking keys isn't limited.
    """
    if seconds := throttle.take("key changes", user.pk, MAX_CHANGES_PER_MINUTE):
        raise Refused(
            "too_many_changes",
            f"Keys and secrets were made, shown or rotated {MAX_CHANGES_PER_MINUTE} times in a minute. Try later.",
            retry_after=seconds,
        )


def read(user: User, before: int | None = None, size: int = PAGE) -> EventPage:
    """Return the user's events with an id below `before`, newest first. New events don't shift the pages."""
    # Workers delete older events, but not at once.
    events = user.events.filter(at__gte=timezone.now() - timedelta(days=AccountEvent.KEPT_DAYS)).order_by("-id")
    if before is not None:
        events = events.filter(id__lt=before)
    rows = list(events[: size + 1])
    return EventPage(rows[:size], older=rows[size - 1].pk if len(rows) > size else None)
