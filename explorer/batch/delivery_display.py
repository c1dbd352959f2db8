"""What the webhook of a batch was told, for the batch's owner alone. No more of its URL is shown than the host."""

import json
from dataclasses import dataclass
from datetime import datetime

from accounts.models import User
from queries import webhooks
from queries.models import DeliveryStatus, Webhook, WebhookDelivery

# The newest.
_MOST_SHOWN = 20


@dataclass(frozen=True)
class ShownAttempt:
    at: datetime
    http_status: int | None
    outcome: str
    seconds: float


@dataclass(frozen=True)
class ShownDelivery:
    id: str
    event: str
    step: str  # that the event is about; empty if it is about none
    status: str
    created_at: datetime
    next_try_at: datetime | None  # None also where an earlier one goes first
    attempts: tuple[ShownAttempt, ...]  # the newest first


@dataclass(frozen=True)
class ShownWebhook:
    receiver: str  # host:port
    deliveries: tuple[ShownDelivery, ...]  # the newest first


def read(internal_id: str, user: User | None) -> ShownWebhook | None:
    """Return the webhook of the batch. None where it has none, or is not this user's."""
    if user is None or not internal_id.isalnum():
        return None
    webhook = Webhook.objects.filter(pk=internal_id, user=user).only("receiver").first()
    if webhook is None:
        return None
    rows = webhooks.listed(user.pk, batch=internal_id, limit=_MOST_SHOWN)
    pending = [row for row in rows if row.status == DeliveryStatus.PENDING]
    return ShownWebhook(webhook.receiver, tuple(_shown(row, is_next=row in pending[-1:]) for row in rows))


def _shown(row: WebhookDelivery, *, is_next: bool) -> ShownDelivery:
    attempts = (
        ShownAttempt(datetime.fromisoformat(one["at"]), one["httpStatus"], one["outcome"], one["seconds"])
        for one in reversed(row.attempts)
    )
    return ShownDelivery(
        id=row.message_id,
        event=row.event,
        step=json.loads(row.body)["data"].get("step", ""),
        status=row.status,
        created_at=row.created_at,
        next_try_at=row.next_try_at if is_next else None,
        attempts=tuple(attempts),
    )
