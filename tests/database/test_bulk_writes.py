"""Headers of many blocks are written at once, and none in the place of another."""

import pytest

from database import bulk_writes
from queries.models import HEADER_COLUMNS, Block

pytestmark = pytest.mark.django_db


def block(number: int, **columns: object) -> Block:
    return Block.objects.create(destination_chain_id=1, source_chain_id=2, number=number, **columns)


def test_each_row_gets_its_own_values():
    blocks = [block(number) for number in range(3)]
    for row in blocks:
        row.hash, row.header_rlp, row.state_root, row.timestamp = f"0x{row.number}", b"\xc0", "0x00", row.number
    bulk_writes.update(blocks, HEADER_COLUMNS, while_empty="hash")
    stored = Block.objects.order_by("number").values_list("hash", "header_rlp", "state_root", "timestamp")
    assert [(a, bytes(b or b""), c, d) for a, b, c, d in stored] == [(f"0x{n}", b"\xc0", "0x00", n) for n in range(3)]


def test_what_was_filled_meanwhile_stays():
    filled, empty = block(1, hash="0xaa", timestamp=7), block(2)
    for row in (filled, empty):
        row.hash, row.timestamp = "0xbb", 9
    bulk_writes.update([filled, empty], ["hash", "timestamp"], while_empty="hash")
    assert list(Block.objects.order_by("number").values_list("hash", "timestamp")) == [("0xaa", 7), ("0xbb", 9)]
