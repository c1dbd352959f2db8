"""The title of a batch's page is the answer."""

import pytest

from explorer.batch import batch_page
from explorer.batch.query_paging import Wanted
from queries.models import Batch
from tests.explorer.batches import (
    batch_at,
    finish,
)
from tests.service import ALICE

pytestmark = pytest.mark.django_db

SHORT = f"{ALICE[:6]}…{ALICE[-4:]}"
CHAIN = "Development chain"


def title(batch: Batch) -> str:
    found = batch_page.read(batch.pk, Wanted())
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
