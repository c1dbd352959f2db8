"""Large batches are read without a key, but only so often by one client."""

from typing import Any

import pytest
from django.test import Client

from accounts.models import ThrottleCount
from queries.models import Batch, BatchStatus, Query
from tests.disks import locked_database
from tests.explorer.batches import a_batch, path

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.fixture
def large(settings) -> Batch:
    """Return a batch, of which a minute takes two; its proofs are not kept."""
    settings.MAX_QUERIES_PER_BATCH = 80
    batch = a_batch()
    Batch.objects.update(size=1200, status=BatchStatus.DONE)
    Query.objects.update(slots=["0x1"] * 1199, step=None)
    return batch


def get(batch: Batch, what: str, source: str = "192.0.2.1") -> Any:
    return Client(REMOTE_ADDR=source).get(f"{path(batch)}{what}")


@pytest.mark.parametrize(
    ("what", "times", "status"),
    [("/request.json", 2, 200), (".json", 4, 200), ("/1/bundle.json", 2, 404), ("/facts.csv", 1, 200)],
)
def test_one_client_reads_what_is_large_only_so_often(large, what, times, status):
    assert [get(large, what).status_code for _ in range(times)] == [status] * times
    refused = get(large, what)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert refused.json()["error"].startswith("In a minute you may read large batches with 2400 accounts, slots and")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert get(large, what, "192.0.2.2").status_code == status


def test_the_three_count_together(large):
    assert [get(large, what).status_code for what in (".json", "/request.json", ".json")] == [200] * 3
    assert get(large, ".json").status_code == 429


def test_what_is_small_is_not_counted_also_for_who_may_read_nothing_large_any_more(large):
    assert [get(large, "/request.json").status_code for _ in range(3)] == [200, 200, 429]
    counted = ThrottleCount.objects.filter(pk__startswith="heavy reads")
    before = counted.get().used
    Batch.objects.update(size=500)
    Query.objects.update(slots=["0x1"] * 499)
    for what in ("/request.json", ".json", "/1/bundle.json") * 10:
        assert get(large, what).status_code in {200, 404}
    assert counted.get().used == before


def test_a_batch_from_times_of_a_larger_limit_can_still_be_read(large):
    Batch.objects.update(size=100_000)
    assert [get(large, "/request.json").status_code for _ in range(2)] == [200, 429]


@pytest.mark.django_db(transaction=True)
def test_where_nothing_can_be_counted_it_is_read_all_the_same(large):
    with locked_database():
        for _ in range(3):
            assert get(large, "/request.json").status_code == 200
