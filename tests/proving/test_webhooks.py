"""Webhooks as receivers get them: real HTTP, signed, in order, at least once; and what no receiver can make us do."""

import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import connector
from django.utils import timezone
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from accounts import webhook_secrets
from accounts.models import User
from chains.bounded_http import Failed
from database import leases
from proving import pruning
from proving.health.service_metrics import ServiceMetrics
from proving.webhooks import delivery, guarded_post
from proving.webhooks.delivery import deliver
from proving.webhooks.guarded_post import Post, look_up, post
from proving.worker.due import MOST_OF_A_RECEIVER, due_webhooks
from proving.worker.webhook_dispatcher import WebhookDispatcher
from queries import progress, webhooks
from queries.models import Batch, DeliveryStatus, StepKind, Webhook, WebhookDelivery
from queries.webhook_targets import Address
from tests.chains.hostile_node import DRIPS, FLOODS, LIES, Exchange, hostile_node
from tests.explorer.batches import accept, complete, queries_of, settle
from tests.factories import until
from tests.inside.working import a_worker
from tests.proving.receiver import Received, Receiver, receiver
from tests.service import ALICE, BOB, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

EVERY = ["DONE", "REJECTED", "WENT_BACK", "STEP"]
SECONDS = 20


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
    batch = submit(key, body)
    accept(batch)
    return batch


def done(url: str, **more: Any) -> Batch:
    """A batch with five events to be told of."""
    batch = with_webhook(url, **more)
    complete(batch, *StepKind)
    return batch


def deliver_all(batch: Batch) -> None:
    """Deliver all events as a worker does, without waiting until they are due."""
    for _ in range(20):
        if Webhook.objects.get(pk=batch.pk).due_at is None:
            return
        deliver(batch.pk)
    raise AssertionError


def rows(batch: Batch) -> list[WebhookDelivery]:
    return list(batch.webhook.deliveries.order_by("pk"))


def outcomes(batch: Batch) -> list[str]:
    """Return the outcomes of the attempts to deliver the first event."""
    return [attempt["outcome"] for attempt in rows(batch)[0].attempts]


# --- What a receiver gets ---------------------------------------------------------------------------------------------


def test_it_gets_each_event_in_order_signed_and_with_its_headers(hook):
    batch = done(hook.url, headers={"Authorization": "Bearer mine"})
    deliver_all(batch)
    assert hook.types == [*["step_completed"] * 4, "done"]
    assert [one.data("step") for one in hook.received[:4]] == list(StepKind)
    secret = webhook_secrets.reveal(batch.user.webhook_secrets.get())
    assert secret
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


def test_a_rotated_secret_signs_beside_its_successor_as_long_as_was_said(hook):
    batch = done(hook.url)
    user = batch.user
    old = webhook_secrets.signing(user.pk)[0]
    webhook_secrets.rotate(user, timedelta(hours=1))
    new = webhook_secrets.signing(user.pk)[0]
    deliver(batch.pk)
    user.webhook_secrets.exclude(expires_at=None).update(expires_at=timezone.now())
    deliver(batch.pk)
    both, one = hook.received
    assert len(both.headers["webhook-signature"].split()) == 2
    for secret in (old, new):
        Verifier(secret).verify(both.body, both.headers)
    Verifier(new).verify(one.body, one.headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(old).verify(one.body, one.headers)


def test_an_event_that_is_not_taken_is_sent_again_with_the_same_id_before_any_other():
    answers = iter([500, 404, 200])
    with receiver(lambda _: next(answers, 200)) as hook:
        batch = done(hook.url)
        pauses = []
        for _ in range(2):
            before = timezone.now()
            deliver(batch.pk)
            webhook, first = Webhook.objects.get(), rows(batch)[0]
            assert (first.status, webhook.due_at) == (DeliveryStatus.PENDING, first.next_try_at)
            assert webhook.due_at
            pauses.append((webhook.due_at - before).total_seconds())
            # They pass.
            WebhookDelivery.objects.filter(pk=first.pk).update(next_try_at=timezone.now())
        deliver_all(batch)
    assert [one.data("step") for one in hook.received[:4]] == [*[StepKind.INITIAL_STATE] * 3, "BLOCKHASH_AVAILABLE"]
    assert len({one.id for one in hook.received[:3]}) == 1
    assert len({one.id for one in hook.received}) == 5
    assert [attempt["httpStatus"] for attempt in rows(batch)[0].attempts] == [500, 404, 200]
    # It waits longer each time, about.
    assert 3.9 < pauses[0] < 6.1 + 1
    assert 7.9 < pauses[1] < 12.1 + 1
    # Signed anew, by its own time.
    assert all(abs(int(one.headers["webhook-timestamp"]) - time.time()) < SECONDS for one in hook.received)


def test_after_a_day_it_is_given_up_and_the_next_is_told():
    answers = iter([500, 200])
    with receiver(lambda _: next(answers, 200)) as hook:
        batch = done(hook.url)
        first = rows(batch)[0]
        assert abs(first.gives_up_at - first.created_at - timedelta(days=1)) < timedelta(minutes=1)
        WebhookDelivery.objects.filter(pk=first.pk).update(gives_up_at=timezone.now())
        deliver(batch.pk)
        assert [row.status for row in rows(batch)[:2]] == [DeliveryStatus.FAILED, DeliveryStatus.PENDING]
        deliver_all(batch)
    assert len(hook.received) == 5


def test_pauses_add_up_to_no_more_attempts_in_a_day_than_are_kept():
    pauses = [
        leases.backoff(n, first=delivery._FIRST_PAUSE, longest=delivery._LONGEST_PAUSE) * (1 - delivery._SPREAD)
        for n in range(webhooks.MAX_ATTEMPTS_KEPT)
    ]
    assert sum(pauses, timedelta()) > webhooks.RETRIED


def test_a_pause_that_is_longer_than_any_row_is_postponed_is_waited_for(hook):
    batch = done(hook.url, events=["DONE"])
    WebhookDelivery.objects.update(failures=10, next_try_at=timezone.now() + timedelta(minutes=30))
    deliver(batch.pk)
    assert not hook.received
    due_at = Webhook.objects.get().due_at
    assert due_at
    assert timedelta(minutes=9) < due_at - timezone.now() <= leases.LONGEST


def test_a_time_that_a_clock_ahead_has_set_for_the_next_attempt_is_not_waited_for(hook):
    batch = done(hook.url, events=["DONE"])
    WebhookDelivery.objects.update(failures=2, next_try_at=timezone.now() + timedelta(hours=1))
    deliver(batch.pk)
    assert len(hook.received) == 1


def test_a_receiver_that_is_gone_for_good_is_asked_once():
    with receiver(lambda _: 410) as hook:
        batch = done(hook.url, events=["DONE"])
        deliver_all(batch)
    assert [row.status for row in rows(batch)] == [DeliveryStatus.FAILED]
    assert len(hook.received) == 1


def test_what_is_sent_again_goes_before_what_came_later(hook):
    batch = done(hook.url)
    deliver(batch.pk)
    deliver(batch.pk)
    first = rows(batch)[0]
    assert webhooks.send_again(batch.user_id, first.message_id)
    deliver_all(batch)
    ids = [row.message_id for row in rows(batch)]
    assert [one.id for one in hook.received] == [ids[0], ids[1], ids[0], *ids[2:]]
    assert [attempt["httpStatus"] for attempt in rows(batch)[0].attempts] == [204, 204]


def test_an_event_that_comes_while_another_is_sent_is_not_forgotten():
    def and_go_on(_: Received) -> int:
        if len(there.received) == 1:
            threading.Thread(target=complete, args=(batch, *list(StepKind)[1:])).start()
            until(lambda: batch.webhook.deliveries.count() == 5, "the other events")
        return 200

    with receiver(and_go_on) as there:
        batch = with_webhook(there.url)
        complete(batch, StepKind.INITIAL_STATE)
        deliver_all(batch)
    assert len({one.id for one in there.received}) == 5


def test_without_the_secrets_nothing_is_sent(hook, settings):
    batch = done(hook.url)
    right, settings.API_KEY_SECRET = settings.API_KEY_SECRET, "another"
    deliver(batch.pk)
    assert hook.received == []
    assert "API_KEY_SECRET" in outcomes(batch)[0]
    settings.API_KEY_SECRET = right
    batch.user.webhook_secrets.all().delete()
    deliver(batch.pk)
    assert hook.received == []


# --- Killed -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def test_killed_between_sending_and_noting_it_is_sent_again_with_the_same_id(hook, monkeypatch):
    batch = done(hook.url, events=["DONE"])

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(webhooks, "note", die)
        with pytest.raises(Killed):
            deliver(batch.pk)
    deliver(batch.pk)
    assert len(hook.received) == 1  # It is leased.
    Webhook.objects.update(leased_until=timezone.now() - timedelta(seconds=1))
    deliver(batch.pk)
    assert [one.id for one in hook.received] == [rows(batch)[0].message_id] * 2
    assert rows(batch)[0].status == DeliveryStatus.DELIVERED


def test_whose_lease_is_lost_notes_nothing(monkeypatch):
    def lose(_: Received) -> int:
        Webhook.objects.update(lease_token="another's", leased_until=timezone.now() + timedelta(minutes=1))
        return 500

    with receiver(lose) as hook:
        batch = done(hook.url, events=["DONE"])
        deliver(batch.pk)
    assert rows(batch)[0].attempts == []
    assert Webhook.objects.get().lease_token == "another's"


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
    assert [one.id for one in there.received] == [ids[0], ids[1], *ids[1:]]


# --- One receiver and others ------------------------------------------------------------------------------------------


def test_a_slow_receiver_holds_up_nobody_else(hook, monkeypatch):
    is_over = threading.Event()

    def hang(_: Received) -> int:
        is_over.wait(SECONDS)
        return 200

    with receiver(hang) as slow:
        for block in range(12):
            done(slow.url, block=block, events=["DONE"])
        # Of the same user, and of another: all their events, one after another.
        ours, theirs = done(hook.url, block=20), done(hook.url, user=BOB, block=21)
        with a_worker():
            until(lambda: len(hook.received) == 10, "what the others are told")
            assert len(slow.received) <= MOST_OF_A_RECEIVER
            is_over.set()
            until(lambda: len(slow.received) == 12, "what the slow one is told")
            until(lambda: not WebhookDelivery.objects.filter(status="PENDING").exists(), "the notes of all that")
    for batch in (ours, theirs):
        of_batch = [one.id for one in hook.received if one.data("internalId") == batch.pk]
        assert of_batch == [row.message_id for row in rows(batch)]


def test_a_user_has_some_of_the_threads_at_a_time(monkeypatch):
    is_over, begun = threading.Event(), []

    def hang(key: object, **_: object) -> None:
        begun.append(key)
        is_over.wait(SECONDS)

    monkeypatch.setattr(delivery, "deliver", hang)
    for block in range(12):
        done(f"http://127.0.0.{block + 1}:9/", block=block, events=["DONE"])
    done("http://127.0.0.1:9/", user=BOB, block=30, events=["DONE"])
    dispatcher = WebhookDispatcher(at_end=lambda: None)
    taken = [task for task in due_webhooks() if dispatcher.take(task)]
    # None twice.
    assert not any(dispatcher.take(task) for task in taken)
    by_user = [sum(task.user == user.pk for task in taken) for user in User.objects.order_by("pk")]
    is_over.set()
    dispatcher.stop()
    assert by_user == [8, 1]
    assert dispatcher._in_hand == set()


def test_what_is_due_is_told_by_receivers_in_turn(hook):
    for block in range(3 * MOST_OF_A_RECEIVER):
        done(hook.url, block=block, events=["DONE"])
    other = done("http://127.0.0.2:9/", block=50, events=["DONE"])
    tasks = list(due_webhooks())
    assert len(tasks) == MOST_OF_A_RECEIVER + 1
    assert other.pk in {task.key for task in tasks[:2]}


def test_one_that_fails_for_a_defect_is_pushed_ahead(hook, monkeypatch):
    batch = done(hook.url, events=["DONE"])
    monkeypatch.setattr(webhooks, "destination", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        deliver(batch.pk)
    webhook = Webhook.objects.get()
    assert (webhook.attempts, webhook.lease_token) == (1, "")
    assert webhook.due_at
    assert webhook.due_at > timezone.now()


# --- What no receiver can make us do ----------------------------------------------------------------------------------


@pytest.fixture
def inside() -> Iterator[Receiver]:
    """A server of the operator's own network, which nothing may be sent to."""
    with receiver() as inside:
        yield inside


@pytest.fixture
def names(settings, monkeypatch) -> dict[str, list[list[str]]]:
    """Return what a name server answers, which the test fills in.

    A name has its lists of addresses in turn, and the last one for ever.
    """
    settings.WEBHOOK_ALLOW = []
    zone: dict[str, list[list[str]]] = {}
    asked: list[str] = []
    real = socket.getaddrinfo

    def answer(host: Any, *args: Any, **options: Any) -> Any:
        name = str(host).rstrip(".")
        if name not in zone:
            return real(host, *args, **options)
        asked.append(host)
        addresses = zone[name].pop(0) if len(zone[name]) > 1 else zone[name][0]
        return [found for one in addresses for found in real(one, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    zone["asked"] = [asked]
    return zone


def send(url: str, *, seconds: float = SECONDS) -> int:
    return post(Post(url, {}, b'{"type": "test"}'), look_up(url), seconds=seconds)


def refusal(url: str, **more: Any) -> str:
    with pytest.raises(Failed) as failed:
        send(url, **more)
    assert url not in repr(failed.value.__cause__) + repr(failed.value.__context__)
    return str(failed.value)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "0x7f.1", "0x7f000001", "017700000001", "2130706433", "127.1", "0", "0.0.0.0"),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
        *("127.0.0.1.", "localhost.", "①②⑦.0.0.1", "%31%32%37.0.0.1", "user@127.0.0.1", "example.org@127.0.0.1"),
    ],
)
def test_no_spelling_of_this_machine_is_sent_to(settings, inside, host):
    """Even where a row of the database holds it: what is judged is what is connected to."""
    settings.WEBHOOK_ALLOW = []
    port = inside.url.rsplit(":", 1)[1]
    with pytest.raises((Failed, ValueError)):
        send(f"http://{host}:{port}")
    assert inside.received == []


def test_a_name_that_leads_inside_is_not_followed(names, inside):
    names["rebound.example"] = [["127.0.0.1"]]
    assert refusal(inside.url.replace("127.0.0.1", "rebound.example")) == "has no public address"
    assert inside.received == []


def test_a_name_with_a_public_and_a_private_address_is_refused(names, inside, monkeypatch):
    monkeypatch.setattr(guarded_post, "_answered", None)  # It would be called to connect.
    for addresses in (["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["8.8.8.8", "::1"], ["8.8.8.8", "10.0.0.1"]):
        names["both.example"] = [addresses]
        assert refusal(inside.url.replace("127.0.0.1", "both.example")) == "has no public address"


def test_a_name_that_leads_elsewhere_the_next_moment_is_asked_once(names, inside, monkeypatch):
    """The rebinding: public when it is judged, and inside when it is connected to."""
    names["rebound.example"] = [["8.8.8.8"], ["127.0.0.1"]]
    connected: list[str] = []
    real = socket.socket.connect

    def connect(self: socket.socket, to: Any) -> None:
        connected.append(to[0])
        real(self, ("127.0.0.1", 1) if to[0] == "8.8.8.8" and self.type == socket.SOCK_STREAM else to)

    monkeypatch.setattr(socket.socket, "connect", connect)
    assert refusal(inside.url.replace("127.0.0.1", "rebound.example"), seconds=5) in {
        "can't be reached",
        "did not answer within 5 seconds",
    }
    assert names["asked"] == [["rebound.example."]]
    assert inside.received == []


def test_the_last_gate_is_what_is_connected_to(settings, inside):
    """Whatever was judged before."""
    settings.WEBHOOK_ALLOW = []
    request_ = Post(inside.url.replace("127.0.0.1", "rebound.example"), {}, b"{}")
    addresses: list[Address] = [ip_address("127.0.0.1")]
    with pytest.raises(OSError):
        guarded_post._loop().run(guarded_post._answered(request_, addresses, is_named=False, seconds=SECONDS))
    assert inside.received == []


def test_the_name_is_kept_and_the_address_is_the_judged_one(names, hook, settings):
    names["hooks.example"] = [["127.0.0.1"]]
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.1")]
    assert send(hook.url.replace("127.0.0.1", "hooks.example")) == 204
    assert hook.received[0].headers["host"].startswith("hooks.example:")
    assert names["asked"] == [["hooks.example."]]


def test_a_host_that_the_operator_names_may_have_any_address(names, hook, settings):
    names["receiver"] = [["127.0.0.1"]]
    settings.WEBHOOK_ALLOW = ["receiver"]
    assert send(hook.url.replace("127.0.0.1", "receiver")) == 204
    # As containers find each other, by the domains of this machine.
    assert names["asked"] == [["receiver"]]


def test_no_address_of_this_machine_is_sent_to_though_it_be_public(monkeypatch, settings):
    settings.WEBHOOK_ALLOW = []
    monkeypatch.setattr("queries.webhook_targets._is_public", lambda _: True)
    assert guarded_post._is_of_this_machine(ip_address("127.0.0.1"))
    assert not guarded_post._may_connect(ip_address("127.0.0.1"))
    assert guarded_post._may_connect(ip_address("8.8.8.8"))


def test_a_name_that_is_not_there_and_one_that_is_inside_are_told_alike(names):
    names["inside.example"] = [["10.0.0.1"]]
    assert refusal("https://inside.example/") == refusal("https://nowhere.invalid/") == "has no public address"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(inside, status):
    with receiver(lambda _: status, {"Location": inside.url}) as hook:
        batch = done(hook.url, events=["DONE"])
        deliver(batch.pk)
    assert len(hook.received) == 1
    assert inside.received == []
    assert outcomes(batch) == [f"The receiver redirects (HTTP status {status}), which is not followed."]


def test_no_proxy_of_the_environment_is_used(hook, inside, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, inside.url.rpartition("/")[0])
    assert send(hook.url) == 204
    assert inside.received == []


def test_tls_is_verified_by_the_name_and_not_by_the_address(names, settings, monkeypatch):
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.1")]
    for name in ("hooks.example", "other.example"):
        names[name] = [["127.0.0.1"]]
    certificate = Path(__file__).with_name("hooks.example.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with receiver(tls=context) as hook:
        assert hook.url.startswith("https://127.0.0.1:")
        urls = [hook.url.replace("127.0.0.1", name) for name in ("hooks.example", "other.example")]
        # Nobody vouches for it.
        assert refusal(urls[0]) == "has no valid TLS certificate"
        trusting = ssl.create_default_context(cafile=certificate)
        monkeypatch.setattr(connector, "_SSL_CONTEXT_VERIFIED", trusting)
        assert send(urls[0]) == 204
        assert refusal(urls[1]) == "has no valid TLS certificate"
    assert len(hook.received) == 1


@pytest.mark.parametrize("name", [*DRIPS, *FLOODS])
def test_nothing_that_a_receiver_sends_is_waited_for_or_kept(name):
    began = time.monotonic()
    with hostile_node({**DRIPS, **FLOODS}[name], chain_id=None) as url:
        if name in {"dripped headers", "endless continue", "silence"}:
            assert refusal(url, seconds=0.3) == "did not answer within 0.3 seconds"
        elif name in {"endless header", "endless headers"}:
            assert refusal(url) == "broke off its answer"
        else:
            # It has told its status before it does its worst, which nobody reads.
            assert send(url) == 200
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "behave", [LIES["hangs up"], lambda asked: asked.send(b"what?\r\n\r\n")], ids=["away", "noise"]
)
def test_a_receiver_that_does_not_speak_http_has_not_taken_it(behave: Callable[[Exchange], None]):
    with hostile_node(behave, chain_id=None) as url:
        batch = done(url, events=["DONE"])
        deliver(batch.pk)
    assert outcomes(batch) == ["The receiver broke off its answer."]


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    batch = done(f"http://127.0.0.1:{port}/s3cret", events=["DONE"])
    deliver(batch.pk)
    assert outcomes(batch) == ["The receiver can't be reached."]
    assert "s3cret" not in repr(rows(batch)[0].__dict__)


def test_a_name_server_that_hangs_is_not_waited_for_but_its_thread_is_counted(monkeypatch, settings):
    settings.WEBHOOK_ALLOW = ["hangs.example"]
    is_over, is_noted = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        is_over.wait(SECONDS)
        return []

    batch = done("http://hangs.example:9/", events=["DONE"])
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(guarded_post, "TOTAL_SECONDS", 0.2)
    noted = delivery._note

    def note(*args: Any) -> None:
        noted(*args)
        is_noted.set()

    monkeypatch.setattr(delivery, "_note", note)
    dispatcher = WebhookDispatcher(at_end=lambda: None)
    assert [dispatcher.take(task) for task in due_webhooks()] == [True]
    assert is_noted.wait(SECONDS)
    assert len(dispatcher._in_hand) == 1
    is_over.set()
    dispatcher.stop()
    assert dispatcher._in_hand == set()
    assert outcomes(batch) == ["The receiver did not answer within 0.2 seconds."]


# --- What is kept and counted -----------------------------------------------------------------------------------------


def test_what_was_delivered_is_pruned_with_age_and_then_where_to(hook, settings):
    settings.KEEP_WEBHOOK_DELIVERIES_DAYS = 30
    batch, pending = done(hook.url), done(hook.url, block=13, events=["DONE"])
    deliver_all(batch)
    for one in (batch, pending):
        settle(one)
    old = timezone.now() - timedelta(days=31)
    Batch.objects.update(finished_at=old)
    delivered = WebhookDelivery.objects.exclude(ended_at=None)
    delivered.exclude(pk=rows(batch)[-1].pk).update(ended_at=old)
    pruning.prune_now()
    assert len(rows(batch)) == 1
    delivered.update(ended_at=old)
    pruning.prune_now()
    assert list(Webhook.objects.all()) == [pending.webhook]
    assert len(rows(pending)) == 1


def test_what_may_still_go_back_keeps_its_webhook(hook, settings):
    settings.KEEP_WEBHOOK_DELIVERIES_DAYS = 30
    batch = done(hook.url, events=["WENT_BACK"])
    Batch.objects.update(finished_at=timezone.now() - timedelta(days=31))
    pruning.prune_now()
    progress.reopen(queries_of(batch), StepKind.HEADER_ACCUMULATED, reason="X.")
    deliver_all(batch)
    assert hook.types == ["went_back"]


def test_metrics_count_what_is_due_and_what_ended(hook):
    batch = done(hook.url)
    deliver(batch.pk)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in ServiceMetrics().collect()
        for sample in family.samples
    }
    assert found["batchquery_queue_due_rows", "webhook", "31337", ""] == 1
    assert found["batchquery_webhook_deliveries_ended_last_hour", "DELIVERED"] == 1
    assert found["batchquery_webhook_deliveries_ended_last_hour", "FAILED"] == 0
