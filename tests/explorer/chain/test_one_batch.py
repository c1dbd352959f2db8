"""`GET /batch-queries/{internalId}`. tests/golden has its answers in many states."""

import json
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import ApiKey
from proving.models import AccountProof
from queries.models import Batch, Block, StepKind
from queries.waits import wait
from tests.explorer import batches
from tests.service import ACCOUNT_FIELDS, ALICE, BOB, PRAGUE_FIELDS, a_key, header

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def answer(batch: Batch, key: ApiKey | None = None, etag: str = "", **parameters):
    key = key or ApiKey.objects.get(user__address=ALICE)
    sent = header(key) | ({"if-none-match": etag} if etag else {})
    return Client().get(f"/batch-queries/{batch.pk}", parameters, headers=sent)


def detail(batch: Batch, **parameters):
    got = answer(batch, **parameters)
    assert got.status_code == 200, got.content
    return got.json()


def test_the_page_s_json_is_the_same_for_everybody_who_has_the_link(tmp_path):
    batches.connect_source(tmp_path)
    batch = batches.of_two_sources()

    def in_common() -> Any:
        told = detail(batch)
        page = Client().get(f"{batches.path(batch)}.json")
        for_older_clients = told["batchQuery"]
        assert for_older_clients == {name: told[name] for name in for_older_clients}
        assert (page.json(), page.headers["ETag"]) == (told, answer(batch).headers["ETag"])
        assert Client().get(f"{batches.path(batch)}.json", {"cursor": "2"}).json() == detail(batch, cursor="2")
        return told

    in_common()
    batches.accept(batch)
    here, _ = batches.queries_of(batch)
    batches.complete(batch, StepKind.INITIAL_STATE, of=[here])
    reason = wait("node_fails", problem="No node answers.")
    Block.objects.update(wait=reason, failing_since=timezone.now(), due_at=timezone.now())
    waits = in_common()["waits"]
    assert [(wait["sentence"], wait["nextTryAt"] is None) for wait in waits] == [("No node answers.", False)]
    assert [chain["id"] for chain in waits[0]["sources"]] == [batches.SOURCE, 31337]
    batches.reject(batch)
    assert in_common()["rejection"]["code"] == "deadline_exceeded"


def test_each_query_has_its_words_as_soon_as_it_is_completed(tmp_path):
    """A query's words are shown even while the batch's other source chain hangs, and after the batch is rejected."""
    batches.connect_source(tmp_path)
    batch = batches.fetch_proofs(batches.of_two_sources())
    AccountProof.objects.filter(block__source_chain_id=batches.SOURCE).update(balance=batches.BALANCE + 1)
    batches.accept(batch)
    here, _ = batches.queries_of(batch)
    for kind in StepKind:
        assert [fact["word"] for query in detail(batch)["queryList"] for fact in query["facts"]] == [None, None]
        batches.complete(batch, kind, of=[here])
    first, second = detail(batch)["queryList"]
    assert (first["isCompleted"], first["step"], first["facts"][0]["word"]) == (
        True,
        None,
        batches.word(batches.BALANCE),
    )
    assert first["facts"][0]["value"] == str(batches.BALANCE)
    assert (second["isCompleted"], second["facts"][0]["word"]) == (False, None)
    assert detail(batch)["queriesCompleted"] == 1
    batches.reopen(batch, StepKind.FACTS_PROVEN, of=[here])
    told = detail(batch)
    assert told["queryList"][0]["facts"][0]["word"] is None
    assert told["wentBackBecause"] == "Chain 31337 was reorganised."
    batches.complete(batch, StepKind.FACTS_PROVEN, of=[here])
    batches.reject(batch)
    told = detail(batch)
    assert told["queryList"][0]["facts"][0]["word"] is None
    assert (told["waits"], told["deadlineAt"], told["rejection"]["retryable"]) == ([], None, True)


def test_every_kind_of_fact_is_read_by_the_call_that_is_told(service):
    batch = batches.everything(service)
    told = detail(batch)
    for query in told["queryList"]:
        for fact in query["facts"]:
            read = service.rpc("eth_call", fact["call"], "latest")
            assert (fact["property"], read) == (fact["property"], fact["word"])
            if fact["value"] is not None:
                assert int(fact["value"]) == int(read, 16)
    account, contract, block, at_time = told["queryList"]
    assert [fact["property"] for fact in account["facts"]] == ACCOUNT_FIELDS
    assert [(fact["slot"], fact["value"]) for fact in contract["facts"]] == [
        (batches.word(5), "77"),
        (batches.word(6), "0"),
    ]
    assert (contract["account"].lower(), block["account"]) == (batches.CONTRACT, None)
    assert [fact["property"] for fact in block["facts"]] == PRAGUE_FIELDS
    assert block["facts"][PRAGUE_FIELDS.index("STATE_ROOT")]["value"] is None
    assert [fact["property"] for fact in at_time["facts"]] == ["NONCE", "BLOCK_AT_TIMESTAMP"]
    assert at_time["selector"].startswith("timestamp:")
    assert at_time["blockNumber"] == at_time["facts"][1]["value"] == block["blockNumber"]


def test_the_block_of_a_tag_and_the_account_of_a_name_are_shown_beside_them():
    batch = batches.batch_at(latest={"accounts": {ALICE: {"props": ["NONCE"]}}})
    batch.queries.update(name="alice.eth")
    batches.find_block(batch)
    (query,) = detail(batch)["queryList"]
    assert (query["selector"], query["blockNumber"]) == ("latest", "12")
    assert (query["name"], query["account"]) == ("alice.eth", ALICE)


def test_queries_are_paged_in_the_order_of_the_request():
    accounts = list(batches.many_accounts(7))
    batch = batches.a_batch(*accounts)
    told = detail(batch, limit=3)
    seen = told["queryList"]
    while told["next"]:
        told = detail(batch, limit=3, cursor=told["next"])
        seen += told["queryList"]
    assert [int(query["account"], 16) for query in seen] == list(range(1, 8))
    assert [query["number"] for query in seen] == list(range(1, 8))
    assert detail(batch, cursor="900")["queryList"] == []


@pytest.mark.long
def test_an_answer_ends_at_a_mebibyte_of_facts_and_the_next_goes_on_with_the_same_query():
    slots = [batches.word(number) for number in range(2_500)]
    large = batches.batch_at(
        block_12={"accounts": {ALICE: {"props": ["NONCE"], "slots": slots}, BOB: {"props": ["NONCE"]}}}
    )
    batches.finish(large)
    told = told_in_parts(large)
    assert [len(parts) for parts in told.values()] == [2, 1]
    first, second = ([*chain.from_iterable(parts)] for parts in told.values())
    assert [fact["slot"] for fact in first] == [None, *slots]
    assert all(fact["word"] for fact in first)
    assert [fact["property"] for fact in second] == ["NONCE"]
    many = {str(index): {"logs": ["0"]} for index in range(12)}
    long_logs = batches.batch_at(block_13={"transactions": many})
    batches.fetch_proofs(long_logs, logs=[[bytes(20), [], b"1" * 115_000]])
    batches.accept(long_logs)
    batches.complete(long_logs, *StepKind)
    told = told_in_parts(long_logs)
    logs = [fact["log"]["data"] for parts in told.values() for fact in chain.from_iterable(parts)]
    assert logs == ["0x" + "31" * 115_000] * 12
    # A receipt takes long to read, however little of it is told.
    receipts = batches.batch_at(block_14={"transactions": {str(at): {"props": ["STATUS"]} for at in range(60)}})
    batches.finish(receipts)
    assert len(detail(receipts, limit=100)["queryList"]) < 60
    assert list(told_in_parts(receipts)) == list(range(1, 61))


def told_in_parts(batch: Batch) -> dict[int, list[list[Any]]]:
    """Return the facts of each query, in a list for each answer that tells some. No answer is longer than 1.3 MB."""
    told: dict[int, list[list[Any]]] = {}
    cursor: str | None = "1"
    while cursor:
        got = Client().get(f"{batches.path(batch)}.json", {"cursor": cursor, "limit": "100"})
        assert len(got.content) < 1_300_000
        for query in got.json()["queryList"]:
            told.setdefault(query["number"], []).append(query["facts"])
        cursor = got.json()["next"]
    assert all(all(parts) for parts in told.values())
    return told


@pytest.mark.parametrize(
    "parameters", [{"limit": "0"}, {"limit": "101"}, {"cursor": "0"}, {"cursor": "1" * 10}, {"cursor": "1."}], ids=str
)
def test_a_malformed_parameter_is_named(parameters):
    got = answer(batches.a_batch(), **parameters)
    assert (got.status_code, got.json()["code"]) == (400, "invalid_request")
    (name,) = parameters
    assert name in got.json()["error"]


def test_only_the_user_reads_it():
    batch = batches.a_batch()
    assert answer(batch, a_key(BOB)).json() == {"error": "No query found", "code": "not_found"}
    assert answer(batch, a_key(ALICE, "another")).status_code == 200
    assert Client().get(f"/batch-queries/{batch.pk}").status_code == 401
    for unknown in ("0" * 26, "%00", "x" * 300):
        batch.pk = unknown
        assert answer(batch, ApiKey.objects.filter(user__address=ALICE)[0]).status_code == 404


def test_a_known_answer_is_304_until_it_changes():
    batch = batches.a_batch()
    first = answer(batch)
    again = answer(batch, etag=first.headers["ETag"])
    assert (again.status_code, again.content, again.headers["Retry-After"]) == (304, b"", "2")
    Batch.objects.update(created_at=timezone.now() - timedelta(minutes=11))
    assert answer(batch).headers["Retry-After"] == "15"
    batches.finish(batch)
    after = answer(batch, etag=first.headers["ETag"])
    assert after.status_code == 200
    assert "Retry-After" not in after.headers
    assert json.loads(after.content)["status"] == "DONE"


def test_batch_details_take_as_many_statements_for_a_large_batch_as_for_a_small_one():
    taken = []
    for count in (1, 90):
        batch = batches.finish(batches.a_batch(*batches.many_accounts(count), block=count))
        with CaptureQueriesContext(connection) as statements:
            assert len(detail(batch, limit=100)["queryList"]) == count
        taken.append(len(statements))
    assert taken[0] == taken[1] <= 10
