"""The client refuses proofs with nodes that the service and the registry refuse."""

import pytest
import rlp
from eth_utils.crypto import keccak

from batch_query_client import InvalidBundle, receipts, trie_proof
from tests.chains import tries
from tests.contracts.blocks import log_hash, recorded
from tests.contracts.tries import build, hex_prefix, proof
from tests.fixtures_folder import fixture_names


@pytest.mark.parametrize(("nodes", "fault"), tries.MALFORMED)
def test_a_node_that_no_trie_has_proves_nothing(nodes, fault):
    root, encoded = tries.chained(*nodes)
    with pytest.raises(InvalidBundle):
        trie_proof.slot(root, bytes(32), encoded)


@pytest.mark.parametrize("content", [b"\x00", b"\x80", b"\x82\x00\x07", b"\xa1" + b"\1" * 33, b"\xc1\x07", b""])
@pytest.mark.parametrize("slot", [0, 1], ids=["itself", "another"])
def test_a_malformed_leaf_of_a_slot_shows_neither_its_value_nor_that_another_is_empty(content, slot):
    root, nodes = tries.chained([tries.GOOD_LEAF[0], content])
    with pytest.raises(InvalidBundle):
        trie_proof.slot(root, slot.to_bytes(32), nodes)


@pytest.mark.parametrize("fields", tries.MALFORMED_ACCOUNTS)
@pytest.mark.parametrize("address", [bytes(20), b"\1" * 20], ids=["itself", "another"])
def test_a_malformed_account_shows_neither_itself_nor_that_another_does_not_exist(fields, address):
    root, nodes = tries.chained([hex_prefix(keccak(bytes(20)).hex(), leaf=True), fields])
    with pytest.raises(InvalidBundle):
        trie_proof.account(root, address, nodes)


def test_a_leaf_of_another_key_shows_that_a_slot_is_empty():
    root, nodes = tries.chained(tries.GOOD_LEAF)
    assert (trie_proof.slot(root, bytes(32), nodes)[-1], any(trie_proof.slot(root, b"\1" * 32, nodes))) == (7, False)


@pytest.mark.parametrize("change", [lambda _: [], lambda nodes: nodes * 2, lambda nodes: [*nodes, b"\x80"]])
def test_a_proof_with_a_node_less_or_more_proves_nothing(change):
    root, nodes = tries.chained(tries.GOOD_LEAF)
    with pytest.raises(InvalidBundle):
        trie_proof.slot(root, bytes(32), change(nodes))


@pytest.mark.parametrize("name", [name for name in fixture_names("receipts/*.json") if "not-reproducible" not in name])
def test_receipts_and_transactions_of_recorded_blocks_are_read(name):
    block = recorded(name.removesuffix(".json"))
    for root, values in zip(block.roots, (block.transactions, block.values), strict=True):
        built = build({rlp.encode(index): value for index, value in enumerate(values)})
        for index, value in enumerate(values):
            nodes = proof(built, rlp.encode(index))
            assert trie_proof.of_transaction(root, index, nodes) == value
            for other in (index + 1, index + 128):
                with pytest.raises(InvalidBundle):
                    trie_proof.of_transaction(root, other, nodes)
    for value, outcome in zip(block.values, block.receipts, strict=True):
        receipt = receipts.decode(value)
        fields = outcome.facts
        numbers = {"TYPE": fields.type, "CUMULATIVE_GAS_USED": fields.cumulative_gas, "LOG_COUNT": fields.log_count}
        numbers |= {} if fields.status is None else {"STATUS": fields.status}
        assert {name: int.from_bytes(word) for name, word in receipt.words.items()} == numbers
        assert [receipts.log_hash(log) for log in receipt.logs] == list(map(log_hash, outcome.logs))


def test_receipts_of_every_type_are_read():
    for value in tries.TYPED_RECEIPTS:
        assert int.from_bytes(receipts.decode(value).words["TYPE"]) == value[0]


@pytest.mark.parametrize("value", tries.MALFORMED_RECEIPTS)
def test_a_malformed_receipt_shows_nothing(value):
    with pytest.raises(InvalidBundle, match="receipt"):
        receipts.decode(value)
