"""The header Idempotency-Key: submissions with the same key make one batch."""

import json
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from itertools import count
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts.models import ThrottleCount
from queries.models import Batch, IdempotencyKey
from tests.factories import at_once
from tests.service import ALICE, BOB, a_key, header, request

pytestmark = pytest.mark.outside

BODY = request(ALICE, block=1)
OTHER = request(ALICE, block=2)


def pruned() -> str:
    call_command("prune", stdout=(output := StringIO()))
    return output.getvalue()


def used(what: str) -> int:
    return sum(ThrottleCount.objects.filter(pk__startswith=f"{what}:").values_list("used", flat=True))


def sent(key, body=BODY, name: str = "k"):
    return Client().post(
        "/submit-batch-query",
        json.dumps(body),
        content_type="application/json",
        headers=header(key) | {"idempotency-key": name},
    )


def test_the_same_key_and_body_make_one_batch_and_the_second_answer_says_so(post):
    first, second = (post(BODY, **{"idempotency-key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert [answer.headers.get("Idempotency-Replayed") for answer in (first, second)] == [None, "true"]
    assert Batch.objects.count() == 1
    assert post(BODY, **{"idempotency-key": "another"}).json() != first.json()
    assert post(BODY).json() != post(BODY).json()


def test_another_body_is_refused_and_nothing_of_it_stored(post):
    assert post(BODY, **{"idempotency-key": "k"}).status_code == 200
    for body in (OTHER, b"{", json.dumps(BODY).encode() + b" "):
        refused = post(body, **{"idempotency-key": "k"})
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert Batch.objects.count() == 1


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("k", "k"),
        ('"k"', "k"),
        (r'"a \"b\" \\"', 'a "b" \\'),
        ('k"', 'k"'),
        ("x" * 255, "x" * 255),
        ("", None),
        ('""', None),
        ('"k', None),
        ('"a"b"', None),
        (r'"a\b"', None),
        ("x" * 256, None),
        ("ä", None),
        ("a\tb", None),
        ("a\x7f", None),
    ],
)
def test_a_key_is_printable_with_or_without_quotes(post, written, stored):
    """A quoted key is a string in RFC 9651, which the header's draft refers to."""
    answer = post(BODY, **{"idempotency-key": written})
    if stored is None:
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")
        assert not Batch.objects.exists()
        assert used("submissions") == 1
    else:
        assert answer.status_code == 200
        assert IdempotencyKey.objects.get().key == stored


def test_a_key_is_its_user_s_whichever_api_key_is_used(key):
    first = sent(key)
    assert sent(a_key(ALICE, "another")).json() == first.json()
    assert sent(a_key(BOB)).json() != first.json()


def test_a_refused_submission_may_be_corrected_and_sent_again_with_its_key(post, settings):
    assert post({}, **{"idempotency-key": "k"}).status_code == 400
    settings.MAX_OPEN_BATCHES = 0
    assert post(BODY, **{"idempotency-key": "k"}).status_code == 403
    settings.MAX_OPEN_BATCHES = 1
    assert post(BODY, **{"idempotency-key": "k"}).status_code == 200


def test_a_second_answer_takes_no_room_and_counts_as_a_request_alone(post, settings):
    settings.MAX_OPEN_BATCHES, settings.MAX_QUERIES_PER_MINUTE, settings.MAX_BATCHES_PER_MINUTE = 1, 1, 3
    for _ in range(3):
        assert post(BODY, **{"idempotency-key": "k"}).status_code == 200
    assert (used("submissions"), used("submitted queries")) == (3, 1)
    assert post(BODY, **{"idempotency-key": "k"}).json()["code"] == "too_many_requests"


def test_after_its_time_a_key_makes_another_batch_and_is_pruned(post, settings):
    def pass_time(**time: float) -> None:
        IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(**time))

    first = post(BODY, **{"idempotency-key": "k"}).json()
    pass_time(hours=23.9)
    assert "idempotency keys: 0 rows" in pruned()
    assert post(BODY, **{"idempotency-key": "k"}).json() == first
    pass_time(hours=24.1)
    # The row is expired but not pruned yet, and the result is the same.
    second = post(OTHER, **{"idempotency-key": "k"}).json()
    assert second.keys() == first.keys()
    assert second != first
    assert post(OTHER, **{"idempotency-key": "k"}).json() == second
    pass_time(hours=24.1)
    assert "idempotency keys: 1 rows" in pruned()
    assert not IdempotencyKey.objects.exists()


class Killed(BaseException):
    pass


def test_wherever_it_is_killed_the_next_request_has_the_batch(post, settings):
    """The kill comes before each statement in turn. If only the answer is lost, the batch exists."""
    settings.MAX_BATCHES_PER_MINUTE = 100
    for last in count(1):
        statements_left, names = last, {"idempotency-key": f"k{last}"}

        def kill(execute: Any, *how: Any) -> Any:
            nonlocal statements_left
            statements_left -= 1
            if statements_left == 0:
                raise Killed
            return execute(*how)

        before = Batch.objects.count()
        with connection.execute_wrapper(kill), suppress(Killed):
            post(BODY, **names)
        is_stored = Batch.objects.count() > before
        assert Batch.objects.count() == IdempotencyKey.objects.count() == before + is_stored
        again = post(BODY, **names)
        assert again.json() == {"internalId": IdempotencyKey.objects.get(key=names["idempotency-key"]).batch_id}
        assert ("Idempotency-Replayed" in again.headers) == is_stored
        if statements_left > 0:
            break
    assert is_stored
    assert last > 10


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_makes_the_batch(key):

    def submit() -> tuple[int, str, str | None]:
        answer = sent(key)
        return answer.status_code, answer.json()["internalId"], answer.headers.get("Idempotency-Replayed")

    answers = at_once(*[submit] * 4)
    batch = Batch.objects.get()
    assert sorted(answers, key=str) == sorted([(200, batch.pk, None), *[(200, batch.pk, "true")] * 3], key=str)
    assert (used("submissions"), used("submitted queries")) == (4, 1)
