"""What the page of a batch shows of a path in two parts: over a rollup's parent chain, to the rollup's block."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from proving.models import Transaction
from queries import progress
from queries.models import Batch, StepKind
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import (
    OUTBOX,
    REGISTRY,
    ROLLUP,
    SOURCE,
    TRANSACTION,
    a_batch,
    accept,
    beat,
    complete,
    connect_rollup,
    connect_source,
    deployed,
    mine,
    of_rollup,
    page,
    path,
    plan_path,
    prove_slot,
    send,
    word,
)
from tests.explorer.pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def rollup(tmp_path) -> None:
    connect_source(tmp_path)
    connect_rollup(tmp_path)
    deployed(SOURCE)


def parts_of(batch: Batch) -> list[dict[str, Any]]:
    (query,) = Client().get(f"{path(batch)}.json").json()["queries"]
    found: list[dict[str, Any]] = query["parts"]
    return found


def told(batch: Batch, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(part[name] for name in names) for part in parts_of(batch)]


def on_its_way(block: int = 12) -> Batch:
    """Its header is being accumulated."""
    batch = of_rollup(block)
    accept(batch, ROLLUP)
    complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    plan_path(batch, 2, left=2)
    return batch


def sent(batch: Batch, tx_hash: str = TRANSACTION) -> Transaction:
    return send(batch, tx_hash=tx_hash, extends=deployed(ROLLUP))


def test_both_parts_are_there_before_anything_is_sent():
    batch = of_rollup()
    assert told(batch, "status", "blockNumber", "slot", "gas") == [("", None, "", None)] * 2
    accept(batch, ROLLUP)
    complete(batch, StepKind.INITIAL_STATE)
    assert [part["status"] for part in parts_of(batch)] == ["IN_PROGRESS", ""]
    first, second = parts_of(batch)
    assert (first["chain"]["id"], first["account"], first["factsRegistry"]) == (SOURCE, OUTBOX, REGISTRY)
    assert (second["chain"]["id"], second["account"]) == (ROLLUP, "")
    text = text_of(page(batch))
    assert "Path over Other chain, to Development chain Other chain (5) waits a slot of the Outbox " in text
    assert f" {OUTBOX} holds the hash of a block of Rollup; facts registry {REGISTRY}" in text
    assert "Rollup (6) not begun a block with that hash is recorded by its header" in text


def test_no_time_is_told_before_the_first_part_is_proven():
    batch = on_its_way()
    beat()
    assert "hops 0 of 2 done" in page(batch)
    assert "less than a minute left" not in page(batch)


def test_one_transaction_with_both_is_in_both_and_its_gas_is_divided():
    batch = on_its_way()
    tx = sent(batch)
    prove_slot(tx, vouches_for=15)
    assert told(batch, "status", "blockNumber", "gas", "cost") == [
        ("IN_PROGRESS", 777, 130_000, None),
        ("IN_PROGRESS", 15, None, None),
    ]
    text = text_of(page(batch))
    assert f"Other chain (5), block 777 sent slot {word(4242)} of the Outbox {OUTBOX} holds" in text
    assert "about 130,000 gas" in text
    assert "Rollup (6), block 15 sent its header has that hash, and is recorded; hops 0 of 2 done to block 12" in text
    tx.gas_price = 3
    mine(tx, block=14)
    plan_path(batch, 2, left=0)
    assert told(batch, "status", "gas", "cost") == [
        ("COMPLETED", 130_000, "390000"),
        ("IN_PROGRESS", 45_840, "137520"),
    ]
    complete(batch, StepKind.HEADER_ACCUMULATED)
    assert [[tx["hash"] for tx in part["transactions"]] for part in parts_of(batch)] == [[TRANSACTION]] * 2
    text = text_of(page(batch))
    assert f"slot {word(4242)} of the Outbox {OUTBOX} holds the hash of block 15 of Rollup; facts registry" in text
    assert "from there, 2 hops to block 12" in text
    assert "One transaction proves both parts; what each takes is estimated." in text
    assert "slot of the Outbox on Other chain, and the path to block 12" in text


def test_what_had_to_be_sent_before_belongs_to_the_first_part_and_what_came_after_to_the_second():
    batch = on_its_way()
    hashes = ["0x" + digit * 64 for digit in "123"]
    for number, tx_hash in enumerate(hashes):
        tx = sent(batch, tx_hash)
        if number == 1:
            prove_slot(tx)
        tx.gas_price = 1
        mine(tx, block=14 + number)
    assert [[tx["hash"] for tx in part["transactions"]] for part in parts_of(batch)] == [hashes[:2], hashes[1:]]
    assert told(batch, "gas") == [(175_840 + 130_000,), (175_840 - 130_000 + 175_840,)]
    assert "One transaction proves both parts" in page(batch)


def test_without_an_estimate_no_gas_is_told_of_either_part():
    batch = on_its_way()
    tx = sent(batch)
    prove_slot(tx, gas=None)
    mine(tx, block=14)
    assert told(batch, "gas", "cost") == [(None, None)] * 2


def test_a_first_part_that_was_proven_on_another_path_is_shown_as_such():
    other = on_its_way(block=20)
    tx = sent(other)
    prove_slot(tx, vouches_for=25)
    batch = on_its_way()
    # It may still fail.
    assert [part["status"] for part in parts_of(batch)] == ["IN_PROGRESS", ""]
    mine(tx, block=14)
    hop = sent(batch, "0x" + "1" * 64)
    mine(hop, block=15)
    assert told(batch, "status", "blockNumber", "gas") == [("COMPLETED", 777, None), ("IN_PROGRESS", 25, 175_840)]
    assert "proven on another path" in text_of(page(batch))
    # A later block is not known by it.
    assert [part["blockNumber"] for part in parts_of(on_its_way(block=26))] == [None, None]


def test_what_has_failed_proves_nothing():
    batch = on_its_way()
    tx = sent(batch)
    prove_slot(tx)
    mine(tx, block=14)
    Transaction.objects.update(succeeded=False)
    assert told(batch, "status", "blockNumber") == [("IN_PROGRESS", None), ("", None)]


def test_a_rejected_batch_has_stopped_parts():
    batch = on_its_way()
    progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    assert [part["status"] for part in parts_of(batch)] == ["STOPPED", ""]


def test_paths_over_no_parent_have_no_parts():
    batch = a_batch()
    assert parts_of(batch) == []
    assert "route" not in page(batch)


def test_parts_cost_as_many_statements_however_many_queries_there_are():
    statements = []
    for count in (1, 8):
        batches = [on_its_way(block=100 * count + number) for number in range(count)]
        for number, batch in enumerate(batches):
            prove_slot(sent(batch, f"0x{count:032x}{number:032x}"), vouches_for=1000)
        whole = batches[0]
        for batch in batches[1:]:
            for query in batch.queries.all():
                query.batch, query.position = whole, query.position + 1 + batches.index(batch)
                query.save()
        with CaptureQueriesContext(connection) as captured:
            assert page(whole).count('class="steps route"') == count
        statements.append(len(captured))
    assert statements[0] == statements[1]
