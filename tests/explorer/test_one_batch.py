"""`GET /batch-queries/{internalId}`."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import ApiKey
from proving.models import AccountProof, Share
from queries.models import Batch, Block, StepKind
from tests.explorer.batches import (
    BALANCE,
    CONTRACT,
    REGISTRY,
    SOURCE,
    TRANSACTION,
    a_batch,
    accept,
    batch_at,
    complete,
    connect_source,
    everything,
    fetch_proofs,
    find_block,
    finish,
    many_accounts,
    mine,
    of_two_sources,
    path,
    queries_of,
    reject,
    reopen,
    send,
    word,
)
from tests.service import ACCOUNT_FIELDS, ALICE, BOB, HEADER_FIELDS, a_key, header

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def answer(batch: Batch, key: ApiKey | None = None, etag: str = "", **parameters):
    key = key or ApiKey.objects.get(user__address=ALICE)
    sent = header(key) | ({"if-none-match": etag} if etag else {})
    return Client().get(f"/batch-queries/{batch.pk}", parameters, headers=sent)


def detail(batch: Batch, **parameters):
    got = answer(batch, **parameters)
    assert got.status_code == 200, got.content
    return got.json()


def test_it_tells_how_the_batch_and_each_query_stands():
    batch = a_batch(ALICE, fee=2**200)
    told = detail(batch)
    for_older_clients = told["batchQuery"]
    assert for_older_clients == {name: told[name] for name in for_older_clients}
    assert {"internalId", "queryStatus"} <= set(for_older_clients)
    assert (
        told
        | {
            "status": "RECEIVED",
            "queryStatus": "IN_PROGRESS",
            "fee": str(2**200),
            "queries": 1,
            "acceptedAt": None,
            "estimatedGas": None,
            "estimatedWei": None,
            "transactions": [],
            "next": None,
        }
        == told
    )
    assert [wait["sentence"] for wait in told["waits"]] == ["Waiting for a worker to check it against the chains."]
    accept(batch)
    Block.objects.update(
        waiting_for="The node is down.", failing_since=timezone.now(), timestamp=7, hash=word(5), due_at=timezone.now()
    )
    told = detail(batch)
    (wait,) = told["waits"]
    assert wait["sentence"] == "The node is down."
    assert datetime.fromisoformat(wait["failingSince"]) <= datetime.fromisoformat(wait["nextTryAt"])
    assert (told["estimatedGas"], told["estimatedWei"]) == (511_000, "511000")
    assert datetime.fromisoformat(told["deadlineAt"]) > datetime.fromisoformat(told["acceptedAt"])
    (query,) = told["queryList"]
    (step,) = query.pop("steps")
    assert (step["kind"], step["status"], step["completedAt"]) == ("INITIAL_STATE", "IN_PROGRESS", None)
    assert query == {
        "number": 1,
        "sourceChainId": "31337",
        "selector": "block:12",
        "blockNumber": "12",
        "blockHash": word(5),
        "blockTimestamp": "7",
        "account": ALICE,
        "name": "",
        "isCompleted": False,
        "step": "INITIAL_STATE",
        "facts": [
            {"property": "BALANCE", "slot": None, "word": None, "value": None, "registry": None, "call": None},
        ],
    }


def test_the_page_s_json_is_the_same_for_everybody_who_has_the_link(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()

    def in_common() -> Any:
        told = detail(batch)
        page = Client().get(f"{path(batch)}.json")
        assert (page.json(), page.headers["ETag"]) == (told, answer(batch).headers["ETag"])
        assert Client().get(f"{path(batch)}.json", {"cursor": "2"}).json() == detail(batch, cursor="2")
        return told

    in_common()
    accept(batch)
    here, _ = queries_of(batch)
    complete(batch, StepKind.INITIAL_STATE, of=[here])
    Block.objects.update(waiting_for="No node answers.", failing_since=timezone.now(), due_at=timezone.now())
    waits = in_common()["waits"]
    assert [(wait["sentence"], wait["nextTryAt"] is None) for wait in waits] == [("No node answers.", False)]
    assert [chain["id"] for chain in waits[0]["sources"]] == [SOURCE, 31337]
    reject(batch)
    assert in_common()["rejection"]["code"] == "deadline_exceeded"


def test_transactions_are_told_with_the_version_that_counts():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    tx = send(batch)
    Share.objects.create(transaction=tx, batch=batch, gas=1, wei=1, weight=1)
    (sent,) = detail(batch)["transactions"]
    assert sent == {
        "hash": TRANSACTION,
        "chainId": "31337",
        "nonce": 0,
        "status": "PENDING",
        "gasUsed": None,
        "blockNumber": None,
    }
    mine(tx, block=20)
    complete(batch, StepKind.BLOCKHASH_AVAILABLE, transaction_hash=TRANSACTION)
    told = detail(batch)
    assert (told["transactions"][0]["status"], told["transactions"][0]["blockNumber"]) == ("MINED", "20")
    assert told["transactions"][0]["gasUsed"] == 175_840
    steps = told["queryList"][0]["steps"]
    assert [step["transactionHash"] for step in steps] == [None, TRANSACTION, None]


def test_each_query_has_its_words_as_soon_as_it_is_completed(tmp_path):
    """Also while another source chain hangs, and not after a rejection."""
    connect_source(tmp_path)
    batch = of_two_sources()
    fetch_proofs(batch)
    AccountProof.objects.filter(block__source_chain_id=SOURCE).update(balance=BALANCE + 1)
    accept(batch)
    here, _ = queries_of(batch)
    for kind in StepKind:
        assert [fact["word"] for query in detail(batch)["queryList"] for fact in query["facts"]] == [None, None]
        complete(batch, kind, of=[here])
    first, second = detail(batch)["queryList"]
    assert (first["isCompleted"], first["step"], first["facts"][0]["word"]) == (True, None, word(BALANCE))
    assert first["facts"][0]["value"] == str(BALANCE)
    assert (second["isCompleted"], second["facts"][0]["word"]) == (False, None)
    assert detail(batch)["queriesCompleted"] == 1
    reopen(batch, StepKind.ACCOUNT_ACCUMULATED, of=[here])
    told = detail(batch)
    assert told["queryList"][0]["facts"][0]["word"] is None
    assert told["wentBackBecause"] == "Chain 31337 was reorganised."
    complete(batch, StepKind.ACCOUNT_ACCUMULATED, of=[here])
    reject(batch)
    told = detail(batch)
    assert told["queryList"][0]["facts"][0]["word"] is None
    assert (told["waits"], told["deadlineAt"], told["rejection"]["retryable"]) == ([], None, True)


def test_every_kind_of_fact_is_read_by_the_call_that_is_told(service):
    batch = everything(service)
    told = detail(batch)
    for query in told["queryList"]:
        for fact in query["facts"]:
            read = service.rpc("eth_call", fact["call"], "latest")
            assert (fact["property"], read) == (fact["property"], fact["word"])
            if fact["value"] is not None:
                assert int(fact["value"]) == int(read, 16)
    account, contract, block, at_time = told["queryList"]
    assert [fact["property"] for fact in account["facts"]] == ACCOUNT_FIELDS
    assert [(fact["slot"], fact["value"]) for fact in contract["facts"]] == [(word(5), "77"), (word(6), "0")]
    assert (contract["account"].lower(), block["account"]) == (CONTRACT, None)
    assert [fact["property"] for fact in block["facts"]] == HEADER_FIELDS
    assert block["facts"][HEADER_FIELDS.index("STATE_ROOT")]["value"] is None
    assert [fact["property"] for fact in at_time["facts"]] == ["NONCE", "BLOCK_AT_TIMESTAMP"]
    assert at_time["selector"].startswith("timestamp:")
    assert at_time["blockNumber"] == at_time["facts"][1]["value"] == block["blockNumber"]


def test_a_time_without_its_block_is_told_too():
    batch = batch_at(timestamp_1700000005={"accounts": {ALICE: {"props": ["NONCE"]}}})
    (query,) = detail(batch)["queryList"]
    assert (query["selector"], query["blockNumber"], query["blockHash"]) == ("timestamp:1700000005", None, None)
    find_block(batch)
    finish(batch)
    (query,) = detail(batch)["queryList"]
    assert [fact["word"] for fact in query["facts"]] == [word(7), word(12)]
    assert {fact["registry"] for fact in query["facts"]} == {REGISTRY}


def test_what_a_tag_and_a_name_stood_for_is_told_beside_them():
    batch = batch_at(latest={"accounts": {ALICE: {"props": ["NONCE"]}}})
    batch.queries.update(name="alice.eth")
    find_block(batch)
    (query,) = detail(batch)["queryList"]
    assert (query["selector"], query["blockNumber"]) == ("latest", "12")
    assert (query["name"], query["account"]) == ("alice.eth", ALICE)


def test_queries_are_paged_in_the_order_of_the_request():
    accounts = list(many_accounts(7))
    batch = a_batch(*accounts)
    told = detail(batch, limit=3)
    seen = told["queryList"]
    while told["next"]:
        told = detail(batch, limit=3, cursor=told["next"])
        seen += told["queryList"]
    assert [int(query["account"], 16) for query in seen] == list(range(1, 8))
    assert [query["number"] for query in seen] == list(range(1, 8))
    assert detail(batch, cursor="900")["queryList"] == []


@pytest.mark.parametrize(
    "parameters", [{"limit": "0"}, {"limit": "101"}, {"cursor": "0"}, {"cursor": "1" * 10}], ids=str
)
def test_a_malformed_parameter_is_named(parameters):
    got = answer(a_batch(), **parameters)
    assert (got.status_code, got.json()["code"]) == (400, "invalid_request")
    (name,) = parameters
    assert name in got.json()["error"]


def test_only_the_user_reads_it():
    batch = a_batch()
    assert answer(batch, a_key(BOB)).json() == {"error": "No query found", "code": "not_found"}
    assert answer(batch, a_key(ALICE, "another")).status_code == 200
    assert Client().get(f"/batch-queries/{batch.pk}").status_code == 401
    for unknown in ("0" * 26, "%00", "x" * 300):
        batch.pk = unknown
        assert answer(batch, ApiKey.objects.filter(user__address=ALICE)[0]).status_code == 404


def test_who_has_the_answer_gets_304_until_it_changes():
    batch = a_batch()
    first = answer(batch)
    again = answer(batch, etag=first.headers["ETag"])
    assert (again.status_code, again.content, again.headers["Retry-After"]) == (304, b"", "2")
    Batch.objects.update(created_at=timezone.now() - timedelta(minutes=11))
    assert answer(batch).headers["Retry-After"] == "15"
    finish(batch)
    after = answer(batch, etag=first.headers["ETag"])
    assert after.status_code == 200
    assert "Retry-After" not in after.headers
    assert json.loads(after.content)["status"] == "DONE"


def test_it_takes_as_many_statements_for_a_large_batch_as_for_a_small_one():
    taken = []
    for count in (1, 90):
        batch = a_batch(*many_accounts(count), block=count)
        finish(batch)
        with CaptureQueriesContext(connection) as statements:
            assert len(detail(batch, limit=100)["queryList"]) == count
        taken.append(len(statements))
    assert taken[0] == taken[1] <= 10
