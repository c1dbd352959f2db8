"""A batch's webhook deliveries. Only the batch's owner sees them, and only the host of the webhook's URL is shown."""

import json
from datetime import datetime
from typing import Any

from accounts.models import User
from explorer.lists.searched_account import NUMBER
from queries import webhooks
from queries.models import DeliveryStatus, Webhook, WebhookDelivery

PAGE_SIZE = 20


def read(internal_id: str, user: User | None, before: str) -> dict[str, Any] | None:
    """Return the batch's webhook for templates, with a page of deliveries that are older than the id `before`.

    None: the batch has no webhook of this user.
    """
    if user is None:
        return None
    webhook = Webhook.objects.filter(pk=internal_id, user=user).only("receiver").first()
    if webhook is None:
        return None
    last = int(before) if NUMBER.fullmatch(before) else None
    rows = webhooks.listed(user.pk, batch=internal_id, before=last, limit=PAGE_SIZE + 1)
    older, rows = len(rows) > PAGE_SIZE, rows[:PAGE_SIZE]
    pending = WebhookDelivery.objects.filter(webhook=internal_id, status=DeliveryStatus.PENDING)
    following = pending.order_by("pk").first()
    deliveries = [
        {
            "row": row,
            "step": json.loads(row.body)["data"].get("step", ""),
            "is_next": row == following,
            "attempts": [attempt | {"at": datetime.fromisoformat(attempt["at"])} for attempt in reversed(row.attempts)],
        }
        for row in rows
    ]
    return {
        "receiver": webhook.receiver,
        "deliveries": deliveries,
        "place": "" if last is None else f"?deliveries={last}",
        "older": rows[-1].pk if older else "",
    }
