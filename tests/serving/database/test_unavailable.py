"""While nothing can be stored, requests that must write get 503, and others are answered."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from accounts.models import ApiKey
from queries.models import Batch, Block, Query, Step
from tests.accounts.over_http import reveal
from tests.accounts.wallets import ALICE, BOB, sign
from tests.disks import full_disk, locked_database
from tests.explorer.batches import beat
from tests.service import a_key, header, request, submit

pytestmark = [pytest.mark.outside, pytest.mark.usefixtures("transactional_db", "unreachable_chain")]
LOCKED = "The database of this service is locked for longer than usual."


@pytest.fixture
def signed_in() -> Client:
    """Return a signed-in client that receives error pages, where Django's test client would raise exceptions."""
    client = Client(raise_request_exception=False)
    message = message_for(client, ALICE.address)
    signed = {"message": message, "signature": sign(message, ALICE)}
    assert client.post("/sign-in/verify", signed, content_type="application/json").status_code == 200
    return client


def message_for(client: Client, address: str) -> str:
    body = {"address": address, "chainId": "31337"}
    return str(client.post("/sign-in/message", body, content_type="application/json").json()["message"])


WRITING = [
    "/submit-batch-query",
    "/sign-in/message",
    "/sign-in/verify",
    "/sign-out",
    "/sign-out/everywhere",
    "/dashboard/keys",
    "/dashboard/keys/{key}/reveal",
    "/dashboard/keys/{key}/rotate",
    "/dashboard/keys/{key}/revoke",
]


@pytest.mark.parametrize("path", WRITING)
def test_whatever_writes_is_503_in_the_client_s_form_and_works_afterwards(signed_in, path):
    key = ApiKey.objects.get()
    path = path.format(key=key.pk)
    bodies: dict[str, object] = {
        "/submit-batch-query": request(ALICE.address, block=1),
        "/sign-in/message": {"address": BOB.address, "chainId": "31337"},
        "/dashboard/keys": {"name": "another"},
        f"/dashboard/keys/{key.pk}/rotate": {"name": "next", "overlap": "1d"},
    }
    if path == "/sign-in/verify":
        message = message_for(signed_in, BOB.address)
        bodies[path] = {"message": message, "signature": sign(message, BOB)}
    body = bodies.get(path, {})
    is_api, sent = path == "/submit-batch-query", {"api-key": reveal(key)}

    def ask(*, is_program: bool) -> Any:
        if is_program or is_api:
            headers = sent | ({} if is_program else {"Accept": "text/html"})
            return signed_in.post(path, json.dumps(body), content_type="application/json", headers=headers)
        return signed_in.post(path, body, headers={"Accept": "text/html"})

    with locked_database():
        for is_program in (True, False):
            answer = ask(is_program=is_program)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
            if is_program or is_api:
                assert answer.json() == {"error": f"{LOCKED} Try again later.", "code": "storage_unavailable"}
            else:
                assert LOCKED in answer.text
                assert "<h1>" in answer.text
    assert ask(is_program=False).status_code in {200, 201, 302}


@pytest.mark.long
def test_requests_that_need_no_write_are_answered_while_the_database_is_locked(signed_in):
    key = a_key(name="another")
    batch = submit(key, request(ALICE.address, block=1))
    beat()
    with locked_database():
        for path in (
            "/",
            "/chain-connections",
            "/chains",
            "/chains.json",
            f"/batch-query-status?batchQueryId={batch.pk}",
            f"/explorer/query/{batch.pk}",
            f"/explorer/query/{batch.pk}.json",
            f"/explorer/query/{batch.pk}/1",
            f"/explorer/query/{batch.pk}/request.json",
            "/explorer",
            "/dashboard",
            "/keys",
            "/dashboard/log",
            "/api/docs",
        ):
            assert signed_in.get(path, headers=header(key)).status_code == 200, path


def test_a_full_disk_stores_nothing_of_a_batch_and_the_same_is_taken_when_there_is_room(signed_in):
    key = a_key(name="another")
    body = json.dumps(request(*(f"0x{number:040x}" for number in range(1, 3000)), block=5))

    def ask() -> Any:
        return signed_in.post("/submit-batch-query", body, content_type="application/json", headers=header(key))

    with full_disk():
        answer = ask()
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        assert answer.json()["error"].startswith("The disk of this service is full")
    assert not any(model.objects.exists() for model in (Batch, Block, Query, Step))
    assert ask().status_code == 200
    assert Query.objects.count() == Step.objects.count() == 2999


def test_a_defect_stays_500(signed_in):
    def fail(execute: Any, sql: str, *how: Any) -> Any:
        if "queries_query" in sql:
            raise ZeroDivisionError("a defect")
        return execute(sql, *how)

    key = a_key(name="another")
    body = json.dumps(request(ALICE.address, block=1))
    with connection.execute_wrapper(fail):
        answer = signed_in.post("/submit-batch-query", body, content_type="application/json", headers=header(key))
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "Retry-After" not in answer.headers
