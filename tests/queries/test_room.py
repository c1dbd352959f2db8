"""What a user may have open, and keep stored."""

import json
import threading

import pytest
from django.db import connections
from django.test import Client

from queries import submission
from queries.models import Batch, BatchStatus, Block, Query
from tests.disks import bytes_used
from tests.service import ALICE, BOB, a_key, header, request, submit

pytestmark = pytest.mark.django_db(transaction=True)


def of_two_blocks(first: int = 1) -> dict[str, object]:
    body = request(ALICE, block=first)
    body["data"]["31337"][f"block:{first + 1}"] = {"accounts": {ALICE: {"slots": ["0x1", "0x2"]}}}
    return body


@pytest.mark.parametrize(
    ("setting", "most", "code", "numbers"),
    [
        ("MAX_OPEN_BATCHES", 1, "too_many_open_batches", "Of your batches, 1 are open, and this batch would add 1"),
        (
            "MAX_OPEN_QUERIES",
            7,
            "too_many_open_queries",
            "Of your accounts, slots and headers, 4 are open, and this batch would add 4: a user may have 7",
        ),
        ("MAX_OPEN_BLOCKS", 3, "too_many_open_blocks", "Of your blocks, 2 are open, and this batch would add 2"),
    ],
)
@pytest.mark.parametrize("ended", [BatchStatus.DONE, BatchStatus.REJECTED])
def test_what_a_user_may_have_open_is_bounded(post, settings, setting, most, code, numbers, ended):
    assert post(of_two_blocks()).status_code == 200
    setattr(settings, setting, most)
    answer = post(of_two_blocks(first=10))
    assert (answer.status_code, answer.json()["code"]) == (429, code)
    assert answer.headers["Retry-After"] == "60"
    assert answer.json()["error"].startswith(numbers)
    assert (Batch.objects.count(), Block.objects.count(), Query.objects.count()) == (1, 2, 2)
    Batch.objects.update(status=ended)
    assert post(of_two_blocks()).status_code == 200


def test_another_user_has_room_of_their_own(post, client: Client, settings):
    settings.MAX_OPEN_BATCHES = 1
    assert [post(request(ALICE, block=1)).status_code for _ in range(2)] == [200, 429]
    body = json.dumps(request(ALICE, block=1))
    answer = client.post("/submit-batch-query", body, content_type="application/json", headers=header(a_key(BOB)))
    assert answer.status_code == 200


def test_a_user_may_fill_the_room_to_the_last(post, settings):
    settings.MAX_OPEN_BATCHES, settings.MAX_OPEN_QUERIES, settings.MAX_OPEN_BLOCKS = 2, 8, 4
    assert [post(of_two_blocks()).status_code for _ in range(3)] == [200, 200, 429]


def test_what_a_user_keeps_stored_is_bounded_whatever_became_of_it(post, key, settings):
    settings.MAX_STORED_MEGABYTES = 1
    large = json.dumps(request(ALICE, block=1)).encode() + b" " * 600_000
    assert post(large).status_code == 200
    key.user.refresh_from_db()
    assert key.user.stored_bytes == Batch.objects.get().stored_bytes == len(large) + 400 + 130
    Batch.objects.update(status=BatchStatus.REJECTED)
    answer = post(large)
    assert (answer.status_code, answer.json()["code"]) == (403, "storage_quota_exceeded")
    assert answer.json()["error"] == (
        "Your batches take about 0.6 MB, and this one would add 0.6 MB: a user may keep 1 MB. Ask the operator of this "
        "service for more."
    )
    assert "Retry-After" not in answer.headers
    assert Batch.objects.count() == 1
    assert post(request(ALICE, block=1)).status_code == 200


def test_the_estimate_of_what_is_stored_is_near_what_the_file_grows_by(key):
    before = bytes_used()
    accounts = [f"0x{number:040x}" for number in range(1, 4001)]
    batches = [submit(key, request(*accounts, block=1)) for _ in range(2)]
    estimated = sum(batch.stored_bytes for batch in batches)
    assert 0.75 * estimated < bytes_used() - before < 1.25 * estimated


def test_the_last_room_can_not_be_taken_twice_at_once(key, settings):
    settings.MAX_OPEN_BATCHES = 3
    start = threading.Barrier(8)
    refused: list[str] = []

    def send() -> None:
        start.wait()
        try:
            submit(key, request(ALICE, block=1))
        except submission.TooMuch as much:
            refused.append(much.code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Batch.objects.count() == 3
    assert refused == ["too_many_open_batches"] * 5
