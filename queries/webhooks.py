"""Webhooks: the events of a batch, test events, and the results of their deliveries.

An event is stored as a `WebhookDelivery` in the transaction of the change itself, so no event is lost or wrong (an
outbox). This module creates and lists events, and makes them due again. `proving.webhooks` delivers them.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Exists, F, Min, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from accounts import throttle, webhook_secrets
from accounts.models import User
from config.database import statements
from config.error_answers import Refused
from queries import clock
from queries.models import Batch, DeliveryStatus, Webhook, WebhookDelivery, WebhookEvent, new_batch_id
from queries.webhook_targets import NotAllowed, WebhookRequest, target

# How long a delivery is retried.
RETRIED = timedelta(days=1)
# A test event's URL may be a stranger's, who never asked for it.
_TEST_RETRIED = timedelta(minutes=2)
# Maximum test events and repeated deliveries of a user per minute. Each reaches a URL that may be a stranger's.
_MOST_PER_MINUTE = 10

_TYPES = {
    WebhookEvent.DONE: "batch_query.done",
    WebhookEvent.REJECTED: "batch_query.rejected",
    WebhookEvent.WENT_BACK: "batch_query.went_back",
    WebhookEvent.STEP: "batch_query.step_completed",
    WebhookEvent.TEST: "webhook.test",
}


# --- Events -----------------------------------------------------------------------------------------------------------


def prepared(batch: Batch, request: WebhookRequest) -> Webhook:
    """Return the webhook of a new batch, for `store`."""
    return _to(request.url, request.headers, batch.pk, batch.user_id, request.events)


def _to(url: str, headers: Mapping[str, str], pk: str, user_id: int, events: Sequence[str]) -> Webhook:
    sealed = webhook_secrets.seal(json.dumps({"url": url, "headers": headers}), _row(pk))
    return Webhook(batch_id=pk, user_id=user_id, receiver=target(url).receiver, sealed=sealed, events=events)


def store(webhook: Webhook) -> None:
    """Store the webhook in the transaction that stores its batch. That transaction has locked the user's row."""
    webhook_secrets.issue_first(webhook.user_id)
    webhook.save(force_insert=True)


@dataclass(frozen=True)
class WebhookAddress:
    """The URL of a webhook, and the headers that its user has set."""

    url: str
    headers: Mapping[str, str]


def address(webhook: Webhook) -> WebhookAddress:
    """Return the webhook's URL and headers. Raises `webhook_secrets.CantOpen`."""
    return WebhookAddress(**json.loads(webhook_secrets.unseal(bytes(webhook.sealed), _row(webhook.pk))))


def of(batches: Collection[str]) -> dict[str, Webhook]:
    """Return the webhooks of these batches by batch id, with their batches' labels. Not every batch has one."""
    rows = Webhook.objects.filter(pk__in=batches).order_by("pk").select_related("batch")
    return {row.pk: row for row in rows.only("user_id", "events", "batch__label")}


def with_destinations() -> "QuerySet[Webhook]":
    """Select all webhooks, each with the `destination` of its batch. It is 0 for a test event, which has no batch."""
    batches = Batch.objects.filter(pk=OuterRef("pk")).values("destination_chain_id")
    return Webhook.objects.annotate(destination=Coalesce(Subquery(batches), 0))


@dataclass(frozen=True)
class FailingWebhooks:
    since: datetime
    webhooks: int
    receivers: int


def failing() -> FailingWebhooks | None:
    """Return the webhooks of batches whose delivery fails, if none was delivered since the first of them failed."""
    of_batches = Exists(Batch.objects.filter(pk=OuterRef("pk")))
    rows = Webhook.objects.filter(of_batches, due_at__isnull=False, attempts__gt=0)
    counts = {"since": Min("failing_since"), "webhooks": Count("pk"), "receivers": Count("receiver", distinct=True)}
    found = FailingWebhooks(**rows.aggregate(**counts))
    if not found.webhooks:
        return None
    delivered = WebhookDelivery.objects.filter(status=DeliveryStatus.DELIVERED, ended_at__gt=found.since)
    return None if delivered.exists() else found


def tell(webhooks: Iterable[Webhook], event: WebhookEvent, status: str, **more: object) -> None:
    """Store the event for each webhook that subscribes to it, in the transaction of the change itself.

    The caller has locked the batches. The event contains the batch's identifier, label, `status` and `more`.
    """
    if receivers := [webhook for webhook in webhooks if event in webhook.events]:
        _store_events(receivers, event, {"queryStatus": status, **more})


def send_test(user_id: int, url: str, headers: Mapping[str, str] | None = None) -> None:
    """Store a test event of the user for this URL. Raises `Refused`: malformed_url, too_many_requests."""
    try:
        webhook = _to(url, headers or {}, new_batch_id(), user_id, [WebhookEvent.TEST])
    except NotAllowed as refused:
        raise Refused("malformed_url", str(refused)) from None
    _count(user_id)
    with transaction.atomic():
        statements.lock(User.objects.filter(pk=user_id))
        store(webhook)
        _store_events([webhook], WebhookEvent.TEST, {})


def send_test_to_receiver(user_id: int, receiver: str) -> None:
    """Store a test event for the URL and headers that the user named last at this receiver.

    Raises `Refused`: unknown_receiver, secret_lost, and the codes of `send_test`.
    """
    webhook = Webhook.objects.filter(user=user_id, receiver=receiver).order_by("-pk").first()
    if webhook is None:
        raise Refused("unknown_receiver", "None of your webhooks uses this address.")
    try:
        last = address(webhook)
    except webhook_secrets.CantOpen:
        raise Refused("secret_lost", "This service can no longer read the receiver's URL.") from None
    send_test(user_id, last.url, last.headers)


def _store_events(receivers: Sequence[Webhook], event: WebhookEvent, data: Mapping[str, object]) -> None:
    """Store an event with the webhook's identifier and `data` for each of these webhooks, in a transaction."""
    now = timezone.now()
    rows = Webhook.objects.filter(pk__in=[webhook.pk for webhook in receivers])
    # A worker without further deliveries holds this lock while it makes the webhook not due.
    statements.lock(rows)
    gives_up_at = _gives_up_at(event)
    WebhookDelivery.objects.bulk_create(
        WebhookDelivery(
            webhook=webhook,
            user_id=webhook.user_id,
            event=event,
            body=_body(event, now, {"internalId": webhook.pk, **_label(webhook, event), **data}),
            created_at=now,
            next_try_at=Now(),
            gives_up_at=gives_up_at,
        )
        for webhook in receivers
    )
    rows.filter(due_at=None).update(due_at=Now())


def _label(webhook: Webhook, event: WebhookEvent) -> Mapping[str, str]:
    """Return the label of an event's batch, if it has one. Test events have no batch."""
    label = None if event == WebhookEvent.TEST else webhook.batch.label
    return {"label": label} if label else {}


def _body(event: WebhookEvent, at: datetime, data: Mapping[str, object]) -> str:
    return json.dumps({"type": _TYPES[event], "timestamp": at.isoformat(), "data": data})


def _gives_up_at(event: str) -> datetime:
    """Return when to give up, by the clock for deadlines, because giving up is final."""
    return clock.latest() + (_TEST_RETRIED if event == WebhookEvent.TEST else RETRIED)


def _count(user_id: int) -> None:
    """Count a test event, or a repeated delivery, of the user in this minute. Raises `Refused`: too_many_requests."""
    if seconds := throttle.take("webhook events", user_id, _MOST_PER_MINUTE):
        limit = f"You may send {_MOST_PER_MINUTE} test events and deliveries again in a minute, in all."
        raise Refused("too_many_requests", f"{limit} Ask again in {seconds} s.", retry_after=seconds)


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
    rows = WebhookDelivery.objects.filter(user=user_id).annotate(receiver=F("webhook__receiver")).order_by("-pk")
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
    keys = (
        WebhookDelivery.objects.filter(user=user_id, message_id=message_id)
        .values_list("pk", "webhook", "event")
        .first()
    )
    if keys is None:
        return False
    _count(user_id)
    delivery, webhook, event = keys
    with transaction.atomic():
        rows = Webhook.objects.filter(pk=webhook)
        statements.lock(rows)
        WebhookDelivery.objects.filter(pk=delivery).update(
            status=DeliveryStatus.PENDING, next_try_at=Now(), gives_up_at=_gives_up_at(event), failures=0, ended_at=None
        )
        rows.update(due_at=Now())
    return True
