from collections.abc import Iterable

import pytest
import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie

from chains.contract_artifacts import NO_CONTRACT
from chains.tries.packed import AccountToProve, encode, encode_parent_hash
from tests.contracts import tries
from tests.contracts.conftest import SOURCE_CHAIN_ID
from tests.contracts.deployed import Deployed, Reverted
from tests.contracts.nearly import nearly
from tests.contracts.simulator import Call, Simulator

NONCE, BALANCE, STORAGE_ROOT, CODE_HASH = range(4)
FIELDS = (NONCE, BALANCE, STORAGE_ROOT, CODE_HASH)
ALL = 0b1111

BLOCK = 1234
ALICE = "0x" + "a1" * 20
BOB = "0x" + "b0" * 20


def _mask(*fields: int) -> int:
    return sum(1 << field for field in fields)


def _word(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.to_bytes(32, "big")


def _key(address: str) -> bytes:
    return keccak(bytes.fromhex(address[2:]))


def _plant(source: Deployed, state_root: bytes, number: int = BLOCK) -> bytes:
    """Let the source vouch for the header of a block with this state. Return the header."""
    header = tries.header(number, state_root)
    source.send("set", number, keccak(header))
    return header


def _plant_account(
    source: Deployed, leaf: bytes, address: str = ALICE, number: int = BLOCK
) -> tuple[bytes, bytes, list[bytes]]:
    """Return the header and the root of a state with a single account, given its leaf, and the account's proof."""
    node = tries.leaf(_key(address), leaf)
    return _plant(source, keccak(node), number), keccak(node), [node]


def _account(
    address: str, fields: int, nodes: list[bytes], slots: dict[int, list[bytes]] | None = None
) -> AccountToProve:
    return AccountToProve(bytes.fromhex(address[2:]), fields, nodes, slots or {})


def _readable(registry: Deployed, address: str = ALICE, number: int = BLOCK) -> set[int]:
    return {field for field in FIELDS if registry.call("tryAccountField", address, number, field)[0]}


# --- Reads ------------------------------------------------------------------------------------------------------------


def test_the_registry_tells_its_source_chain_and_its_block_hash_source(registry, source):
    assert registry.call("sourceChainId") == SOURCE_CHAIN_ID
    assert registry.call("blockHashSource") == source.address.lower()


@pytest.mark.parametrize("function", ["accountField", "tryAccountField"])
@pytest.mark.parametrize("field", [4, 255])
def test_a_field_that_does_not_exist_is_an_error(registry, source, function, field):
    header, root, nodes = _plant_account(source, tries.account())
    registry.send_raw(encode(header, root, [_account(ALICE, ALL, nodes)]))
    with pytest.raises(Reverted):
        registry.call(function, ALICE, BLOCK, field)


@pytest.mark.parametrize("value", [0, 1, 2**256 - 1])
def test_account_field_takes_a_slot_too(registry, source, value):
    of_slot = "accountField(address,uint256,bytes32)"
    for name in (of_slot, "accountStorageSlotValues"):
        with pytest.raises(Reverted) as reverted:
            registry.call(name, ALICE, BLOCK, _word(7))
        assert reverted.value.error == ("SlotNotProven", ALICE, BLOCK, _word(7))
    storage = _storage({7: value} if value else {8: 1})
    header, root, nodes = _plant_account(source, tries.account(1, 2, storage.root_hash, b"\x02" * 32))
    registry.send_raw(encode(header, root, [_account(ALICE, 0, nodes, _slot_proofs(storage, 7))]))
    assert registry.call(of_slot, ALICE, BLOCK, _word(7)) == _word(value)
    assert registry.call("accountStorageSlotValues", ALICE, BLOCK, _word(7)) == _word(value)


# First bytes of proofs: the size of a number, branches that need no header, and a header.
BEGINNINGS = {*range(1, 9), 0x3B, 0x3C, 0xF9}


@pytest.mark.parametrize("size", [4, 5, 36, 100])
def test_a_call_of_a_function_that_is_not_there_says_so(simulator, registry, size):
    calls = [bytes([first]) + b"\xde\xad\xbe" + bytes(size - 4) for first in range(256)]
    outcomes = simulator.run([Call(registry.address, data) for data in calls])
    for data, outcome in zip(calls, outcomes, strict=True):
        says_so = outcome.data[:8] == keccak(text="UnknownFunction(bytes4)")[:4] + data[:4]
        # Calldata that begins as a proof does is refused as one.
        assert (outcome.succeeded, says_so) == (False, data[0] not in BEGINNINGS), data.hex()


# The last is the number of a block, with nothing to prove of it.
@pytest.mark.parametrize("data", [b"", b"\xde", b"\xde\xad\xbe", b"\x00", b"\x01\x05"])
def test_calldata_shorter_than_a_selector_is_refused_as_a_proof(registry, data):
    assert registry.refusal_raw(data) == ("InvalidProof",)


@pytest.mark.parametrize("balance", [0, 1, 2**184 - 1, 2**184, 2**184 + 1, 2**255, 2**256 - 2, 2**256 - 1])
@pytest.mark.parametrize("nonce", [0, 1, 2**64 - 1])
def test_every_nonce_and_balance_reads_back_exactly(registry, source, nonce, balance):
    header, root, nodes = _plant_account(source, tries.account(nonce, balance, b"\x01" * 32, b"\x02" * 32))
    registry.send_raw(encode(header, root, [_account(ALICE, ALL, nodes)]))
    expected = {NONCE: nonce, BALANCE: balance, STORAGE_ROOT: b"\x01" * 32, CODE_HASH: b"\x02" * 32}
    for field, value in expected.items():
        assert registry.call("accountField", ALICE, BLOCK, field) == _word(value)
        assert registry.call("tryAccountField", ALICE, BLOCK, field) == (True, _word(value))


@pytest.mark.parametrize("balance", [0, 10**18], ids=["zero", "one ether"])
@pytest.mark.parametrize("field", FIELDS)
def test_reading_a_fact_costs_one_cold_read(registry, source, field, balance):
    header, root, nodes = _plant_account(source, tries.account(1, balance))
    registry.send_raw(encode(header, root, [_account(ALICE, ALL, nodes)]))
    data = registry.calldata("accountField", ALICE, BLOCK, field)
    zeros = data.count(0)
    used = int(registry.send("accountField", ALICE, BLOCK, field)["gasUsed"], 16)
    # Calldata gas: EIP-2028. A cold read costs 2,100 (EIP-2929).
    assert 2_100 < used - 21_000 - 4 * zeros - 16 * (len(data) - zeros) < 2_920


# --- Stored facts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "readable"),
    [
        ({NONCE}, {NONCE, BALANCE}),
        ({BALANCE}, {NONCE, BALANCE}),
        ({STORAGE_ROOT}, {STORAGE_ROOT}),
        ({CODE_HASH}, {CODE_HASH}),
        ({BALANCE, CODE_HASH}, {NONCE, BALANCE, CODE_HASH}),
        ({STORAGE_ROOT, CODE_HASH}, {STORAGE_ROOT, CODE_HASH}),
        ({NONCE, BALANCE, STORAGE_ROOT, CODE_HASH}, {NONCE, BALANCE, STORAGE_ROOT, CODE_HASH}),
    ],
)
@pytest.mark.parametrize("balance", [0, 2**256 - 1])
def test_only_what_was_asked_for_becomes_readable(registry, source, requested, readable, balance):
    header, root, nodes = _plant_account(source, tries.account(0, balance))
    receipt = registry.send_raw(encode(header, root, [_account(ALICE, _mask(*requested), nodes)]))
    assert _readable(registry) == readable
    assert registry.logged(receipt)[1:] == [("AccountProven", ALICE, BLOCK, _mask(*readable))]
    assert not _readable(registry, BOB)
    assert not _readable(registry, number=BLOCK + 1)


@pytest.mark.parametrize("field", FIELDS)
def test_of_an_absent_account_all_four_facts_become_readable_at_once(registry, source, field):
    header, root, nodes = _plant_account(source, tries.account(5, 5), address=BOB)
    receipt = registry.send_raw(encode(header, root, [_account(ALICE, _mask(field), nodes)]))
    assert registry.logged(receipt)[1:] == [("AccountProven", ALICE, BLOCK, ALL)]
    values = [registry.call("accountField", ALICE, BLOCK, each) for each in FIELDS]
    assert values == [bytes(32), bytes(32), tries.EMPTY_ROOT, bytes(32)]
    assert not _readable(registry, BOB)


def test_everybody_is_absent_from_an_empty_state(registry, source):
    header = _plant(source, tries.EMPTY_ROOT)
    registry.send_raw(encode(header, tries.EMPTY_ROOT, [_account(ALICE, ALL, []), _account(BOB, ALL, [b"\x80"])]))
    assert _readable(registry, ALICE) == _readable(registry, BOB) == set(FIELDS)


def test_proving_again_changes_and_logs_nothing(registry, source):
    storage = tries.build({keccak(_word(5)): tries.encode(55), keccak(_word(6)): tries.encode(66)})
    header, root, nodes = _plant_account(source, tries.account(3, 2**200, storage.root_hash))
    slots = {slot: tries.proof(storage, keccak(_word(slot))) for slot in (5, 7)}
    proof = encode(header, root, [_account(ALICE, ALL, nodes, slots), _account(BOB, ALL, nodes, {7: [], 8: []})])
    assert len(registry.logged(registry.send_raw(proof))) == 1 + 2 + 4
    before = [registry.call("accountField", who, BLOCK, field) for who in (ALICE, BOB) for field in FIELDS]
    assert registry.logged(registry.send_raw(proof)) == []
    assert before == [registry.call("accountField", who, BLOCK, field) for who in (ALICE, BOB) for field in FIELDS]


def test_facts_can_be_added_to_and_only_new_ones_are_logged(registry, source):
    header, root, nodes = _plant_account(source, tries.account(3, 4))
    registry.send_raw(encode(header, root, [_account(ALICE, _mask(CODE_HASH), nodes)]))
    receipt = registry.send_raw(encode(BLOCK, root, [_account(ALICE, _mask(CODE_HASH, BALANCE), nodes)]))
    assert registry.logged(receipt) == [("AccountProven", ALICE, BLOCK, _mask(NONCE, BALANCE))]
    assert _readable(registry) == {NONCE, BALANCE, CODE_HASH}


# --- Storage slots ----------------------------------------------------------------------------------------------------


def _storage(slots: dict[int, int]) -> HexaryTrie:
    return tries.build({keccak(_word(slot)): tries.encode(value) for slot, value in slots.items()})


def _slot_proofs(storage: HexaryTrie, *slots: int) -> dict[int, list[bytes]]:
    return {slot: tries.proof(storage, keccak(_word(slot))) for slot in slots}


@pytest.mark.long
@pytest.mark.parametrize("value", [1, 127, 128, 255, 2**248, 2**255, 2**256 - 2, 2**256 - 1])
@pytest.mark.parametrize("slot", [0, 1, 255, 256, 2**256 - 1])
def test_every_slot_and_value_reads_back_exactly(registry, source, slot, value):
    storage = _storage({slot: value, 77: 1})
    header, root, nodes = _plant_account(source, tries.account(1, 2, storage.root_hash, b"\x02" * 32))
    receipt = registry.send_raw(encode(header, root, [_account(ALICE, 0, nodes, _slot_proofs(storage, slot, 78))]))
    proven = {event[-1] for event in registry.logged(receipt) if event[0] == "StorageSlotProven"}
    assert proven == {_word(slot), _word(78)}
    assert registry.call("accountStorageSlotValues", ALICE, BLOCK, _word(slot)) == _word(value)
    assert registry.call("tryAccountStorageSlotValues", ALICE, BLOCK, _word(78)) == (True, bytes(32))
    assert registry.call("tryAccountStorageSlotValues", ALICE, BLOCK, _word(77)) == (False, bytes(32))
    # The account served only to prove its slots, so none of its own fields is stored.
    assert not _readable(registry)


@pytest.mark.parametrize("exists", [True, False], ids=["account without storage", "absent account"])
def test_all_slots_of_an_account_without_storage_are_zero(registry, source, exists):
    header, root, nodes = _plant_account(source, tries.account(), ALICE if exists else BOB)
    registry.send_raw(encode(header, root, [_account(ALICE, 0, nodes, {slot: [] for slot in (0, 1, 2**256 - 1)})]))
    for slot in (0, 1, 2**256 - 1):
        assert registry.call("accountStorageSlotValues", ALICE, BLOCK, _word(slot)) == bytes(32)
    assert registry.call("tryAccountStorageSlotValues", ALICE, BLOCK, _word(2)) == (False, bytes(32))


# --- Headers ----------------------------------------------------------------------------------------------------------


def test_an_accumulated_block_needs_neither_its_header_nor_its_hash_again(registry, source):
    header, root, nodes = _plant_account(source, tries.account(balance=9))
    registry.send_raw(encode(header, root))
    source.send("set", BLOCK, bytes(32))
    receipt = registry.send_raw(encode(BLOCK, root, [_account(ALICE, _mask(BALANCE), nodes)]))
    assert [event[0] for event in registry.logged(receipt)] == ["AccountProven"]
    assert registry.call("accountField", ALICE, BLOCK, BALANCE) == _word(9)


@pytest.mark.parametrize(
    ("number", "written", "others"),
    [
        (0, b"\x01\x00", (b"\x00", b"\x02\x00\x00")),
        (5, b"\x01\x05", (b"\x02\x00\x05", b"\x09" + (5).to_bytes(9), b"\x20" + (5).to_bytes(32))),
        (2**64 - 1, b"\x08" + b"\xff" * 8, (b"\x09\x01" + b"\xff" * 8, b"\x09\x00" + b"\xff" * 8)),
    ],
)
def test_a_block_number_is_written_in_one_way(registry, source, number, written, others):
    registry.send_raw(encode(_plant(source, tries.EMPTY_ROOT, number), tries.EMPTY_ROOT))
    proof = encode(number, tries.EMPTY_ROOT, _ABSENCE)
    assert proof.startswith(written)
    for other in others:
        # Other sizes than 1 to 8 begin no proof.
        expected = (
            ("InvalidProof",) if 1 <= other[0] <= 8 else ("UnknownFunction", proof.replace(written, other, 1)[:4])
        )
        assert registry.refusal_raw(proof.replace(written, other, 1)) == expected
    registry.send_raw(proof)


_ABSENCE = [AccountToProve(bytes.fromhex(ALICE[2:]), ALL, [])]


def test_a_block_that_is_not_accumulated_proves_nothing_by_its_number(registry):
    _refuses_all(registry, [encode(BLOCK, tries.EMPTY_ROOT, _ABSENCE)], ("UnknownBlock", BLOCK))


# The numbers of fields of all forks, and the number of bits in a mask.
@pytest.mark.parametrize("count", [15, 16, 17, 20, 21, 23, 31])
def test_all_fields_of_headers_of_all_forks_can_be_stored(registry, source, count):
    values = [bytes([index]) * 32 for index in range(count)]
    values[2], values[3], values[6] = b"\x02" * 20, b"\x07" * 32, b"\x06" * 256
    values[7], values[8], values[9], values[12], values[14] = b"", BLOCK.to_bytes(2), b"\x09", b"extra", bytes(8)
    header = tries.encode(values)
    source.send("set", BLOCK, keccak(header))
    proof = encode(header, values[3], header_fields=range(count))
    receipt = registry.send_raw(proof)
    requested = [index for index in range(count) if index not in {3, 8}]
    assert registry.logged(receipt)[1:] == [("HeaderFieldsProven", BLOCK, _mask(*requested))]
    for index, value in enumerate(values):
        word = keccak(value) if index in {6, 12} else value.rjust(32, b"\0")
        assert registry.call("headerField", BLOCK, index) == word
        assert registry.call("tryHeaderField", BLOCK, index) == (True, word)
    assert registry.call("tryHeaderField", BLOCK, count) == (False, bytes(32))
    assert registry.logged(registry.send_raw(proof)) == []


def test_no_bit_of_a_mask_can_be_flipped(simulator, registry, source):
    values = [bytes([index]) * 32 for index in range(31)]
    values[2], values[6], values[8] = b"\x02" * 20, b"\x06" * 256, BLOCK.to_bytes(2)
    header = tries.encode(values)
    tried = [(_set(source, BLOCK, keccak(header)), True)]
    # The largest masks are among them.
    for mask in (_mask(0, 1), _mask(5, 31), _mask(24, 30), _mask(*range(32)) & ~_mask(3, 8)):
        for flipped in (*(mask ^ 1 << bit for bit in range(32)), mask):
            call = Call(registry.address, header + b"\x31" + flipped.to_bytes(4) + b"\x37")
            tried.append((call, flipped == mask))
    _assert_taken(simulator, tried)


def test_of_a_block_that_is_not_accumulated_no_field_of_the_header_can_be_read(registry):
    assert {registry.call("tryHeaderField", BLOCK, index) for index in range(256)} == {(False, bytes(32))}


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"\xf9\x01\x00" + bytes(256), id="list"),
        pytest.param(b"\xba\x01\x00" + bytes(256), id="string of a length in three bytes"),
        pytest.param(b"\x84\x01", id="string that is cut"),
        pytest.param(b"\x81\x7f", id="byte with a prefix"),
        pytest.param(b"\xb8\x37" + bytes(55), id="55 bytes with a length of their own"),
        pytest.param(b"\xb9\x00\xff" + bytes(255), id="255 bytes with a length of two"),
    ],
)
def test_a_field_of_a_header_is_a_string_that_ends_in_it(registry, source, field):
    payload = b"".join([*map(tries.encode, rlp.decode(tries.header(BLOCK, b"\x07" * 32))[:12]), field])
    header = b"\xf9" + len(payload).to_bytes(2) + payload
    source.send("set", BLOCK, keccak(header))
    _refuses_all(registry, [header + b"\x31" + _mask(12, 31).to_bytes(4) + b"\x37"], ("InvalidHeader",))


def test_header_fields_that_were_not_asked_for_stay_unproven(registry, source):
    header = _plant(source, b"\x07" * 32)
    registry.send_raw(encode(header, b"\x07" * 32, header_fields=[7, 11]))
    readable = {index for index in range(256) if registry.call("tryHeaderField", BLOCK, index)[0]}
    assert readable == {3, 7, 8, 11}
    assert registry.refusal("headerField", BLOCK, 0) == ("HeaderFieldNotProven", BLOCK, 0)


# --- Timestamps -------------------------------------------------------------------------------------------------------


def _timed(number: int, time: int, parent_hash: bytes, state_root: bytes = b"\x07" * 32) -> bytes:
    fields: list[bytes | int] = [parent_hash, bytes(32), bytes(20), state_root, bytes(32), bytes(32), bytes(256)]
    return tries.encode([*fields, 0, number, 0, 0, time, b"", bytes(32), bytes(8)])


@pytest.mark.parametrize("time", [1000, 1001, 1011])
def test_the_registry_proves_which_block_was_the_latest_at_a_time(registry, source, time):
    header = _timed(BLOCK, 1000, bytes(32))
    following = _timed(BLOCK + 1, 1012, keccak(header))
    # The source vouches for the next block only, so the registry derives this block's hash.
    source.send("set", BLOCK + 1, keccak(following))
    receipt = registry.send("proveTimestamp", header, following, time)
    assert registry.logged(receipt) == [
        ("HeaderAccumulated", BLOCK, b"\x07" * 32),
        ("TimestampProven", time, BLOCK),
    ]
    assert registry.call("blockAtTimestamp", time) == BLOCK
    assert registry.call("tryBlockAtTimestamp", time) == (True, BLOCK)
    assert registry.logged(registry.send("proveTimestamp", header, following, time)) == []
    assert registry.call("tryBlockAtTimestamp", time + 1) == (False, 0)
    assert registry.refusal("blockAtTimestamp", time + 1) == ("TimestampNotProven", time + 1)


@pytest.mark.parametrize("number", [0, 2**56 + 5, 2**64 - 2])
def test_any_block_of_a_chain_can_be_the_latest_at_a_time(registry, source, number):
    header = _timed(number, 0, bytes(32))
    following = _timed(number + 1, 12, keccak(header))
    source.send("set", number + 1, keccak(following))
    registry.send("proveTimestamp", header, following, 0)
    assert registry.call("tryBlockAtTimestamp", 0) == (True, number)


@pytest.mark.parametrize("time", [0, 999, 1012, 2**256 - 1, *(2**bit + 1005 for bit in (32, 64, 128, 255))])
def test_the_registry_refuses_times_outside_the_two_headers(registry, source, time):
    header = _timed(BLOCK, 1000, bytes(32))
    following = _timed(BLOCK + 1, 1012, keccak(header))
    source.send("set", BLOCK + 1, keccak(following))
    assert registry.refusal("proveTimestamp", header, following, time) == ("TimestampMismatch", time)


# Times between these two headers are proven once the second is trusted.
FIRST = _timed(BLOCK, 1000, bytes(32))
NEXT = _timed(BLOCK + 1, 1012, keccak(FIRST))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("0x5f5ffd", id="reverts"),
        pytest.param("0xfe", id="halts"),
        pytest.param("0x", id="is none"),
        pytest.param("0x5f5ff3", id="answers nothing"),
        pytest.param("0x60205ff3", id="answers zero"),
        # The code returns a part of the hash, or too much: PUSH32 hash PUSH0 MSTORE PUSH1 size PUSH0 RETURN.
        pytest.param(f"0x7f{keccak(NEXT).hex()}5f52601f5ff3", id="answers too little"),
        pytest.param(f"0x7f{keccak(NEXT).hex()}5f5260215ff3", id="answers too much"),
        pytest.param(f"0x7f{keccak(NEXT).hex()}5f5260205ffd", id="reverts with the hash"),
    ],
)
def test_a_source_that_fails_vouches_for_nothing(chain, registry, source, code):
    chain.rpc("anvil_setCode", source.address, code)
    proof = registry.calldata("proveTimestamp", FIRST, NEXT, 1005)
    _refuses_all(registry, [proof, NEXT + b"\x37"], ("UnknownBlock", BLOCK + 1))
    chain.rpc("anvil_setCode", source.address, f"0x7f{keccak(NEXT).hex()}5f5260205ff3")
    registry.send_raw(proof)
    assert registry.call("tryBlockAtTimestamp", 1005) == (True, BLOCK)


# --- Nearly equal words and numbers -----------------------------------------------------------------------------------


def _set(source: Deployed, number: int, digest: bytes) -> Call:
    return Call(source.address, source.calldata("set", number, digest))


def _assert_taken(simulator: Simulator, tried: Iterable[tuple[Call, bool]]) -> None:
    """Send these calls one after another. Compare whether each is accepted with the expected value."""
    calls, expected = zip(*tried, strict=True)
    outcomes = simulator.run(calls)
    assert [outcome.succeeded for outcome in outcomes] == list(expected)
    assert not any(outcome.halted for outcome in outcomes)


def test_the_whole_root_of_a_state_is_compared(simulator, registry, source):
    node = tries.leaf(_key(ALICE), tries.account(balance=9))
    true = keccak(node)
    tried = []
    for number, root in enumerate([*nearly(true), true], 1):
        header = tries.header(number, root)
        proof = encode(number, true, [_account(ALICE, ALL, [node])])
        operations = proof[1 + proof[0] :]
        tried += [
            (_set(source, number, keccak(header)), True),
            (Call(registry.address, header + operations), root == true),
            (Call(registry.address, header + b"\x37"), True),
            (Call(registry.address, proof), root == true),
        ]
    _assert_taken(simulator, tried)


def test_the_whole_hash_of_a_header_is_compared(simulator, registry, source):
    prove_time = Call(registry.address, registry.calldata("proveTimestamp", FIRST, NEXT, 1005))
    for number, header, call in (
        (BLOCK, FIRST, Call(registry.address, FIRST + b"\x37")),
        (BLOCK + 1, NEXT, prove_time),
    ):
        tried = []
        for digest in (*nearly(keccak(header)), keccak(header)):
            tried += [(_set(source, number, digest), True), (call, digest == keccak(header))]
        _assert_taken(simulator, tried)


def test_the_whole_hash_of_a_parent_is_compared(simulator, registry, source):
    tried = []
    for digest in (*nearly(keccak(FIRST)), keccak(FIRST)):
        child, is_true = _timed(BLOCK + 1, 1012, digest), digest == keccak(FIRST)
        tried += [
            (_set(source, BLOCK + 1, keccak(child)), True),
            (Call(registry.address, child + b"\x38" + FIRST + b"\x37"), is_true),
            (Call(registry.address, registry.calldata("proveTimestamp", FIRST, child, 1005)), is_true),
        ]
    _assert_taken(simulator, tried)


def test_the_whole_number_of_a_child_is_compared(simulator, registry, source):
    tried = []
    for number in (*(BLOCK + 1 ^ 1 << bit for bit in range(64)), BLOCK + 1):
        child, is_true = _timed(number, 1012, keccak(FIRST)), number == BLOCK + 1
        tried += [
            (_set(source, number, keccak(child)), True),
            (Call(registry.address, child + b"\x38" + FIRST + b"\x37"), is_true),
            (Call(registry.address, registry.calldata("proveTimestamp", FIRST, child, 1005)), is_true),
        ]
    _assert_taken(simulator, tried)


def test_the_whole_root_of_an_accumulated_block_is_compared(simulator, registry, source):
    true = b"\x07" * 32
    tried = []
    for root in (true, *nearly(true), true):
        header = tries.header(BLOCK, root)
        tried += [
            (_set(source, BLOCK, keccak(header)), True),
            (Call(registry.address, header + b"\x37"), root == true),
        ]
    _assert_taken(simulator, tried)


def test_the_whole_hash_is_compared_that_somebody_asks_for(simulator, registry, source):
    parent = tries.header(BLOCK - 1, b"\x07" * 32)
    child = tries.header(BLOCK, b"\x08" * 32, keccak(parent))
    source.send("set", BLOCK, keccak(child))
    registry.send_raw(encode_parent_hash([child]))
    questions = [
        (digest, number)
        for number, true in ((BLOCK, keccak(child)), (5, keccak(parent)))
        for digest in (*nearly(true), true)
    ]
    # The source must compare the whole number.
    questions += [(keccak(child), BLOCK ^ 1 << bit) for bit in range(256)]
    outcomes = simulator.run(
        [Call(registry.address, registry.calldata("vouches", number, digest)) for digest, number in questions]
    )
    assert [outcome.data == _word(1) for outcome in outcomes] == [
        digest == keccak(parent) or (digest, number) == (keccak(child), BLOCK) for digest, number in questions
    ]
    assert {outcome.data for outcome in outcomes} == {_word(0), _word(1)}


# A contract that keeps only a part of a number or time would confuse these with zero.
FAR = [2**bit for bit in (64, 128, 192, 255)]


def test_facts_proven_of_a_block_are_proven_of_no_other(simulator, registry, source):
    storage = _storage({5: 55})
    node = tries.leaf(_key(ALICE), tries.account(3, 2**200, storage.root_hash, b"\x02" * 32))
    header = _timed(BLOCK, 1000, b"\x01" * 32, keccak(node))
    following = _timed(BLOCK + 1, 1012, keccak(header))
    source.send("set", BLOCK + 1, keccak(following))
    registry.send_raw(encode_parent_hash([following]))
    accounts = [_account(ALICE, ALL, [node], _slot_proofs(storage, 5, 6)), _account(BOB, ALL, [node], {7: []})]
    registry.send_raw(encode(header, keccak(node), accounts, header_fields=range(15)))
    registry.send("proveTimestamp", header, following, 1005)
    for far in (0, *FAR):
        block, time = BLOCK + far, 1005 + far
        facts: list[tuple[object, ...]] = [
            *(("AccountField", who, block, field) for who in (ALICE, BOB) for field in FIELDS),
            *(("AccountStorageSlotValues", ALICE, block, _word(slot)) for slot in (5, 6)),
            ("AccountStorageSlotValues", BOB, block, _word(7)),
            *(("HeaderField", block, index) for index in range(15)),
            ("BlockAtTimestamp", time),
        ]
        calls = [
            Call(registry.address, registry.calldata(function, *arguments))
            for name, *arguments in facts
            for function in (f"{str(name)[0].lower()}{str(name)[1:]}", f"try{name}")
        ]
        answers = simulator.run(calls)
        proven = {call for call, each in zip(calls, answers, strict=True) if each.succeeded and each.data != bytes(64)}
        assert proven == (set() if far else set(calls))
    for number in (BLOCK + far for far in FAR):
        assert registry.call("stateRoot", number) == bytes(32)
        assert not registry.call("vouches", number + 1, keccak(following))


# --- Trusted headers --------------------------------------------------------------------------------------------------


def _tell(source: Deployed, registry: Deployed, header: bytes) -> None:
    """Make a header's hash known to the registry, by a child for which the source no longer vouches."""
    child = tries.header(10**6, b"\x06" * 32, keccak(header))
    source.send("set", 10**6, keccak(child))
    registry.send_raw(encode_parent_hash([child]))
    source.send("set", 10**6, bytes(32))


def _refuses_all(registry: Deployed, proofs: Iterable[bytes], error: tuple[object, ...]) -> None:
    """Send proofs. Each must be refused with this error, and none may be stored."""
    storage = registry.chain.rpc("eth_getProof", registry.address, [], "latest")["storageHash"]
    for proof in proofs:
        assert registry.refusal_raw(proof) == error
    assert registry.chain.rpc("eth_getProof", registry.address, [], "latest")["storageHash"] == storage


def _uses(header: bytes) -> list[bytes]:
    """Return a proof for each use of a header."""
    fields = b"\x31" + (1 << 0 | 1 << 11).to_bytes(4) + b"\x37"
    return [header + ending for ending in (b"\x37", b"\x39", fields)]


def test_a_known_hash_of_another_header_makes_none_trusted(registry, source):
    """The registry knows the hash, and the source also vouches for it, but the sent header has another hash."""
    header = _timed(BLOCK, 1000, b"\x01" * 32)
    source.send("set", BLOCK, keccak(header))
    _tell(source, registry, header)
    forged = _timed(BLOCK, 1000, b"\x02" * 32)
    _refuses_all(registry, _uses(forged), ("HeaderMismatch", BLOCK))
    following = _timed(BLOCK + 1, 1012, keccak(forged))
    source.send("set", BLOCK + 1, keccak(header))
    proof = registry.calldata("proveTimestamp", forged, following, 1005)
    _refuses_all(registry, [proof], ("HeaderMismatch", BLOCK + 1))
    registry.send_raw(header + b"\x37")


@pytest.mark.long
def test_a_known_hash_of_another_header_ends_no_walk(registry, source):
    """A walk accepts only a header's parent, even if another header of the parent's number is trusted."""
    parent, other = _timed(BLOCK, 1000, b"\x01" * 32), _timed(BLOCK, 1001, b"\x02" * 32)
    child = _timed(BLOCK + 1, 1012, keccak(parent))
    source.send("set", BLOCK + 1, keccak(child))
    source.send("set", BLOCK, keccak(other))
    _tell(source, registry, other)
    _refuses_all(registry, _uses(child + b"\x38" + other), ("HeaderMismatch", BLOCK))
    proof = registry.calldata("proveTimestamp", other, child, 1005)
    _refuses_all(registry, [proof], ("HeaderMismatch", BLOCK))
    registry.send_raw(child + b"\x38" + parent + b"\x37")


@pytest.mark.long
@pytest.mark.parametrize("vouched", [bytes(32), b"\x09" * 32], ids=["for nothing", "for another"])
def test_a_block_that_is_accumulated_makes_no_other_header_trusted(registry, source, vouched):
    header, after = _timed(BLOCK, 1000, b"\x01" * 32), _timed(BLOCK + 1, 1012, b"\x01" * 32)
    for each, number in ((header, BLOCK), (after, BLOCK + 1)):
        source.send("set", number, keccak(each))
        registry.send_raw(each + b"\x37")
        source.send("set", number, vouched)
    # This header has the number and the state root of the accumulated block.
    forged = _timed(BLOCK, 1000, b"\x02" * 32)
    error = "HeaderMismatch" if any(vouched) else "UnknownBlock"
    _refuses_all(registry, _uses(forged), (error, BLOCK))
    following = _timed(BLOCK + 1, 1012, keccak(forged))
    proof = registry.calldata("proveTimestamp", forged, following, 1005)
    _refuses_all(registry, [proof], (error, BLOCK + 1))


@pytest.mark.parametrize("ending", [b"\x39\x37", b"\x39\x00", b"\x39\x39", b"\x37\x37", b"\x37\x39", b"\x37\x00"])
def test_nothing_comes_after_the_end_of_a_proof(registry, source, ending):
    header = _timed(BLOCK, 1000, b"\x01" * 32)
    source.send("set", BLOCK, keccak(header))
    _refuses_all(registry, [header + ending], ("InvalidProof",))
    registry.send_raw(header + ending[:1])


# --- The block hash source --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "its_chain"),
    [
        ("AttestedBlockHashSource", (5, ["0x" + "01" * 20], 1), 5),
        ("OpStackBlockHashSource", (5,), 5),
        ("ArbitrumBlockHashSource", (5, "0x" + "0b" * 20), 5),
        ("ArbitrumSlotBlockHashSource", (5, "0x" + "0b" * 20, "0x" + "0c" * 20), 5),
        ("ArbitrumBufferBlockHashSource", (5,), 5),
        ("OpStackGamesBlockHashSource", (5, "0x" + "0b" * 20), 5),
        ("NativeBlockHashSource", (8191,), 31337),
    ],
)
def test_a_registry_has_no_source_of_another_chain(chain, name, arguments, its_chain):
    source = Deployed(chain, name, *arguments)
    assert source.call("sourceChainId") == its_chain
    for other in (its_chain - 1, *(its_chain ^ 1 << bit for bit in (0, 8, 16, 32, 63, 64, 128, 160, 255))):
        with pytest.raises(Reverted) as reverted:
            Deployed(chain, "FactsRegistry", other, source.address, 8191, NO_CONTRACT)
        assert reverted.value.error == ("SourceOfAnotherChain", its_chain)
    registry = Deployed(chain, "FactsRegistry", its_chain, source.address, 8191, NO_CONTRACT)
    assert registry.call("sourceChainId") == its_chain


@pytest.mark.parametrize("kind", ["no contract", "a contract that isn't one"])
def test_a_registry_has_no_source_that_does_not_tell_its_chain(chain, kind):
    address = ALICE if kind == "no contract" else Deployed(chain, "Multicall").address
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, "FactsRegistry", 1, address, 8191, NO_CONTRACT)
    assert reverted.value.error == ("",)
