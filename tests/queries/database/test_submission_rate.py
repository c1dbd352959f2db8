"""Limits of a user's submissions and queries in a minute."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import ApiKey, ThrottleCount, User
from queries.models import Batch
from tests.service import ALICE, BOB, a_key, header, request

pytestmark = pytest.mark.outside


@pytest.fixture(autouse=True)
def two_a_minute(settings, monkeypatch):
    settings.MAX_BATCHES_PER_MINUTE = 2
    # The clock stands still except for `pass_time`.
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)


def pass_time(**time: float) -> None:
    for row in ThrottleCount.objects.all():
        row.began_at -= timedelta(**time)
        row.save()


def used(what: str) -> list[int]:
    return list(ThrottleCount.objects.filter(pk__startswith=f"{what}:").values_list("used", flat=True))


def test_submissions_are_limited_per_user_over_all_keys_and_refused_ones_store_nothing(post, client: Client):
    assert [post(request(ALICE, block=1)).status_code for _ in range(3)] == [200, 200, 429]
    for user, name, status in ((BOB, "first", 400), (ALICE, "another", 429)):
        other = header(a_key(user, name))
        answer = client.post("/submit-batch-query", "{", content_type="application/json", headers=other)
        assert answer.status_code == status
    with CaptureQueriesContext(connection) as statements:
        refused = post(request(ALICE, block=1))
    assert all(statement["sql"].startswith("SELECT") for statement in statements)
    assert refused.json()["code"] == "too_many_requests"
    assert refused.headers["Retry-After"] == "60"
    assert (Batch.objects.count(), used("submitted queries")) == (2, [2])
    # Requests for the status don't count.
    parameters = {"batchQueryId": str(Batch.objects.latest("pk").pk)}
    with CaptureQueriesContext(connection) as statements:
        assert (
            client.get(
                "/batch-query-status", parameters, headers=header(ApiKey.objects.get(name="another"))
            ).status_code
            == 200
        )
    assert all(statement["sql"].startswith("SELECT") for statement in statements)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [(b"{", {}, 400), ({}, {}, 400), (b"", {"content-encoding": "gzip"}, 415)],
    ids=["no JSON", "faults", "compressed"],
)
def test_refused_submissions_count_towards_the_limit_too(post, body, headers, status):
    assert [post(body, **headers).status_code for _ in range(3)] == [status, status, 429]
    assert post(request(ALICE, block=1)).status_code == 429


def test_the_wait_that_it_names_is_one_after_which_it_goes_on(post):
    assert [post(b"").status_code for _ in range(3)] == [400, 400, 429]
    pass_time(seconds=45.5)
    assert post(b"").headers["Retry-After"] == "15"
    pass_time(seconds=14)
    assert post(b"").headers["Retry-After"] == "1"
    pass_time(seconds=0.6)
    assert [post(b"").status_code for _ in range(3)] == [400, 400, 429]
    assert post(b"").headers["Retry-After"] == "60"


def test_nobody_waits_for_a_clock_that_was_set_back(post):
    assert [post(b"").status_code for _ in range(3)] == [400, 400, 429]
    pass_time(hours=-25)
    assert [post(b"").status_code for _ in range(3)] == [400, 400, 429]
    assert post(b"").headers["Retry-After"] == "60"


def test_old_counts_are_deleted_when_somebody_new_is_counted(post, client: Client):
    post(b"")
    pass_time(minutes=61)
    client.post("/submit-batch-query", "{", content_type="application/json", headers=header(a_key(BOB)))
    assert used("submissions") == [1]


def with_slots(count: int) -> dict[str, object]:
    """Return a request for an account and `count` slots."""
    body = request(ALICE, block=1)
    body["data"]["31337"]["block:1"]["accounts"][ALICE]["slots"] = [f"{slot:x}" for slot in range(count)]
    return body


def test_accounts_slots_and_headers_count_as_well(post, client: Client, settings):
    settings.MAX_BATCHES_PER_MINUTE, settings.MAX_QUERIES_PER_MINUTE = 10, 8
    assert post(with_slots(3)).status_code == 200
    pass_time(seconds=45.5)
    refused = post(with_slots(4))
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert refused.json()["error"] == (
        "You may submit 10 batches a minute, faulty ones included, with 8 accounts, slots, headers, transactions and "
        "logs in them."
    )
    assert refused.headers["Retry-After"] == "15"
    # The refused submission didn't count, so one up to the limit is accepted.
    assert post(with_slots(3)).status_code == 200
    assert post(b"").status_code == 429
    assert (used("submissions"), used("submitted queries")) == ([3], [8])
    other = header(a_key(BOB))
    answer = client.post("/submit-batch-query", with_slots(3), content_type="application/json", headers=other)
    assert answer.status_code == 200
    pass_time(seconds=60)
    assert post(with_slots(7)).status_code == 200


# --- Limits of a user's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
def test_a_user_may_submit_less_often_or_more_often_than_others(post, most):
    User.objects.update(max_batches_per_minute=most)
    assert [post(request(ALICE, block=1)).status_code for _ in range(most + 1)] == [200] * most + [429]
    assert f"You may submit {most} batches a minute" in post(request(ALICE, block=1)).json()["error"]


@pytest.mark.parametrize("column", ["max_batches_per_minute", "max_queries_per_minute"])
def test_a_user_may_submit_nothing(post, column):
    User.objects.update(**{column: 0})
    refused = post(request(ALICE, block=1))
    assert (refused.status_code, refused.json()["code"]) == (403, "too_large_for_limit")
    assert refused.json()["error"] == "You may submit no batches. Ask the operator of this service for more."
    assert "Retry-After" not in refused.headers
    assert not Batch.objects.exists()


def test_a_batch_that_no_wait_makes_room_for_is_refused_for_good(post):
    User.objects.update(max_queries_per_minute=4)
    refused = post(with_slots(4))
    assert (refused.status_code, refused.json()["code"]) == (403, "too_large_for_limit")
    assert refused.json()["error"] == (
        "This batch has 5 accounts, slots, headers, transactions and logs, and you may submit 4 in a minute. Send it "
        "in parts. Ask the operator of this service for more."
    )
    assert used("submissions") == [1]
    assert post(with_slots(3)).status_code == 200
