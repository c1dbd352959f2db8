"""Delivers the first pending event of a batch: signs it, sends it, and notes what came of it.

Who is killed between sending and noting leaves the event pending: it is sent again, with the same `webhook-id`. So a
receiver gets each at least once, and in order: the next one of a batch is sent when this one is delivered or given up.
"""

import secrets
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from django.conf import settings
from django.utils import timezone
from standardwebhooks.webhooks import Webhook as Signer

from accounts import sealing, webhook_secrets
from chains.bounded_http import Failed
from database import leases
from database.leases import Lease
from proving import job_runs
from proving.job_runs import JobRun
from proving.webhooks import guarded_post
from proving.webhooks.guarded_post import Post
from queries import webhooks
from queries.models import DeliveryStatus, Webhook, WebhookDelivery
from queries.webhooks import Attempt

# Between two attempts, in seconds; and by how much a pause is longer or shorter by chance, so that what failed together
# isn't tried again together.
_FIRST_PAUSE, _LONGEST_PAUSE = 5, 3000
_SPREAD = 0.2
_GONE = 410

_CANT_OPEN = (
    "This service can no longer read where it is sent, or by which secret it is signed: its API_KEY_SECRET is another."
)


def deliver(key: object, *, before_waiting: Callable[[], None] = lambda: None) -> None:
    """Try to deliver the first pending event of the webhook, the row `key`.

    `before_waiting` is called when the receiver is waited for next, for as long as it likes within bounds.
    """
    lease = leases.claim(Webhook.objects.all(), key)
    if lease is None:
        return
    with job_runs.job_run("webhook", batch=lease.row.pk) as job_run:
        try:
            _deliver(lease, job_run, before_waiting)
        except leases.LeaseLost:
            job_run.outcome = "lost"
        except Exception:
            lease.release(leases.backoff(lease.row.attempts), attempts=lease.row.attempts + 1)
            raise


def _deliver(lease: Lease[Webhook], job_run: JobRun, before_waiting: Callable[[], None]) -> None:
    delivery = webhooks.first_pending(lease.row)
    if delivery is None or _is_early(delivery):
        lease.write(lambda: lease.release(webhooks.due_next(lease.row)))
        job_run.outcome = "done"
        return
    request = _request(lease.row, delivery)
    before_waiting()
    attempt = _attempt(request)
    _note(lease, delivery, attempt)
    job_run.outcome = "done" if _is_delivered(attempt) else "fails"


def _is_early(delivery: WebhookDelivery) -> bool:
    """Return whether it still waits for more than a second. A later time than any pause has is of a clock ahead."""
    longest = (1 + _SPREAD) * _pause_after(delivery.failures - 1) if delivery.failures else timedelta()
    return 1 < webhooks.seconds_left(delivery) <= longest.total_seconds()


def _pause_after(failures: int) -> timedelta:
    return leases.backoff(failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)


def _request(webhook: Webhook, delivery: WebhookDelivery) -> Post | None:
    """Make the signed request; None where the secrets can't be read."""
    now = timezone.now().replace(microsecond=0)
    try:
        to = webhooks.destination(webhook)
    except sealing.CantOpen:
        return None
    signers = [Signer(secret) for secret in webhook_secrets.signing(webhook.user_id)]
    if not signers:
        return None
    signatures = " ".join(signer.sign(delivery.message_id, now, delivery.body) for signer in signers)
    headers = {
        **to.headers,
        "Content-Type": "application/json",
        "User-Agent": "batch-query-service",
        "webhook-id": delivery.message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signatures,
    }
    return Post(to.url, headers, delivery.body.encode())


def _attempt(request: Post | None) -> Attempt:
    at, began, status = timezone.now(), monotonic(), None
    if request is None:
        return Attempt(at, None, _CANT_OPEN, 0)
    try:
        # Another worker must not take it up meanwhile.
        status = guarded_post.post(request, seconds=min(guarded_post.TOTAL_SECONDS, settings.LEASE_SECONDS / 2))
        outcome = _said(status)
    except Failed as failed:
        outcome = f"The receiver {failed}."
    return Attempt(at, status, outcome, monotonic() - began)


def _said(status: int) -> str:
    if 200 <= status < 300:
        return "The receiver took it."
    if 300 <= status < 400:
        return f"The receiver redirects (HTTP status {status}), which is not followed."
    if status == _GONE:
        return f"The receiver wants no more of it (HTTP status {status}): it is given up."
    return f"The receiver answered with HTTP status {status}."


def _is_delivered(attempt: Attempt) -> bool:
    return attempt.http_status is not None and 200 <= attempt.http_status < 300


def _note(lease: Lease[Webhook], delivery: WebhookDelivery, attempt: Attempt) -> None:
    """Note an attempt, and release the webhook until its next delivery. Raises `LeaseLost`."""
    is_delivered = _is_delivered(attempt)
    ends_as = DeliveryStatus.DELIVERED if is_delivered else None
    if attempt.http_status == _GONE:
        ends_as = DeliveryStatus.FAILED
    spread = secrets.SystemRandom().uniform(1 - _SPREAD, 1 + _SPREAD)
    pause: timedelta = spread * _pause_after(delivery.failures)

    def write() -> None:
        webhooks.note(delivery, attempt, ends_as=ends_as, pause=pause)
        lease.release(webhooks.due_next(lease.row), attempts=0 if is_delivered else delivery.failures + 1)

    lease.write(write)
