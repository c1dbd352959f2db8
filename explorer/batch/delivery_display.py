"""Webhook deliveries of a batch, or of all batches of a user. Only the user sees them.

Only the host and port of a webhook's URL are shown.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import Min

from accounts.models import User
from queries import webhooks
from queries.models import DeliveryStatus, Webhook, WebhookDelivery

DELIVERY_SENTENCES = {
    "sent_again": "Sending the delivery again.",
    "test": "Sending the test event. Reload the page to see the result.",
}

_PAGE_SIZE = 20


def read(internal_id: str, user: User | None, before: str) -> dict[str, Any] | None:
    """Return the batch's webhook for templates, with a page of deliveries that are older than the id `before`.

    None: the batch has no webhook of this user.
    """
    if user is None:
        return None
    webhook = Webhook.objects.filter(pk=internal_id, user=user).only("receiver").first()
    if webhook is None:
        return None
    return {"receiver": webhook.receiver, **paged(user, before, internal_id)}


def paged(user: User, before: str, internal_id: str = "") -> dict[str, Any]:
    """Return a page of the user's deliveries, of one batch or of all, and the `before` of this page and the next."""
    last = int(before) if before else None
    rows = webhooks.listed(user.pk, batch=internal_id, before=last, limit=_PAGE_SIZE + 1)
    older = rows[_PAGE_SIZE - 1].pk if len(rows) > _PAGE_SIZE else None
    return {"deliveries": displayed(rows[:_PAGE_SIZE]), "before": last, "older": older}


def displayed(rows: Iterable[WebhookDelivery]) -> list[dict[str, Any]]:
    """Return the deliveries for templates."""
    rows = list(rows)
    pending = {row.webhook_id for row in rows if row.status == DeliveryStatus.PENDING}
    # The first pending delivery of each batch is sent next.
    of_batches = WebhookDelivery.objects.filter(webhook__in=pending, status=DeliveryStatus.PENDING)
    following = set(of_batches.values("webhook").annotate(first=Min("pk")).values_list("first", flat=True))
    return [
        {
            "row": row,
            "step": json.loads(row.body)["data"].get("step", ""),
            "is_next": row.pk in following,
            "attempts": [attempt | {"at": datetime.fromisoformat(attempt["at"])} for attempt in reversed(row.attempts)],
        }
        for row in rows
    ]
