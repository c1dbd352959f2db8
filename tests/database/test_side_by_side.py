"""Locks of rows, and leases, of two transactions that run side by side."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from django.db import connections, transaction
from django.utils import timezone

from accounts.models import User
from database import leases, row_locks
from database.leases import Lease
from queries.models import Block
from tests.databases import same_database
from tests.service import ALICE, BOB, CHARLIE
from tests.side_by_side import meet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another"),
]

# --- Locks ------------------------------------------------------------------------------------------------------------


def rows_in_another_order() -> list[User]:
    """Three, of which the first was written last, so that the database comes to it last."""
    rows = [User.objects.for_address(address) for address in (ALICE, BOB, CHARLIE)]
    User.objects.filter(pk=rows[0].pk).update(stored_bytes=1)
    return rows


def is_free(user: User) -> bool:
    with psycopg.connect(same_database()["DATABASE_URL"]) as other:
        found = other.execute("SELECT 1 FROM accounts_user WHERE id = %s FOR UPDATE SKIP LOCKED", (user.pk,)).fetchall()
    return bool(found)


@pytest.mark.parametrize("change", [row_locks.update, lambda rows, **_: transaction.atomic(row_locks.lock)(rows)])
def test_rows_are_locked_by_primary_key_whatever_order_they_lie_in(change):
    rows = rows_in_another_order()

    def the_others_are_free() -> None:
        assert is_free(rows[1])
        assert is_free(rows[2])

    met = meet(
        lambda: row_locks.lock(User.objects.filter(pk=rows[0].pk)),
        lambda: change(User.objects.all(), stored_bytes=2),
        the_others_are_free,
    )
    assert met.waited


def test_rows_that_others_have_locked_are_left_out_and_not_waited_for():
    rows = [User.objects.for_address(address) for address in (ALICE, BOB)]
    met = meet(
        lambda: row_locks.lock(User.objects.filter(pk=rows[0].pk)),
        lambda: row_locks.update_free(User.objects.all(), stored_bytes=3),
    )
    assert (met.second, met.waited) == (1, False)
    deleted = meet(
        lambda: row_locks.lock(User.objects.filter(pk=rows[0].pk)),
        lambda: row_locks.delete_free(User.objects.all()),
    )
    assert not deleted.waited
    assert list(User.objects.values_list("pk", flat=True)) == [rows[0].pk]


def test_two_that_wait_in_a_circle_are_both_done_in_the_end(caplog):
    rows = [User.objects.for_address(address) for address in (ALICE, BOB)]
    both = threading.Barrier(2)

    def write(first: User, then: User) -> int:
        tries = 0

        def once() -> None:
            nonlocal tries
            tries += 1
            with transaction.atomic():
                add(first)
                if tries == 1:
                    both.wait(20)
                add(then)

        try:
            row_locks.retried(once)
        finally:
            connections.close_all()
        return tries

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write, *rows), pool.submit(write, *reversed(rows))]
        assert sorted(one.result(20) for one in writing) == [1, 2]
    assert set(User.objects.values_list("stored_bytes", flat=True)) == {2}
    assert "is done again" in caplog.text


def add(user: User) -> None:
    row = User.objects.select_for_update().get(pk=user.pk)
    row.stored_bytes += 1
    row.save(update_fields=["stored_bytes"])


# --- Leases -----------------------------------------------------------------------------------------------------------


def a_block() -> Block:
    return Block.objects.create(destination_chain_id=1, source_chain_id=2, number=3)


def claimed(pk: int) -> Lease[Block]:
    lease = leases.claim(Block.objects.all(), pk)
    assert lease is not None
    return lease


def test_a_row_is_leased_once_and_nobody_waits_for_it():
    pk = a_block().pk
    met = meet(lambda: leases.claim(Block.objects.all(), pk), lambda: leases.claim(Block.objects.all(), pk))
    assert met.first is not None
    assert (met.second, met.waited) == (None, False)


def test_what_is_written_under_a_lease_waits_for_who_takes_it_over():
    lease = claimed(a_block().pk)
    Block.objects.update(leased_until=timezone.now() - timedelta(seconds=1))

    def write() -> bool:
        with lease.writing():
            return True

    def lost() -> bool:
        with pytest.raises(leases.LeaseLost):
            write()
        return True

    met = meet(lambda: claimed(lease.row.pk), lost)
    assert (met.second, met.waited) == (True, True)
