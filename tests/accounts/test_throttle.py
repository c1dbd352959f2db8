from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import throttle
from accounts.models import ThrottleCount

pytestmark = pytest.mark.django_db


def pass_time(**time: float) -> None:
    row = ThrottleCount.objects.get()
    row.began_at -= timedelta(**time)
    row.save()


def test_each_may_do_so_much_of_each_thing_in_a_minute():
    assert [throttle.take("reads", "alice", 2) for _ in range(2)] == [0, 0]
    assert throttle.take("reads", "alice", 2) == 60
    assert throttle.take("reads", "bob", 2) == 0
    assert throttle.take("writes", "alice", 2) == 0


def test_an_amount_that_does_not_fit_is_not_counted_and_a_smaller_one_is():
    assert throttle.take("reads", "alice", 10, 7) == 0
    assert throttle.take("reads", "alice", 10, 4) == 60
    assert throttle.take("reads", "alice", 10, 3) == 0
    assert throttle.seconds_to_wait("reads", "alice", 10) == 60


def test_after_the_wait_that_it_names_there_is_room():
    assert throttle.take("reads", "alice", 1) == 0
    pass_time(seconds=45.5)
    wait = throttle.take("reads", "alice", 1)
    assert wait == 15
    pass_time(seconds=wait)
    assert throttle.take("reads", "alice", 1) == 0
    assert throttle.take("reads", "alice", 1) == 60


def test_no_wait_is_named_after_which_nothing_has_changed():
    with pytest.raises(ValueError, match="never fits"):
        throttle.take("reads", "alice", 2, 3)


def test_nobody_waits_for_a_clock_that_was_set_back():
    assert throttle.take("reads", "alice", 1) == 0
    pass_time(hours=-25)
    assert throttle.take("reads", "alice", 1) == 0
    assert throttle.take("reads", "alice", 1) == 60


@pytest.mark.django_db(transaction=True)
def test_who_waits_costs_no_write():
    throttle.take("reads", "alice", 1)
    with CaptureQueriesContext(connection) as statements:
        assert throttle.take("reads", "alice", 1)
    assert [statement["sql"].split()[0] for statement in statements] == ["SELECT"]


def test_old_counts_are_deleted_when_somebody_new_is_counted():
    throttle.take("reads", "alice", 1)
    ThrottleCount.objects.update(began_at=timezone.now() - timedelta(minutes=61))
    throttle.take("reads", "bob", 1)
    assert list(ThrottleCount.objects.values_list("pk", flat=True)) == ["reads:bob"]


def test_of_two_that_come_first_at_once_both_are_counted(monkeypatch):
    count = throttle._count

    def count_before_another(*args):
        monkeypatch.setattr(throttle, "_count", count)
        assert not count(*args)  # There is no row yet.
        assert throttle.take("knock", "alice", 3) == 0
        return False

    monkeypatch.setattr(throttle, "_count", count_before_another)
    assert throttle.take("knock", "alice", 3) == 0
    assert ThrottleCount.objects.get().used == 2
