"""The proof bundle of a whole batch: the same as those of its queries, each node and block once, in few statements."""

import json
import re
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from proving.models import AccountProof, SlotProof
from queries.models import Batch, BatchStatus, Block, Query, StepKind
from tests import headers
from tests.explorer.batches import (
    accept,
    complete,
    many_accounts,
    page,
    path,
    queries_of,
    reject,
    reopen,
    said_of,
    word,
)
from tests.explorer.made_tries import FIELDS, asked_of_everything, balance, prove
from tests.plans import plans
from tests.service import ALICE

pytestmark = [pytest.mark.django_db, pytest.mark.outside]
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
HOLDS = "The bundle holds."


@pytest.fixture
def batch(tmp_path) -> Batch:
    """DONE."""
    found = asked_of_everything(tmp_path)
    prove(found)
    return found


def get(batch: Batch, **headers: str) -> Any:
    return Client().get(f"{path(batch)}/bundle.json", headers=headers)


def document(batch: Batch) -> bytes:
    answer = get(batch)
    assert answer.status_code == 200
    return bytes(answer.getvalue())


def test_it_has_each_block_and_each_node_once(batch):
    content = json.loads(document(batch))
    nodes = [node for query in content["queries"] for node in query["nodes"]]
    stored = {node for model in (AccountProof, SlotProof) for proof in model.objects.all() for node in proof.nodes}
    assert sorted(nodes) == sorted(stored)
    assert len(content["blocks"]) == len({query["block"] for query in content["queries"]}) == 4
    assert [query["selector"] for query in content["queries"][-2:]] == ["timestamp:1700000005", "block:9"]


def test_it_is_read_in_large_parts():
    accounts = {address: {"props": ["BALANCE"]} for address in many_accounts(510)}
    batch = asked_of_everything(None, more=accounts)
    prove(batch)
    total = batch.queries.count()
    with CaptureQueriesContext(connection) as statements:
        content = document(batch)
    assert [query["number"] for query in json.loads(content)["queries"]] == list(range(1, total + 1))
    assert said_of(content).startswith(HOLDS)
    # Of each part of 500 the queries, blocks, accounts and slots, each of which is found before it is read.
    assert len(statements) <= 33


def test_nothing_of_other_batches_is_looked_at(batch):
    with CaptureQueriesContext(connection) as statements:
        document(batch)
    lines = plans(statements)
    reads_all = r"SCAN (q|b|p|a|t|queries_\w+|proving_\w*(proof|transaction)\w*)\b|Seq Scan on (queries|proving_[ast])"
    assert not [line for line in lines if re.search(reads_all, line)], lines


def test_a_query_of_more_slots_than_are_read_at_once_is_whole():
    slots = range(1, 511)
    batch = asked_of_everything(None, more={ALICE: {"slots": [f"{slot:#x}" for slot in slots]}})
    prove(batch)
    content = document(batch)
    assert said_of(content).startswith(HOLDS)
    many = next(query["slots"] for query in json.loads(content)["queries"] if len(query["slots"]) == len(slots))
    assert {slot: entry["word"] for slot, entry in many.items()} == {word(slot): word(7 * slot) for slot in slots}


@pytest.mark.parametrize("fields", [{"parentHash": b"\x01" * 32}, {"timestamp": 1_700_000_005}, None])
def test_a_header_that_is_not_the_next_one_or_not_after_the_time_is_not_in_it(batch, fields):
    timed = next(block for block in json.loads(document(batch))["blocks"] if block["nextHeader"])
    following = Block.objects.get(number=int(timed["blockNumber"]) + 1)
    real: headers.Fields = {"parentHash": bytes.fromhex(timed["blockHash"][2:]), "timestamp": 1_700_000_006}
    other = headers.encode({**FIELDS, "number": following.number, **real, **(fields or {})})
    Block.objects.filter(pk=following.pk).update(header_rlp=other)
    shown = [block["nextHeader"] for block in json.loads(document(batch))["blocks"] if block["nextHeader"]]
    assert shown == (["0x" + other.hex()] if fields is None else [])


# --- When there is one ------------------------------------------------------------------------------------------------


def none_there(batch: Batch) -> tuple[int, str]:
    """In JSON for programs, and on a page for people."""
    answer, of_page = get(batch), get(batch, **BROWSER)
    assert answer.json().keys() == {"error", "code"}
    assert answer.status_code == of_page.status_code
    assert answer.json()["error"] in of_page.text
    return answer.status_code, answer.json()["code"]


def test_it_exists_once_the_batch_is_done_and_as_long_as_its_proofs_are_kept(tmp_path):
    batch = asked_of_everything(tmp_path)
    assert none_there(batch) == (404, "not_done")
    prove(batch)
    done = document(batch)
    reopen(batch, StepKind.ACCOUNT_ACCUMULATED, of=queries_of(batch)[:1])
    assert none_there(batch) == (404, "not_done")
    complete(batch, StepKind.ACCOUNT_ACCUMULATED, of=queries_of(batch)[:1])
    assert document(batch) == done
    proof = AccountProof.objects.first()
    assert proof
    AccountProof.objects.filter(pk=proof.pk).update(address="0x" + "00" * 20)
    assert none_there(batch) == (404, "no_proof")
    AccountProof.objects.filter(pk=proof.pk).update(address=proof.address)
    header = Block.objects.get(number=9).header_rlp
    Block.objects.filter(number=9).update(header_rlp=None)
    assert none_there(batch) == (404, "no_proof")
    Block.objects.filter(number=9).update(header_rlp=header)
    Batch.objects.update(proofs_pruned_at=timezone.now())
    assert none_there(batch) == (410, "proofs_pruned")
    Batch.objects.update(status=BatchStatus.REJECTED)
    assert none_there(batch) == (404, "rejected")


@pytest.mark.parametrize("headers", [BROWSER, {"accept": "application/json"}], ids=["person", "program"])
def test_of_a_batch_that_there_is_not_there_is_none(headers):
    answer = Client().get(f"/explorer/query/{'0' * 26}/bundle.json", headers=headers)
    assert answer.status_code == 404
    assert ("There is no such batch" in answer.text) == (headers is BROWSER)


def prune(batch: Batch) -> None:
    Batch.objects.update(proofs_pruned_at=timezone.now())


def go_back_and_come_again(batch: Batch) -> None:
    reopen(batch, StepKind.ACCOUNT_ACCUMULATED, of=queries_of(batch)[:1])
    complete(batch, StepKind.ACCOUNT_ACCUMULATED, of=queries_of(batch)[:1])


def lose(batch: Batch) -> None:
    """Delete the slots' proofs, which are read after the first blocks."""
    SlotProof.objects.all().delete()


def lose_account(batch: Batch) -> None:
    AccountProof.objects.filter(block__number=9).delete()


def lose_headers(batch: Batch) -> None:
    Block.objects.update(header_rlp=None)


def open_again(batch: Batch) -> None:
    """Put the batch back in progress, for no reason that the rows tell."""
    Batch.objects.update(status=BatchStatus.IN_PROGRESS)


def be_rejected(batch: Batch) -> None:
    reopen(batch, StepKind.ACCOUNT_ACCUMULATED, of=queries_of(batch)[:1])
    reject(batch)


CHANGES = [prune, go_back_and_come_again, lose, lose_account, lose_headers, open_again, be_rejected]


@pytest.mark.parametrize("parts_before", [1, 2], ids=["before blocks", "after blocks"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_while_it_is_written_is_no_bundle(batch, change, parts_before):
    parts = iter(get(batch))
    came = [next(parts) for _ in range(parts_before)]
    change(batch)
    # The connection is broken off.
    with pytest.raises(Exception, match=r"changed|not stored"):
        came.extend(parts)
    with pytest.raises(CommandError, match="is not JSON"):
        said_of(b"".join(came))


def test_an_answer_to_head_makes_none(batch):
    with CaptureQueriesContext(connection) as statements:
        answer = Client().head(f"{path(batch)}/bundle.json")
    assert not [each["sql"] for each in statements if "nodes" in each["sql"]]
    assert answer.headers["Content-Disposition"] == f'attachment; filename="proof-{batch.pk}.json"'
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")


# --- The command and the page -----------------------------------------------------------------------------------------


def test_the_command_has_a_line_of_each_query_and_ends_with_the_hashes_to_compare(batch):
    content = document(batch)
    lines = said_of(content).splitlines()
    assert lines[0] == HOLDS
    start = next(at for at, line in enumerate(lines) if line.startswith("  1  "))
    of_queries = lines[start : start + batch.queries.count()]
    assert [line.split()[0] for line in of_queries] == [str(number) for number in range(1, len(of_queries) + 1)]
    wei = balance(ALICE)
    assert f"BALANCE {wei // 10**18}." in of_queries[0]
    assert any(f"slot 0x5 {word(35)}, slot 0x6 {word(42)}" in line for line in of_queries)
    assert any("  header  LOGS_BLOOM 0x" in line and line.endswith(", GAS_USED 21000") for line in of_queries)
    assert any("NONCE 7, the latest at the time 1700000005" in line for line in of_queries)
    compared = [tuple(line.split()) for line in lines if line.startswith("  chain ")]
    # Block 15 is the one after that of the time.
    blocks = Block.objects.order_by("source_chain_id", "number")
    assert [block.number for block in blocks] == [9, 12, 13, 14, 15]
    assert compared == [("chain", str(one.source_chain_id), "block", str(one.number), one.hash) for one in blocks]


def test_the_command_says_which_times_are_not_checked(batch):
    content = json.loads(document(batch))
    for block in content["blocks"]:
        block["nextHeader"] = None
    said = said_of(json.dumps(content))
    assert "NONCE 7, NOT checked: the latest at the time 1700000005" in said


def test_the_command_refuses_what_does_not_hold_and_what_is_no_bundle(batch):
    content = json.loads(document(batch))
    content["queries"][0]["facts"]["BALANCE"] = word(1)
    with pytest.raises(CommandError, match=r"does not hold: Query 1: The proof shows another BALANCE"):
        said_of(json.dumps(content))
    with pytest.raises(CommandError, match="not a proof bundle of the format facts-2 or facts-batch-1"):
        said_of(b'{"format": "facts-3"}')


def test_the_page_offers_it_once_all_is_done_and_while_it_is_kept(tmp_path):
    batch = asked_of_everything(tmp_path)
    address = f"{path(batch)}/bundle.json"
    accept(batch)
    assert address not in page(batch)
    prove(batch)
    assert address in page(batch)
    command = f"<code>bqs verify {batch.pk} --rpc-url URL</code>"
    assert f"{command} checks all proofs by a node of yours of each source chain" in page(batch)
    Batch.objects.update(proofs_pruned_at=timezone.now())
    assert address not in page(batch)
    Batch.objects.update(proofs_pruned_at=None)
    Query.objects.exclude(position=0).delete()
    assert address in page(batch)
    assert "by a node of yours. Or" in page(batch)
    assert address not in Client().get(f"{path(batch)}/1").text
