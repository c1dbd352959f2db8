"""Bundles of a batch and of each query have each node and block once, and take few statements."""

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from eth_utils.address import to_checksum_address

from devnet.devchain import DevChain
from proving.models import AccountProof, SlotProof
from queries.models import Batch, BatchStatus, Block, StepKind
from tests.explorer import batches
from tests.explorer.made_tries import asked_of_everything, prove
from tests.plans import plans
from tests.service import ALICE, BOB, PRAGUE_FIELDS, a_key, request, submit, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
NOBODY = "0x00000000000000000000000000000000000000AA"


@pytest.fixture
def batch(tmp_path) -> Batch:
    """Return a DONE batch."""
    complete_batch = asked_of_everything(tmp_path)
    prove(complete_batch)
    return complete_batch


def get(batch: Batch, **headers: str) -> Any:
    return Client().get(f"{batches.path(batch)}/bundle.json", headers=headers)


# --- On a chain -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_bundle_proves_the_facts_that_were_proven_on_the_chain(service: DevChain):
    batch = batches.everything(service)
    account, slots, header, timed = batches.proven_by(batches.bundle_of(batch)).queries.values()
    assert (account.account, slots.account) == (to_checksum_address(BOB), to_checksum_address(batches.CONTRACT))
    balance = int(service.rpc("eth_getBalance", BOB, hex(account.block_number)), 16)
    assert int.from_bytes(account.facts["BALANCE"]) == balance
    assert [int.from_bytes(shown) for shown in slots.slots.values()] == [77, 0]
    block = service.rpc("eth_getBlockByNumber", hex(header.block_number), False)
    assert (set(header.facts), header.block_hash) == (set(PRAGUE_FIELDS), block["hash"])
    assert int.from_bytes(header.facts["GAS_LIMIT"]) == int(block["gasLimit"], 16)
    assert (timed.timestamp, timed.claimed_timestamp) == (None, int(block["timestamp"], 16))


def test_an_account_that_does_not_exist_has_a_bundle_too(service: DevChain):
    batch = work_until_done(submit(a_key(), request(NOBODY, block=3)), service)
    shown = batches.proven_by(batches.bundle_of(batch, 1)).queries[1]
    assert (shown.account, shown.exists, shown.facts) == (NOBODY, False, {"BALANCE": bytes(32)})


# --- Content ----------------------------------------------------------------------------------------------------------


def test_a_bundle_has_each_block_and_each_node_once(batch):
    content = batches.bundle_of(batch)
    stored = {node for model in (AccountProof, SlotProof) for proof in model.objects.all() for node in proof.nodes}
    assert sorted(content["nodes"]) == sorted(stored)
    assert len(content["blocks"]) == len({query["block"] for query in content["queries"]}) == 4
    # Version 0.4.0 verifies no bundle without this name.
    assert [block["nextHeader"] for block in content["blocks"]] == [None] * 4
    assert [query["selector"] for query in content["queries"][-2:]] == ["timestamp:1700000005", "block:9"]
    for query in content["queries"]:
        alone = batches.bundle_of(batch, query["number"])
        assert alone["queries"][0] | {"block": query["block"]} == query | {
            name: alone["queries"][0][name] for name in ("accountProof", "slots")
        }
        assert set(alone["nodes"]) <= stored
        assert (len(alone["blocks"]), query["account"] is None) == (1, not alone["nodes"])


@pytest.mark.long
def test_a_bundle_of_a_large_batch_is_read_in_large_parts():
    accounts = {address: {"props": ["BALANCE"]} for address in batches.many_accounts(510)}
    batch = asked_of_everything(None, more=accounts)
    prove(batch)
    with CaptureQueriesContext(connection) as statements:
        content = batches.bundle_of(batch)
    assert list(batches.proven_by(content).queries) == list(range(1, batch.queries.count() + 1))
    # The limit for two parts of 500 queries. For each part, statements read the queries, blocks, accounts and slots.
    assert len(statements) <= 33


def test_nothing_of_other_batches_is_looked_at(batch):
    with CaptureQueriesContext(connection) as statements:
        batches.bundle_of(batch)
        batches.bundle_of(batch, 2)
    lines = plans(statements)
    reads_all = r"SCAN (q|b|p|a|t|queries_\w+|proving_\w*(proof|transaction)\w*)\b|Seq Scan on (queries|proving_[ast])"
    assert not [line for line in lines if re.search(reads_all, line)], lines


def test_a_query_of_more_slots_than_are_read_at_once_is_whole():
    slots = range(1, 511)
    batch = asked_of_everything(None, more={ALICE: {"slots": [f"{slot:#x}" for slot in slots]}})
    prove(batch)
    proven = batches.proven_by(batches.bundle_of(batch))
    many = next(query.slots for query in proven.queries.values() if len(query.slots) == len(slots))
    assert many == {batches.word(slot): (7 * slot).to_bytes(32) for slot in slots}


# --- Availability -----------------------------------------------------------------------------------------------------


def none_there(address: str) -> tuple[int, str]:
    """Return the reason why there is no bundle. The JSON for programs and the page for people must agree."""
    answers = [Client().get(f"{address}/bundle.json", headers=sent) for sent in ({}, {"accept": "*/*"})]
    of_page = Client().get(f"{address}/bundle.json", headers=BROWSER)
    assert {answer.status_code for answer in answers} == {of_page.status_code}
    assert of_page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert of_page.headers["Vary"].startswith("Accept")
    told = answers[0].json()
    assert told == answers[1].json()
    assert told.keys() == {"error", "code"}
    assert told["code"] == "not_found" or told["error"] in of_page.text
    return of_page.status_code, told["code"]


def test_a_bundle_exists_once_its_batch_is_done_and_while_its_proofs_are_kept(tmp_path):
    batch = asked_of_everything(tmp_path)
    assert none_there(batches.path(batch)) == (404, "not_done")
    prove(batch)
    done = batches.bundle_of(batch)
    batches.reopen(batch, StepKind.FACTS_PROVEN, of=batches.queries_of(batch)[:1])
    assert none_there(batches.path(batch)) == (404, "not_done")
    batches.complete(batch, StepKind.FACTS_PROVEN, of=batches.queries_of(batch)[:1])
    assert batches.bundle_of(batch) == done
    proof = AccountProof.objects.first()
    assert proof
    AccountProof.objects.filter(pk=proof.pk).update(address="0x" + "00" * 20)
    assert none_there(batches.path(batch)) == (404, "no_proof")
    AccountProof.objects.filter(pk=proof.pk).update(address=proof.address)
    Block.objects.filter(number=9).update(header_rlp=None)
    assert none_there(batches.path(batch)) == (404, "no_proof")
    Batch.objects.update(proofs_pruned_at=timezone.now())
    assert none_there(batches.path(batch)) == (410, "proofs_pruned")
    Batch.objects.update(status=BatchStatus.REJECTED)
    assert none_there(batches.path(batch)) == (404, "rejected")


def test_there_is_none_of_a_query_before_it_is_completed_nor_without_its_proof():
    batch = batches.a_batch()
    assert none_there(f"{batches.path(batch)}/1") == (404, "not_done")
    batches.accept(batch)
    assert none_there(f"{batches.path(batch)}/1") == (404, "not_done")
    batches.finish(batch)
    Block.objects.update(header_rlp=None)
    assert none_there(f"{batches.path(batch)}/1") == (404, "no_proof")
    assert none_there(f"{batches.path(batch)}/2") == (404, "not_found")
    Batch.objects.update(status=BatchStatus.REJECTED)
    assert none_there(f"{batches.path(batch)}/1") == (404, "rejected")


@pytest.mark.parametrize("address", ["", "/1", "/1/read", ".json", "/request.json", "/1/bundle.json", "/bundle.json"])
@pytest.mark.parametrize("headers", [BROWSER, {"accept": "application/json"}], ids=["person", "program"])
def test_a_batch_that_there_is_not_is_told_in_the_form_that_is_asked_for(db, address, headers):
    method = Client().post if address == "/1/read" else Client().get
    answer = method(f"/explorer/query/{'0' * 26}{address}", headers=headers)
    assert answer.status_code == 404
    if headers is BROWSER:
        assert "<h1>There is no such batch</h1>" in answer.text
    else:
        assert answer.json() == {"error": "No query found", "code": "not_found"}


def prune(batch: Batch) -> None:
    Batch.objects.update(proofs_pruned_at=timezone.now())


def go_back_and_come_again(batch: Batch) -> None:
    batches.reopen(batch, StepKind.FACTS_PROVEN, of=batches.queries_of(batch)[:1])
    batches.complete(batch, StepKind.FACTS_PROVEN, of=batches.queries_of(batch)[:1])


def lose(batch: Batch) -> None:
    SlotProof.objects.all().delete()


def be_rejected(batch: Batch) -> None:
    batches.reopen(batch, StepKind.FACTS_PROVEN, of=batches.queries_of(batch)[:1])
    batches.reject(batch)


CHANGES = [prune, go_back_and_come_again, lose, be_rejected]


@pytest.mark.parametrize("parts_before", [1, 3], ids=["before blocks", "after blocks"])
@pytest.mark.parametrize("of", ["", "/2"], ids=["batch", "query"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_bundle_whose_batch_changes_while_it_is_written_breaks_off(batch, change, of, parts_before):
    parts = iter(Client().get(f"{batches.path(batch)}{of}/bundle.json"))
    came = [next(parts) for _ in range(parts_before)]
    change(batch)
    # The server closes the connection before the end.
    with pytest.raises(Exception, match=r"changed|no longer stored"):
        came.extend(parts)
    with pytest.raises(json.JSONDecodeError):
        json.loads(b"".join(came))


def test_of_a_query_it_is_written_while_the_batch_goes_on(batch):
    batches.reopen(batch, StepKind.FACTS_PROVEN, of=batches.queries_of(batch)[:1])
    parts = iter(Client().get(f"{batches.path(batch)}/2/bundle.json"))
    came = [next(parts)]
    batches.complete(batch, StepKind.FACTS_PROVEN, of=batches.queries_of(batch)[:1])
    assert list(batches.proven_by(json.loads(b"".join([*came, *parts]))).queries) == [2]


def test_an_answer_to_head_makes_none(batch):
    with CaptureQueriesContext(connection) as statements:
        answer = Client().head(f"{batches.path(batch)}/bundle.json")
    assert not [each["sql"] for each in statements if "nodes" in each["sql"]]
    assert answer.headers["Content-Disposition"] == f'attachment; filename="proof-{batch.pk}.json"'
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
