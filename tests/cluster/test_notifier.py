"""What a submission says to the broker, and that it waits for nothing."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis
from django.db import transaction

from accounts.models import ApiKey
from devnet.servers import Redis
from proving.worker import notifier as module
from proving.worker.notifier import Notifier
from proving.worker.routes import Route
from queries.models import Batch
from tests.factories import until
from tests.service import ALICE, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

ROUTE = Route("batch", (31337,))
SECONDS = 20
# A submission takes some hundredths of a second, and more on a busy machine. One that waits for a broker takes longer.
SOON = 1.5


@pytest.fixture(autouse=True)
def notifier(unreachable_chain, broker: Redis, settings, monkeypatch, transactional_db) -> Iterator[Notifier]:
    """Yield the notifier of this process, with a broker without messages."""
    settings.BROKER_URL = broker.url()
    notifier = Notifier()
    monkeypatch.setattr(module, "notifier", notifier)
    with redis.Redis.from_url(broker.url()) as client:
        client.flushall()
    yield notifier
    notifier.close()


def queued(broker: Redis, queue: str = ROUTE.queue) -> int:
    with redis.Redis.from_url(broker.url()) as client:
        return int(client.llen(queue))


def settle(notifier: Notifier) -> None:
    """Until everything that is to be told at once was told."""
    notifier.check()
    until(lambda: not notifier._is_check_wanted and not notifier._wanted, "the thread's turn")
    notifier.close()


def submitted() -> float:
    """The seconds that a submission takes."""
    key = a_key(name=f"key {ApiKey.objects.count()}")
    began = time.monotonic()
    submit(key, request(ALICE, block=1))
    return time.monotonic() - began


def test_a_submission_notifies_when_it_is_committed_and_not_before(broker, notifier):
    with transaction.atomic():
        submitted()
        settle(notifier)
        assert queued(broker) == 0
    until(lambda: queued(broker) == 1, "the message")


def test_what_is_rolled_back_notifies_nobody(broker, notifier):
    with transaction.atomic():
        submitted()
        transaction.set_rollback(True)
    settle(notifier)
    assert queued(broker) == 0
    assert not Batch.objects.exists()


def test_without_a_broker_nobody_is_notified(settings, notifier):
    settings.BROKER_URL = ""
    submitted()
    assert notifier._thread is None


def test_a_broker_that_is_down_costs_a_submission_nothing_and_hears_of_it_later(broker, notifier):
    broker.stop()
    assert submitted() < SOON
    until(lambda: bool(notifier.problem), "the failure")
    assert notifier.failures >= 1
    assert submitted() < SOON
    broker.start()
    until(lambda: queued(broker) == 1, "the message")
    until(lambda: not notifier.problem, "the recovery")


def test_a_broker_that_never_answers_costs_a_submission_nothing(settings, notifier, monkeypatch):
    with ExitStack() as running:
        silent = running.enter_context(socket.create_server(("127.0.0.1", 0)))
        settings.BROKER_URL = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        assert submitted() < SOON
        assert submitted() < SOON
        monkeypatch.setattr(f"{__name__}.SECONDS", 60)
        until(lambda: bool(notifier.problem), "the failure")


def test_a_defect_of_the_notifierfails_no_submission(notifier, monkeypatch):
    monkeypatch.setattr(notifier, "notify", lambda *_: 1 / 0)
    submitted()
    assert Batch.objects.count() == 1


def test_thousands_of_calls_make_a_few_messages(broker, notifier):
    began = time.monotonic()
    calling = [threading.Thread(target=lambda: [notifier.notify(ROUTE) for _ in range(2000)]) for _ in range(4)]
    for thread in calling:
        thread.start()
    for thread in calling:
        thread.join()
    settle(notifier)
    seconds = time.monotonic() - began
    assert 1 <= queued(broker) <= 2 + seconds / module._PAUSE_SECONDS


def test_only_so_many_messages_wait_in_a_queue(broker, notifier, monkeypatch):
    """Also while no worker takes any."""
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0)
    for _ in range(2 * module._MOST_QUEUED):
        notifier.notify(ROUTE)
        until(lambda: not notifier._wanted, "its turn")
    settle(notifier)
    assert queued(broker) == module._MOST_QUEUED
    notifier.notify(Route("signer", (31337,)))
    until(lambda: queued(broker, "signers.31337") == 1, "the message on another route")


def test_what_is_due_later_is_told_when_it_is_due_and_sooner_if_somebody_says_so(broker, notifier):
    began = time.monotonic()
    notifier.notify(ROUTE, 30)
    notifier.notify(ROUTE, 1)
    notifier.notify(ROUTE, 20)
    until(lambda: queued(broker) == 1, "the message")
    assert time.monotonic() - began >= 1
    notifier.notify(ROUTE, 3600)
    assert not notifier._wanted, "the sweeps find it"
