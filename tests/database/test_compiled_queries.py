"""Queries that are made into SQL once find what Django finds."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now
from django.db.models.lookups import IsNull

from accounts.models import ThrottleCount
from campaigns.attacks.skewed import skewed_now
from database.compiled_queries import CompiledQuery, Given, GivenList
from queries.models import Batch
from tests.accounts.wallets import ALICE
from tests.service import a_key, request, submit

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
BATCH = CompiledQuery(lambda: Batch.objects.defer("request").filter(pk=Given("batch")))


def counted(*times: datetime) -> None:
    ThrottleCount.objects.bulk_create(
        [ThrottleCount(what_and_who=f"a:{at}", began_at=time) for at, time in enumerate(times)]
    )


def test_an_object_is_what_django_would_read(unreachable_chain):
    batch = submit(a_key(), request(ALICE.address, block=1, fee=2**255))
    batch.refresh_from_db()
    read = BATCH.first(batch=batch.pk)
    assert read is not None
    assert read.get_deferred_fields() == {"request"}
    for field in Batch._meta.concrete_fields:
        assert getattr(read, field.attname) == getattr(batch, field.attname), field
    read.status = "DONE"
    read.save(update_fields=["status"])
    assert Batch.objects.get().status == "DONE"


def test_none_is_found_where_there_is_none():
    assert BATCH.first(batch="x") is None
    assert BATCH.every(batch="x") == []


def test_times_and_truths_are_read_as_they_were_given():
    counted(AT, AT + timedelta(hours=1))
    since = CompiledQuery(
        lambda: (
            ThrottleCount.objects.filter(began_at__gte=Given("since"))
            .order_by("began_at")
            .values_list("began_at", IsNull("what_and_who", False))
        )
    )
    assert since.every(since=AT) == [(AT, True), (AT + timedelta(hours=1), True)]
    assert since.every(since=AT + timedelta(microseconds=1)) == [(AT + timedelta(hours=1), True)]


@pytest.mark.parametrize("asked", [["a:0"], ["a:0", "a:2", "x"], {"a:1"}, {"a:0": 1, "a:1": 2}.keys()])
def test_lists_of_any_length_are_given(asked):
    counted(AT, AT, AT)
    names = CompiledQuery(
        lambda: (
            ThrottleCount.objects.filter(used=Given("used"), what_and_who__in=GivenList("names"), began_at=Given("at"))
            .order_by("pk")
            .values_list("what_and_who")
        )
    )
    assert names.every(names=asked, used=0, at=AT) == [(name,) for name in sorted(asked) if name != "x"]
    assert names.every(names=asked, used=1, at=AT) == []


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(KeyError, match="batch"):
        BATCH.every()


def test_a_clock_that_is_asked_in_another_way_is_asked_in_that_way(monkeypatch):
    counted(datetime.now(UTC))
    past = CompiledQuery(
        lambda: ThrottleCount.objects.filter(began_at__lt=Now() - timedelta(minutes=1)).values_list("pk")
    )
    assert past.every() == []
    for vendor in ("sqlite", "postgresql"):
        monkeypatch.setattr(Now, f"as_{vendor}", skewed_now(lambda: 3600))
    assert len(past.every()) == 1
    monkeypatch.undo()
    assert past.every() == []
