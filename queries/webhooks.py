"""Webhooks: the events of a batch, and the results of their deliveries.

An event is stored as a `WebhookDelivery` in the transaction of the change itself, so no event is lost or wrong (an
outbox). This module creates and lists events, and makes them due again. `proving.webhooks` delivers them.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from accounts import throttle, webhook_secrets
from config.error_answers import Refused
from database import statements
from queries import clock
from queries.models import Batch, DeliveryStatus, Webhook, WebhookDelivery, WebhookEvent
from queries.webhook_targets import WebhookRequest, target

# How long a delivery is retried.
RETRIED = timedelta(days=1)
# Maximum deliveries that a user may repeat per minute.
_MAX_AGAIN_PER_MINUTE = 60

_TYPES = {
    WebhookEvent.DONE: "batch_query.done",
    WebhookEvent.REJECTED: "batch_query.rejected",
    WebhookEvent.WENT_BACK: "batch_query.went_back",
    WebhookEvent.STEP: "batch_query.step_completed",
}


# --- Events -----------------------------------------------------------------------------------------------------------


def prepared(batch: Batch, request: WebhookRequest) -> Webhook:
    """Return the webhook of a new batch, for `store`."""
    return Webhook(
        batch_id=batch.pk,
        user_id=batch.user_id,
        receiver=target(request.url).receiver,
        sealed=webhook_secrets.seal(json.dumps({"url": request.url, "headers": request.headers}), _row(batch.pk)),
        events=request.events,
    )


def store(webhook: Webhook) -> None:
    """Store the webhook in the transaction that stores its batch. That transaction has locked the user's row."""
    webhook_secrets.issue_first(webhook.user_id)
    webhook.save(force_insert=True)


def destination(webhook: Webhook) -> tuple[str, dict[str, str]]:
    """Return the webhook's URL and headers. Raises `webhook_secrets.CantOpen`."""
    content = json.loads(webhook_secrets.unseal(bytes(webhook.sealed), _row(webhook.pk)))
    return content["url"], content["headers"]


def of(batches: Collection[str]) -> dict[str, Webhook]:
    """Return the webhooks of these batches by batch id. Not every batch has one."""
    rows = Webhook.objects.filter(pk__in=batches).order_by("pk").only("batch_id", "user_id", "events")
    return {row.pk: row for row in rows}


def tell(webhooks: Iterable[Webhook], event: WebhookEvent, status: str, **more: object) -> None:
    """Store the event for each webhook that subscribes to it, in the transaction of the change itself.

    The caller has locked the batches. The event contains the batch's identifier, `status` and `more`.
    """
    receivers = [webhook for webhook in webhooks if event in webhook.events]
    if not receivers:
        return
    now = timezone.now()
    rows = Webhook.objects.filter(pk__in=[webhook.pk for webhook in receivers])
    # A worker without further deliveries holds this lock while it makes the webhook not due.
    statements.lock(rows)
    gives_up_at = _gives_up_at()
    WebhookDelivery.objects.bulk_create(
        WebhookDelivery(
            webhook=webhook,
            user_id=webhook.user_id,
            event=event,
            body=_body(event, now, {"internalId": webhook.pk, "queryStatus": status, **more}),
            created_at=now,
            next_try_at=Now(),
            gives_up_at=gives_up_at,
        )
        for webhook in receivers
    )
    rows.filter(due_at=None).update(due_at=Now())


def _body(event: WebhookEvent, at: datetime, data: Mapping[str, object]) -> str:
    return json.dumps({"type": _TYPES[event], "timestamp": at.isoformat(), "data": data})


def _gives_up_at() -> datetime:
    """Return when to give up, by the clock for deadlines, because giving up is final."""
    return clock.latest() + RETRIED


def _row(batch_id: str) -> str:
    return f"webhook of batch {batch_id}"


# --- Results of deliveries --------------------------------------------------------------------------------------------


def first_pending(webhook: Webhook) -> WebhookDelivery | None:
    return webhook.deliveries.filter(status=DeliveryStatus.PENDING).order_by("pk").first()


def due_next(webhook: Webhook) -> datetime | None:
    """Return the time of the next attempt; None if no delivery is pending."""
    delivery = first_pending(webhook)
    return delivery.next_try_at if delivery else None


def listed(
    user_id: int, *, batch: str = "", status: str = "", before: int | None = None, limit: int = 50
) -> list[WebhookDelivery]:
    """Return the user's deliveries with a lower primary key, newest first, optionally of one batch or status."""
    rows = WebhookDelivery.objects.filter(user=user_id).order_by("-pk")
    if batch:
        rows = rows.filter(webhook=batch)
    if status:
        rows = rows.filter(status=status)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows[:limit])


def send_again(user_id: int, message_id: str) -> bool:
    """Make the user's delivery due again now, even if it was delivered. False: there is no such delivery.

    The receiver sees the same message id. Raises `Refused`: too_many_requests.
    """
    keys = WebhookDelivery.objects.filter(user=user_id, message_id=message_id).values_list("pk", "webhook").first()
    if keys is None:
        return False
    if seconds := throttle.take("deliveries sent again", user_id, _MAX_AGAIN_PER_MINUTE):
        raise Refused(
            "too_many_requests",
            f"You may send {_MAX_AGAIN_PER_MINUTE} deliveries again in a minute.",
            retry_after=seconds,
        )
    delivery, webhook = keys
    with transaction.atomic():
        rows = Webhook.objects.filter(pk=webhook)
        statements.lock(rows)
        WebhookDelivery.objects.filter(pk=delivery).update(
            status=DeliveryStatus.PENDING, next_try_at=Now(), gives_up_at=_gives_up_at(), failures=0, ended_at=None
        )
        rows.update(due_at=Now())
    return True
