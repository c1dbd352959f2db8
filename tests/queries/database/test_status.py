"""`GET /batch-query-status`, `GET /chain-connections`, and rules of all endpoints."""

import json
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import ApiKey
from queries.models import Batch, Block, StepKind
from queries.waits import wait
from tests.explorer.batches import accept, complete, reject
from tests.factories import client_of
from tests.plans import looks_at_all_due_blocks, plans
from tests.service import ALICE, header, request, submit

pytestmark = pytest.mark.outside
DOWN = wait("node_fails", problem="The node is down.")


@pytest.fixture
def batch(key) -> Batch:
    return submit(key, request(ALICE, block=1))


@pytest.fixture
def status(client: Client, key):
    def status(batch_id):
        return client.get("/batch-query-status", {"batchQueryId": batch_id}, headers=header(key))

    return status


def test_the_status_shows_how_far_a_batch_is_and_what_it_waits_for(batch, status, django_assert_num_queries):
    assert status(batch.pk).json() == {"queryStatus": "IN_PROGRESS"}
    accept(batch)
    assert status(batch.pk).json() == {"queryStatus": "IN_PROGRESS"}
    Block.objects.update(wait=DOWN, due_at=timezone.now())
    with django_assert_num_queries(3):
        assert status(batch.pk).json() == {"queryStatus": "IN_PROGRESS", "info": ["The node is down."]}
    complete(batch, *list(StepKind)[:-1])
    assert status(batch.pk).json()["queryStatus"] == "IN_PROGRESS"
    complete(batch, StepKind.FACTS_PROVEN)
    assert status(batch.pk).json() == {"queryStatus": "DONE"}


def test_a_rejection_has_its_cause(batch, status):
    reject(batch, "block_too_old", "It is too old.", retryable=False)
    told = {"error": "It is too old.", "code": "block_too_old", "retryable": False}
    assert status(batch.pk).json() == {"queryStatus": "REJECTED"} | told


def test_the_status_finds_waiting_blocks_by_the_batch_however_many_others_are_due(batch, status):
    accept(batch)
    with CaptureQueriesContext(connection) as statements:
        status(batch.pk)
    plan_lines = plans(statements)
    assert any("queries_block" in line for line in plan_lines)
    assert not looks_at_all_due_blocks(plan_lines)


def test_an_unknown_id_is_not_found_in_the_words_that_clients_match(status):
    for unknown in ("01J2VM6636VWW45ZRPGEQEZ5E5", "", "\x00", "x" * 1000):
        assert (status(unknown).status_code, status(unknown).json()["error"]) == (404, "No query found")


def test_a_key_and_an_id_are_needed(client: Client, key, batch):
    assert client.get("/batch-query-status", {"batchQueryId": batch.pk}).status_code == 401
    response = client.get("/batch-query-status", headers=header(key))
    assert (response.status_code, "batchQueryId" in response.json()["error"]) == (400, True)


@pytest.mark.parametrize("accounts", [1, 50, 700])
def test_one_statement_reads_the_key_and_the_status(key, status, accounts, django_assert_num_queries):
    batch = submit(key, request(*(f"0x{number:040x}" for number in range(accounts)), block=1))
    with django_assert_num_queries(1):
        assert status(batch.pk).json() == {"queryStatus": "IN_PROGRESS"}


@pytest.mark.parametrize(("age", "seconds"), [(0, "2"), (121, "5"), (601, "15")])
def test_the_status_has_retry_after_while_the_batch_is_open(batch, status, age, seconds):
    Batch.objects.update(created_at=timezone.now() - timedelta(seconds=age))
    assert status(batch.pk).headers["Retry-After"] == seconds
    reject(batch, "block_too_old", "It is too old.", retryable=False)
    assert "Retry-After" not in status(batch.pk).headers


def test_a_known_answer_is_304_until_it_changes(client: Client, key, batch, status):
    etag = status(batch.pk).headers["ETag"]

    def again(known: str):
        return client.get(
            "/batch-query-status", {"batchQueryId": batch.pk}, headers={**header(key), "if-none-match": known}
        )

    compressed = (f'{etag[:-1]}{ending}"' for ending in ("-gzip", "--gzip", "-br", "-zstd"))
    for known in (etag, etag.removeprefix("W/"), f'"other", {etag}', *compressed):
        answer = again(known)
        assert (answer.status_code, answer.content, answer.headers["Retry-After"]) == (304, b"", "2")
    assert again('"other"').status_code == again(f'{etag[:-1]}-other"').status_code == 200
    Batch.objects.update(wait=DOWN)
    assert again(etag).json()["info"] == ["The node is down."]


@pytest.mark.parametrize(
    "end",
    [
        lambda key: client_of(ALICE).post(f"/dashboard/keys/{key.pk}/revoke"),
        lambda key: ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now()),
        lambda key: client_of(ALICE).post(f"/dashboard/keys/{key.pk}/rotate", {"name": "next", "overlap": "now"}),
    ],
    ids=["revoked", "expired", "rotated"],
)
def test_a_key_that_has_ended_works_no_more_at_once_whatever_the_client_has(client: Client, key, batch, end):
    headers = header(key)
    query = {"batchQueryId": batch.pk}
    etag = client.get("/batch-query-status", query, headers=headers).headers["ETag"]
    end(key)
    for request_headers in (headers, headers | {"if-none-match": etag}):
        answer = client.get("/batch-query-status", query, headers=request_headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert "ETag" not in answer.headers
    body = json.dumps(request(ALICE, block=1))
    assert client.post("/submit-batch-query", body, content_type="application/json", headers=headers).status_code == 401


def test_connections_are_those_of_the_configuration(client: Client):
    response = client.get("/chain-connections")
    assert response.json() == {"connections": [{"originChainId": "31337", "destinationChainId": "31337"}]}


def test_programs_in_browsers_may_call_the_api_from_anywhere_and_nothing_else(client: Client):
    request_headers = {"origin": "https://dapp.example", "access-control-request-method": "POST"}
    allowed = client.options(
        "/submit-batch-query", headers={**request_headers, "access-control-request-headers": "api-key,content-type"}
    )
    assert allowed.headers["Access-Control-Allow-Origin"] == "*"
    assert "api-key" in allowed.headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in allowed.headers
    assert "Access-Control-Allow-Origin" not in client.get("/sign-in", headers=request_headers).headers


def test_the_docs_tell_how_to_poll_and_build_no_url_with_a_key(client: Client):
    document = client.get("/api/openapi.json").json()
    answers = document["paths"]["/batch-query-status"]["get"]["responses"]
    assert answers["200"]["headers"].keys() == answers["304"]["headers"].keys() == {"ETag", "Retry-After"}
    schemes = document["components"]["securitySchemes"].values()
    assert [(scheme["in"], scheme["name"]) for scheme in schemes] == [("header", "api-key")]
    assert "apiKey" not in json.dumps(document["paths"])


# --- Long polls: tests/serving/system/test_requests.py, with a server that can park requests ------------------------


@pytest.mark.parametrize("wait", ["26", "-1", "1.5", "x", ""])
def test_a_wait_is_of_25_seconds_at_most(batch, client: Client, key, wait):
    answer = client.get("/batch-query-status", {"batchQueryId": batch.pk, "wait": wait}, headers=header(key))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert "wait" in answer.json()["error"]


def test_for_how_long_something_fails_is_no_news(batch, status):
    Batch.objects.update(wait=DOWN, failing_since=timezone.now() - timedelta(seconds=5))
    before = status(batch.pk)
    Batch.objects.update(failing_since=timezone.now() - timedelta(seconds=60))
    after = status(batch.pk)
    assert re.search(r"\b6\d s", after.json()["info"][0])
    assert before.json() != after.json()
    assert before.headers["ETag"] == after.headers["ETag"]
