"""The present API of the replaced service. `tests/compatibility` has its clients."""

import json
from typing import Any

import pytest
from django.test import Client

from devnet.devchain import DevChain
from queries.models import Batch
from tests.service import ALICE, header, work_until_done

pytestmark = pytest.mark.outside


def asked(service: DevChain, **more: object) -> bytes:
    block = {
        "accounts": {ALICE: {"props": ["BALANCE"]}},
        "header": ["NUMBER", "BENEFICIARY", "OMMERS_HASH", "TIMESTAMP"],
    }
    data = {"31337": {f"block:{service.head()}": block}}
    return json.dumps({"destination_chain_id": "31337", "data": data} | more).encode()


@pytest.mark.long
def test_a_request_is_a_batch_of_the_same_service(service, key, client: Client):
    def get(path: str) -> Any:
        return client.get(path, headers=header(key)).json()

    body, names = asked(service), header(key) | {"Idempotency-Key": "k"}
    described = client.get("/api/openapi.json").json()
    content = described["paths"]["/submit-request"]["post"]["requestBody"]["content"]["application/json"]
    assert described["components"]["schemas"][content["schema"]["$ref"].split("/")[-1]]["required"] == [
        "destination_chain_id",
        "data",
    ]
    first, again = (client.post("/submit-request", body, "application/json", headers=names) for _ in range(2))
    assert [each.headers.get("Idempotency-Replayed") for each in (first, again)] == [None, "true"]
    answer = first.json()
    assert again.json() == answer
    assert answer["status"] == "RECEIVED"
    batch = Batch.objects.get(pk=answer["request_id"])
    assert batch.fee_is_estimate
    (account, of_header) = get(f"/get_queries/{batch.pk}")["queries"]
    assert (account["status"], account["typ"], account["completed_at"]) == ("IN_PROGRESS", "ACCOUNT", None)
    assert of_header["typ"] == "HEADER"

    work_until_done(batch)
    told = get(f"/batch-queries/{batch.pk}")
    assert {fact["property"] for fact in told["queryList"][1]["facts"]} == {
        "BLOCK_NUMBER",
        "COINBASE",
        "UNCLES_HASH",
        "TIMESTAMP",
    }
    for query, listed in zip(get(f"/get_queries/{batch.pk}")["queries"], told["queryList"], strict=True):
        assert (query["status"], query["completed_at"]) == ("COMPLETED", listed["steps"][-1]["completedAt"])
        actions = get(f"/get_actions/{query['internal_id']}")["actions"]
        assert [(each["typ"], each["transaction_hash"]) for each in actions] == [
            (step["kind"], step["transactionHash"]) for step in listed["steps"]
        ]
    for unknown in (f"{batch.pk}-3", f"{batch.pk}-0", batch.pk, f"{batch.pk}-²"):
        assert get(f"/get_actions/{unknown}")["error"] == "No query found"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"{}", "/destination_chain_id"),
        (b"{}", "/data"),
        (b"[]", ""),
        (b'{"destination_chain_id": "1", "destination_chain_id": "1"}', ""),
        (b'{"destination_chain_id": "1", "destinationChainId": "31337", "data": {}}', "/destination_chain_id"),
        (
            b'{"destination_chain_id": 31337, "data": {"31337": {"block:1": {"header": ["NUMBER"]}}}}',
            "/destination_chain_id",
        ),
    ],
)
def test_faults_are_reported_under_the_names_that_were_sent(service, key, client: Client, body, path):
    answer = client.post("/submit-request", body, "application/json", headers=header(key))
    assert answer.status_code == 400
    assert isinstance(answer.json()["error"], str)
    assert path in [fault["path"] for fault in answer.json()["details"]]
    assert not Batch.objects.exists()


def test_a_user_who_sends_the_transactions_needs_no_fee(service, key, client: Client):
    answer = client.post("/submit-request", asked(service, sender="self"), "application/json", headers=header(key))
    assert answer.status_code == 200, answer.text
    assert Batch.objects.get(pk=answer.json()["request_id"]).is_self_funded


def test_is_alive_answers_in_json_if_the_client_accepts_it():
    assert Client().get("/is-alive", headers={"accept": "application/json"}).json() == {"message": "Alive!"}
