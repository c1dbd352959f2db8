"""Receipts, logs and hashes of transactions. The contract, its model and the block agree."""

import random

import pytest
from eth_utils.crypto import keccak

from chains.packed import CannotPack, encode
from chains.packed_transactions import EXISTS, STATUS, encode_receipts, encode_transactions, root
from tests.contracts import decoder
from tests.contracts.blocks import Block, log_hash, random_block, recorded
from tests.contracts.decoder import InvalidPacked, TransactionFacts
from tests.contracts.deployed import Deployed, Reverted
from tests.fixtures_folder import fixture_names, needs_fixtures

RECORDED = [name.removesuffix(".json").removeprefix("receipts/") for name in fixture_names("receipts/*.json")]
SIZES = (0, 1, 2, 3, 16, 17, 100, 127, 128, 129, 130, 145, 257, 273)
TRANSACTIONS_ROOT, RECEIPTS_ROOT = 4, 5


def prove(registry: Deployed, block: Block, proof: bytes) -> TransactionFacts:
    """Send a proof. Return its facts by the model, which must be true of the block."""
    facts = model(block, proof)
    assert block.agrees(facts)
    registry.send_raw(proof)
    return facts


def model(block: Block, proof: bytes) -> TransactionFacts:
    return decoder.decode(
        proof,
        block_hash=lambda number: keccak(block.header) if number == block.number else None,
        state_root=lambda _: None,
        header_field=lambda number, place: block.roots[place - 4] if number == block.number else None,
    ).transactions


def read(registry: Deployed, number: int, facts: TransactionFacts) -> None:
    """Check that all of the facts can be read."""
    for index, receipt in facts.receipts.items():
        values = [registry.call("tryReceiptField", number, index, field) for field in range(5)]
        if receipt is None:
            assert values == [(False, bytes(32))] * 4 + [(True, bytes(32))]
            continue
        fields = (receipt.status, receipt.type, receipt.cumulative_gas, receipt.log_count, 1)
        assert values == [(field is not None, (field or 0).to_bytes(32)) for field in fields]
        assert registry.call("receiptField", number, index, EXISTS) == (1).to_bytes(32)
    for (index, log), digest in facts.logs.items():
        assert registry.call("logHash", number, index, log) == digest
    for index, digest in facts.hashes.items():
        assert registry.call("transactionHash", number, index) == digest


def trust(registry: Deployed, source: Deployed, block: Block, *, fields: bool = True) -> None:
    source.send("set", block.number, keccak(block.header))
    if fields:
        registry.send_raw(encode(block.header, b"", header_fields=(TRANSACTIONS_ROOT, RECEIPTS_ROOT)))


def every_log(block: Block, index: int) -> range:
    return range(len(block.receipts[index].logs))


@needs_fixtures
@pytest.mark.parametrize("name", RECORDED)
def test_every_receipt_log_and_transaction_of_a_recorded_block_is_proven(registry, source, name):
    block = recorded(name)
    trust(registry, source, block)
    if "not-reproducible" in name:
        with pytest.raises(Reverted) as reverted:
            registry.call_raw(encode_receipts(block.number, block.values, fields=[0]))
        assert reverted.value.error == ("InvalidProof",)
        return
    assert root(block.values) == block.roots[1]
    indexes = range(len(block.receipts))
    # Nodes take no transaction of more than 128 KiB.
    lots = [indexes[begin : begin + 20] for begin in range(0, len(indexes), 20)]
    for lot in lots:
        proof = encode_receipts(block.number, block.values, {index: every_log(block, index) for index in lot}, lot)
        facts = prove(registry, block, proof)
        assert facts.receipts.keys() == set(lot)
        assert len(facts.logs) == sum(len(block.receipts[index].logs) for index in lot)
        read(registry, block.number, facts)
    absent = len(indexes)
    read(registry, block.number, prove(registry, block, encode_receipts(block.number, block.values, fields=[absent])))
    for lot in lots if block.transactions else ():
        facts = prove(registry, block, encode_transactions(block.number, block.transactions, lot))
        assert facts.hashes == {index: keccak(block.transactions[index]) for index in lot}
        read(registry, block.number, facts)
