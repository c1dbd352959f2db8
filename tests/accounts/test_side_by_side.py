"""Of two transactions that run side by side neither relies on what the other changes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connections, transaction

from accounts import key_use, keys, sign_in, throttle
from accounts.keys import KeyRefused
from accounts.models import ApiKey, KeyUse, SignInNonce, User
from database import row_locks
from tests.databases import same_database
from tests.service import ALICE, BOB, CHARLIE, a_key
from tests.side_by_side import meet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another"),
]


def code_of(refused: type[Exception], call) -> str:
    try:
        call()
    except refused as error:
        return str(error.code)  # type: ignore[attr-defined]
    return ""


def test_two_can_t_both_make_the_last_key(monkeypatch):
    monkeypatch.setattr(keys, "MAX_KEYS", 1)
    user = User.objects.for_address(ALICE)
    met = meet(lambda: keys.issue(user, "one"), lambda: code_of(KeyRefused, lambda: keys.issue(user, "two")))
    assert (met.second, met.waited) == ("too_many_keys", True)
    assert ApiKey.objects.count() == 1


def test_an_operator_who_revokes_a_user_s_keys_leaves_none_that_is_made_meanwhile():
    user = User.objects.for_address(ALICE)
    met = meet(lambda: keys.issue(user, "one"), lambda: keys.revoke_by_operator(User.objects.filter(pk=user.pk)))
    assert (met.second, met.waited) == (1, True)
    assert not ApiKey.objects.filter(revoked_at=None).exists()


def test_a_throttle_gives_the_last_place_once():
    assert throttle.take("a", 1, 2) == 0
    met = meet(lambda: throttle.take("a", 1, 2), lambda: throttle.take("a", 1, 2))
    assert met.first == 0
    assert met.second > 0
    assert met.waited


def test_a_throttle_that_two_begin_counts_both():
    met = meet(lambda: throttle.take("a", 1, 1), lambda: throttle.take("a", 1, 1))
    assert (met.first, met.second > 0, met.waited) == (0, True, True)


def test_a_nonce_is_used_once(unreachable_chain):
    message = sign_in.start(ALICE, 31337, "127.0.0.1")
    met = meet(
        lambda: sign_in._consume_nonce(message),
        lambda: code_of(sign_in.SignInError, lambda: sign_in._consume_nonce(message)),
    )
    assert (met.second, met.waited) == ("unknown_nonce", True)
    assert SignInNonce.objects.get().consumed_at == met.first.consumed_at


def test_the_use_of_a_key_that_two_processes_write_adds_up():
    key = a_key()
    key_use.note(key.pk)
    key_use.flush()

    def note_again() -> None:
        key_use.note(key.pk)
        key_use.flush()

    assert meet(note_again, note_again).waited
    assert KeyUse.objects.get().requests == 3


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
