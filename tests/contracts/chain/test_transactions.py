"""Receipts, logs and hashes of transactions. The contract, its model and the block agree."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import rlp
from eth_utils.crypto import keccak

from batch_query_client import Fact, NotProven, Patience, ShownLog, ShownTransaction, WrongFact, drivers
from batch_query_client.json_rpc import Node
from batch_query_client.registry import require_facts
from campaigns.fuzzing import receipts as campaign
from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.mutated import compile_with
from chains.contract_artifacts import NO_CONTRACT, earlier_registry
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import CannotPack, encode
from chains.tries.packed_entries import EXISTS, STATUS, encode_receipts, encode_transactions, root
from tests.client.library import compile_library
from tests.contracts import decoder, tries
from tests.contracts.blocks import TYPES, Block, Log, Outcome, bloom, log_hash, random_block, recorded
from tests.contracts.decoder import InvalidPacked, TransactionFacts
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.fixtures_folder import fixture_names

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


@pytest.mark.long(
    "eth-mainnet-16640614",
    "eth-mainnet-18500000",
    "eth-mainnet-20472570",
    "eth-mainnet-8065752",
    "op-mainnet-154497277",
)
@pytest.mark.parametrize("name", RECORDED)
def test_every_receipt_log_and_transaction_of_a_recorded_block_is_proven(registry, source, name):
    block = recorded(name)
    trust(registry, source, block)
    if "not-reproducible" in name:
        assert registry.refusal_raw(encode_receipts(block.number, block.values, fields=[0])) == ("InvalidProof",)
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


@pytest.mark.parametrize("count", [1, 3, 130])
def test_a_registry_of_version_0_3_0_is_shown_receipts_and_absences_in_its_form(chain, source, count):
    earlier = Deployed(
        chain, "FactsRegistry", 1, source.address, HISTORY_WINDOW, NO_CONTRACT, artifact=earlier_registry()
    )
    values = [GENUINE.encode()] * count
    header = tries.header(9, b"\1" * 32, roots=(root(values), root(values)))
    source.send("set", 9, keccak(header))
    for indexes in ([0], [count], [count, 65_535], [0, count - 1, 128, 200, 300]):
        earlier.send_raw(encode_receipts(header, values, fields=indexes, takes_masks=False))
        exist = [(True, int(index < count).to_bytes(32)) for index in indexes]
        assert [earlier.call("tryReceiptField", 9, index, EXISTS) for index in indexes] == exist


# --- Random blocks ----------------------------------------------------------------------------------------------------


@pytest.mark.long("100", "273")
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
        assert registry.refusal(function, *arguments)[1:] == tuple(arguments)
    assert registry.call("receiptField", 5, 1, STATUS) == bytes(32)
    assert registry.refusal_raw(b"\1\5\x3d" + encode_receipts(5, block.values, fields=[0])[3:]) == (
        "HeaderFieldNotProven",
        5,
        5,
    )


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


_LISTED = tries.encode([[emitter, topics, data] for emitter, topics, data in LOGS])
_BARE: Log = (bytes(20), [], b"")


def _value(
    status: bytes = b"\1",
    gas: bytes = b"\x82\xc3\x50",
    *,
    logs: bytes = _LISTED,
    of: Sequence[Log] = LOGS,
    more: bytes = b"",
    type_: bytes = b"\2",
    listed: Callable[[bytes], bytes] = tries.listed,
) -> bytes:
    """Return a receipt of encoded fields, with the bloom `of` these logs."""
    return type_ + listed(status + gas + b"\xb9\x01\x00" + bloom(of) + logs + more)


def _log(emitter: bytes, *rest: bytes) -> bytes:
    return tries.listed(tries.listed(b"".join((emitter, *rest))))


_ZEROS = b"\x94" + bytes(20)
_LONG: Log = (bytes(20), [], bytes(1 << 16))
VALUES = {
    "the bloom of other logs": _value(of=[]),
    "a type of 0": _value(type_=b"\0"),
    "status 2": _value(b"\2"),
    "a status of two bytes": _value(b"\x82\0\2"),
    "a status that is a byte of zero": _value(b"\0"),
    "a status whose second byte would be the gas": _value(b"\x81", b"\x80"),
    "a root with a type": _value(b"\xa0" + b"\1" * 32),
    "gas with a leading zero": _value(gas=b"\x82\0\1"),
    "gas of nine bytes": _value(gas=b"\x89" + b"\1" * 9),
    "gas with a prefix that it doesn't need": _value(gas=b"\x81\5"),
    "gas with a long prefix": _value(gas=b"\xb8\2\xc3\x50"),
    "a list whose size takes four bytes": _value(
        logs=tries.encode([_LONG]), of=[_LONG], listed=lambda content: b"\xfb" + len(content).to_bytes(4) + content
    ),
    **{f"a field too many with type {type_.hex()}": _value(more=b"\1", type_=type_) for type_ in (b"", b"\2", b"\x63")},
    "two fields too many": _value(more=b"\1\1"),
    "a list behind the logs": _value(more=b"\1\xc0", type_=b"\x64"),
    "an item of two encodings behind the logs": _value(more=b"\x81\1", type_=b"\x64"),
    "an item that ends behind the receipt": _value(more=b"\x82\1", type_=b"\x64"),
    "logs that end behind their list": _value(logs=b"\xf8" + bytes([_LISTED[1] - 1]) + _LISTED[2:]),
    "five topics": _value(
        logs=tries.encode([[bytes(20), [bytes(32)] * 5, b""]]), of=[(bytes(20), [bytes(32)] * 5, b"")]
    ),
    "a topic with the prefix of 31 bytes": _value(
        logs=_log(_ZEROS, tries.listed(b"\x9f" + bytes(32)), b"\x80"), of=[(bytes(20), [bytes(32)], b"")]
    ),
    "a topic of 31 bytes": _value(logs=_log(_ZEROS, tries.encode([bytes(31)]), b"\x80"), of=[_BARE]),
    "a topic that ends behind its list": _value(
        logs=_log(_ZEROS, b"\xe2" + tries.encode(b"\1" * 32) * 2, b"\x80"), of=[(bytes(20), [b"\1" * 32] * 2, b"")]
    ),
    "an emitter with the prefix of 21 bytes": _value(logs=_log(b"\x95" + bytes(20), b"\xc0\x80"), of=[_BARE]),
    "an emitter of 21 bytes": _value(logs=_log(b"\x95" + bytes(21), b"\xc0\x80"), of=[_BARE]),
    "a log of four": _value(logs=_log(_ZEROS, b"\xc0\x80\x80"), of=[_BARE]),
    "data that end behind the log": _value(logs=_log(_ZEROS, b"\xc0\x82\1"), of=[_BARE]),
    "data that are a list": _value(logs=_log(_ZEROS, b"\xc0\xc0"), of=[_BARE]),
}

GOOD = _packed(GENUINE.encode())
# A leaf that is sent whole: of index 0, at the root.
WHOLE = b"\0\0" + len(GENUINE.encode()).to_bytes(3) + GENUINE.encode()
_ROOT = _forged(GENUINE.encode())
_SHORT = b"\x22" * 31
# A node that could be above, as the value of a transaction.
_NODE = tries.branch({8: tries.hash_reference(b"\1" * 32), 0: tries.hash_reference(b"\2" * 32)})
_TWO = tries.branch({place: tries.hash_reference(bytes([place]) * 32) for place in (1, 2)})
_HASHES = b"\0\6" + b"\1" * 32 + b"\2" * 32
OPERATIONS = {
    "another index": GOOD[:1] + b"\1\1" + GOOD[2:],
    "an index with a leading zero": GOOD[:1] + b"\1\0" + GOOD[2:],
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
    "a receipt as a transaction": b"\x56" + WHOLE,
    "an absent transaction at itself": GOOD + b"\x64\0",
    "an absent transaction at its own leaf": b"\x66\0" + WHOLE,
    "an absent transaction at a leaf with another parity": b"\x66\1\1" + WHOLE,
    "an operation of the state": b"\x30" + bytes(20) + GOOD,
    # Without its bloom the receipt ends a byte before the gas does.
    "gas that ends behind the receipt": b"\x53\0\0" + bytes.fromhex("02 f90106 01 82c350 c0"),
}
# The root under which the operations would hold, the operations, and the trie.
FORGERIES: dict[str, tuple[bytes, bytes, int]] = {
    **{name: (_forged(value), _packed(value), 0x3D) for name, value in VALUES.items()},
    **{name: (_ROOT, operations, 0x3D) for name, operations in OPERATIONS.items()},
    "an index of three bytes": (
        _forged(GENUINE.encode(), bytes.fromhex("830000")),
        GOOD[:1] + b"\3\1\0\0" + GOOD[2:],
        0x3D,
    ),
    **{
        f"an absent transaction by the operation {operation:x}": (
            keccak(_TWO),
            bytes([operation]) + b"\0\1\x10" + _HASHES,
            0x3D,
        )
        for operation in (0x58, 0x68, 0x70, 0xE0)
    },
    "an absent transaction with another parity": (keccak(_TWO), b"\x61\0\1\x10" + _HASHES, 0x3D),
    "an absent transaction deeper than its key": (
        keccak(tries.extension("80", tries.hash_reference(keccak(_TWO)))),
        b"\x60\0\3\x10" + _HASHES + b"\x36\2",
        0x3D,
    ),
    "a log that claims more memory than there is": (
        _ROOT,
        bytes.fromhex("5000000000 02f90190 0105 fafffee2 fafffede 94")
        + b"\xaa" * 20
        + bytes.fromhex("c0 bafffec4")
        + bytes(400),
        0x3D,
    ),
    "a short transaction": (_forged(_SHORT), b"\x56\0\0" + b"\0\0\x1f" + _SHORT, 0x3E),
    "a node as a transaction": (keccak(_NODE), b"\x56\0\0" + len(_NODE).to_bytes(3) + _NODE, 0x3E),
    "a receipt in the trie of transactions": (_ROOT, GOOD, 0x3E),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_receipts_and_transactions_are_refused_even_under_their_own_root(registry, source, name):
    receipts_root, operations, trie = FORGERIES[name]
    header = _header_of(receipts_root)
    assert _outcome(registry, source, name) in REFUSALS
    with pytest.raises(InvalidPacked):
        decoder.decode(
            header + bytes([trie]) + operations, block_hash=lambda _: keccak(header), state_root=lambda _: None
        )


REFUSALS = {"InvalidProof"}


def _header_of(receipts_root: bytes) -> bytes:
    return tries.header(9, b"\1" * 32, roots=(receipts_root, receipts_root))


def _outcome(registry: Deployed, source: Deployed, name: str) -> str:
    """Return the error with which a forgery is refused. Empty if it isn't."""
    receipts_root, operations, trie = FORGERIES[name]
    header = _header_of(receipts_root)
    source.send("set", 9, keccak(header))
    try:
        registry.call_raw(header + bytes([trie]) + operations, gas=hex(30_000_000))
    except Reverted as reverted:
        return str(reverted.error[0])
    except AssertionError as error:
        # Without a check of lengths, a call can take all gas, which is no refusal of the contract's own.
        return str(error)
    return ""


def test_genuine_receipts_in_the_same_form_are_accepted(registry, source):
    for receipts_root, operations, trie in (
        (_ROOT, GOOD, 0x3D),
        (_forged(_value()), _packed(_value()), 0x3D),
        (_ROOT, b"\x67\1\1" + WHOLE, 0x3D),
        (keccak(_TWO), b"\x60\0\1\x10" + _HASHES, 0x3D),
    ):
        header = _header_of(receipts_root)
        source.send("set", 9, keccak(header))
        registry.call_raw(header + bytes([trie]) + operations)


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
    assert reverted.value.error == ("InvalidProof",)
    # Another header of an accumulated block.
    fields = rlp.decode(block.header)
    forged = tries.encode([*fields[:3], b"\x77" * 32, *fields[4:]])
    source.send("set", block.number, keccak(forged))
    assert registry.refusal_raw(encode_receipts(forged, block.values, fields=[0])) == ("HeaderMismatch", block.number)


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


@pytest.mark.long
def test_contract_and_model_agree_on_spoilt_proofs(chain):
    tally = campaign.run(chain, 1, 900)
    kinds = {"absent transaction", "log", "transaction", *(f"receipt {each:02x}" for each in (0, *TYPES))}
    assert kinds <= tally.accepted.keys()
    assert len(tally.refused) > 20


def test_genuine_operations_end_in_the_blocks_root_where_nothing_is_checked(chain):
    """The campaign's headers have the roots that this contract tells. With wrong ones, it would try nothing."""
    chance = Chance(3)
    block = random_block(chance, 17)
    composed = [(receipts, campaign._genuine(chance, block, receipts=receipts)) for receipts in (True, False) * 10]
    endings = campaign._Bench(chain, None).endings(composed)
    assert endings == [block.roots[receipts] for receipts, _ in composed]


# Each check that a forgery must miss where it is taken out.
WEAKENED = {
    "size of an index": ("TransactionProof", "if (size > 2) revert InvalidProof();"),
    "parity": ("TransactionProof", "if (_isEven(index) == (low & 1 != 0)) revert InvalidProof();"),
    "depth of absence": ("TransactionProof", "if (stack.peek().depth() > reach) revert InvalidProof();"),
    "leading zero of an index": (
        "TransactionProof",
        "if (size != 0 && index >> (8 * size - 8) == 0) revert InvalidProof();",
    ),
    "end of a receipt": ("ReceiptForm", "if (place != end) revert InvalidProof();"),
    "status": ("ReceiptForm", "if (first != 0x80 && first != 0x01) revert InvalidProof();"),
    "root without type": ("ReceiptForm", " && type_ == 0)"),
    "mark": ("TransactionProof", "if (log % 3 != 0) revert InvalidProof();"),
    "end of logs": ("TransactionProof", "if (cursor > end) revert InvalidProof();"),
    "all marks": ("TransactionProof", "if (log != NO_LOG) revert InvalidProof();"),
    "emitter": ("TransactionProof", "if (CalldataRlp.number(cursor, 1) != ADDRESS_PREFIX) revert InvalidProof();"),
    "topics": ("TransactionProof", "if (size > 4 * 33 || size % 33 != 0) revert InvalidProof();"),
    "topic": ("TransactionProof", "if (CalldataRlp.number(cursor, 1) != HASH_PREFIX) revert InvalidProof();"),
    "end of a log": ("TransactionProof", "if (cursor + size != next) revert InvalidProof();"),
    "type": ("ReceiptForm", "if (type_ == 0) revert InvalidProof();"),
    "more items": ("ReceiptForm", "if (type_ >= FIRST_OF_OTHER_CHAINS) {"),
    "trie of receipts": ("TransactionProof", "trie == RECEIPTS && _isReceipt"),
    "logs that were sent": ("TransactionProof", "if (end > msg.data.length) revert InvalidProof();"),
    "trie of transactions": ("TransactionProof", "trie == TRANSACTIONS && "),
    "prefix": ("UnboundedRlp", "if (form > 58) revert InvalidProof();"),
    "shortest prefix": ("UnboundedRlp", "if (size < 56) revert InvalidProof();"),
    "own encoding": (
        "UnboundedRlp",
        "if (size == 1 && CalldataRlp.number(content, 1) < CalldataRlp.STRING) revert InvalidProof();",
    ),
    "size of a number": ("UnboundedRlp", "if (size > 8 || value"),
    "leading zero": ("UnboundedRlp", "size > 8 || value >> (8 * size - 8) == 0"),
    "short transaction": ("LeafWriter", "if (length < SHORTEST) revert InvalidProof();"),
    "depth of a leaf": ("LeafWriter", "if (depth > reach || reach > 6) revert InvalidProof();"),
}
_INSTEAD = {
    "trie of receipts": "_isReceipt",
    "root without type": ")",
    "more items": "{",
    "size of a number": "if (value",
    "leading zero": "size > 8",
}


@pytest.mark.long
@pytest.mark.parametrize("name", WEAKENED)
def test_a_check_that_is_taken_out_is_missed_by_a_forgery(chain, source, name):
    changed, check = WEAKENED[name]
    weakened = compile_with("src/FactsRegistry.sol", f"src/{changed}.sol", check, _INSTEAD.get(name, ""))
    registry = Deployed(chain, "FactsRegistry", 1, source.address, HISTORY_WINDOW, NO_CONTRACT, artifact=weakened)
    assert any(_outcome(registry, source, forgery) not in REFUSALS for forgery in FORGERIES)


# --- A contract that pays by logs -------------------------------------------------------------------------------------

DEPOSITED = keccak(text="Deposited(address,uint256)")


def deposit(amount: int, emitter: bytes = b"\xaa" * 20, *more: bytes) -> Log:
    return emitter, [DEPOSITED, *more], amount.to_bytes(32)


@pytest.mark.long
def test_a_contract_requires_a_log_whose_hash_is_a_fact(chain, registry, source):
    # The first two logs have the same hash. The contract mustn't take the others for them.
    logs = [deposit(5), deposit(5), deposit(5, b"\xbb" * 20), deposit(5, b"\xaa" * 20, b"\1" * 32), deposit(6)]
    receipts = [Outcome(1, 2, 50_000, logs), Outcome(1, 2, 90_000, [deposit(5)])]
    values = [receipt.encode() for receipt in receipts]
    roots = root([b"\2" * 40] * 2), root(values)
    block = Block(receipts, [b"\2" * 40] * 2, tries.header(5, b"\1" * 32, roots=roots), roots)
    trust(registry, source, block)
    prove(registry, block, encode_receipts(5, values, {0: range(len(logs))}))
    artifact = compile_library(["ReadsOfEveryKind"])["ReadsOfEveryKind"]
    reads = Deployed(chain, "ReadsOfEveryKind", registry.address, SENDER, 0, artifact=artifact)

    emitter, topics, data = deposit(5)
    for index, log in enumerate(logs):
        arguments = ("requireLog", 5, 0, index, "0x" + emitter.hex(), topics, data)
        if index < 2:
            reads.call(*arguments)
        else:
            hashes = log_hash(deposit(5)), log_hash(log)
            assert reads.refusal(*arguments) == ("LogHashDiffers", 5, 0, index, *hashes)
    unproven = reads.refusal("requireLog", 5, 1, 0, "0x" + emitter.hex(), topics, data)
    assert unproven == ("LogNotProven", 5, 1, 0)


@pytest.mark.long
def test_the_client_reads_facts_of_transactions_and_compares_logs_and_hashes(chain, registry, source):
    transactions, values = [b"\2" * 40], [GENUINE.encode()]
    roots = root(transactions), root(values)
    block = Block([GENUINE], transactions, tries.header(5, b"\1" * 32, roots=roots), roots)
    trust(registry, source, block)
    prove(registry, block, encode_receipts(5, values, {0: [1]}, [0]))
    prove(registry, block, encode_transactions(5, transactions, [0]))
    emitter, topics, data = LOGS[1]
    log = ShownLog(index=1, emitter="0x" + emitter.hex(), topics=tuple(topics), data=data)
    hash_ = ShownTransaction(index=0, hash="0x" + keccak(transactions[0]).hex())
    about: dict[str, Any] = {"source_chain_id": 1, "destination_chain_id": 31337, "block_number": 5}
    about |= {"registry": registry.address, "transaction": hash_}
    numbers = {"STATUS": 1, "TYPE": 2, "CUMULATIVE_GAS_USED": 50_000, "LOG_COUNT": 2}
    facts = [Fact(property=name, **about) for name in (*numbers, "HASH")] + [Fact(property="LOG", log=log, **about)]
    node = Node(chain.url, Patience(seconds=0))
    shown = drivers.run(require_facts(node, facts))
    words = [*(number.to_bytes(32) for number in numbers.values()), keccak(transactions[0]), log_hash(LOGS[1])]
    assert [fact.word for fact in shown] == words
    for property_, changed, error in (
        ("LOG", {"log": log.model_copy(update={"data": b"\6"})}, WrongFact),
        ("LOG", {"log": log.model_copy(update={"index": 0})}, NotProven),
        ("LOG", {}, WrongFact),
        ("HASH", {"transaction": ShownTransaction(index=0, hash="0x" + "11" * 32)}, WrongFact),
        ("STATUS", {"transaction": ShownTransaction(index=1)}, NotProven),
        ("STATUS", {"transaction": ShownTransaction()}, WrongFact),
        ("BALANCE", {}, WrongFact),
    ):
        with pytest.raises(error):
            drivers.run(require_facts(node, [Fact(property=property_, **about | changed)]))
