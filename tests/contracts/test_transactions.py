"""Receipts, logs and hashes of transactions. The contract, its model and the block agree."""

import random
from collections.abc import Callable

import pytest
import rlp
from eth_utils.crypto import keccak

from campaigns.fuzzing import receipts as campaign
from campaigns.fuzzing.mutated import compile_with
from campaigns.fuzzing.tally import Divergence
from chains.packed import CannotPack, encode
from chains.packed_transactions import EXISTS, STATUS, encode_receipts, encode_transactions, root
from tests.contracts import decoder, tries
from tests.contracts.blocks import Block, Outcome, bloom, random_block, recorded
from tests.contracts.decoder import InvalidPacked, TransactionFacts
from tests.contracts.deployed import Deployed, Reverted
from tests.fixtures_folder import fixture_names, needs_fixtures

RECORDED = [name.removesuffix(".json").removeprefix("receipts/") for name in fixture_names("receipts/*.json")]
SIZES = (0, 1, 2, 3, 16, 17, 100, 127, 128, 129, 130, 145, 257, 273)
TRANSACTIONS_ROOT, RECEIPTS_ROOT = 4, 5
LOGS = [(b"\xaa" * 20, [b"\x01" * 32], b"data"), (b"\xbb" * 20, [], b"\x05")]
GENUINE = Outcome(1, 2, 50_000, LOGS)


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


# --- Random blocks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", SIZES)
def test_facts_of_blocks_of_all_sizes_are_proven_by_header_and_by_number(registry, source, count):
    block = random_block(random.Random(count), count)
    trust(registry, source, block, fields=False)
    last, indexes = count - 1, [index for index in {0, 1, 127, 128, 255, 256, count - 1} if 0 <= index < count]
    logs = {index: every_log(block, index) for index in indexes[::2]}
    absent = [count, count + 1, count + 20, 300, 65_535]
    proofs = [encode_receipts(block.header, block.values, logs, [*indexes, *absent])]
    proofs += [encode_transactions(block.header, block.transactions, indexes)] if indexes else []
    for proof in proofs:
        read(registry, block.number, prove(registry, block, proof))
    # The header was used, and isn't accumulated.
    assert registry.call("stateRoot", block.number) == bytes(32)
    registry.send_raw(encode(block.header, b"", header_fields=(TRANSACTIONS_ROOT, RECEIPTS_ROOT)))
    by_number = encode_receipts(block.number, block.values, fields=[max(last, 0)])
    # It is a fact already, and no error.
    assert registry.logged(registry.send_raw(by_number)) == []


def test_a_fact_that_is_not_proven_is_told_apart(registry, source):
    receipts = [Outcome(b"\x11" * 32, 0, 21_000, []), Outcome(0, 2, 0, [(bytes(20), [], b"")])]
    block = Block(
        receipts,
        [],
        tries.header(5, b"\1" * 32, roots=(bytes(32), root([each.encode() for each in receipts]))),
        (bytes(32), b""),
    )
    trust(registry, source, block, fields=False)
    receipt = registry.send_raw(encode_receipts(block.header, block.values, {1: [0]}, [0, 1]))
    assert registry.logged(receipt) == [("LogProven", 5, 1, 0), ("ReceiptProven", 5, 1), ("ReceiptProven", 5, 0)]
    for function, *arguments in (("receiptField", 5, 0, STATUS), ("logHash", 5, 0, 0), ("transactionHash", 5, 1)):
        with pytest.raises(Reverted) as reverted:
            registry.call(function, *arguments)
        assert reverted.value.error[1:] == tuple(arguments)
    assert registry.call("receiptField", 5, 1, STATUS) == bytes(32)
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(b"\1\5\x3d" + encode_receipts(5, block.values, fields=[0])[3:])
    assert reverted.value.error == ("HeaderFieldNotProven", 5, 5)


def test_no_flipped_bit_and_no_cut_leaves_a_valid_proof(registry, source, harness):
    receipts, transactions = [GENUINE, Outcome(0, 0, 0, []), GENUINE], [bytes([byte]) * 32 for byte in range(3)]
    roots = root(transactions), root([receipt.encode() for receipt in receipts])
    block = Block(receipts, transactions, tries.header(6, b"\1" * 32, roots=roots), roots)
    trust(registry, source, block)
    for proof in (
        encode_receipts(block.number, block.values, {0: [1], 1: []}),
        encode_receipts(block.number, block.values, fields=[16, 17, 200]),
        encode_transactions(block.number, block.transactions, [1]),
    ):
        prove(registry, block, proof)
        cuts = [proof[:size] for size in range(len(proof))]
        assert harness.accepted(registry, [*cuts, proof + b"\0"]) == [False] * (len(cuts) + 1)
        assert harness.accepted_flips(registry, proof) == 0


# --- Forgeries --------------------------------------------------------------------------------------------------------


def _forged(value: bytes, key: bytes = b"\x80") -> bytes:
    """Return a receipts' root whose only leaf has this value."""
    return keccak(tries.encode([tries.hex_prefix(key.hex(), leaf=True), value]))


def _packed(value: bytes, index: bytes = b"\0", operation: int = 0x53, marks: bytes = b"") -> bytes:
    """Return the operation for a receipt at the root, whatever it is, without its bloom."""
    place = value.index(b"\xb9\x01\x00")
    return bytes([operation]) + index + b"\0" + marks + value[:place] + value[place + 259 :]


def _fields(*fields: object, type_: bytes = b"\2") -> bytes:
    return type_ + tries.encode(list(fields))


_BLOOM = bloom(LOGS)
_LISTED = [[emitter, topics, data] for emitter, topics, data in LOGS]
VALUES = {
    "the bloom of other logs": _fields(1, 50_000, bytes(256), _LISTED),
    "an unknown type": _fields(1, 50_000, _BLOOM, _LISTED, type_=b"\5"),
    "a type of 0": _fields(1, 50_000, _BLOOM, _LISTED, type_=b"\0"),
    "status 2": _fields(2, 50_000, _BLOOM, _LISTED),
    "a status that is a byte of zero": _fields(b"\0", 50_000, _BLOOM, _LISTED),
    "a root with a type": _fields(b"\1" * 32, 50_000, _BLOOM, _LISTED),
    "gas with a leading zero": _fields(1, b"\0\1", _BLOOM, _LISTED),
    "gas of nine bytes": _fields(1, b"\1" * 9, _BLOOM, _LISTED),
    "a field too many": _fields(1, 50_000, _BLOOM, _LISTED, 1),
    "a deposit's nonce without a version": _fields(1, 50_000, _BLOOM, _LISTED, 1, type_=b"\x7e"),
    "five topics": _fields(1, 5, bloom([(bytes(20), [bytes(32)] * 5, b"")]), [[bytes(20), [bytes(32)] * 5, b""]]),
    "a topic of 31 bytes": _fields(1, 5, _BLOOM, [[bytes(20), [bytes(31)], b""]]),
    "an emitter of 21 bytes": _fields(1, 5, _BLOOM, [[bytes(21), [], b""]]),
    "a log of four": _fields(1, 5, _BLOOM, [[bytes(20), [], b"", b""]]),
    "data that are a list": _fields(1, 5, _BLOOM, [[bytes(20), [], []]]),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_receipt_that_no_block_has_is_refused_even_under_its_own_root(registry, source, name):
    _refused(registry, source, _forged(VALUES[name]), _packed(VALUES[name]))


def _refused(registry: Deployed, source: Deployed, receipts_root: bytes, operations: bytes, trie: int = 0x3D) -> None:
    header = tries.header(9, b"\1" * 32, roots=(receipts_root, receipts_root))
    source.send("set", 9, keccak(header))
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(header + bytes([trie]) + operations)
    assert reverted.value.error[0] in {"InvalidProof", "UnknownReceiptType"}
    with pytest.raises(InvalidPacked):
        decoder.decode(
            header + bytes([trie]) + operations, block_hash=lambda _: keccak(header), state_root=lambda _: None
        )


GOOD = _packed(GENUINE.encode())
OPERATIONS = {
    "another index": GOOD[:1] + b"\1\1" + GOOD[2:],
    "an index with a leading zero": GOOD[:1] + b"\1\0" + GOOD[2:],
    "an index of three bytes": GOOD[:1] + b"\3\1\0\0" + GOOD[2:],
    **{
        f"marks {marks}": _packed(GENUINE.encode(), operation=operation, marks=bytes.fromhex(marks))
        for operation in (0x50, 0x55)
        for marks in (
            "",
            "0001",
            "0002",
            "0004",
            "0003",
            "0003 0000",
            "0009 0000",
            "0009 0006 0000",
            "000c",
            "0003 000c",
        )
    },
    "an operation between": b"\x54" + GOOD[1:],
    "marks for fields": _packed(GENUINE.encode(), marks=bytes(2)),
    "deeper than its key": GOOD[:2] + b"\3" + GOOD[3:],
    "a byte behind it": GOOD + b"\0",
    "a receipt as a transaction": b"\x56\0\0" + len(GENUINE.encode()).to_bytes(3) + GENUINE.encode(),
    "an absent transaction at itself": GOOD + b"\x64\0",
    "an operation of the state": b"\x30" + bytes(20) + GOOD,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_that_say_something_else_of_a_receipt_are_refused(registry, source, name):
    assert OPERATIONS[name] != GOOD
    _refused(registry, source, _forged(GENUINE.encode()), OPERATIONS[name])


def test_what_no_trie_of_transactions_holds_is_refused(registry, source):
    short = b"\x22" * 31
    _refused(registry, source, _forged(short), b"\x56\0\0" + b"\0\0\x1f" + short, 0x3E)
    # A node above as the value of a transaction, and a receipt in the trie of transactions.
    node = tries.branch({8: tries.hash_reference(b"\1" * 32), 0: tries.hash_reference(b"\2" * 32)})
    _refused(registry, source, keccak(node), b"\x56\0\0" + len(node).to_bytes(3) + node, 0x3E)
    _refused(registry, source, _forged(GENUINE.encode()), GOOD, 0x3E)


def test_roots_of_another_block_and_of_an_empty_header_are_refused(registry, source):
    block, other = (random_block(random.Random(seed), 3) for seed in (1, 2))
    trust(registry, source, block)
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(encode_receipts(block.number, other.values, fields=[0]))
    assert reverted.value.error == ("InvalidProof",)
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(encode_receipts(other.number, other.values, fields=[0]))
    assert reverted.value.error == ("HeaderFieldNotProven", other.number, RECEIPTS_ROOT)
    header = tries.header(9, b"\1" * 32)
    source.send("set", 9, keccak(header))
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(header + b"\x3d\x60\0\0")
    assert reverted.value.error == ("InvalidHeader",)
    # Another header of an accumulated block.
    fields = rlp.decode(block.header)
    forged = tries.encode([*fields[:3], b"\x77" * 32, *fields[4:]])
    source.send("set", block.number, keccak(forged))
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(encode_receipts(forged, block.values, fields=[0]))
    assert reverted.value.error == ("HeaderMismatch", block.number)


def test_the_encoder_refuses_what_is_not_there():
    block = random_block(random.Random(3), 2)
    wrong_ones: list[Callable[[], bytes]] = [
        lambda: encode_receipts(1, block.values),
        lambda: encode_receipts(1, block.values, {0: [99]}),
        lambda: encode_receipts(1, block.values, fields=[65_536]),
        lambda: encode_receipts(1, [b"\xc0"], fields=[0]),
        lambda: encode_receipts(1, [b"\x02nonsense"], fields=[0]),
        lambda: encode_transactions(1, block.transactions, [2]),
        lambda: encode_transactions(1, [b"short"], [0]),
    ]
    for wrong in wrong_ones:
        with pytest.raises(CannotPack):
            wrong()


# --- Campaign ---------------------------------------------------------------------------------------------------------


def test_contract_and_model_agree_on_spoilt_proofs(chain):
    tally = campaign.run(chain, 1, 600)
    kinds = {"absent transaction", "log", "transaction", *(f"receipt {each:02x}" for each in decoder._TYPES)}
    assert kinds <= tally.accepted.keys()
    assert len(tally.refused) > 20


# Each check of the two contracts, without which the campaign must find a divergence.
WEAKENED = {
    "size of an index": ("TransactionProof", "if (size > 2) revert InvalidProof();"),
    "parity": ("TransactionProof", "if (_isEven(index) == (low & 1 != 0)) revert InvalidProof();"),
    "depth of absence": ("TransactionProof", "if (stack.peek().depth() > reach) revert InvalidProof();"),
    "leading zero of an index": (
        "TransactionProof",
        "if (size != 0 && index >> (8 * size - 8) == 0) revert InvalidProof();",
    ),
    "end of a receipt": ("TransactionProof", "if (cursor != end) revert InvalidProof();"),
    "status": ("TransactionProof", "if (first != 0x80 && first != 0x01) revert InvalidProof();"),
    "root without type": ("TransactionProof", " && type_ == 0)"),
    "mark": ("TransactionProof", "if (log % 3 != 0) revert InvalidProof();"),
    "end of logs": ("TransactionProof", "if (cursor > end) revert InvalidProof();"),
    "all marks": ("TransactionProof", "if (log != NO_LOG) revert InvalidProof();"),
    "emitter": ("TransactionProof", "if (CalldataReader.read(cursor, 1) != ADDRESS_PREFIX) revert InvalidProof();"),
    "topics": ("TransactionProof", "if (size > 4 * 33 || size % 33 != 0) revert InvalidProof();"),
    "topic": ("TransactionProof", "if (CalldataReader.read(cursor, 1) != HASH_PREFIX) revert InvalidProof();"),
    "end of a log": ("TransactionProof", "if (cursor + size != next) revert InvalidProof();"),
    "type": ("TransactionProof", "revert UnknownReceiptType(type_);"),
    "deposit": ("TransactionProof", " && _typeOf(fields) == OP_DEPOSIT"),
    "trie of receipts": ("TransactionProof", "else if (trie == TRANSACTIONS) revert InvalidProof();"),
    "trie of transactions": ("TransactionProof", "trie == TRANSACTIONS && "),
    "prefix": ("CalldataRlp", "if (form > 58) revert InvalidProof();"),
    "shortest prefix": ("CalldataRlp", "if (size < least) revert InvalidProof();"),
    "own encoding": (
        "CalldataRlp",
        "if (size == 1 && CalldataReader.read(content, 1) < STRING) revert InvalidProof();",
    ),
    "size of a number": ("CalldataRlp", "if (size > 8) revert InvalidProof();"),
    "leading zero": ("CalldataRlp", "if (size != 0 && value >> (8 * size - 8) == 0) revert InvalidProof();"),
    "short transaction": ("LeafWriter", "if (length < SHORTEST) revert InvalidProof();"),
    "depth of a leaf": ("LeafWriter", "if (depth > reach || reach > 6) revert InvalidProof();"),
}
_INSTEAD = {
    "root without type": ")",
    "type": "if (type_ == 0x100) revert UnknownReceiptType(type_);",
}


@pytest.mark.long
@pytest.mark.parametrize("name", WEAKENED)
def test_a_check_that_is_taken_out_is_missed(chain, name):
    source, check = WEAKENED[name]
    weakened = compile_with("src/FactsRegistry.sol", f"src/{source}.sol", check, _INSTEAD.get(name, ""))
    with pytest.raises(Divergence):
        campaign.run(chain, 1, 20_000, artifact=weakened)
