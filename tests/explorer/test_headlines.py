"""The title of a batch's page is the answer."""

import pytest

from explorer.batch import batch_page
from explorer.batch.query_paging import Wanted
from proving.models import AccountProof
from queries import progress
from queries.models import Batch, StepKind
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import (
    a_batch,
    accept,
    batch_at,
    complete,
    connect_source,
    finish,
    many_accounts,
    of_two_sources,
    page,
    queries_of,
)
from tests.explorer.pages import text_of
from tests.service import ALICE

pytestmark = pytest.mark.django_db

SHORT = f"{ALICE[:6]}…{ALICE[-4:]}"
CHAIN = "Development chain"


def title(batch: Batch, only: int | None = None) -> str:
    found = batch_page.read(batch.pk, Wanted(only=only))
    assert found
    return found.headline.text


@pytest.mark.parametrize(
    ("asked", "open_title", "done_title"),
    [
        (
            {"block_12": {"accounts": {ALICE: {"props": ["BALANCE"]}}}},
            f"Balance of {SHORT} at block 12 of {CHAIN}",
            f"Balance of {SHORT} at block 12 of {CHAIN}: 123,456,789.0123 ETH",
        ),
        (
            {"block_12": {"accounts": {ALICE: {"props": ["CODE_HASH"]}}}},
            f"Code hash of {SHORT} at block 12 of {CHAIN}",
            f"Code hash of {SHORT} at block 12 of {CHAIN}: 0x22222222…222222",
        ),
        (
            {"block_12": {"accounts": {ALICE: {"slots": ["0x5"]}}}},
            f"Slot 0x5 of {SHORT} at block 12 of {CHAIN}",
            f"Slot 0x5 of {SHORT} at block 12 of {CHAIN}: 5",
        ),
        (
            {"block_12": {"accounts": {ALICE: {"slots": [hex(2**255)]}}}},
            f"A slot of {SHORT} at block 12 of {CHAIN}",
            f"A slot of {SHORT} at block 12 of {CHAIN}: 0x80000000…000000",
        ),
        (
            {"block_12": {"accounts": {ALICE: {"props": ["NONCE"], "slots": ["0x5", "0x6"]}}}},
            f"3 facts of {SHORT} at block 12 of {CHAIN}",
            f"3 facts of {SHORT} at block 12 of {CHAIN}: all proven",
        ),
        (
            {"block_12": {"header": ["TIMESTAMP"]}},
            f"TIMESTAMP of the header of block 12 of {CHAIN}",
            f"TIMESTAMP of the header of block 12 of {CHAIN}: 2023-11-14 22:13:20 UTC",
        ),
        (
            {"block_12": {"header": ["BASE_FEE_PER_GAS"]}},
            f"BASE_FEE_PER_GAS of the header of block 12 of {CHAIN}",
            f"BASE_FEE_PER_GAS of the header of block 12 of {CHAIN}: 1.2346 gwei",
        ),
        (
            {"block_12": {"header": ["COINBASE"]}},
            f"COINBASE of the header of block 12 of {CHAIN}",
            f"COINBASE of the header of block 12 of {CHAIN}: {SHORT}",
        ),
    ],
)
def test_of_one_query_it_is_what_was_asked_and_then_the_answer(asked, open_title, done_title):
    batch = batch_at(**asked)
    assert title(batch) == open_title
    finish(batch)
    assert title(batch) == done_title


@pytest.mark.parametrize(
    ("selector", "where"),
    [
        ("latest", "the newest block"),
        ("finalized", "the newest final block"),
        ("timestamp_1700000000", "the block at 2023-11-14 22:13:20 UTC"),
        (f"timestamp_{2**62}", "the block at a time"),
    ],
)
def test_a_block_without_a_number_is_named_as_it_was_asked_for(selector, where):
    batch = batch_at(**{selector: {"accounts": {ALICE: {"props": ["NONCE"]}}}})
    assert title(batch) == f"Nonce of {SHORT} at {where} of {CHAIN}"


def test_no_answer_is_told_before_it_is_proven_nor_after_it_went_back():
    batch = a_batch()
    finish(batch)
    AccountProof.objects.update(balance=10**18)
    assert title(batch).endswith(": 1 ETH")
    progress.reopen(queries_of(batch), StepKind.ACCOUNT_ACCUMULATED, reason="Reorganised.")
    assert title(batch).endswith(CHAIN)


def test_of_several_queries_it_counts_those_that_are_proven(tmp_path):
    batch = a_batch(*many_accounts(1200))
    accept(batch)
    assert title(batch) == f"1,200 queries about {CHAIN}: 0 proven"
    for kind in StepKind:
        progress.complete(queries_of(batch)[:7], kind)
    assert title(batch) == f"1,200 queries about {CHAIN}: 7 proven"
    assert title(batch, only=1200).startswith("Balance of 0x0000…")
    complete(batch, *StepKind)
    assert title(batch) == f"1,200 queries about {CHAIN}: all proven"
    connect_source(tmp_path)
    assert title(of_two_sources()) == f"2 queries about Other chain and {CHAIN}, for {CHAIN}: 0 proven"


def test_of_a_rejected_batch_it_is_why():
    batch = a_batch()
    progress.reject([batch.pk], code=RejectionCode.BLOCK_TOO_OLD, reason="Block 12 is too old.", retryable=False)
    assert "<h1>Block 12 is too old.</h1>" in page(batch)


def test_the_heading_has_the_whole_address_and_the_answer():
    batch = a_batch()
    finish(batch)
    html = page(batch)
    heading = html[html.index("<h1") : html.index("</h1>") + 5]
    said = text_of(f"<main>{heading}</main>")
    assert said == f"Balance of {ALICE} at block 12 of {CHAIN} : 123,456,789.0123\xa0 ETH".replace("\xa0", "")
    assert f'title="{ALICE}"' in heading
