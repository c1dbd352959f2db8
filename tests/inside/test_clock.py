"""Which time counts for a deadline, while clocks jump."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from campaigns.attacks.skewed import skewed_now
from database import leases
from proving.models import ChainWatch
from proving.worker.worker import Worker
from queries import progress
from queries.clock import Clock, Witness
from queries.models import Batch, Block, ServiceClock
from tests.explorer.batches import a_batch, accept

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unreachable_chain")]

DAY = timedelta(hours=25)
# A test takes less.
NEARLY = timedelta(seconds=20)


@pytest.fixture
def jump(monkeypatch) -> Callable[..., None]:
    """Puts this machine's clock and, on the same machine, the database's so far ahead."""

    def to(machine: timedelta = timedelta(), database: timedelta | None = None) -> None:
        ahead = machine if database is None else database
        monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) + machine)
        monkeypatch.setattr(Now, f"as_{connection.vendor}", skewed_now(ahead.total_seconds))

    return to


def is_near(moment: datetime, ahead: timedelta = timedelta()) -> bool:
    return abs(moment - datetime.now(UTC) - ahead) < NEARLY


def a_chain(ahead: timedelta = timedelta()) -> list[Witness]:
    """Whose newest block is so far ahead: for each time another chain."""
    return [Witness(int(ahead.total_seconds()), datetime.now(UTC) + ahead, timedelta(minutes=5))]


def test_after_a_pause_a_chain_tells_that_the_clock_is_right(jump):
    ServiceClock.objects.create(pk=1, at=timezone.now() - DAY)
    counting = Clock()
    assert is_near(counting.read([]).at, -DAY)
    reading = counting.read([*a_chain(-DAY), *a_chain()])
    assert is_near(reading.at)
    assert reading.problem == ""


@pytest.mark.parametrize("sign", [1, -1])
def test_a_machine_whose_clock_is_not_the_databases_is_told(jump, sign):
    jump(sign * timedelta(seconds=55), database=timedelta())
    assert Clock().read([]).problem == ""
    jump(sign * DAY, database=timedelta())
    reading = Clock().read([])
    assert is_near(reading.at)
    assert reading.problem.startswith("A worker's clock is ")


def test_a_deadline_is_that_of_the_clock_that_decides(jump):
    now = timezone.now()
    assert progress.deadline_from(now) == now + timedelta(hours=24)
    ServiceClock.objects.create(pk=1, at=now)
    jump(-DAY)
    assert progress.deadline_from(timezone.now()) == now + timedelta(hours=24)


# --- Leases -----------------------------------------------------------------------------------------------------------


def test_a_worker_whose_clock_is_ahead_takes_no_lease_over_and_finds_nothing_due(jump):
    block = a_block()
    Block.objects.update(due_at=timezone.now() + timedelta(minutes=1))
    jump(DAY, database=timedelta())
    assert leases.due(Block.objects.all(), 10) == []
    Block.objects.update(due_at=datetime.now(UTC))
    assert leases.claim(Block.objects.all(), block)
    assert leases.due(Block.objects.all(), 10) == []
    assert leases.claim(Block.objects.all(), block) is None


def test_what_a_clock_that_was_ahead_has_put_off_is_found_again(jump):
    block = a_block()
    jump(DAY)
    Block.objects.update(due_at=timezone.now())
    assert leases.claim(Block.objects.all(), block)
    jump()
    leases.recover(Block.objects.all())
    assert leases.due(Block.objects.all(), 10) == [block]
    assert leases.claim(Block.objects.all(), block)


def test_what_a_clock_that_was_a_little_ahead_has_put_off_is_found_again(jump):
    """By less than the longest pause, so that the row alone doesn't tell."""
    block, worker = a_block(), Worker()
    jump(timedelta(minutes=9))
    worker._beat(is_first=True)
    for model in (Block, ChainWatch):
        model.objects.update(due_at=timezone.now() + timedelta(seconds=5), leased_until=None)
    jump()
    # Another one, if this one is killed now.
    Worker()._beat(is_first=True)
    assert leases.due(Block.objects.all(), 10) == [block]
    assert not ChainWatch.objects.filter(due_at__gt=datetime.now(UTC) + timedelta(minutes=1)).exists()
    Block.objects.update(due_at=datetime.now(UTC) + timedelta(minutes=1))
    worker._beat(is_first=False)
    assert leases.due(Block.objects.all(), 10) == []


def test_what_is_put_off_rightly_stays_so():
    block = a_block()
    later, leased_until = timezone.now() + timedelta(minutes=9), timezone.now() + timedelta(seconds=29)
    Block.objects.update(due_at=later, leased_until=leased_until)
    leases.recover(Block.objects.all())
    assert set(Block.objects.filter(pk=block).values_list("due_at", "leased_until")) == {(later, leased_until)}


@pytest.mark.parametrize("hours", [1, -1])
def test_a_pause_is_counted_from_the_databases_time(jump, hours):
    lease = leases.claim(Block.objects.all(), a_block())
    assert lease
    jump(timedelta(hours=hours), database=timedelta())
    lease.release(timedelta(minutes=1))
    due_at = Block.objects.get().due_at
    assert due_at
    assert is_near(due_at, timedelta(minutes=1))


def test_nothing_is_put_off_for_longer_than_is_taken_for_an_error():
    lease = leases.claim(Block.objects.all(), a_block())
    assert lease
    lease.release(timezone.now() + DAY)
    due_at = Block.objects.get().due_at
    assert due_at
    assert is_near(due_at, leases.LONGEST)


def a_block() -> int:
    accept(a_batch())
    assert Batch.objects.exists()
    return Block.objects.get().pk
