"""What a worker does when a message names a route: one group of what is due there, and rings for what is left."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from proving.webhooks import delivery
from proving.worker import groups, webhook_dispatcher, worker
from proving.worker.due import Task, due
from proving.worker.groups import Group
from proving.worker.notifier import Notifier
from proving.worker.routes import WEBHOOKS, Route, every
from proving.worker.worker import Worker
from queries import progress
from queries.models import Batch, Block, Pruning
from queries.rejection_codes import RejectionCode
from tests.service import ALICE, BOB, a_key, request, submit

pytestmark = pytest.mark.django_db

BATCHES = Route("batch", (31337,))
BLOCKS = Route("block", (31337, 31337))


class Noting(Notifier):
    """Notes what it is asked to ring, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[Route, float] = {}

    def notify(self, route: Route, seconds: float = 0) -> None:
        self.told[route] = seconds


@pytest.fixture
def notifier() -> Noting:
    return Noting()


@pytest.fixture
def answering(unreachable_chain, monkeypatch, notifier) -> Iterator[Worker]:
    """A worker with a notifier, which notes what it would do."""
    monkeypatch.setattr(connections, "close_all", lambda: None)
    monkeypatch.setattr(worker, "_do", lambda _: None)
    answering = Worker(threads=4, notifier=notifier)
    yield answering
    answering._pool.shutdown()
    answering._watcher.shutdown()


@pytest.fixture
def done(monkeypatch) -> list[list[object]]:
    """The keys of each group that was done."""
    groups_done: list[list[object]] = []
    monkeypatch.setattr(worker, "_do", lambda tasks: groups_done.append([task.key for task in tasks]))
    return groups_done


def batches(count: int) -> list[Batch]:
    key = a_key(BOB)
    return [submit(key, request(ALICE, block=number + 1)) for number in range(count)]


def test_where_nothing_is_due_it_takes_one_statement(answering, notifier, done):
    with CaptureQueriesContext(connection) as statements:
        answering.answer(BATCHES)
    assert len(statements) == 1
    assert not done
    assert not notifier.told


def test_what_is_due_later_is_told_then(answering, notifier, done):
    batches(1)
    Batch.objects.update(due_at=timezone.now() + timedelta(seconds=20))
    with CaptureQueriesContext(connection) as statements:
        answering.answer(BATCHES)
    assert len(statements) == 1
    assert not done
    assert 15 < notifier.told[BATCHES] <= 20


def test_one_group_is_taken_up_and_the_rest_told_of(answering, notifier, done, monkeypatch):
    monkeypatch.setattr(groups, "_MOST_TOGETHER", 3)
    submitted = batches(5)
    answering.answer(BATCHES)
    assert [len(keys) for keys in done] == [3]
    assert BATCHES in notifier.told
    answering.answer(BATCHES)
    assert len(done) == 2
    assert {key for keys in done for key in keys} <= {batch.pk for batch in submitted}


def test_where_all_was_taken_up_nobody_is_told_of_the_rest(answering, notifier, done, monkeypatch):
    batches(2)
    monkeypatch.setattr(answering, "_notify_what_follows", lambda _: None)
    answering.answer(BATCHES)
    assert [len(keys) for keys in done] == [2]
    assert not notifier.told


def test_what_belongs_to_no_route_is_left_to_the_sweeps(answering, done):
    Pruning.objects.create(pk=1, due_at=timezone.now())
    submitted = batches(1)
    answering.answer(BATCHES)
    assert done == [[submitted[0].pk]]
    assert [task.kind for task in due() if task.kind == "pruning"] == ["pruning"]


def test_what_its_work_has_made_due_is_told(answering, notifier, monkeypatch):
    batches(1)

    def admit(_: object) -> None:
        Batch.objects.update(due_at=None)
        Block.objects.update(due_at=timezone.now())

    monkeypatch.setattr(worker, "_do", admit)
    answering.answer(BATCHES)
    assert notifier.told == {BLOCKS: 0}


def test_a_chain_that_hangs_leaves_threads_to_others_also_where_messages_bring_the_work(
    answering, notifier, done, monkeypatch
):
    monkeypatch.setattr(groups, "_asked_by_all", frozenset)
    batches(3)
    hanging = [Task("block", number, (31337, 31337), lambda _: None, number) for number in range(2)]
    answering._in_hand.all = [Group([task], running=Future()) for task in hanging]
    answering.answer(BATCHES)
    assert not done
    assert notifier.told == {BATCHES: worker._AGAIN_SECONDS}


def test_what_a_broken_poll_has_left_is_begun_by_whoever_comes_next(answering, done):
    batches(1)
    left, running = (Task("block", number, (31337, 31337), lambda _: None, number) for number in (1, 2))
    answering._in_hand.all = [Group([left]), Group([running], running=Future())]
    answering.answer(BATCHES)
    assert len(answering._in_hand.running) == len(answering._in_hand.all)
    answering._pool.shutdown()
    assert sorted(len(keys) for keys in done) == [1, 1]


def test_stopping_it_takes_up_nothing(answering, done):
    batches(1)
    answering.stop()
    answering.answer(BATCHES)
    assert not done


def test_webhooks_are_taken_up_by_the_dispatcher_and_the_rest_when_they_have_ended(answering, notifier, monkeypatch):
    is_over = threading.Event()
    delivered: list[object] = []
    monkeypatch.setattr(delivery, "deliver", lambda key, **_: delivered.append(is_over.wait(20) and key))
    monkeypatch.setattr(answering._dispatcher, "_at_end", lambda: answering._notifier.notify(WEBHOOKS))
    told = {"webhook": {"url": "https://hooks.example.org"}}
    for block in (1, 2):
        batch = submit(a_key(BOB, str(block)), {**request(ALICE, block=block), **told})
        progress.reject([batch.pk], code=RejectionCode.FEE_TOO_LOW, reason="X.", retryable=True)
    monkeypatch.setattr(webhook_dispatcher, "_MOST_OF_A_USER", 1)
    answering.answer(WEBHOOKS)
    assert not notifier.told
    is_over.set()
    answering._dispatcher.stop()
    assert len(delivered) == 1
    assert notifier.told == {WEBHOOKS: 0}
    assert not answering._in_hand.tasks


def test_whatever_ends_a_batch_rings_for_webhooks_too(answering):
    assert WEBHOOKS in BLOCKS.affected()
    assert WEBHOOKS in BATCHES.affected()
    assert WEBHOOKS.affected() == [WEBHOOKS]


def test_each_route_has_a_queue_of_its_own(answering):
    assert [route.queue for route in every()] == [
        "signers.31337",
        "registries.31337.31337",
        "batches.31337",
        "blocks.31337.31337",
        "webhooks",
    ]


def test_a_worker_of_some_routes_is_asked_about_no_others(answering):
    batches(1)
    Block.objects.update(due_at=timezone.now(), turn_of=Batch.objects.get().user)
    assert {task.kind for task in due()} == {"batch", "block"}
    answering._routes = [BLOCKS]
    with CaptureQueriesContext(connection) as statements:
        answering._take_up_what_is_due()
    assert {task.kind for task in answering._in_hand.tasks} == {"block"}
    assert not any("queries_batch" in each["sql"] for each in statements if "queries_block" not in each["sql"])
