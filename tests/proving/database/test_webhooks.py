"""Webhooks reach real HTTP receivers signed, in order and at least once. Limits protect the service from receivers."""

import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from io import StringIO
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import connector
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.utils import timezone
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from accounts.models import User
from batch_query_client import verify_webhook
from queries.models import Batch, DeliveryStatus, StepKind, Webhook, WebhookDelivery
from tests.chains.hostile_node import DRIPS, FLOODS, Exchange, hostile_node
from tests.explorer.batches import accept, complete, reopen, settle
from tests.factories import client_of, until
from tests.proving.receiver import Received, Receiver, receiver
from tests.service import ALICE, BOB, a_key, expire, expire_leases, header, request, submit, work, work_until_done

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]

EVERY = ["DONE", "REJECTED", "WENT_BACK", "STEP"]
SECONDS = 60


@pytest.fixture(autouse=True)
def webhooks_to_this_machine(unreachable_chain, settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as hook:
        yield hook


def with_webhook(
    url: str, *, user: str = ALICE, block: int = 12, events: list[str] | None = None, **more: Any
) -> Batch:
    key = User.objects.for_address(user).api_keys.first() or a_key(user)
    body = {**request(ALICE, block=block), "webhook": {"url": url, "events": events or EVERY, **more}}
    return accept(submit(key, body))


def done(url: str, **more: Any) -> Batch:
    """Return a DONE batch whose webhook has five events."""
    batch = with_webhook(url, **more)
    complete(batch, *StepKind)
    return batch


def deliver_all(batch: Batch) -> None:
    """Work until all events are delivered or given up. Pauses between attempts are skipped."""
    for _ in range(20):
        WebhookDelivery.objects.filter(next_try_at__gt=timezone.now()).update(next_try_at=timezone.now())
        work()
        if not batch.webhook.deliveries.filter(status=DeliveryStatus.PENDING).exists():
            return
    raise AssertionError


def deliver_due() -> None:
    """Work until all events that are due now have been tried. One turn has little time for a receiver that fails."""
    now = timezone.now()
    while WebhookDelivery.objects.filter(next_try_at__lte=now).exists():
        work()


def rows(batch: Batch) -> list[WebhookDelivery]:
    return list(batch.webhook.deliveries.order_by("pk"))


def outcomes(batch: Batch) -> list[str]:
    """Return the outcome of each attempt at the first event."""
    return [attempt["outcome"] for attempt in rows(batch)[0].attempts]


def secret_of(batch: Batch | WebhookDelivery) -> str:
    """Return the user's webhook secret as its owner sees it."""
    shown = client_of(batch.user.address).post("/dashboard/webhooks/reveal", headers={"accept": "application/json"})
    return str(shown.json()["webhookSecret"])


# --- Delivery ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_webhook_gets_each_event_in_order_signed_and_with_its_headers(hook, service):
    webhook = {"url": hook.url, "events": EVERY, "headers": {"Authorization": "Bearer mine"}}
    batch = submit(a_key(), {**request(ALICE, block=2), "webhook": webhook})
    work_until_done(batch, service)
    deliver_all(batch)
    assert hook.types == [*["step_completed"] * 4, "done"]
    assert [delivery.data("step") for delivery in hook.received[:4]] == list(StepKind)
    secret = secret_of(batch)
    for got, row in zip(hook.received, rows(batch), strict=True):
        assert Verifier(secret).verify(got.body, got.headers)["data"]["internalId"] == batch.pk
        assert (got.id, got.body.decode(), row.status) == (row.message_id, row.body, DeliveryStatus.DELIVERED)
        assert got.headers["authorization"] == "Bearer mine"
        assert (got.path, got.headers["host"]) == ("/hook", hook.url.split("/")[2])
        assert (got.headers["content-type"], got.headers["user-agent"]) == ("application/json", "batch-query-service")
        assert got.headers.get("cookie") is None
        (attempt,) = row.attempts
        assert (attempt["httpStatus"], attempt["outcome"]) == (204, "The receiver took it.")
        assert 0 <= attempt["seconds"] < SECONDS


@pytest.mark.django_db  # inside a transaction, where the order of locks is checked
def test_a_rotated_secret_signs_beside_its_successor_as_long_as_was_said(hook, db):
    batch = done(hook.url)
    old = secret_of(batch)
    client_of(ALICE).post("/dashboard/webhooks/rotate", {"overlap": "1h"})
    new = secret_of(batch)
    work()
    batch.user.webhook_secrets.exclude(expires_at=None).update(expires_at=timezone.now())
    work()
    both, later = hook.received
    assert len(both.headers["webhook-signature"].split()) == 2
    for secret in (old, new):
        Verifier(secret).verify(both.body, both.headers)
    Verifier(new).verify(later.body, later.headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(old).verify(later.body, later.headers)


def test_an_event_that_is_not_taken_is_sent_again_with_the_same_id_before_any_other():
    answers = iter([500, 404, 200])
    with receiver(lambda _: next(answers, 200)) as hook:
        batch = done(hook.url)
        pauses = []
        for _ in range(2):
            work()
            first = rows(batch)[0]
            assert first.status == DeliveryStatus.PENDING
            assert first.next_try_at
            last = datetime.fromisoformat(first.attempts[-1]["at"])
            pauses.append((first.next_try_at - last).total_seconds())
            # Make the next attempt due.
            WebhookDelivery.objects.filter(pk=first.pk).update(next_try_at=timezone.now())
        deliver_all(batch)
    assert [delivery.data("step") for delivery in hook.received[:4]] == [
        *[StepKind.INITIAL_STATE] * 3,
        "BLOCKHASH_AVAILABLE",
    ]
    assert len({delivery.id for delivery in hook.received[:3]}) == 1
    assert len({delivery.id for delivery in hook.received}) == 5
    assert [attempt["httpStatus"] for attempt in rows(batch)[0].attempts] == [500, 404, 200]
    # Each pause is longer than the one before, with a random part.
    assert 3.9 < pauses[0] < 6.1 + 5
    assert 7.9 < pauses[1] < 12.1 + 5
    # Each attempt has its own time and signature.
    assert all(abs(int(delivery.headers["webhook-timestamp"]) - time.time()) < SECONDS for delivery in hook.received)


@pytest.mark.long
def test_after_a_day_it_is_given_up_and_the_next_is_told():
    answers = iter([500, 200])
    with receiver(lambda _: next(answers, 200)) as hook:
        batch = done(hook.url)
        first = rows(batch)[0]
        assert abs(first.gives_up_at - first.created_at - timedelta(days=1)) < timedelta(minutes=1)
        WebhookDelivery.objects.filter(pk=first.pk).update(gives_up_at=timezone.now())
        work()
        assert [row.status for row in rows(batch)[:2]] == [DeliveryStatus.FAILED, DeliveryStatus.PENDING]
        deliver_all(batch)
    assert len(hook.received) == 5


def test_a_receiver_that_is_gone_for_good_is_asked_once():
    with receiver(lambda _: 410) as hook:
        batch = done(hook.url, events=["DONE"])
        deliver_all(batch)
    assert [row.status for row in rows(batch)] == [DeliveryStatus.FAILED]
    assert len(hook.received) == 1


def test_a_delivery_sent_again_goes_before_later_ones(hook):
    batch = done(hook.url)
    work(2)
    first = rows(batch)[0]
    again = Client().post(f"/webhook-deliveries/{first.message_id}/send-again", headers=header(batch.api_key))
    assert again.status_code == 202
    deliver_all(batch)
    ids = [row.message_id for row in rows(batch)]
    assert [delivery.id for delivery in hook.received] == [ids[0], ids[1], ids[0], *ids[2:]]
    assert [attempt["httpStatus"] for attempt in rows(batch)[0].attempts] == [204, 204]


def test_an_event_that_comes_while_another_is_sent_is_not_forgotten():
    def and_go_on(_: Received) -> int:
        if len(there.received) == 1:
            # Another worker rejects the batch during the delivery.
            expire()
            work()
            connections.close_all()
        return 200

    with receiver(and_go_on) as there:
        batch = with_webhook(there.url)
        complete(batch, StepKind.INITIAL_STATE)
        deliver_all(batch)
    assert there.types == ["step_completed", "rejected"]


def test_without_the_secrets_nothing_is_sent(hook, settings):
    batch = done(hook.url)
    right, settings.API_KEY_SECRET = settings.API_KEY_SECRET, "another"
    work()
    assert hook.received == []
    assert "API_KEY_SECRET" in outcomes(batch)[0]
    settings.API_KEY_SECRET = right
    batch.user.webhook_secrets.all().delete()
    WebhookDelivery.objects.update(next_try_at=timezone.now())
    work()
    assert hook.received == []


# --- Kills ------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def test_killed_between_sending_and_noting_it_is_sent_again_with_the_same_id(hook):
    batch = done(hook.url, events=["DONE"])

    def die_once_it_is_sent(execute: Any, *how: Any) -> Any:
        if hook.received:
            raise Killed
        return execute(*how)

    with connection.execute_wrapper(die_once_it_is_sent), pytest.raises(Killed):
        work()
    work()
    assert len(hook.received) == 1  # another worker holds it
    expire_leases()
    work()
    assert [delivery.id for delivery in hook.received] == [rows(batch)[0].message_id] * 2
    assert rows(batch)[0].status == DeliveryStatus.DELIVERED


@pytest.mark.long
def test_a_worker_killed_while_it_sends_loses_nothing(start_worker, monkeypatch, settings):
    monkeypatch.setenv("WEBHOOK_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("API_KEY_SECRET", settings.API_KEY_SECRET)
    workers: list[subprocess.Popen[bytes]] = []

    def kill_the_first(_: Received) -> int:
        if len(there.received) == 2:
            os.kill(workers[0].pid, signal.SIGKILL)
            workers[0].wait()
        return 200

    with receiver(kill_the_first) as there:
        batch = done(there.url)
        workers.append(start_worker())
        until(lambda: workers[0].poll() is not None, "the death of the first")
        start_worker()
        until(lambda: all(row.status == DeliveryStatus.DELIVERED for row in rows(batch)), "the delivery of all")
    ids = [row.message_id for row in rows(batch)]
    assert [delivery.id for delivery in there.received] == [ids[0], ids[1], *ids[1:]]


# --- Test events ------------------------------------------------------------------------------------------------------


def test_a_test_event_is_signed_and_sent_like_any_other_and_tried_again(db):
    statuses = [503, 204]
    with receiver(lambda _: statuses.pop(0)) as hook:
        client_of(ALICE).post("/webhooks/test", {"url": hook.url})
        work()
        WebhookDelivery.objects.update(next_try_at=timezone.now())
        work()
    event = WebhookDelivery.objects.get()
    secret = secret_of(event)
    assert [delivery.id for delivery in hook.received] == [event.message_id] * 2
    for delivery in hook.received:
        assert verify_webhook(delivery.body, delivery.headers, secret).type == "webhook.test"
    page = " ".join(client_of(ALICE).get("/webhooks").text.split())
    assert page.index("HTTP 204: The receiver took it.") < page.index("HTTP 503: The receiver answered")


def test_ten_failing_test_events_are_twenty_requests_and_none_is_repeated_within_a_minute():
    with receiver(lambda _: 500) as hook:
        for _ in range(10):
            client_of(ALICE).post("/webhooks/test", {"url": hook.url})
        deliver_due()
        assert len(hook.received) == 10
        for event in WebhookDelivery.objects.all():
            assert minutes_to_next(event) >= 1
        for _ in range(3):
            WebhookDelivery.objects.exclude(next_try_at=None).update(next_try_at=timezone.now())
            deliver_due()
        assert len(hook.received) == 20
    assert {event.status for event in WebhookDelivery.objects.all()} == {DeliveryStatus.FAILED}


def test_a_delivery_that_a_user_sends_again_is_not_repeated_within_a_minute():
    answers = iter([200, *[500] * 4])
    with receiver(lambda _: next(answers)) as hook:
        batch = with_webhook(hook.url, events=["STEP"])
        complete(batch, StepKind.INITIAL_STATE)
        deliver_all(batch)
        for _ in range(2):
            first = rows(batch)[0]
            path = f"/webhook-deliveries/{first.message_id}/send-again"
            assert Client().post(path, headers=header(batch.api_key)).status_code == 202
            work()
            assert minutes_to_next(rows(batch)[0]) >= 1


def minutes_to_next(delivery: WebhookDelivery) -> float:
    assert delivery.next_try_at
    return (delivery.next_try_at - datetime.fromisoformat(delivery.attempts[-1]["at"])) / timedelta(minutes=1)


def test_a_test_event_to_a_receiver_has_the_url_and_headers_of_its_newest_webhook(hook):
    deliver_all(done(hook.url.replace("hook", "older"), events=["DONE"]))
    deliver_all(done(hook.url, block=13, events=["DONE"], headers={"Authorization": "Bearer mine"}))
    client_of(ALICE).post("/webhooks/test", {"receiver": urlsplit(hook.url).netloc})
    work()
    *_, test = hook.received
    assert (test.type, test.path, test.headers["authorization"]) == ("webhook.test", "/hook", "Bearer mine")


# --- Slow receivers ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_slow_receiver_holds_up_nobody_else(hook, monkeypatch, settings, start_worker):
    monkeypatch.setenv("WEBHOOK_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("API_KEY_SECRET", settings.API_KEY_SECRET)
    # A receiver may take up to half of the lease's time.
    monkeypatch.setenv("LEASE_SECONDS", "6")
    is_over = threading.Event()

    def hang(_: Received) -> int:
        is_over.wait(SECONDS)
        return 200

    with receiver(hang) as slow:
        for block in range(12):
            done(slow.url, block=block, events=["DONE"])
        # The webhooks of both users get all events, in order.
        ours, theirs = done(hook.url, block=20), done(hook.url, user=BOB, block=21)
        start_worker()
        until(lambda: len(hook.received) == 10, "what the others are told")
        assert len(slow.received) < 12
        is_over.set()
        until(lambda: len({delivery.id for delivery in slow.received}) == 12, "what the slow one is told")
    for batch in (ours, theirs):
        of_batch = [delivery.id for delivery in hook.received if delivery.data("internalId") == batch.pk]
        assert of_batch == [row.message_id for row in rows(batch)]


# --- Attacks by receivers ---------------------------------------------------------------------------------------------


@pytest.fixture
def inside() -> Iterator[Receiver]:
    """Yield a server in the operator's own network, to which no webhook may be sent."""
    with receiver() as inside:
        yield inside


@pytest.fixture
def names(settings, monkeypatch) -> dict[str, list[list[str]]]:
    """Return the name server's answers, which a test fills in.

    Each name has lists of addresses, one for each question. The last list is repeated.
    """
    settings.WEBHOOK_ALLOW = []
    zone: dict[str, list[list[str]]] = {}
    questions: list[str] = []
    real = socket.getaddrinfo

    def answer(host: Any, *args: Any, **options: Any) -> Any:
        name = str(host).rstrip(".")
        if name not in zone:
            return real(host, *args, **options)
        questions.append(host)
        addresses = zone[name].pop(0) if len(zone[name]) > 1 else zone[name][0]
        return [address_info for host_address in addresses for address_info in real(host_address, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    zone["asked"] = [questions]
    return zone


@pytest.fixture
def outcome_of(settings) -> Callable[..., str]:
    """Return a function that delivers a webhook accepted earlier, under the setting `allow`. It returns the outcome."""

    def outcome_of(url: str, *, allow: Sequence[object] = ()) -> str:
        host = urlsplit(url).hostname
        settings.WEBHOOK_ALLOW = [host, *(ip_network(each) for each in ("127.0.0.0/8", "::1/128"))]
        batch = done(url, events=["DONE"])
        settings.WEBHOOK_ALLOW = list(allow)
        work()
        assert url not in repr(rows(batch)[0].__dict__)
        return outcomes(batch)[0]

    return outcome_of


TAKEN, NOT_PUBLIC = "The receiver took it.", "The receiver has no public address."


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
def test_this_machine_is_not_sent_to_though_it_was_allowed_once(outcome_of, inside, host):
    assert outcome_of(inside.url.replace("127.0.0.1", host)) == NOT_PUBLIC
    assert inside.received == []


def test_no_test_event_is_sent_inside(inside, settings):
    client = client_of(ALICE)
    client.post("/webhooks/test", {"url": inside.url})
    settings.WEBHOOK_ALLOW = []
    assert client.post("/webhooks/test", {"url": inside.url}).status_code == 400
    work()
    assert [attempt["outcome"] for attempt in WebhookDelivery.objects.get().attempts] == [NOT_PUBLIC]
    assert inside.received == []


def test_a_name_that_leads_inside_is_not_followed(names, inside, outcome_of):
    names["rebound.example"] = [["127.0.0.1"]]
    assert outcome_of(inside.url.replace("127.0.0.1", "rebound.example")) == NOT_PUBLIC
    assert inside.received == []


@pytest.fixture
def public_ones_are_down(monkeypatch) -> None:
    real = socket.socket.connect

    def connect(self: socket.socket, to: Any) -> None:
        real(self, ("127.0.0.1", 1) if to[0] == "8.8.8.8" and self.type == socket.SOCK_STREAM else to)

    monkeypatch.setattr(socket.socket, "connect", connect)


@pytest.mark.long
@pytest.mark.usefixtures("public_ones_are_down")
def test_of_a_name_with_a_public_and_a_private_address_the_public_one_alone_is_tried(names, inside, outcome_of):
    for addresses in (["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["8.8.8.8", "::1"], ["8.8.8.8", "10.0.0.1"]):
        names["both.example"] = [addresses]
        assert outcome_of(inside.url.replace("127.0.0.1", "both.example")) == NOT_PUBLIC
    assert inside.received == []


@pytest.mark.usefixtures("public_ones_are_down")
def test_a_name_that_leads_elsewhere_the_next_moment_is_asked_once(names, inside, outcome_of):
    """DNS rebinding: the name has a public address when it is checked, and an internal one afterwards."""
    names["rebound.example"] = [["8.8.8.8"], ["127.0.0.1"]]
    assert outcome_of(inside.url.replace("127.0.0.1", "rebound.example")) == "The receiver can't be reached."
    assert names["asked"] == [["rebound.example"]]
    assert inside.received == []


def test_the_name_is_kept_and_the_address_is_the_judged_one(names, hook, outcome_of):
    names["hooks.example"] = [["127.0.0.1"]]
    assert outcome_of(hook.url.replace("127.0.0.1", "hooks.example"), allow=[ip_network("127.0.0.1")]) == TAKEN
    assert hook.received[0].headers["host"].startswith("hooks.example:")
    assert names["asked"] == [["hooks.example"]]


def test_a_host_that_the_operator_names_may_have_any_address(names, hook, outcome_of):
    names["receiver"] = [["127.0.0.1"]]
    assert outcome_of(hook.url.replace("127.0.0.1", "receiver"), allow=["receiver"]) == TAKEN


def test_a_name_that_is_not_there_and_one_that_is_inside_are_told_alike(names, outcome_of):
    names["inside.example"] = [["10.0.0.1"]]
    assert outcome_of("https://inside.example/") == outcome_of("https://nowhere.invalid/") == NOT_PUBLIC


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(inside, status):
    with receiver(lambda _: status, {"Location": inside.url}) as hook:
        batch = done(hook.url, events=["DONE"])
        work()
    assert len(hook.received) == 1
    assert inside.received == []
    assert outcomes(batch) == [f"The receiver redirects (HTTP status {status}), which is not followed."]


def test_no_proxy_of_the_environment_is_used(hook, inside, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, inside.url.rpartition("/")[0])
    batch = done(hook.url, events=["DONE"])
    work()
    assert outcomes(batch) == [TAKEN]
    # Only requests to nodes may use the proxy.
    assert not [delivery for delivery in inside.received if "webhook-id" in delivery.headers]


def test_tls_is_verified_by_the_name_and_not_by_the_address(names, monkeypatch, outcome_of):
    allow, no_certificate = [ip_network("127.0.0.1")], "The receiver has no valid TLS certificate ({})."
    for name in ("hooks.example", "other.example"):
        names[name] = [["127.0.0.1"]]
    certificate = Path(__file__).parents[1] / "hooks.example.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with receiver(tls=context) as hook:
        assert hook.url.startswith("https://127.0.0.1:")
        urls = [hook.url.replace("127.0.0.1", name) for name in ("hooks.example", "other.example")]
        # No authority has signed the certificate.
        assert outcome_of(urls[0], allow=allow) == no_certificate.format("self-signed certificate")
        trusting = ssl.create_default_context(cafile=certificate)
        monkeypatch.setattr(connector, "_SSL_CONTEXT_VERIFIED", trusting)
        assert outcome_of(urls[0], allow=allow) == TAKEN
        assert outcome_of(urls[1], allow=allow) == no_certificate.format("hostname mismatch")
    assert {delivery.headers["host"].partition(":")[0] for delivery in hook.received} == {"hooks.example"}


def test_a_receiver_that_speaks_no_tls_is_told_as_that(hook, outcome_of):
    without_tls = hook.url.replace("http:", "https:")
    told = "The receiver speaks no TLS, or no version that this machine knows (wrong version number)."
    assert outcome_of(without_tls, allow=[ip_network("127.0.0.1")]) == told


@pytest.mark.parametrize(
    "target", ["/run?sp=%2Ftriggers%2Frun&sig=a%2Bc%2Fd%3D", "/%7Ea/./b/../c?x=%41+b&y=[1]", "/?a=b;c=%e2%82%ac"]
)
def test_a_signed_url_is_asked_for_as_it_was_given(target, hook):
    done(hook.url.rpartition("/")[0] + target, events=["DONE"])
    work()
    assert [delivery.path for delivery in hook.received] == [target]


@pytest.mark.parametrize("name", [*DRIPS, *FLOODS])
def test_nothing_that_a_receiver_sends_is_waited_for_or_kept(name, settings):
    is_slow = name in {"endless continue", "silence"}
    if is_slow:
        settings.LEASE_SECONDS = 1
    began = time.monotonic()
    with hostile_node({**DRIPS, **FLOODS}[name], chain_id=None) as url:
        batch = done(url, events=["DONE"])
        work()
    if is_slow:
        assert outcomes(batch) == ["The receiver did not answer within 0.5 seconds."]
    else:
        # The status arrives before the endless body, which the service doesn't read.
        assert outcomes(batch) == [TAKEN]
    assert time.monotonic() - began < 60


def test_a_delivery_answered_by_204_is_delivered_though_the_connection_breaks_off():
    def answer(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")
        exchange.reset()

    with hostile_node(answer, chain_id=None) as url:
        batch = done(url, events=["DONE"])
        work()
    assert (rows(batch)[0].status, outcomes(batch)) == (DeliveryStatus.DELIVERED, [TAKEN])


# --- Retention and metrics --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_delivered_webhooks_are_pruned_with_age_and_then_their_address(hook):
    batch = done(hook.url)
    deliver_all(batch)
    pending = done(hook.url, block=13, events=["DONE"])
    for old_batch in (batch, pending):
        settle(old_batch)
    old = timezone.now() - timedelta(days=31)
    Batch.objects.update(finished_at=old)
    delivered = WebhookDelivery.objects.exclude(ended_at=None)
    delivered.exclude(pk=rows(batch)[-1].pk).update(ended_at=old)
    call_command("prune", stdout=StringIO())
    assert len(rows(batch)) == 1
    delivered.update(ended_at=old)
    call_command("prune", stdout=StringIO())
    assert list(Webhook.objects.all()) == [pending.webhook]
    assert len(rows(pending)) == 1
    client_of(ALICE).post("/webhooks/test", {"url": hook.url})
    call_command("prune", stdout=StringIO())
    assert Webhook.objects.count() == 2
    WebhookDelivery.objects.filter(event="TEST").update(ended_at=old)
    call_command("prune", stdout=StringIO())
    assert list(Webhook.objects.all()) == [pending.webhook]


def test_a_batch_that_may_still_go_back_keeps_its_webhook(hook):
    batch = done(hook.url, events=["WENT_BACK"])
    Batch.objects.update(finished_at=timezone.now() - timedelta(days=31))
    call_command("prune", stdout=StringIO())
    reopen(batch, StepKind.HEADER_ACCUMULATED)
    deliver_all(batch)
    assert hook.types == ["went_back"]
