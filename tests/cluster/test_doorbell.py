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
from proving.worker import doorbell as module
from proving.worker.doorbell import Doorbell
from proving.worker.routes import Route
from queries.models import Batch
from tests.factories import until
from tests.service import ALICE, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

ROUTE = Route("batch", (31337,))
SECONDS = 20
# A submission takes some hundredths of a second, and more on a busy machine. Whoever waits for a broker takes longer.
SOON = 1.5


@pytest.fixture(autouse=True)
def bell(unreachable_chain, broker: Redis, settings, monkeypatch, transactional_db) -> Iterator[Doorbell]:
    """Yield the doorbell of this process, with a broker without messages."""
    settings.BROKER_URL = broker.url()
    bell = Doorbell()
    monkeypatch.setattr(module, "doorbell", bell)
    with redis.Redis.from_url(broker.url()) as client:
        client.flushall()
    yield bell
    bell.close()


def queued(broker: Redis, queue: str = ROUTE.queue) -> int:
    with redis.Redis.from_url(broker.url()) as client:
        return int(client.llen(queue))


def settle(bell: Doorbell) -> None:
    """Until everything that is to be rung at once was rung."""
    bell.check()
    until(lambda: not bell._is_check_wanted and not bell._wanted, "the thread's turn")
    bell.close()


def submitted() -> float:
    """The seconds that a submission takes."""
    key = a_key(name=f"key {ApiKey.objects.count()}")
    began = time.monotonic()
    submit(key, request(ALICE, block=1))
    return time.monotonic() - began


def test_a_submission_rings_when_it_is_committed_and_not_before(broker, bell):
    with transaction.atomic():
        submitted()
        settle(bell)
        assert queued(broker) == 0
    until(lambda: queued(broker) == 1, "the message")


def test_what_is_rolled_back_rings_nothing(broker, bell):
    with transaction.atomic():
        submitted()
        transaction.set_rollback(True)
    settle(bell)
    assert queued(broker) == 0
    assert not Batch.objects.exists()


def test_without_a_broker_nothing_is_rung(settings, bell):
    settings.BROKER_URL = ""
    submitted()
    assert bell._thread is None


def test_a_broker_that_is_down_costs_a_submission_nothing_and_hears_of_it_later(broker, bell):
    broker.stop()
    assert submitted() < SOON
    until(lambda: bool(bell.problem), "the failure")
    assert bell.failures >= 1
    assert submitted() < SOON
    broker.start()
    until(lambda: queued(broker) == 1, "the message")
    until(lambda: not bell.problem, "the recovery")


def test_a_broker_that_never_answers_costs_a_submission_nothing(settings, bell, monkeypatch):
    with ExitStack() as running:
        silent = running.enter_context(socket.create_server(("127.0.0.1", 0)))
        settings.BROKER_URL = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        assert submitted() < SOON
        assert submitted() < SOON
        monkeypatch.setattr(f"{__name__}.SECONDS", 60)
        until(lambda: bool(bell.problem), "the failure")


def test_a_defect_of_the_doorbell_fails_no_submission(bell, monkeypatch):
    monkeypatch.setattr(bell, "ring", lambda *_: 1 / 0)
    submitted()
    assert Batch.objects.count() == 1


def test_thousands_of_rings_make_a_few_messages(broker, bell):
    began = time.monotonic()
    ringing = [threading.Thread(target=lambda: [bell.ring(ROUTE) for _ in range(2000)]) for _ in range(4)]
    for thread in ringing:
        thread.start()
    for thread in ringing:
        thread.join()
    settle(bell)
    seconds = time.monotonic() - began
    assert 1 <= queued(broker) <= 2 + seconds / module._PAUSE_SECONDS


def test_only_so_many_messages_wait_in_a_queue(broker, bell, monkeypatch):
    """Also while no worker takes any."""
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0)
    for _ in range(2 * module._MOST_QUEUED):
        bell.ring(ROUTE)
        until(lambda: not bell._wanted, "its turn")
    settle(bell)
    assert queued(broker) == module._MOST_QUEUED
    bell.ring(Route("signer", (31337,)))
    until(lambda: queued(broker, "signers.31337") == 1, "the message on another route")


def test_what_is_due_later_is_rung_when_it_is_due_and_sooner_if_somebody_says_so(broker, bell):
    began = time.monotonic()
    bell.ring(ROUTE, 30)
    bell.ring(ROUTE, 1)
    bell.ring(ROUTE, 20)
    until(lambda: queued(broker) == 1, "the message")
    assert time.monotonic() - began >= 1
    bell.ring(ROUTE, 3600)
    assert not bell._wanted, "the sweeps find it"
