"""Idempotency-Key with row locks."""

import pytest
from django.test import Client

from queries import submission
from queries.models import Batch
from tests.service import ALICE, header, request
from tests.side_by_side import meet

pytestmark = pytest.mark.usefixtures("unreachable_chain")

BODY, OTHER = request(ALICE, block=1), request(ALICE, block=2)


def sent(key, body=BODY, name: str = "k"):
    headers = header(key) | {"idempotency-key": name}
    return Client().post("/submit-batch-query", body, content_type="application/json", headers=headers)


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another")
@pytest.mark.parametrize("same_body", [True, False])
def test_the_second_of_two_waits_for_the_first_to_be_stored(key, monkeypatch, same_body):
    # Without the throttle's rows, the second request waits only for the row of the key.
    monkeypatch.setattr(submission, "count_request", lambda *_: None)
    monkeypatch.setattr(submission, "count_queries", lambda *_: None)
    met = meet(lambda: sent(key), lambda: sent(key, BODY if same_body else OTHER))
    assert met.waited
    assert met.first.status_code == 200
    assert met.second.status_code == (200 if same_body else 422)
    assert (met.second.json() == met.first.json()) == same_body
    assert Batch.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another")
def test_without_the_user_s_lock_the_row_of_the_key_would_do(key):
    named = submission.Named(key.user_id, "k")
    batches = [sent(key, name=name).json()["internalId"] for name in ("a", "b")]

    def second() -> str:
        try:
            named.remember(batches[1], b"")
        except submission.AlreadyStored as already:
            return already.earlier.batch_id
        return ""

    met = meet(lambda: named.remember(batches[0], b""), second)
    assert (met.waited, met.second) == (True, batches[0])
