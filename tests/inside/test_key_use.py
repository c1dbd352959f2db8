import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from accounts import key_use, keys
from accounts.key_use import Requests
from accounts.models import ApiKey, KeyUse, User
from tests.accounts.wallets import ALICE

NOON = datetime(2026, 3, 4, 12, 30, tzinfo=UTC)


@pytest.fixture
def at(monkeypatch):
    """Sets the clock."""

    def at(now: datetime) -> None:
        monkeypatch.setattr(timezone, "now", lambda: now)

    return at


def count(key: ApiKey, times: int) -> None:
    for _ in range(times):
        key_use.note(key.pk)
    key_use.flush()


def test_the_day_and_the_month_are_the_last_hours_of_each(key, at):
    at(NOON - timedelta(days=31))
    count(key, 1000)
    at(NOON - timedelta(days=29))
    count(key, 100)
    at(NOON - timedelta(hours=23))
    count(key, 10)
    at(NOON)
    count(key, 1)
    count(key, 2)
    assert key_use.requests_by_key([key]) == {key.pk: Requests(day=13, month=113)}
    at(NOON + timedelta(hours=2))
    assert key_use.requests_by_key([key]) == {key.pk: Requests(day=3, month=113)}


def test_hours_that_nobody_asks_for_any_more_are_dropped(key, at):
    at(NOON - timedelta(days=31))
    count(key, 1)
    at(NOON)
    count(key, 1)
    assert KeyUse.objects.get().hour == NOON.replace(minute=0)


def test_the_last_use_never_goes_back(key, at):
    at(NOON)
    count(key, 1)
    at(NOON - timedelta(minutes=5))
    count(key, 1)
    key.refresh_from_db()
    assert key.last_used_at == NOON


def test_what_can_not_be_written_is_kept(key, caplog):
    def fail(_execute, _sql, _params, _many, _context):
        raise DatabaseError("database is locked")

    key_use.note(key.pk)
    with connection.execute_wrapper(fail):
        key_use.flush()
    assert "could not be written" in caplog.text
    count(key, 1)
    assert key_use.requests_by_key([key])[key.pk].day == 2


def test_a_row_that_another_process_made_meanwhile_is_added_to(key, at):
    at(NOON)
    hour = NOON.replace(minute=0)

    def other_process(execute, sql, params, many, context):
        # Between the look and the insert.
        if sql.startswith('DELETE FROM "accounts_keyuse"'):
            KeyUse.objects.create(key=key, hour=hour, requests=5)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(other_process):
        count(key, 2)
    assert KeyUse.objects.get().requests == 7


@pytest.mark.django_db(transaction=True)
def test_counts_of_many_threads_are_exact(at):
    key = keys.issue(User.objects.for_address(ALICE.address), "laptop")
    at(NOON)

    def requests() -> None:
        for n in range(200):
            key_use.note(key.pk)
            if n % 100 == 0:
                key_use.flush()
        connection.close()

    threads = [threading.Thread(target=requests) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    key_use.flush()
    assert KeyUse.objects.get().requests == 800


@pytest.mark.django_db(transaction=True)
def test_a_timer_writes_without_being_asked(monkeypatch):
    monkeypatch.undo()  # The timer is off in other tests.
    monkeypatch.setattr(key_use, "FLUSH_SECONDS", 0.01)
    key = keys.issue(User.objects.for_address(ALICE.address), "laptop")
    key_use.note(key.pk)
    timer = key_use._timer
    assert timer is not None
    timer.join(timeout=20)
    assert KeyUse.objects.get().requests == 1
    assert key_use._timer is None
