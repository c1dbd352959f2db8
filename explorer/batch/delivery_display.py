"""A batch's webhook deliveries, which only the batch's owner sees. Of the webhook's URL only the host is shown."""

import json
from datetime import datetime
from typing import Any

from accounts.models import User
from queries import webhooks
from queries.models import DeliveryStatus, Webhook

# The newest.
_MOST_SHOWN = 20


def read(internal_id: str, user: User | None) -> dict[str, Any] | None:
    """Return the webhook of the batch as templates show it. None where it has none, or is not this user's."""
    if user is None:
        return None
    webhook = Webhook.objects.filter(pk=internal_id, user=user).only("receiver").first()
    if webhook is None:
        return None
    rows = webhooks.listed(user.pk, batch=internal_id, limit=_MOST_SHOWN)
    pending = [row for row in rows if row.status == DeliveryStatus.PENDING]
    deliveries = [
        {
            "row": row,
            "step": json.loads(row.body)["data"].get("step", ""),
            "is_next": row in pending[-1:],
            "attempts": [attempt | {"at": datetime.fromisoformat(attempt["at"])} for attempt in reversed(row.attempts)],
        }
        for row in rows
    ]
    return {"receiver": webhook.receiver, "deliveries": deliveries}
