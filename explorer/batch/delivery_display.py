"""A batch's webhook deliveries. Only the batch's owner sees them, and only the host of the webhook's URL is shown."""

import json
from datetime import datetime
from typing import Any

from accounts.models import User
from queries import webhooks
from queries.models import DeliveryStatus, Webhook

# Number of the newest deliveries that are shown.
_MOST_SHOWN = 20


def read(internal_id: str, user: User | None) -> dict[str, Any] | None:
    """Return the batch's webhook for templates. None if the batch has no webhook of this user."""
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
