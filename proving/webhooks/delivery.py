"""Delivery of a batch's first pending event: it is signed and sent, and the result is stored.

If a worker is killed between sending and storing, the event stays pending and is sent again with the same `webhook-id`.
So a receiver gets each event at least once and in order: a batch's next event follows only after this one was delivered
or given up.
"""

import asyncio
import logging
import re
import secrets
import socket
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from ipaddress import IPv6Address, ip_address
from time import monotonic

import aiohttp
from aiohttp.client_proto import ResponseHandler
from django.conf import settings
from django.db.models import Window
from django.db.models.functions import Now, RowNumber
from django.utils import timezone
from standardwebhooks.webhooks import Webhook as Signer
from yarl import URL

from accounts import webhook_secrets
from chains.bounded_http import Failed, TimedOut, failure
from config.database import due_rows, statements
from config.database.due_rows import Claim
from proving.working import counters
from proving.working.lanes import HeldLane, LaneLost
from queries import clock, webhook_targets, webhooks
from queries.models import DeliveryStatus, Webhook, WebhookDelivery, WebhookEvent
from queries.webhook_targets import Address

logger = logging.getLogger(__name__)

# Maximum simultaneous deliveries: in total, per receiver, and per user.
_SENDERS, _MOST_OF_A_RECEIVER, _MOST_OF_A_USER = 32, 4, 8
# Seconds between checks for further due deliveries, while receivers are answering.
_LOOK_SECONDS = 0.2
# First and longest pause between two attempts, in seconds. The random part separates the next attempts of deliveries
# that failed at the same time.
_FIRST_PAUSE, _LONGEST_PAUSE = 5, 3000
# First pause of a delivery that a user requests. The receiver may be a stranger's, who then gets the same request at
# most once in a minute.
_FIRST_PAUSE_IF_REQUESTED = 80
_SPREAD = 0.2
_GONE = 410
# Maximum attempts that are stored per delivery.
_MAX_ATTEMPTS_KEPT = 50
TOTAL_SECONDS = 10.0
"""Maximum seconds of one delivery: name look-up, connection, TLS, request, and the status of the answer."""
# Maximum bytes before the final status, for example of interim responses (RFC 9110, section 15.2).
_MOST_BEFORE_STATUS = 1 << 16
_STATUS = re.compile(rb"HTTP/[0-9](?:\.[0-9])?[ \t]+([1-9][0-9]{2})[ \t\r\n]")
_SWITCHING_PROTOCOLS = b"101"  # no final status follows this one

# A port on which nothing listens. No packet is sent to it.
_DISCARD_PORT = 9

_CANT_OPEN = (
    "This service can no longer read the receiver's URL or the signing secret, because its API_KEY_SECRET has changed."
)


@dataclass(frozen=True)
class _DeliveryRequest:
    """The request for one attempt of a delivery."""

    webhook: Webhook
    delivery: WebhookDelivery
    url: str
    headers: Mapping[str, str]
    at: datetime
    began: float

    def post(self) -> "_DeliveryResult":
        # The request must end before the lease. After that, another worker may hold the lane and send the event again.
        seconds = min(TOTAL_SECONDS, settings.LEASE_SECONDS / 2)
        try:
            status = post(self.url, self.headers, self.delivery.body.encode(), seconds=seconds)
        except Failed as failed:
            return _DeliveryResult(None, f"The receiver {failed}.")
        return _DeliveryResult(status, _sentence(status))


@dataclass(frozen=True)
class _DeliveryResult:
    """The result of one attempt, as its users see it."""

    status: int | None
    """The HTTP status of the receiver's answer. None: there is none."""
    sentence: str


def deliver_all(lane: HeldLane, *, seconds: float) -> int:
    """Deliver due webhooks, and for some seconds those that become due. Return the number of internal errors.

    Deliveries run in parallel, so a slow receiver doesn't delay others.
    """
    failed, ends = 0, monotonic() + seconds
    sent: dict[Future[_DeliveryResult], tuple[Claim[Webhook], _DeliveryRequest]] = {}
    with ThreadPoolExecutor(_SENDERS, thread_name_prefix="webhooks") as senders:
        is_first = True
        while is_first or sent:
            if is_first or monotonic() < ends:
                keys = _next([request.webhook for _, request in sent.values()])
                claim = lane.write(partial(due_rows.claim, Webhook.objects.all(), keys))
                for webhook in claim.rows:
                    try:
                        if request := _prepare(lane, claim, webhook):
                            sent[senders.submit(request.post)] = claim, request
                    except LaneLost:
                        raise
                    except Exception:
                        failed += 1
                        # The webhook becomes due again when it would after a kill of the worker.
                        logger.exception("delivering to %s failed", webhook)
            is_first = False
            for future in wait(sent, _LOOK_SECONDS, FIRST_COMPLETED).done:
                _note_attempt(lane, *sent.pop(future), future.result())
    return failed


def _next(in_hand: Collection[Webhook]) -> list[str]:
    """Return the keys of webhooks to deliver now, one for each user in turn.

    Deliveries under way count towards the limits per user and per receiver, so a slow receiver doesn't delay others.
    """
    users, receivers = Counter(row.user_id for row in in_hand), Counter(row.receiver for row in in_hand)
    rows = due_rows.due(Webhook.objects.exclude(pk__in=[row.pk for row in in_hand]))
    rows = rows.exclude(user__in=[user for user, count in users.items() if count >= _MOST_OF_A_USER])
    rows = rows.exclude(
        receiver__in=[receiver for receiver, count in receivers.items() if count >= _MOST_OF_A_RECEIVER]
    )
    place = Window(RowNumber(), partition_by=["user"], order_by="due_at")
    ranked = rows.annotate(place=place).filter(place__lte=_SENDERS)
    chosen: list[str] = []
    for key, user, receiver in ranked.order_by("place", "due_at").values_list("pk", "user", "receiver"):
        if len(in_hand) + len(chosen) == _SENDERS:
            break
        if users[user] < _MOST_OF_A_USER and receivers[receiver] < _MOST_OF_A_RECEIVER:
            users[user] += 1
            receivers[receiver] += 1
            chosen.append(key)
    return chosen


def _prepare(lane: HeldLane, claim: Claim[Webhook], webhook: Webhook) -> _DeliveryRequest | None:
    """Return the request for the first pending event. None if nothing is to be sent now."""
    delivery = webhooks.first_pending(webhook)
    if delivery is None or _is_early(delivery):
        lane.write(partial(_end, claim, webhook))
        return None
    at, began = timezone.now(), monotonic()
    try:
        address = webhooks.address(webhook)
        signature = signed_headers(delivery.message_id, delivery.body, webhook_secrets.signing(webhook.user_id))
    except webhook_secrets.CantOpen:
        request = _DeliveryRequest(webhook, delivery, "", {}, at, began)
        _note_attempt(lane, claim, request, _DeliveryResult(None, _CANT_OPEN))
        return None
    return _DeliveryRequest(webhook, delivery, address.url, {**address.headers, **signature}, at, began)


def _note_attempt(lane: HeldLane, claim: Claim[Webhook], request: _DeliveryRequest, result: _DeliveryResult) -> None:
    status = result.status
    attempt = {
        "at": request.at.isoformat(),
        "httpStatus": status,
        "outcome": result.sentence,
        "seconds": round(monotonic() - request.began, 3),
    }
    ends_as = None
    if status is not None and 200 <= status < 300:
        ends_as = DeliveryStatus.DELIVERED
    elif status == _GONE:
        ends_as = DeliveryStatus.FAILED
    lane.write(partial(_note, claim, request.webhook, request.delivery, attempt, ends_as))
    outcome_of_run = "done" if ends_as == DeliveryStatus.DELIVERED else "fails"
    counters.note_job_run("webhook", outcome_of_run, request.began)


def _end(claim: Claim[Webhook], webhook: Webhook, attempts: int = 0) -> None:
    """Make the webhook due for its next delivery, in the caller's transaction."""
    # Processes that add a delivery hold the same lock.
    statements.lock(Webhook.objects.filter(pk=webhook.pk))
    claim.end([webhook], webhooks.due_next(webhook), attempts=attempts)


def _is_early(delivery: WebhookDelivery) -> bool:
    """Return whether the pause lasts for more than another second.

    A pause that is too long comes from a wrong clock, and doesn't count.
    """
    latest = Now() + timedelta(seconds=_LONGEST_PAUSE * (1 + _SPREAD))
    pausing = WebhookDelivery.objects.filter(next_try_at__gt=Now() + timedelta(seconds=1), next_try_at__lt=latest)
    return pausing.filter(pk=delivery.pk).exists()


def signed_headers(message_id: str, body: str, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of a message with its signatures (Standard Webhooks), made now."""
    now = timezone.now().replace(microsecond=0)
    return {
        "Content-Type": "application/json",
        "User-Agent": "batch-query-service",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(Signer(secret).sign(message_id, now, body) for secret in secrets),
    }


def _sentence(status: int) -> str:
    if 200 <= status < 300:
        return "The receiver took it."
    if 300 <= status < 400:
        return f"The receiver redirects (HTTP status {status}), which is not followed."
    if status == _GONE:
        return f"The receiver wants no more events (HTTP status {status}), so the service gives up this one."
    return f"The receiver answered with HTTP status {status}."


def _note(
    claim: Claim[Webhook],
    webhook: Webhook,
    delivery: WebhookDelivery,
    attempt: Mapping[str, object],
    ends_as: DeliveryStatus | None,
) -> None:
    """Store an attempt, and make the webhook due for its next delivery.

    If `ends_as` is None, the delivery is repeated after a pause, unless it would be too late by then.
    """
    is_delivered = ends_as == DeliveryStatus.DELIVERED
    # A user may have requested the delivery again meanwhile. Both lock the webhook, and only then change the delivery.
    statements.lock(Webhook.objects.filter(pk=webhook.pk))
    fresh = WebhookDelivery.objects.get(pk=delivery.pk)
    fresh.attempts = [*fresh.attempts, attempt][-_MAX_ATTEMPTS_KEPT:]
    # Only a user makes the service send an event again whose failures are no longer counted.
    is_requested = fresh.event == WebhookEvent.TEST or len(fresh.attempts) > delivery.failures + 1
    first = _FIRST_PAUSE_IF_REQUESTED if is_requested else _FIRST_PAUSE
    spread = secrets.SystemRandom().uniform(1 - _SPREAD, 1 + _SPREAD)
    pause: timedelta = spread * due_rows.backoff(delivery.failures, first=first, longest=_LONGEST_PAUSE)
    if ends_as is None and clock.earliest() + pause > fresh.gives_up_at:
        ends_as = DeliveryStatus.FAILED
    if ends_as is None:
        fresh.failures, fresh.next_try_at = fresh.failures + 1, Now() + pause
    else:
        fresh.status, fresh.ended_at, fresh.next_try_at = ends_as, timezone.now(), None
    fresh.save(update_fields=["attempts", "status", "failures", "next_try_at", "ended_at"])
    _end(claim, webhook, attempts=0 if is_delivered else delivery.failures + 1)


# --- The guarded POST -------------------------------------------------------------------------------------------------
#
# Users choose the receivers, so a request must not reach the operator's networks, and its time is limited. The address
# of each connection is checked when it is opened (`queries.webhook_targets`), whatever a name server answered before.
# TLS and the header `Host` use the name. No redirect is followed, no proxy of the environment is used, and only the
# answer's status is read.


def post(url: str, headers: Mapping[str, str], body: bytes, *, seconds: float = TOTAL_SECONDS) -> int:
    """Send a request, and return the HTTP status of the answer. Raises `Failed`, `TimedOut`."""
    guard = _PublicAddressGuard(url)
    try:
        # Unlike `asyncio.run`, this doesn't wait for the thread of a hanging name look-up, which can't be ended.
        with closing(asyncio.new_event_loop()) as loop:
            return loop.run_until_complete(_answered(url, headers, body, guard, seconds))
    except TimeoutError:
        failed: Failed = TimedOut(f"did not answer within {seconds:g} seconds")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Both cases have the same text, so that users can't discover names in the internal network.
        is_unknown = guard.has_refused or isinstance(error, aiohttp.ClientConnectorDNSError)
        failed = Failed("has no public address") if is_unknown else failure(error)
    # Raised outside of `except`, so that no chained exception shows the URL.
    raise failed


class _PublicAddressGuard:
    """A factory for a request's sockets. It refuses addresses that aren't allowed."""

    def __init__(self, url: str) -> None:
        # The host as aiohttp reads it.
        self._is_named = webhook_targets.is_named(URL(url).raw_host or "")
        self.has_refused = False

    def open(self, to: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for an allowed address. Raises `PermissionError`."""
        family, kind, protocol, _, sockaddr = to
        if not self._is_named and not _may_connect(ip_address(sockaddr[0])):
            self.has_refused = True
            raise PermissionError
        return socket.socket(family, kind, protocol)


def _may_connect(address: Address) -> bool:
    if not webhook_targets.is_allowed(address):
        return False
    return webhook_targets.is_exempt(address) or not _is_of_this_machine(address)


def _is_of_this_machine(address: Address) -> bool:
    """Return whether connections to the address stay in this machine, where no firewall stops them."""
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _DISCARD_PORT))
        except OSError:
            return False  # the address can't be reached
        return ip_address(probe.getsockname()[0]) == address


class _StatusReader(ResponseHandler):
    """A reader that passes on only the status of an answer.

    The library would refuse an answer with an invalid header or an unexpected body, although the receiver has the
    event.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._line, self._most = b"", _MOST_BEFORE_STATUS
        self._is_interim = self._is_passed_on = False

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            # The library keeps early bytes, and calls this method with them again.
            super().data_received(data)
            return
        if self._is_passed_on:
            return
        self._most -= len(data)
        for line in (self._line + data).splitlines(keepends=True):
            is_whole = line.endswith((b"\r", b"\n"))
            status = _STATUS.match(line)
            if status and (status[1][:1] != b"1" or status[1] == _SWITCHING_PROTOCOLS):
                self._pass_on(status[1])
                return
            self._is_interim = self._is_interim or bool(status)
            if is_whole and line.strip() and not self._is_interim:
                self._pass_on(b"")
                return
            self._line = b"" if is_whole else line
        if self._most < 0:
            self._pass_on(b"")

    def _pass_on(self, status: bytes) -> None:
        """Pass the status to the library. The library refuses an empty status."""
        self._is_passed_on = True
        super().data_received(b"HTTP/1.1 %s \r\nContent-Length: 0\r\n\r\n" % status)


async def _answered(
    url: str, headers: Mapping[str, str], body: bytes, guard: _PublicAddressGuard, seconds: float
) -> int:
    # Each request has a new connector, so that no connection to another receiver is reused.
    connector = aiohttp.TCPConnector(
        resolver=aiohttp.ThreadedResolver(), use_dns_cache=False, force_close=True, socket_factory=guard.open
    )
    # aiohttp has no public way to set the class, and mypy doesn't accept a partial of a subclass.
    connector._factory = partial(_StatusReader, asyncio.get_running_loop())  # type: ignore[assignment]  # noqa: SLF001
    async with (
        asyncio.timeout(seconds),
        aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False
        ) as session,
        session.post(
            # A signed URL is another one if only its escapes are written otherwise.
            URL(url, encoded=True),
            data=body,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer,
    ):
        return answer.status
