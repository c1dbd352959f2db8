"""Receipts of every type that a chain has. Registry, reader, package and service take the same, and read the same."""

import random
from collections.abc import Iterator, Mapping

import pytest
import rlp
from eth_utils.crypto import keccak

from chains.nodes.receipts import TransactionReceipt
from chains.tries.packed import RECEIPTS
from chains.tries.packed_entries import LOG_COUNT, STATUS, TYPE, encode_receipts, nodes, root
from tests.contracts import tries
from tests.contracts.blocks import TYPES, Block, Log, Outcome, bloom, log_hash
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call
from tests.contracts.walks import ReceiptWalk, WithoutRegistry, encode_log, encode_receipt

LOGS: list[Log] = [(b"\xaa" * 20, [b"\x01" * 32], b"data"), (b"\xbb" * 20, [], b"\x05")]
FIELDS = [1, 50_000, bloom(LOGS), [[emitter, topics, data] for emitter, topics, data in LOGS]]
# Receipts as each chain has them: without anything behind the logs; a fee of Celo's; nonce and version of a deposit.
KNOWN = [
    *((type_, more) for type_ in (0, *TYPES) for more in ((),)),
    *((0x7B, more) for more in ([0], [25 * 10**9], [2**100])),
    *((0x7E, more) for more in ([0, 1], [2**63, 1])),
]
RECEIPTS_OF_ALL = [
    Outcome(place % 2, type_, 50_000 + place, LOGS[place % 3 :], more) for place, (type_, more) in enumerate(KNOWN)
]
# Strings, and other items, behind the logs.
BEHIND: Mapping[str, bytes] = {
    "nothing": b"",
    "zero": b"\x80",
    "a number": b"\x05",
    "two numbers": b"\x82\x01\x00\x01",
    "three strings": b"\x80\xb8\x38" + bytes(56) + b"\x81\x80",
    "a leading zero": b"\x82\x00\x01",
    "a list": b"\xc0",
    "a string and a list": b"\x80\xc1\x05",
    "a byte in two": b"\x81\x05",
    "a longer prefix": b"\xb8\x01\x80",
    "a string that is cut": b"\x82\x01",
}


@pytest.fixture(scope="module")
def user(chain) -> Deployed:
    return Deployed(chain, "test/PackageUser")


def block_of(receipts: list[Outcome]) -> Block:
    roots = bytes(32), root([receipt.encode() for receipt in receipts])
    return Block(receipts, [], tries.header(len(receipts), b"\1" * 32, roots=roots), roots)


def test_a_receipt_of_each_type_is_proven_shown_and_read_by_the_service(registry, source, reader, user):
    block = block_of(RECEIPTS_OF_ALL)
    source.send("set", block.number, keccak(block.header))
    indexes = range(len(block.receipts))
    logs = {index: range(len(block.receipts[index].logs)) for index in indexes}
    registry.send_raw(encode_receipts(block.header, block.values, logs, indexes))
    shown = nodes(block.values, indexes)
    for index, receipt in enumerate(block.receipts):
        told = [int.from_bytes(registry.call("receiptField", block.number, index, field)) for field in range(5)]
        assert told == [receipt.status, receipt.type, receipt.gas, len(receipt.logs), 1]
        proof = tries.encode(shown[index])
        walk = ReceiptWalk(index, None, block.roots[1], proof)
        assert reader.call_raw(walk.calldata) == encode_receipt(receipt) == walk.answer()
        assert user.call_raw(WithoutRegistry(walk).calldata) == encode_receipt(receipt)
        for log, each in enumerate(receipt.logs):
            assert registry.call("logHash", block.number, index, log) == log_hash(each)
            by_log = ReceiptWalk(index, log, block.roots[1], proof)
            assert reader.call_raw(by_log.calldata) == encode_log(each)
            assert user.call_raw(WithoutRegistry(by_log).calldata) == encode_log(each)
        read = TransactionReceipt.decode(block.values[index])
        assert (read.status, read.type, read.cumulative_gas_used) == (receipt.status, receipt.type, receipt.gas)
        assert [each.hash for each in read.logs] == [log_hash(each) for each in receipt.logs]


@pytest.mark.parametrize("value", [Outcome(1, 0x7B, 5, LOGS, [7]).encode(), b"\x05" + rlp.encode([b"\1"] * 40)])
def test_beside_any_value_an_index_is_absent_and_nothing_else_is_stored(registry, source, reader, value):
    header = tries.header(1, b"\1" * 32, roots=(bytes(32), root([value])))
    source.send("set", 1, keccak(header))
    stored = registry.logged(registry.send_raw(encode_receipts(header, [value], fields=[1, 200])))
    assert sorted(stored) == [("ReceiptProven", 1, 1), ("ReceiptProven", 1, 200)]
    for index in (1, 200):
        told = [registry.call("tryReceiptField", 1, index, field) for field in range(5)]
        assert told == [(False, bytes(32))] * 4 + [(True, bytes(32))]
        proof = tries.encode(nodes([value], [index])[index])
        assert reader.call_raw(ReceiptWalk(index, None, root([value]), proof).calldata) == bytes(6 * 32)


def _values() -> Iterator[tuple[str, int, bytes]]:
    """Yield receipts of each type with each of BEHIND: a name, the type and the value."""
    for type_ in range(0x80):
        for name, behind in BEHIND.items():
            content = b"".join(map(tries.encode, FIELDS)) + behind
            yield name, type_, bytes([type_]) + tries.listed(content)
    for name, behind in BEHIND.items():
        yield f"{name}, without a type", 0, tries.listed(b"".join(map(tries.encode, FIELDS)) + behind)


def test_registry_reader_package_and_service_take_the_same_receipts(chain, simulator, reader, user):
    values = list(_values())
    harness = Deployed(chain, "test/TransactionHarness").address
    taken = set(list(BEHIND)[:6])
    proven, shown, alone = [], [], []
    for _, _, value in values:
        node = tries.encode([tries.hex_prefix("80", leaf=True), value])
        place = value.index(b"\xb9\x01\x00")
        operation = b"\x53\0\0" + value[:place] + value[place + 259 :]
        proven.append(Call(harness, (9).to_bytes(32) + RECEIPTS.to_bytes(32) + operation))
        walk = ReceiptWalk(0, None, keccak(node), tries.encode([node]))
        shown.append(Call(reader.address, walk.calldata))
        alone.append(Call(user.address, WithoutRegistry(walk).calldata))
    for (name, type_, value), by_registry, by_reader, by_package in zip(
        values, *map(simulator.run, (proven, shown, alone)), strict=True
    ):
        has_form = name in taken and (type_ >= 0x64 or (name == "nothing" and type_ != 0))
        is_taken = has_form or name == "nothing, without a type"
        assert (by_registry.succeeded, by_reader.succeeded) == (is_taken, is_taken), (name, type_)
        assert (by_package.succeeded, by_package.data) == (by_reader.succeeded, by_reader.data), (name, type_)
        try:
            read = TransactionReceipt.decode(value)
        except ValueError:
            assert not is_taken
        else:
            assert is_taken
            assert (read.type, read.status, len(read.logs)) == (type_, 1, 2)
            assert int.from_bytes(by_reader.data[3 * 32 : 4 * 32]) == type_


# --- Widths -----------------------------------------------------------------------------------------------------------

# The fields of the word in which a registry keeps a receipt: their places in bits, and their widths.
WIDTHS = {STATUS: (136, 8), TYPE: (144, 8), LOG_COUNT: (152, 32), 2: (184, 64)}
PRESENT = 1 << 248


def test_each_field_of_a_receipt_is_read_in_its_whole_width_and_no_further(chain, registry, source):
    block = block_of([Outcome(1, 2, 5, LOGS)])
    source.send("set", block.number, keccak(block.header))
    registry.send_raw(encode_receipts(block.header, block.values, fields=[0]))
    word = PRESENT | 5 << 184 | len(LOGS) << 152 | 2 << 144 | 1 << 136
    slots = [keccak((0).to_bytes(32) + keccak(block.number.to_bytes(32) + slot.to_bytes(32))) for slot in range(20)]
    [place] = [
        slot
        for slot in slots
        if int(chain.rpc("eth_getStorageAt", registry.address, "0x" + slot.hex(), "latest"), 16) == word
    ]
    everything = sum((2**width - 1) << shift for shift, width in WIDTHS.values())
    for field, (shift, width) in WIDTHS.items():
        most = 2**width - 1
        for value, others in ((most, 0), (0, everything & ~(most << shift)), (1, 0), (1 << (width - 1), 0)):
            stored = PRESENT | value << shift | others
            chain.rpc("anvil_setStorageAt", registry.address, "0x" + place.hex(), "0x" + stored.to_bytes(32).hex())
            assert int.from_bytes(registry.call("receiptField", block.number, 0, field)) == value


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257])
def test_logs_are_counted_in_more_than_a_byte(registry, source, reader, count):
    receipt = Outcome(1, 2, 5, [(bytes(20), [], b"")] * count)
    block = block_of([receipt])
    source.send("set", block.number, keccak(block.header))
    logs = {0: {0, count - 1}} if count else {}
    registry.send_raw(encode_receipts(block.header, block.values, logs, [0]))
    assert int.from_bytes(registry.call("receiptField", block.number, 0, LOG_COUNT)) == count
    assert registry.call("tryLogHash", block.number, 0, max(count - 1, 0))[0] == (count > 0)
    walk = ReceiptWalk(0, None, block.roots[1], tries.encode(nodes(block.values, [0])[0]))
    assert reader.call_raw(walk.calldata) == encode_receipt(receipt)


@pytest.mark.parametrize("size", [0, 1, 54, 55, 56, 57, 255, 256, 257, 65_535, 65_536, 65_537])
def test_a_log_may_have_data_of_any_length(registry, source, reader, user, size):
    log: Log = (bytes(20), [], random.Random(size).randbytes(size))
    receipt = Outcome(1, 2, 5, [log])
    block = block_of([receipt])
    source.send("set", block.number, keccak(block.header))
    proof = encode_receipts(block.header, block.values, {0: [0]}, [0])
    registry.call_raw(proof, gas=hex(30_000_000))
    walk = ReceiptWalk(0, 0, block.roots[1], tries.encode(nodes(block.values, [0])[0]))
    assert reader.call_raw(walk.calldata) == user.call_raw(WithoutRegistry(walk).calldata) == encode_log(log)


# Bytes that a value may have in the zone of memory behind its first word (`MemoryZones`).
MOST_BYTES = 2048 * 0xC0 - 32


# Sizes up to which a value's prefix, or its leaf's, has as many bytes, and those after them.
LAST_BYTES = [51, 55, 250, 255, 65_529, 65_535]


@pytest.mark.parametrize(
    "size",
    [32, *LAST_BYTES, *(size + 1 for size in LAST_BYTES), MOST_BYTES, MOST_BYTES + 1, MOST_BYTES + 32],
)
def test_a_transaction_fills_its_zone_of_memory_and_no_more(chain, simulator, size):
    value = bytes(size)
    harness = Deployed(chain, "test/TransactionHarness").address
    leaf = keccak(tries.encode([tries.hex_prefix("80", leaf=True), value]))
    data = (9).to_bytes(32) + (0x3E).to_bytes(32) + b"\x56\0\0" + size.to_bytes(3) + value
    [outcome] = simulator.run([Call(harness, data)])
    assert outcome.succeeded == (size <= MOST_BYTES)
    if outcome.succeeded:
        assert outcome.data == leaf


# --- Selectors --------------------------------------------------------------------------------------------------------


def test_reads_of_transactions_have_the_selectors_that_32_bits_give_them(registry):
    """Others would come before `accountField` (0x7177899b) where the registry looks for a function."""
    selectors = {
        "receiptField": "d63c3da8",
        "tryReceiptField": "4c857e44",
        "logHash": "7b698d42",
        "tryLogHash": "76bfc0f8",
        "transactionHash": "7acbe84a",
        "tryTransactionHash": "e57e2574",
    }
    assert {name: registry.calldata(name, *_ARGUMENTS[name])[:4].hex() for name in selectors} == selectors
    assert all(selectors[name] > "7177899b" for name in ("receiptField", "logHash", "transactionHash"))


_ARGUMENTS = {
    "receiptField": (1, 2, 0),
    "tryReceiptField": (1, 2, 0),
    "logHash": (1, 2, 3),
    "tryLogHash": (1, 2, 3),
    "transactionHash": (1, 2),
    "tryTransactionHash": (1, 2),
}
