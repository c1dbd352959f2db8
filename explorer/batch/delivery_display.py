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
    "sent_again": "The delivery is sent again, now.",
    "test": "The test event is sent now. Reload the page for its result.",
}

# Number of the newest deliveries that are shown on the batch's page.
_MOST_SHOWN = 20


def read(internal_id: str, user: User | None) -> dict[str, Any] | None:
    """Return the batch's webhook for templates. None if the batch has no webhook of this user."""
    if user is None:
        return None
    webhook = Webhook.objects.filter(pk=internal_id, user=user).only("receiver").first()
    if webhook is None:
        return None
    rows = webhooks.listed(user.pk, batch=internal_id, limit=_MOST_SHOWN)
    return {"receiver": webhook.receiver, "deliveries": displayed(rows)}


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
