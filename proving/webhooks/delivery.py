"""Delivers the first pending event of a batch: signs it, sends it, and notes what came of it.

Who is killed between sending and noting leaves the event pending: it is sent again, with the same `webhook-id`. So a
receiver gets each at least once, and in order: the next one of a batch is sent when this one is delivered or given up.
"""

import secrets
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone
from standardwebhooks.webhooks import Webhook as Signer

from accounts import webhook_secrets
from chains.bounded_http import Failed
from database import leases
from database.leases import Lease
from proving import job_runs
from proving.webhooks import guarded_post
from queries import clock, webhooks
from queries.models import DeliveryStatus, Webhook, WebhookDelivery

# Between two attempts, in seconds; and by how much a pause is longer or shorter by chance, so that what failed together
# isn't tried again together.
_FIRST_PAUSE, _LONGEST_PAUSE = 5, 3000
_SPREAD = 0.2
_GONE = 410
# Of one delivery: attempts that are kept.
_MAX_ATTEMPTS_KEPT = 50

_CANT_OPEN = (
    "This service can no longer read where it is sent, or by which secret it is signed: its API_KEY_SECRET is another."
)


def deliver(key: object) -> None:
    """Try to deliver the first pending event of the webhook, the row `key`."""
    lease = leases.claim(Webhook.objects.all(), key)
    if lease is None:
        return
    with job_runs.job_run("webhook", batch=lease.row.pk) as job_run:
        try:
            job_run.outcome = _deliver(lease)
        except leases.LeaseLost:
            job_run.outcome = "lost"
        except Exception:
            lease.release(leases.backoff(lease.row.attempts), attempts=lease.row.attempts + 1)
            raise


def _deliver(lease: Lease[Webhook]) -> str:
    delivery = webhooks.first_pending(lease.row)
    if delivery is None or _is_early(delivery):
        lease.write(lambda: lease.release(webhooks.due_next(lease.row)))
        return "done"
    at, began, status = timezone.now(), monotonic(), None
    try:
        url, headers = _signed(lease.row, delivery)
        # Who only waits for a receiver needs no connection to the database, unless a caller's transaction is open.
        if not connection.in_atomic_block:
            connection.close()
        # Another worker must not take it up meanwhile.
        seconds = min(guarded_post.TOTAL_SECONDS, settings.LEASE_SECONDS / 2)
        status = guarded_post.post(url, headers, delivery.body.encode(), seconds=seconds)
        outcome = _said(status)
    except webhook_secrets.CantOpen:
        outcome = _CANT_OPEN
    except Failed as failed:
        outcome = f"The receiver {failed}."
    attempt = {
        "at": at.isoformat(),
        "httpStatus": status,
        "outcome": outcome,
        "seconds": round(monotonic() - began, 3),
    }
    ends_as = None
    if status is not None and 200 <= status < 300:
        ends_as = DeliveryStatus.DELIVERED
    elif status == _GONE:
        ends_as = DeliveryStatus.FAILED
    lease.write(lambda: _note(lease, delivery, attempt, ends_as))
    return "done" if ends_as == DeliveryStatus.DELIVERED else "fails"


def _is_early(delivery: WebhookDelivery) -> bool:
    """Return whether its pause goes on for more than a second. One longer than any pause is of a clock ahead."""
    latest = Now() + timedelta(seconds=_LONGEST_PAUSE * (1 + _SPREAD))
    pausing = WebhookDelivery.objects.filter(next_try_at__gt=Now() + timedelta(seconds=1), next_try_at__lt=latest)
    return pausing.filter(pk=delivery.pk).exists()


def _signed(webhook: Webhook, delivery: WebhookDelivery) -> tuple[str, dict[str, str]]:
    """Return the URL, and the headers with the signature. Raises `webhook_secrets.CantOpen`."""
    now = timezone.now().replace(microsecond=0)
    url, headers = webhooks.destination(webhook)
    signers = [Signer(secret) for secret in webhook_secrets.signing(webhook.user_id)]
    if not signers:
        raise webhook_secrets.CantOpen
    return url, {
        **headers,
        "Content-Type": "application/json",
        "User-Agent": "batch-query-service",
        "webhook-id": delivery.message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signer.sign(delivery.message_id, now, delivery.body) for signer in signers),
    }


def _said(status: int) -> str:
    if 200 <= status < 300:
        return "The receiver took it."
    if 300 <= status < 400:
        return f"The receiver redirects (HTTP status {status}), which is not followed."
    if status == _GONE:
        return f"The receiver wants no more of it (HTTP status {status}): it is given up."
    return f"The receiver answered with HTTP status {status}."


def _note(
    lease: Lease[Webhook], delivery: WebhookDelivery, attempt: Mapping[str, object], ends_as: DeliveryStatus | None
) -> None:
    """Note an attempt, and release the webhook until its next delivery.

    `ends_as` None: it is tried again after a pause, unless the time for that is over by then.
    """
    spread = secrets.SystemRandom().uniform(1 - _SPREAD, 1 + _SPREAD)
    pause: timedelta = spread * leases.backoff(delivery.failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    is_delivered = ends_as == DeliveryStatus.DELIVERED
    # What has happened to it meanwhile counts, such as that it is to be sent again.
    fresh = WebhookDelivery.objects.get(pk=delivery.pk)
    fresh.attempts = [*fresh.attempts, attempt][-_MAX_ATTEMPTS_KEPT:]
    if ends_as is None and clock.earliest() + pause > fresh.gives_up_at:
        ends_as = DeliveryStatus.FAILED
    if ends_as is None:
        fresh.failures, fresh.next_try_at = fresh.failures + 1, Now() + pause
    else:
        fresh.status, fresh.ended_at, fresh.next_try_at = ends_as, timezone.now(), None
    fresh.save(update_fields=["attempts", "status", "failures", "next_try_at", "ended_at"])
    lease.release(webhooks.due_next(lease.row), attempts=0 if is_delivered else delivery.failures + 1)
