"""Lines of lists, and the titles of batches' pages: what was asked and what came out, in words."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from explorer.batch import batch_page
from explorer.batch.query_paging import Wanted
from explorer.lists import batch_list, batch_rows
from explorer.lists.batch_rows import BatchRow
from proving.models import AccountProof
from queries.models import Batch, StepKind
from tests.explorer.batches import (
    a_batch,
    accept,
    batch_at,
    complete,
    connect_source,
    deployed,
    finish,
    many_accounts,
    of_two_sources,
    queries_of,
    reopen,
)
from tests.service import ALICE, BOB

pytestmark = pytest.mark.django_db

SHORT, CHAIN = f"{ALICE[:6]}…{ALICE[-4:]}", "Development chain"


def line(batch: Batch) -> BatchRow:
    found = {row.batch.pk: row for row in batch_list.newest(User.objects.get(address=ALICE), 50)}
    return found[batch.pk]


def words(batch: Batch) -> str:
    return line(batch).headline.text


def title(batch: Batch) -> str:
    page = batch_page.read(batch.pk, Wanted())
    assert page
    return page.headline.text


def account(**asked: object) -> dict[str, object]:
    return {"accounts": {ALICE: asked}}


@pytest.mark.parametrize(
    ("asked", "said", "answer"),
    [
        ({"block_12": account(props=["BALANCE"])}, f"Balance of {SHORT} at block 12", "123,456,789.0123 ETH"),
        ({"block_12": account(props=["CODE_HASH"])}, f"Code hash of {SHORT} at block 12", "0x22222222…222222"),
        ({"block_12": account(slots=["0x5"])}, f"Slot 0x5 of {SHORT} at block 12", "5"),
        ({"block_12": account(slots=[hex(2**255)])}, f"A slot of {SHORT} at block 12", "0x80000000…000000"),
        ({"block_12": {"header": ["GAS_LIMIT"]}}, "GAS_LIMIT of the header of block 12", "30,000,000"),
        ({"block_12": {"header": ["TIMESTAMP"]}}, "TIMESTAMP of the header of block 12", "2023-11-14 22:13:20 UTC"),
        (
            {"block_12": {"header": ["BASE_FEE_PER_GAS"]}},
            "BASE_FEE_PER_GAS of the header of block 12",
            "1.2346 gwei",
        ),
        ({"block_12": {"header": ["COINBASE"]}}, "COINBASE of the header of block 12", SHORT),
        ({"latest": account(props=["NONCE"])}, f"Nonce of {SHORT} at the newest block", None),
        ({"finalized": account(props=["NONCE"])}, f"Nonce of {SHORT} at the newest final block", None),
        (
            {"timestamp_1700000000": account(props=["NONCE"])},
            f"Nonce of {SHORT} at the block at 2023-11-14 22:13:20 UTC",
            None,
        ),
        ({f"timestamp_{2**62}": account(props=["NONCE"])}, f"Nonce of {SHORT} at the block at a time", None),
    ],
)
def test_a_line_and_a_title_say_what_was_asked_and_once_it_is_done_the_answer(asked, said, answer):
    batch = batch_at(**asked)
    assert (words(batch), title(batch)) == (said, f"{said} of {CHAIN}")
    if answer:
        finish(batch)
        assert (words(batch), title(batch)) == (f"{said}: {answer}", f"{said} of {CHAIN}: {answer}")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"block_12": account(props=["NONCE", "BALANCE"], slots=["0x5"])}, f"3 facts of {SHORT} at block 12"),
        (
            {f"block_{number}": account(props=["BALANCE"]) for number in (1, 2, 3)},
            f"3 queries of {SHORT} at 3 blocks: 0 proven",
        ),
        (
            {"block_12": {"accounts": {ALICE: {"slots": ["0x1"]}, BOB: {"slots": ["0x1"]}}, "header": ["STATE_ROOT"]}},
            "3 queries at block 12: 0 proven",
        ),
        ({"latest": {"accounts": {ALICE: {"props": ["NONCE"]}}, "header": ["NONCE"]}}, None),
    ],
)
def test_a_line_of_several_facts_counts_them(asked, said):
    assert words(batch_at(**asked)) == (said or "2 queries at the newest block: 0 proven")


def test_a_line_and_a_title_say_how_much_is_proven(tmp_path):
    batch = a_batch(*many_accounts(1200))
    accept(batch)
    for kind in StepKind:
        complete(batch, kind, of=queries_of(batch)[:7])
    assert words(batch) == "1,200 queries at block 12"
    assert title(batch) == f"1,200 queries about {CHAIN}: 7 proven"
    complete(batch, *StepKind)
    assert title(batch) == f"1,200 queries about {CHAIN}: all proven"
    connect_source(tmp_path)
    assert title(of_two_sources()) == f"2 queries about Other chain and {CHAIN}, for {CHAIN}: 0 proven"


def test_no_value_is_told_that_the_registry_may_not_hold():
    batch = a_batch()
    finish(batch)
    AccountProof.objects.update(balance=10**18)
    assert words(batch).endswith(": 1 ETH")
    registry = deployed()
    registry.deployed_at = None
    registry.save()
    assert line(batch).headline.answer is None
    deployed()
    reopen(batch, StepKind.ACCOUNT_ACCUMULATED)
    assert (line(batch).headline.answer, title(batch)[-len(CHAIN) :]) == (None, CHAIN)
    complete(batch, StepKind.ACCOUNT_ACCUMULATED)
    Batch.objects.update(status="REJECTED")
    assert line(batch).headline.answer is None


def test_all_source_chains_are_named_or_said_to_be_several(tmp_path, monkeypatch):
    connect_source(tmp_path)
    one, two = a_batch(), of_two_sources()
    assert [[chain.id for chain in line(batch).sources] for batch in (one, two)] == [[31337], [31337, 5]]
    assert (line(one).reads_itself, line(two).reads_itself) == (True, False)
    monkeypatch.setattr(batch_rows, "_MOST_READ", 1)
    assert [[chain.id for chain in line(batch).sources] for batch in (one, two)] == [[31337], []]
    assert [chain.id for chain in line(a_batch(*many_accounts(9), block=13)).sources] == [31337]


def test_the_statements_grow_neither_with_the_lines_nor_with_the_batches():
    counts = []
    for blocks in (range(1), range(1, 6)):
        for block in blocks:
            finish(batch_at(**{f"block_{block}": account(slots=["0x5"])}))
            a_batch(*many_accounts(40), block=block)
        with CaptureQueriesContext(connection) as captured:
            batch_list.newest(User.objects.get(address=ALICE), 50)
        counts.append(len(captured) - 1)  # The user is the test's.
    assert counts == [7, 7]
