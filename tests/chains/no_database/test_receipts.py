"""Receipts of recorded blocks, as nodes answer them and misanswer them, make the tries of their blocks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
import rlp
from trie import HexaryTrie

from chains.encoding import hex_data
from chains.nodes import block_transactions, chain_nodes, receipts
from chains.nodes.node_batches import NodeTimedOut, ReplyTooLong
from chains.nodes.node_errors import InvalidReply, NodeUnavailable, OtherRoot
from chains.tries.header import Header
from chains.tries.packed_entries import nodes, root
from chains.tries.trie import EMPTY_TRIE_ROOT
from tests.chains.lying_node import Raw
from tests.chains.recorded_blocks import answering, load
from tests.chains.tries import MALFORMED_RECEIPTS, RECEIPT, TYPED_RECEIPTS
from tests.contracts import blocks, decoder, tries
from tests.fixtures_folder import fixture_names

_NAMES = [name.removesuffix(".json") for name in fixture_names("receipts/*.json")]
_MAKING_THE_ROOT = [name for name in _NAMES if "not-reproducible" not in name]

Change = Callable[[list[Any]], list[Any]]
Fixture = Mapping[str, Any]


def serving(
    fixture: Fixture, change: Change = lambda told: told, raw: list[bytes] | None = None
) -> AbstractContextManager[str]:
    """Serve a block's receipts after the change. With `raw`, a node also answers these."""
    told = {"eth_getBlockReceipts": change(fixture["receipts"])}
    return answering(**told, **({"debug_getRawReceipts": list(map(hex_data, raw))} if raw else {}))


def header_of(fixture: Fixture) -> Header:
    return Header.decode(blocks.block_of(fixture).header)


def of_optimism(*, has_canyon: bool, logs: Sequence[Any] = ()) -> Fixture:
    """Return a block with one deposit, whose receipt has the nonce and the version in the trie since Canyon."""
    about = {"depositNonce": "0x5", "depositReceiptVersion": "0x1"} if has_canyon else {"depositNonce": "0x5"}
    told = {
        "type": "0x7e",
        "status": "0x1",
        "cumulativeGasUsed": "0xb3b0",
        "logs": [*logs],
        "logsBloom": "0x" + "00" * 256,
    }
    fixture = {
        "trieReceipt": "6 items" if has_canyon else "4 items",
        "receipts": [told | about | {"transactionHash": "0x" + "22" * 32}],
        "transactions": None,
    }
    values = blocks.block_of({**fixture, "header": {"receiptsRoot": "0x" + "00" * 32}}).values
    return {**fixture, "header": {"receiptsRoot": hex_data(root(values))}}


@pytest.mark.parametrize("name", _MAKING_THE_ROOT)
def test_the_trie_of_a_recorded_block_is_made(client_of, name):
    fixture = load(name)
    block = blocks.block_of(fixture)
    with serving(fixture) as url:
        made = receipts.of_block(client_of(url), header_of(fixture))
    assert list(made.values) == block.values
    for value, outcome in zip(made.values, block.receipts, strict=True):
        decoded = receipts.TransactionReceipt.decode(value)
        about = decoded.status, decoded.type, decoded.cumulative_gas_used, len(decoded.logs)
        assert decoder.Receipt(*about) == outcome.facts
        assert [log.hash for log in decoded.logs] == list(map(blocks.log_hash, outcome.logs))
        assert replace(decoded, logs=()) == replace(stored := receipts.TransactionReceipt.stored(value), logs=())
        assert list(stored.logs) == list(decoded.logs)
    count = len(made.values)
    for index, way in nodes(made.values, [*range(count), count, count + 1, 128, 65_535]).items():
        content = HexaryTrie.get_from_proof(block.roots[1], rlp.encode(index), list(map(rlp.decode, way)))
        assert content == (made.values[index] if index < count else b"")
        assert all(len(node) >= 32 for node in way)


def without(*names: str) -> Change:
    return lambda told: [{name: value for name, value in each.items() if name not in names} for each in told]


def each_with(**fields: Any) -> Change:
    return lambda told: [each | fields for each in told]


def _in_numbers(write: Callable[[int], Any]) -> Change:
    names = ("type", "status", "cumulativeGasUsed", "transactionIndex")
    return lambda told: [each | {name: write(int(each[name], 16)) for name in names if name in each} for each in told]


_NEWER = load("arbitrum-one-150000000")
_LOG = {"address": "0x" + "0a" * 20, "topics": [], "data": "0x"}
# Answers that nodes have given for what the trie holds in another form.
MISANSWERED: dict[str, tuple[Fixture, Change]] = {
    "no bloom": (of_optimism(has_canyon=True), without("logsBloom")),
    "another bloom": (
        of_optimism(has_canyon=True),
        lambda told: [each | {"logsBloom": "0x" + "11" * 256} for each in told],
    ),
    "no version after Canyon": (of_optimism(has_canyon=True), without("depositReceiptVersion")),
    "a version before Canyon": (
        of_optimism(has_canyon=False),
        lambda told: [
            each | {"depositNonce": "0x5", "depositReceiptVersion": "0x1"} if each["type"] == "0x7e" else each
            for each in told
        ],
    ),
    # harmony-one/harmony 3514
    "a status beside the state root before Byzantium": (load("eth-mainnet-1000000"), each_with(status="0x1")),
    "a state root beside the status": (_NEWER, each_with(root="0x" + "11" * 32)),
    "an empty state root beside the status": (_NEWER, each_with(root="0x")),
    # evmos/ethermint 839, filecoin-project/lotus 10910
    "null for no topics": (of_optimism(has_canyon=True, logs=[_LOG]), each_with(logs=[_LOG | {"topics": None}])),
    "no topics at all": (
        of_optimism(has_canyon=True, logs=[_LOG]),
        each_with(logs=[{"address": _LOG["address"], "data": "0x"}]),
    ),
    "null for no data": (of_optimism(has_canyon=True, logs=[_LOG]), each_with(logs=[_LOG | {"data": None}])),
    # trufflesuite/ganache 440
    "a lone 0 for no data": (of_optimism(has_canyon=True, logs=[_LOG]), each_with(logs=[_LOG | {"data": "0x0"}])),
    # Taraxa-project/taraxa-node 1876
    "null for no logs": (of_optimism(has_canyon=True), each_with(logs=None)),
    "no logs at all": (of_optimism(has_canyon=True), without("logs")),
    "an empty bloom": (of_optimism(has_canyon=True), each_with(logsBloom="0x")),
    "numbers of JSON": (_NEWER, _in_numbers(lambda number: number)),
    "decimal digits": (_NEWER, _in_numbers(str)),
    "zeros before": (_NEWER, _in_numbers(lambda number: f"0x{number:08x}")),
    "true for the status": (_NEWER, lambda told: [each | {"status": each["status"] == "0x1"} for each in told]),
    # hiero-ledger/hiero-json-rpc-relay 4921
    "the block's gas in each": (
        _NEWER,
        lambda told: [each | {"cumulativeGasUsed": told[-1]["cumulativeGasUsed"]} for each in told],
    ),
    "no gas until each": (_NEWER, without("cumulativeGasUsed")),
    "another order": (
        _NEWER,
        lambda told: [each | {"transactionIndex": hex(index)} for index, each in enumerate(told)][::-1],
    ),
    "Polygon's receipt of what the bridge has done": (
        _NEWER,
        lambda told: [*told, told[-1] | {"gasUsed": "0x0", "transactionHash": "0x" + "11" * 32}],
    ),
}


@pytest.mark.parametrize("case", MISANSWERED)
def test_receipts_misanswered_in_known_ways_still_make_the_blocks_trie(client_of, case):
    fixture, change = MISANSWERED[case]
    with serving(fixture, change) as url:
        made = receipts.of_block(client_of(url), header_of(fixture))
    assert list(made.values) == blocks.block_of(fixture).values


# kkrt-labs/kakarot-rpc 821 answers null, paradigmxyz/reth 23394 and hiero-json-rpc-relay 4423 an empty list. A proxy
# may refuse this method alone.
NO_LISTS: dict[str, Any] = {
    "none": [],
    "null": None,
    "null among them": [{}, None],
    "hashes": ["0x"],
    "an object": {},
    **{f"status {status}": Raw(b"<html>", status) for status in (400, 403, 404, 405, 500, 501)},
    "no result": Raw(b'{"id": 2}'),
    "an error in words": Raw(b'{"error": "Method not supported"}'),
}


@pytest.mark.parametrize(
    "of_block", [*({"eth_getBlockReceipts": told} for told in NO_LISTS.values()), {}], ids=[*NO_LISTS, "refused"]
)
def test_each_receipt_is_asked_for_where_a_node_has_no_list_of_them(client_of, of_block):
    fixture = load("arbitrum-one-150000000")
    each = {receipt["transactionHash"]: receipt for receipt in fixture["receipts"]}
    with answering(
        **of_block, eth_getBlockByHash={"transactions": list(each)}, eth_getTransactionReceipt=each.__getitem__
    ) as url:
        made = receipts.of_block(client_of(url), header_of(fixture))
    assert list(made.values) == blocks.block_of(fixture).values


@pytest.mark.parametrize("name", ["type", "status", "gasUsed", "cumulativeGasUsed", "logsBloom", "logs", "blockHash"])
@pytest.mark.parametrize("value", [[], {}, [[]], -1, 1.5, "", "0xzz"], ids=str)
def test_a_field_of_another_type_is_a_fault_of_the_node(client_of, name, value):
    fixture, change = of_optimism(has_canyon=True), each_with(**{"cumulativeGasUsed": "0x1", name: value})
    with serving(fixture, change) as url, pytest.raises(NodeUnavailable):
        receipts.of_block(client_of(url), header_of(fixture))


def test_receipts_asked_for_one_by_one_are_not_longer_than_all_in_one_answer(client_of, monkeypatch):
    """A node may name any number of transactions."""
    monkeypatch.setattr(receipts, "MAX_REPLY_BYTES", 1_000_000)
    asked: list[str] = []

    def told(tx_hash: str) -> Any:
        asked.append(tx_hash)
        return {"logsBloom": "0x" + "00" * 5_000}

    hashes = [hex_data(number.to_bytes(32)) for number in range(2_000)]
    with (
        answering(eth_getBlockByHash={"transactions": hashes}, eth_getTransactionReceipt=told) as url,
        pytest.raises(ReplyTooLong, match="more than 1,000,000 bytes"),
    ):
        receipts.of_block(client_of(url), header_of(_NEWER))
    assert len(asked) == 200


def test_receipts_asked_for_one_by_one_end_after_a_time(client_of, monkeypatch):
    monkeypatch.setattr(receipts, "_SECONDS_ONE_BY_ONE", -1)
    hashes = [hex_data(number.to_bytes(32)) for number in range(3)]
    with (
        answering(eth_getBlockByHash={"transactions": hashes}, eth_getTransactionReceipt=lambda _: {}) as url,
        pytest.raises(NodeTimedOut, match="takes longer than"),
    ):
        receipts.of_block(client_of(url), header_of(_NEWER))


def test_raw_receipts_are_asked_for_where_the_others_are_too_long_beside_a_node_that_is_down(client_of, monkeypatch):
    fixture = load("eth-mainnet-1000000")
    values = blocks.block_of(fixture).values
    monkeypatch.setitem(chain_nodes._REPLY_BYTES, "eth_getBlockReceipts", 500)
    with serving(fixture, raw=values) as url:
        made = receipts.of_block(client_of("http://127.0.0.1:1", url), header_of(fixture))
    assert list(made.values) == values


def test_at_most_eight_readings_are_compared_with_the_root(client_of, monkeypatch):
    """Each ambiguity doubles the readings, and a node may tell receipts with all of them."""
    compared: list[int] = []

    def counted(values: Sequence[bytes]) -> bytes:
        compared.append(len(values))
        return root(values)

    monkeypatch.setattr(receipts, "root", counted)
    fixture = of_optimism(has_canyon=True)
    change = each_with(root="0x" + "11" * 32, gasUsed="0x0", cumulativeGasUsed="0x1")
    with serving(fixture, change) as url, pytest.raises(OtherRoot):
        receipts.of_block(client_of(url), header_of(fixture))
    assert len(compared) == 8


def test_a_block_without_transactions_needs_no_answer(client_of):
    empty = Header.decode(tries.header(1, b"\1" * 32, roots=(EMPTY_TRIE_ROOT, EMPTY_TRIE_ROOT)))
    silent = client_of("http://127.0.0.1:1")
    assert receipts.of_block(silent, empty).values == block_transactions.of_block(silent, empty) == ()


def test_raw_receipts_are_asked_for_where_the_others_make_another_root(client_of):
    fixture, change = load("eth-mainnet-1000000"), without("root")
    values = blocks.block_of(fixture).values
    with serving(fixture, change, values) as url:
        made = receipts.of_block(client_of(url), header_of(fixture))
    assert list(made.values) == values
    assert list(map(hex_data, filter(None, made.hashes))) == [each["transactionHash"] for each in fixture["receipts"]]
    with serving(fixture, change, values[::-1]) as url, pytest.raises(OtherRoot, match="root differs"):
        receipts.of_block(client_of(url), header_of(fixture))
    with serving(fixture, change) as url:
        with pytest.raises(OtherRoot, match=r"root differs.*, and refuses debug_getRaw"):
            receipts.of_block(client_of(url), header_of(fixture))
        # A node that is down might have answered.
        with pytest.raises(NodeUnavailable) as caught:
            receipts.of_block(client_of(url, "http://127.0.0.1:1"), header_of(fixture))
        assert not isinstance(caught.value, OtherRoot)


@pytest.mark.parametrize("raw", [None, [b"\xc0"]])
def test_receipts_of_a_block_that_has_replaced_the_header_are_a_fault_that_passes(client_of, raw):
    fixture = load("eth-mainnet-1000000")
    with (
        serving(fixture, lambda told: [told[0] | {"blockHash": "0x" + "11" * 32}], raw) as url,
        pytest.raises(InvalidReply, match="root differs"),
    ):
        receipts.of_block(client_of(url), header_of(fixture))


def test_receipts_of_a_chain_that_hashes_otherwise_are_refused(client_of):
    fixture = load("cronos-10000-not-reproducible")
    with serving(fixture) as url, pytest.raises(OtherRoot, match="receipts of block 10000 whose root differs"):
        receipts.of_block(client_of(url), header_of(fixture))


def test_a_receipt_is_read_strictly():
    assert receipts.TransactionReceipt.decode(rlp.encode(RECEIPT)).status == 1
    for typed in TYPED_RECEIPTS:
        assert receipts.TransactionReceipt.decode(typed).type == typed[0]
    genuine = blocks.recorded("eth-mainnet-1000000").values[0]
    for spoilt in (b"\x02" + genuine[:-1], genuine + b"\0", *MALFORMED_RECEIPTS):
        with pytest.raises(ValueError, match=r"receipt|RLP|log|bytes"):
            receipts.TransactionReceipt.decode(spoilt)
