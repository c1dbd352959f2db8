"""Two concurrent transactions with row locks and lanes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from django.db import connections, transaction
from django.utils import timezone

from accounts.models import User
from config.database import statements
from config.metrics_server import exposition
from proving.models import Lane
from proving.working import counters, lanes
from proving.working.counters import ChainEvent
from proving.working.lanes import HeldLane, LaneKind, LaneLost, LaneName
from tests import databases, metrics, service, side_by_side

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another"),
]

# --- Locks ------------------------------------------------------------------------------------------------------------


def rows_in_another_order() -> list[User]:
    """Return three users. The first was written last, so PostgreSQL reads it last."""
    rows = [User.objects.for_address(address) for address in (service.ALICE, service.BOB, service.CHARLIE)]
    User.objects.filter(pk=rows[0].pk).update(max_open_batches=1)
    return rows


def is_free(user: User) -> bool:
    with psycopg.connect(databases.same_database()["DATABASE_URL"]) as other:
        rows = other.execute("SELECT 1 FROM accounts_user WHERE id = %s FOR UPDATE SKIP LOCKED", (user.pk,)).fetchall()
    return bool(rows)


def test_rows_are_locked_by_primary_key_whatever_order_they_lie_in():
    rows = rows_in_another_order()

    def the_others_are_free() -> None:
        assert is_free(rows[1])
        assert is_free(rows[2])

    met = side_by_side.meet(
        lambda: statements.lock(User.objects.filter(pk=rows[0].pk)),
        lambda: transaction.atomic(statements.lock)(User.objects.all()),
        the_others_are_free,
    )
    assert met.waited


def test_two_that_wait_in_a_circle_are_both_done_in_the_end(caplog):
    rows = [User.objects.for_address(address) for address in (service.ALICE, service.BOB)]
    both = threading.Barrier(2)
    before = exposition("").content.decode()

    def write(first: User, then: User) -> int:
        tries = 0

        def once() -> None:
            nonlocal tries
            tries += 1
            with transaction.atomic():
                counters.count(31337, ChainEvent.REPLACED)
                add(first)
                if tries == 1:
                    both.wait(20)
                add(then)

        try:
            statements.retried(once)
        finally:
            connections.close_all()
        return tries

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write, *rows), pool.submit(write, *reversed(rows))]
        assert sorted(future.result(20) for future in writing) == [1, 2]
    assert set(User.objects.values_list("max_open_batches", flat=True)) == {2}
    assert "runs again" in caplog.text
    name = "batchquery_chain_events_total"
    assert (metrics.value(exposition("").content.decode(), name) or 0) - (metrics.value(before, name) or 0) == 2


def add(user: User) -> None:
    row = User.objects.select_for_update().get(pk=user.pk)
    row.max_open_batches = (row.max_open_batches or 0) + 1
    row.save(update_fields=["max_open_batches"])


# --- Lanes ------------------------------------------------------------------------------------------------------------

HOUSE = LaneName(LaneKind.HOUSE)


def held() -> HeldLane | None:
    lane = HeldLane(HOUSE)
    return lane if lanes._take(lane) else None


def test_a_lane_is_held_once_and_nobody_waits_for_it():
    assert held()
    Lane.objects.update(until=None)
    met = side_by_side.meet(held, held)
    assert met.first is not None
    assert met.second is None


def test_a_write_under_an_expired_lane_waits_for_the_new_holder_and_is_refused():
    lane = held()
    assert lane is not None
    Lane.objects.update(until=timezone.now() - timedelta(seconds=1))

    def lost() -> bool:
        with pytest.raises(LaneLost), lane.writing():
            pass
        return True

    met = side_by_side.meet(held, lost)
    assert (met.second, met.waited) == (True, True)
