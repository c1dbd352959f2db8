"""Long polling where there is no place to wait."""

from threading import Semaphore

import pytest

from config import long_polls
from queries import api
from tests.service import ALICE, header, request, submit


def test_a_server_that_can_t_let_a_request_wait_answers_it_at_once(client, key, monkeypatch, unreachable_chain):
    batch = submit(key, request(ALICE, block=1))
    monkeypatch.setattr(long_polls, "_places", Semaphore(0))
    monkeypatch.setattr(api, "_is_over", lambda *_: pytest.fail("It waits."))
    answer = client.get("/batch-query-status", {"batchQueryId": batch.pk, "wait": "25"}, headers=header(key))
    assert (answer.json(), answer.headers["Retry-After"]) == ({"queryStatus": "IN_PROGRESS"}, "2")
