"""The header Idempotency-Key: a submission that is sent twice with the same key makes one batch."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts.models import ThrottleCount
from proving import pruning
from queries import idempotency, submission_rate
from queries.models import Batch, IdempotencyKey
from tests.queries.submissions import LOCKS, STATEMENTS_OF_A_SUBMISSION
from tests.service import ALICE, BOB, a_key, header, request
from tests.side_by_side import meet

BODY = request(ALICE, block=1)
OTHER = request(ALICE, block=2)


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
    """Quotes as in RFC 9651, since the draft's header is a string in its sense."""
    answer = post(BODY, **{"idempotency-key": written})
    if stored is None:
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")
        assert not Batch.objects.exists()
        assert used("submissions") == 1
    else:
        assert answer.status_code == 200
        assert IdempotencyKey.objects.get().key == stored


def test_a_key_takes_three_statements_more_and_the_second_answer_a_few(post, django_assert_max_num_queries):
    post(OTHER)  # It makes the rows of the throttle.
    most = STATEMENTS_OF_A_SUBMISSION + LOCKS * connection.features.has_select_for_update
    with django_assert_max_num_queries(most + 3):
        post(BODY, **{"idempotency-key": "k"})
    with django_assert_max_num_queries(4):
        post(BODY, **{"idempotency-key": "k"})


def test_a_key_is_its_user_s_whichever_api_key_is_used(key):
    first = sent(key)
    assert sent(a_key(ALICE, "another")).json() == first.json()
    assert sent(a_key(BOB)).json() != first.json()


def test_what_was_refused_may_be_sent_again_mended(post, settings):
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
    assert not (pruning.prune_now() or {}).get("idempotency keys")
    assert post(BODY, **{"idempotency-key": "k"}).json() == first
    pass_time(hours=24.1)
    # As long as nobody has pruned it, too.
    second = post(OTHER, **{"idempotency-key": "k"}).json()
    assert second.keys() == first.keys()
    assert second != first
    assert post(OTHER, **{"idempotency-key": "k"}).json() == second
    pass_time(hours=24.1)
    settings.KEEP_IDEMPOTENCY_KEYS_DAYS = None
    assert post(OTHER, **{"idempotency-key": "k"}).json() == second
    settings.KEEP_IDEMPOTENCY_KEYS_DAYS = 1
    assert (pruning.prune_now() or {})["idempotency keys"] == 1
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize(
    ("where", "is_stored"),
    [("queries.submission.find_blocks", False), ("queries.submission.logger.info", True)],
    ids=["before the commit", "between commit and answer"],
)
def test_wherever_it_is_killed_the_next_request_has_the_batch(post, monkeypatch, where, is_stored):
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(where, die)
        with pytest.raises(Killed):
            post(BODY, **{"idempotency-key": "k"})
    assert Batch.objects.count() == IdempotencyKey.objects.count() == is_stored
    again = post(BODY, **{"idempotency-key": "k"})
    assert again.json() == {"internalId": Batch.objects.get().pk}
    assert ("Idempotency-Replayed" in again.headers) == is_stored


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_makes_the_batch(key):
    at_once = threading.Barrier(4)

    def submit(_: int) -> tuple[int, str, str | None]:
        at_once.wait()
        try:
            answer = sent(key)
            return answer.status_code, answer.json()["internalId"], answer.headers.get("Idempotency-Replayed")
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(submit, range(4)))
    batch = Batch.objects.get()
    assert sorted(answers, key=str) == sorted([(200, batch.pk, None), *[(200, batch.pk, "true")] * 3], key=str)
    assert (used("submissions"), used("submitted queries")) == (4, 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another")
@pytest.mark.parametrize("same_body", [True, False])
def test_the_second_of_two_waits_for_the_first_to_be_stored(key, monkeypatch, same_body):
    # Otherwise it would wait for the throttle's row, and no longer look for the key before it stores.
    monkeypatch.setattr(submission_rate, "count_request", lambda *_: None)
    monkeypatch.setattr(submission_rate, "count_queries", lambda *_: None)
    met = meet(lambda: sent(key), lambda: sent(key, BODY if same_body else OTHER))
    assert met.waited
    assert met.first.status_code == 200
    assert met.second.status_code == (200 if same_body else 422)
    assert (met.second.json() == met.first.json()) == same_body
    assert Batch.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another")
def test_without_the_user_s_lock_the_row_of_the_key_would_do(key):
    named = idempotency.Named(key.user_id, "k")
    batches = [sent(key, name=name).json()["internalId"] for name in ("a", "b")]

    def second() -> str:
        try:
            named.remember(batches[1], b"")
        except idempotency.AlreadyStored as already:
            return already.earlier.batch_id
        return ""

    met = meet(lambda: named.remember(batches[0], b""), second)
    assert (met.waited, met.second) == (True, batches[0])
