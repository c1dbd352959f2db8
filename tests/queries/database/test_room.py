"""The limit of a user's open batches."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import ThrottleCount, User
from queries.models import Batch, BatchStatus, Block, Query
from tests.service import ALICE, BOB, a_key, header, request, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]


def sent(key, body: dict[str, Any]) -> Any:
    return Client().post("/submit-batch-query", body, content_type="application/json", headers=header(key))


def of_two_blocks(first: int = 1) -> dict[str, object]:
    body = request(ALICE, block=first)
    body["data"]["31337"][f"block:{first + 1}"] = {"accounts": {ALICE: {"slots": ["0x1", "0x2"]}}}
    return body


@pytest.mark.parametrize(
    ("setting", "most", "code", "numbers"),
    [
        (
            "MAX_OPEN_BATCHES",
            1,
            "too_many_open_batches",
            "This batch would raise the number of your open batches from 1 to 2.",
        ),
        (
            "MAX_OPEN_QUERIES",
            7,
            "too_many_open_queries",
            "the number of your open accounts, slots, headers, transactions and logs from 4 to 8. You may",
        ),
    ],
)
@pytest.mark.parametrize("ended", [BatchStatus.DONE, BatchStatus.REJECTED])
def test_open_batches_and_queries_of_a_user_are_limited(post, settings, setting, most, code, numbers, ended):
    assert post(of_two_blocks()).status_code == 200
    setattr(settings, setting, most)
    answer = post(of_two_blocks(first=10))
    assert (answer.status_code, answer.json()["code"]) == (429, code)
    assert answer.headers["Retry-After"] == "60"
    assert numbers in answer.json()["error"]
    assert (Batch.objects.count(), Block.objects.count(), Query.objects.count()) == (1, 2, 2)
    Batch.objects.update(status=ended)
    assert post(of_two_blocks()).status_code == 200


def test_a_user_may_fill_the_room_to_the_last_and_another_user_has_room_of_their_own(post, settings):
    settings.MAX_OPEN_BATCHES, settings.MAX_OPEN_QUERIES = 2, 8
    assert [post(of_two_blocks()).status_code for _ in range(3)] == [200, 200, 429]
    assert sent(a_key(BOB), request(ALICE, block=1)).status_code == 200


def with_slots(slots: int) -> dict[str, object]:
    accounts = {ALICE: {"slots": [f"{slot:x}" for slot in range(slots)]}}
    return {**request(ALICE, block=1), "data": {"31337": {"block:1": {"accounts": accounts}}}}


# --- Large batches ----------------------------------------------------------------------------------------------------


LARGE = with_slots(500)


@pytest.fixture
def another_is_being_stored(key) -> Iterator[None]:
    """Store a large batch in another thread, which waits before it writes."""
    waits, may_go_on = threading.Event(), threading.Event()

    def wait_before_writing(execute: Any, sql: str, *how: Any) -> Any:
        if sql.startswith("BEGIN") or connection.in_atomic_block:
            waits.set()
            may_go_on.wait(20)
        return execute(sql, *how)

    def store() -> int:
        with connection.execute_wrapper(wait_before_writing):
            answer = sent(key, LARGE)
        connections.close_all()
        return int(answer.status_code)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(store)
        assert waits.wait(20)
        yield
        may_go_on.set()
        assert other.result(20) == 200


def test_of_large_batches_one_is_stored_at_a_time(post, another_is_being_stored):
    with CaptureQueriesContext(connection) as statements:
        answer = post(LARGE)
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")
    assert answer.headers["Retry-After"] == "2"
    assert not Batch.objects.exists()
    assert not ThrottleCount.objects.filter(pk__startswith="submitted queries").exists()
    # A waiting batch holds no lock that others need for writing.
    assert not [each["sql"] for each in statements if "queries_" in each["sql"] and "SELECT" not in each["sql"]]
    assert post(with_slots(499)).status_code == 200


def test_after_a_large_batch_was_refused_the_next_one_has_its_turn(post, settings):
    settings.MAX_OPEN_BATCHES = 0
    assert post(LARGE).status_code == 403
    settings.MAX_OPEN_BATCHES = 1
    assert post(LARGE).status_code == 200


@pytest.mark.long
def test_the_lock_is_held_for_few_statements_whatever_the_size(key):
    """All rows are prepared before the lock, because other submissions wait for it."""
    with CaptureQueriesContext(connection) as statements:
        submit(key, request(*(f"0x{number:040x}" for number in range(5000)), block=1))
    assert len(statements) < 40


# --- Limits of a user's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "lower", "higher", "code"),
    [("max_open_batches", 1, 2, "too_many_open_batches"), ("max_open_queries", 7, 8, "too_many_open_queries")],
)
def test_a_users_own_limit_counts_instead_of_the_installations(post, settings, column, lower, higher, code):
    assert post(of_two_blocks()).status_code == 200
    User.objects.update(**{column: lower})
    refused = post(of_two_blocks(first=10)).json()
    assert refused["code"] == code
    assert f"You may have {lower} open at a time." in refused["error"]
    setattr(settings, column.upper(), lower)
    User.objects.update(**{column: higher})
    assert post(of_two_blocks(first=10)).status_code == 200
    User.objects.update(**{column: None})
    assert post(of_two_blocks(first=20)).json()["code"] == code


@pytest.mark.parametrize(("column", "most"), [("max_open_batches", 0), ("max_open_queries", 3)])
def test_a_batch_that_will_never_fit_is_not_to_be_sent_again(post, column, most):
    User.objects.update(**{column: most})
    answer = post(of_two_blocks())
    assert (answer.status_code, answer.json()["code"]) == (403, "too_large_for_limit")
    assert "Retry-After" not in answer.headers
    assert answer.json()["error"].startswith(f"You may have {most} ")
