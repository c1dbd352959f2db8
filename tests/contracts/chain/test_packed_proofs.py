"""Invalid proofs never verify. The contract, the Python verifier and py-trie must agree. Real proofs:
test_real_proofs.py.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import rlp
from eth_utils.abi import function_abi_to_4byte_selector
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT, load_artifact
from chains.encoding import hex_data
from chains.tries import packed
from chains.tries.packed import (
    BLOCK_HASH,
    HISTORY_ADDRESS,
    SLOT,
    AccountToProve,
    CannotPack,
    encode,
    encode_parent_hash,
)
from tests.contracts import decoder, tries
from tests.contracts.conftest import BLOCK, SOURCE_CHAIN_ID
from tests.contracts.decoder import InvalidPacked, PackedFacts
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.worlds import Asked, World, number_of, random_world

INVALID = ("InvalidProof",)


def python_accepts(proof: bytes, world: World, *, accumulated: bool) -> PackedFacts | None:
    try:
        return decoder.decode(
            proof,
            block_hash=lambda number: keccak(world.vouched) if number == number_of(world.vouched) else None,
            state_root=lambda number: world.root if accumulated and number == world.number else None,
            known_hashes={keccak(world.headers[0])} if world.by_child else (),
        )
    except InvalidPacked:
        return None


@pytest.fixture
def trust(registry: Deployed, source: Deployed) -> Callable[[bytes], None]:
    """Return a function that accumulates a block with the given state root."""

    def accumulate(root: bytes) -> None:
        header = tries.header(BLOCK, root)
        source.send("set", BLOCK, keccak(header))
        registry.send_raw(encode(header, root))

    return accumulate


@dataclass
class Recorded:
    """The parts of packed calldata that the model has read."""

    # Offset and byte of each operation. The byte that ends the headers is included.
    operations: list[tuple[int, int]] = field(default_factory=list)
    # Each child's origin (True: from the stack) and the size of its reference.
    children: set[tuple[bool, int]] = field(default_factory=set)
    # Offsets of single-byte fields: operations, sizes, depths, children.
    single: list[int] = field(default_factory=list)
    # Offsets of all bytes outside of hashes, including masks, numbers, addresses and paths.
    loose: set[int] = field(default_factory=set)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    record = Recorded()
    reader, proof = decoder._Reader, decoder._Decoder
    at_end, byte, take, children = reader.at_end, reader.byte, reader.take, proof._children

    # The model calls `at_end` only before an operation.
    def recording_operations(self: decoder._Reader) -> bool:
        if not at_end(self):
            record.operations.append((self.cursor, self._data[self.cursor]))
        return at_end(self)

    def recording_single(self: decoder._Reader) -> int:
        record.single.append(self.cursor)
        return byte(self)

    def recording_loose(self: decoder._Reader, size: int) -> bytes:
        if size != 32:
            record.loose.update(range(self.cursor, self.cursor + size))
        return take(self, size)

    def recording_children(
        self: decoder._Decoder, mine: Sequence[decoder._Subtree], hashes: set[int], nodes: set[int]
    ) -> list[bytes]:
        all_children = children(self, mine, hashes, nodes)
        own = {child.place for child in mine}
        record.children |= {(index in own, len(child)) for index, child in enumerate(all_children)}
        return all_children

    monkeypatch.setattr(reader, "at_end", recording_operations)
    monkeypatch.setattr(reader, "byte", recording_single)
    monkeypatch.setattr(reader, "take", recording_loose)
    monkeypatch.setattr(proof, "_children", recording_children)
    return record


def test_no_function_begins_as_a_proof_does():
    functions = [entry for entry in load_artifact("FactsRegistry").abi if entry["type"] == "function"]
    first_bytes = {function_abi_to_4byte_selector(entry)[0] for entry in functions}
    assert len(functions) == 22
    assert not first_bytes & {*range(1, 9), 0x3B, 0x3C, *range(0xF8, 0xFB)}


# --- Random states ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10, 60])
def test_proofs_of_random_states_read_back_as_py_trie_has_them(registry, source, size):
    world = random_world(random.Random(size), BLOCK, size)
    source.send("set", BLOCK, world.block_hash)
    for most in (2, 6, 40):
        requested = world.ask(most)
        proof = world.prove(requested)
        facts = python_accepts(proof, world, accumulated=False)
        assert facts is not None
        assert world.agrees(facts)
        assert {address: set(account.slots) for address, account in facts.accounts.items()} == {
            each.address: set(each.slots) for each in requested
        }
        registry.send_raw(proof)
        for address, account in facts.accounts.items():
            for slot, value in account.slots.items():
                word = registry.call("accountStorageSlotValues", address, BLOCK, slot.to_bytes(32))
                assert word == value.to_bytes(32)
            words = [account.nonce.to_bytes(32), account.balance.to_bytes(32), account.storage_root, account.code_hash]
            asked_for = account.fields if account.exists else 0b1111
            for index, word in enumerate(words):
                if asked_for >> index & 1:
                    assert registry.call("accountField", address, BLOCK, index) == word


@pytest.mark.long
def test_random_states_have_every_form_of_node_and_of_absence(recorded):
    chance = random.Random(3)
    for number in range(150):
        # In a large state, few keys give full branches. In a small state, many keys give other ones.
        size, most = (200, 1) if number % 50 == 0 else (chance.choice([1, 2, 3, 20]), 6)
        world = random_world(chance, number, size)
        assert python_accepts(world.prove(world.ask(most)), world, accumulated=False)
    operations = {operation for _, operation in recorded.operations}
    # Required operations: branches of both forms and of several subtrees, extensions, a fact and a block hash of the
    # history contract, zero slots, and absent accounts in four forms (78 and above also close a storage).
    assert {*b"\x00\x10\x11\x12\x30\x36\x40\x43\x32\x34\x35\x70\x72\x74\x77\x78\x7a\x7c"} <= operations
    # Required children: hashes, embedded nodes and empty places, from the stack and from calldata.
    assert {(True, 33), (True, 31), (True, 1), (False, 33), (False, 31), (False, 1)} <= recorded.children


# --- Exhaustive trials ------------------------------------------------------------------------------------------------

ALICE = b"\xa1" * 20
ALICE_HEX = hex_data(ALICE)


def _mainnet_shaped(levels: Sequence[int] = tries.MAINNET_LEVELS) -> tuple[bytes, list[AccountToProve]]:
    """Return the history contract with a slot and a block hash, another account, and an absent account."""
    chance = random.Random(5)
    addresses = [HISTORY_ADDRESS, chance.randbytes(20), chance.randbytes(20)]
    slot, hash_slot = keccak((3).to_bytes(32)), keccak((4).to_bytes(32))
    values = {slot: tries.encode(10**18), hash_slot: tries.encode(chance.randbytes(32))}
    storage_root, slots = tries.shaped(values, chance, (16, 16, 4))
    leaves = {
        keccak(addresses[0]): tries.account(3, 10**18, storage_root, chance.randbytes(32)),
        keccak(addresses[1]): tries.account(500, 10**17),
    }
    # Another account's leaf is at the third account's place, which proves its absence.
    near = bytearray(keccak(addresses[2]))
    near[-1] ^= 1
    leaves[bytes(near)] = tries.account(7, 10**19)
    root, proofs = tries.shaped(leaves, chance, levels)
    return root, [
        AccountToProve(addresses[0], 0b0011, proofs[keccak(addresses[0])], {3: slots[slot]}, {4: slots[hash_slot]}),
        AccountToProve(addresses[1], 0b1111, proofs[keccak(addresses[1])]),
        AccountToProve(addresses[2], 0b0011, proofs[bytes(near)]),
    ]


@pytest.mark.long
def test_no_other_value_of_any_control_byte_verifies(registry, trust, harness, recorded):
    root, accounts = _mainnet_shaped((16, 16, 16, 9, 2))
    trust(root)
    proof = encode(BLOCK, root, accounts)
    decoder.decode(proof, block_hash=lambda _: None, state_root=lambda _: root)
    operations = [operation for _, operation in recorded.operations]
    assert {0x00, 0x10, 0x11, SLOT, BLOCK_HASH} <= set(operations)
    # These bytes only choose which facts are stored. Other values of them are valid.
    choices = {
        offset for offset, operation in recorded.operations if operation in {SLOT, BLOCK_HASH} or operation > 0x7F
    }
    assert len(choices) == 4
    assert len(recorded.loose) > 100
    assert harness.accepted(registry, [proof]) == [True]
    assert harness.accepted_bytes(registry, proof, sorted(recorded.loose - choices)) == 0
    # An account with a slot has 7 other choices. The account without slots has 6, because it must store a fact. A slot
    # has one.
    assert harness.accepted_bytes(registry, proof, sorted(choices)) == 7 + 6 + 1 + 1


@pytest.mark.long
def test_no_flipped_bit_and_no_cut_of_a_generated_proof_verifies(registry, source, harness):
    root, accounts = _mainnet_shaped((16, 9, 2))
    header = tries.header(BLOCK, root)
    source.send("set", BLOCK, keccak(header))
    proof = encode(header, root, accounts, header_fields=[0, 11])
    assert harness.accepted(registry, [proof]) == [True]
    assert harness.accepted_flips(registry, proof) == 0
    assert not any(harness.accepted(registry, (proof[:size] for size in range(len(proof)))))


def test_a_flipped_bit_can_only_make_another_absent_slot_of_one(registry, trust, harness):
    """A flipped bit may name another absent slot. This is also a true fact, since no hash covers an
    absent slot's name.
    """
    chance = random.Random(6)
    world = World(chance, BLOCK)
    world.accounts[ALICE] = (1, 2, tries.EMPTY_CODE_HASH)
    world.storages[ALICE] = dict.fromkeys(range(12), 1)
    trust(world.close().root)
    requested = [0, 1, 100, 101, 102, 2**255, 2**255 + 1]
    proof = world.prove([(ALICE, 3, requested)], known=True)
    flipped = [
        proof[:offset] + bytes([proof[offset] ^ 1 << bit]) + proof[offset + 1 :]
        for offset in range(2, len(proof))
        for bit in range(8)
    ]
    taken = [each for each, answer in zip(flipped, harness.accepted(registry, flipped), strict=True) if answer]
    assert taken
    for each in taken:
        facts = python_accepts(each, world, accumulated=True)
        assert facts is not None
        assert world.agrees(facts)
        assert facts.accounts.keys() == {ALICE}
        assert facts.accounts[ALICE].fields == 3
        slots = facts.accounts[ALICE].slots
        assert len(slots) == len(requested)
        assert len(slots.keys() - set(requested)) == 1


@pytest.mark.story
def test_no_operation_left_out_or_sent_twice_verifies(registry, trust, harness, recorded):
    root, accounts = _mainnet_shaped()
    trust(root)
    proof = encode(BLOCK, root, accounts)
    decoder.decode(proof, block_hash=lambda _: None, state_root=lambda _: root)
    starts = sorted({*recorded.single, *(offset for offset, _ in recorded.operations)})
    pieces = [(start, end) for start in starts for end in [*starts, len(proof)] if end > start > 1]
    spoilt = [proof[:start] + proof[end:] for start, end in pieces]
    spoilt += [proof[:end] + proof[start:end] + proof[end:] for start, end in pieces if end - start < 700]
    assert len(spoilt) > 500
    assert not any(harness.accepted(registry, dict.fromkeys(spoilt)))


BOB = b"\xb0" * 20
# Head of an account at depth 0 with nonce 1 and balance 2. No other account is in the state.
_HEAD = (1 << 6 | 1).to_bytes(2)
_ROOT, _CODE = b"\x0a" * 32, b"\x0c" * 32
_OTHER = tries.account(1, 2, _ROOT, _CODE)


@pytest.mark.parametrize(
    ("root", "before", "operation", "following"),
    [
        (tries.EMPTY_ROOT, b"", 0x70, ALICE + b"\x00"),
        (
            keccak(tries.leaf(keccak(BOB), _OTHER)),
            b"\x30" + ALICE + b"\x32\x01\x05\x00",
            0x7F,
            _HEAD + keccak(BOB) + b"\x01\x02" + _ROOT + _CODE,
        ),
        (
            keccak(tries.leaf(keccak(BOB), _OTHER)),
            b"",
            0xC7,
            _HEAD + BOB + b"\x01\x02" + _ROOT + _CODE,
        ),
    ],
    ids=["absent", "absent, closes a storage", "account"],
)
def test_only_one_operation_does_it(accepts, root, before, operation, following):
    for other in range(0x100):
        # Operations from 0x80 on are accounts with other stored facts, which are also true.
        if other != operation and (operation < 0x80 or other < 0x80):
            assert not accepts(root, before + bytes([other]) + following), hex(other)
    assert accepts(root, before + bytes([operation]) + following)


# --- Block hashes -----------------------------------------------------------------------------------------------------

# The header of an older block, and a hash with leading zeros.
OLD = tries.header(BLOCK - 40, b"\x09" * 32, b"\x0a" * 32)
OLD_HASH = keccak(OLD)
SHORT_HASH = bytes(2) + b"\x77" * 30
OLD_SLOT, SHORT_SLOT, FACT_SLOT = (BLOCK - 40) % 8191, 8190, 0


def _history_world(owner: bytes = HISTORY_ADDRESS, **way: Any) -> World:
    """Return a world with the history contract, three of its slots, and other accounts."""
    chance = random.Random(11)
    world = World(chance, BLOCK, **way)
    world.accounts[owner] = (1, 0, b"\x0c" * 32)
    world.storages[owner] = {
        OLD_SLOT: int.from_bytes(OLD_HASH),
        SHORT_SLOT: int.from_bytes(SHORT_HASH),
        FACT_SLOT: int.from_bytes(b"\x55" * 32),
    }
    for _ in range(9):
        world.accounts[chance.randbytes(20)] = (1, 2, keccak(b""))
    return world.close()


@pytest.fixture(scope="module")
def history() -> World:
    return _history_world()


def _vouch(source: Deployed, header: bytes) -> None:
    source.send("set", number_of(header), keccak(header))


def test_slots_of_the_history_contract_make_block_hashes_known(registry, source, history):
    _vouch(source, history.header)
    proof = history.prove([Asked(HISTORY_ADDRESS, 0, [FACT_SLOT], [OLD_SLOT, SHORT_SLOT])])
    facts = python_accepts(proof, history, accumulated=False)
    assert facts is not None
    assert facts.known_hashes == {OLD_HASH, SHORT_HASH}
    address = hex_data(HISTORY_ADDRESS)
    events = set(registry.logged(registry.send_raw(proof)))
    assert events == {
        ("HeaderAccumulated", BLOCK, history.root),
        ("BlockHashProven", OLD_HASH),
        ("BlockHashProven", SHORT_HASH),
        ("StorageSlotProven", address, BLOCK, bytes(32)),
    }
    # Block hashes are not stored as slots.
    for slot in (OLD_SLOT, SHORT_SLOT):
        assert registry.call("tryAccountStorageSlotValues", address, BLOCK, slot.to_bytes(32))[0] is False
    assert registry.logged(registry.send_raw(proof)) == []


def test_a_known_hash_is_trusted_as_one_that_the_source_vouches_for(registry, source, history):
    old = encode(OLD, b"\x09" * 32)
    assert registry.refusal_raw(old) == ("UnknownBlock", BLOCK - 40)
    assert not registry.call("vouches", BLOCK - 40, OLD_HASH)
    _vouch(source, history.header)
    registry.send_raw(history.prove([Asked(HISTORY_ADDRESS, 0, [], [OLD_SLOT])]))
    assert registry.call("vouches", BLOCK - 40, OLD_HASH)
    assert registry.logged(registry.send_raw(old)) == [("HeaderAccumulated", BLOCK - 40, b"\x09" * 32)]


def test_a_known_hash_is_trusted_even_where_the_source_says_another(registry, source, history):
    _vouch(source, history.header)
    registry.send_raw(history.prove([Asked(HISTORY_ADDRESS, 0, [], [OLD_SLOT])]))
    source.send("set", BLOCK - 40, b"\x01" * 32)
    registry.send_raw(encode(OLD, b"\x09" * 32))
    assert registry.call("stateRoot", BLOCK - 40) == b"\x09" * 32
    # The registry trusts only the known hash for this number.
    assert registry.refusal_raw(encode(tries.header(BLOCK - 40, b"\x08" * 32), b"\x08" * 32)) == (
        "HeaderMismatch",
        BLOCK - 40,
    )


def test_vouching_tells_which_headers_would_be_accepted(registry, source, history):
    _vouch(source, history.header)
    assert registry.call("vouches", BLOCK, history.block_hash)
    # The source vouches for a hash only at its number.
    assert not registry.call("vouches", BLOCK + 1, history.block_hash)
    assert not registry.call("vouches", BLOCK, OLD_HASH)
    # Zero is the source's answer for an unknown block. The registry vouches for no zero hash.
    assert not registry.call("vouches", BLOCK + 1, bytes(32))
    assert not registry.call("vouches", BLOCK, bytes(32))
    registry.send_raw(history.prove([Asked(HISTORY_ADDRESS, 0, [], [OLD_SLOT])]))
    # A known hash counts at any number, because the header contains its own.
    assert registry.call("vouches", 5, OLD_HASH)
    assert not registry.call("vouches", 5, bytes(32))


def test_only_the_history_contracts_slots_make_hashes_known(accepts):
    """The storage belongs to another account. One proof claims falsely that it is the history contract's."""
    world = _history_world(ALICE)
    as_fact = world.prove([(ALICE, 0, [OLD_SLOT])], known=True)[2:]
    assert accepts(world.root, as_fact)
    as_slot = b"\x40\x01" + bytes([OLD_SLOT])
    assert as_fact.count(as_slot) == 1
    as_hash = as_fact.replace(as_slot, b"\x43" + as_slot[1:])
    assert not accepts(world.root, as_hash)
    assert not accepts(world.root, as_hash.replace(ALICE, HISTORY_ADDRESS))
    # An absent account has no such storage.
    slot_end = as_hash.index(b"\x43\x01") + 3 + 2 + 32
    for address in (ALICE, HISTORY_ADDRESS):
        for closing in (b"\x78\x00", b"\x7a"):
            assert not accepts(world.root, b"\x30" + address + as_hash[21:slot_end] + closing)


@pytest.mark.parametrize("window", [8191, 393168])
def test_only_slots_that_the_protocol_writes_make_hashes_known(chain, source, window):
    """The protocol writes only slots below the window. A genesis may fill others with any value."""
    registry = Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, window, NO_CONTRACT)
    assert registry.call("historyWindow") == window
    slots = [window - 1, window, 2**255 + 5]
    world = World(random.Random(1), BLOCK)
    world.accounts[HISTORY_ADDRESS] = (1, 0, b"\x0c" * 32)
    world.storages[HISTORY_ADDRESS] = {slot: int.from_bytes(OLD_HASH) for slot in slots}
    _vouch(source, world.close().header)
    for slot in slots:
        accounts = [world.to_prove(HISTORY_ADDRESS, 0, [], [slot])]
        proof = encode(world.header, world.root, accounts, history_window=2**256)
        if slot < window:
            assert encode(world.header, world.root, accounts, history_window=window) == proof
            facts = _decode(world, proof, window)
            assert facts.known_hashes == {OLD_HASH}
            registry.call_raw(proof)
            continue
        with pytest.raises(CannotPack, match=f"Slot {slot} is none of the {window}"):
            encode(world.header, world.root, accounts, history_window=window)
        with pytest.raises(InvalidPacked, match="no block hash in this slot"):
            _decode(world, proof, window)
        assert registry.refusal_raw(proof) == INVALID


def _decode(world: World, proof: bytes, window: int) -> PackedFacts:
    return decoder.decode(
        proof, block_hash=lambda _: keccak(world.header), state_root=lambda _: None, history_window=window
    )


def test_block_hashes_in_an_untrusted_state_are_not_kept(chain, registry, source, history):
    proof = history.prove([Asked(HISTORY_ADDRESS, 0, [], [OLD_SLOT])], known=True)
    header = tries.header(BLOCK, keccak(b"another state"))
    _vouch(source, header)
    registry.send_raw(encode(header, keccak(b"another state")))
    transaction = {"from": SENDER, "to": registry.address, "data": hex_data(proof), "gas": hex(10**7)}
    assert chain.rpc("eth_sendTransactionSync", transaction)["status"] == "0x0"
    assert not registry.call("vouches", BLOCK - 40, OLD_HASH)


@pytest.mark.long
def test_no_flipped_bit_and_no_cut_of_a_block_hash_verifies(registry, source, harness):
    world = _history_world(walked=2)
    _vouch(source, world.headers[0])
    proof = world.prove([Asked(HISTORY_ADDRESS, 0, [FACT_SLOT], [OLD_SLOT, SHORT_SLOT])])
    assert harness.accepted(registry, [proof]) == [True]
    assert not any(harness.accepted(registry, (proof[:size] for size in range(len(proof)))))
    assert harness.accepted_flips(registry, proof) == 0


# --- Headers walked ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lineage() -> World:
    """Return a block with Alice, and the three blocks that follow it."""
    world = World(random.Random(12), BLOCK, walked=3)
    world.accounts[ALICE] = (5, 10**18, b"\x0c" * 32)
    return world.close()


def test_from_a_trusted_header_it_walks_to_its_parents(registry, source, lineage):
    _vouch(source, lineage.headers[0])
    receipt = registry.send_raw(lineage.prove([(ALICE, 3, [])]))
    assert registry.logged(receipt) == [
        ("HeaderAccumulated", BLOCK, lineage.root),
        ("AccountProven", ALICE_HEX, BLOCK, 3),
    ]
    assert registry.call("accountField", ALICE_HEX, BLOCK, 1) == (10**18).to_bytes(32)
    # The proof passes these blocks without storing them.
    for header in lineage.headers[:-1]:
        assert registry.call("stateRoot", number_of(header)) == bytes(32)
    for header in lineage.headers[1:]:
        assert not registry.call("vouches", number_of(header), keccak(header))


def test_fields_are_those_of_the_last_header(registry, source, lineage):
    _vouch(source, lineage.headers[0])
    registry.send_raw(encode(lineage.headers, lineage.root, header_fields=[0, 11]))
    assert registry.call("headerField", BLOCK, 0) == rlp.decode(lineage.header)[0]
    assert registry.call("headerField", BLOCK, 11) == bytes(32)
    assert not registry.call("tryHeaderField", BLOCK + 3, 0)[0]


def test_the_parents_hash_alone_becomes_known_and_nothing_is_accumulated(registry, source, lineage):
    _vouch(source, lineage.headers[0])
    proof = encode_parent_hash(lineage.headers[:2])
    assert registry.logged(registry.send_raw(proof)) == [("BlockHashProven", keccak(lineage.headers[2]))]
    assert registry.logged(registry.send_raw(proof)) == []
    assert not any(int.from_bytes(registry.call("stateRoot", BLOCK + above)) for above in range(4))
    # Another transaction continues from the known hash. The source no longer vouches for the child.
    source.send("set", BLOCK + 3, bytes(32))
    registry.send_raw(encode(lineage.headers[2:], lineage.root))
    assert registry.call("stateRoot", BLOCK) == lineage.root


@pytest.mark.parametrize("before", [0, 1], ids=["alone", "walked to"])
def test_the_first_block_of_all_has_no_parent_to_be_known(registry, source, before):
    genesis = tries.header(0, b"\x07" * 32)
    headers = [tries.header(1, b"\x08" * 32, keccak(genesis)), genesis][1 - before :]
    _vouch(source, headers[0])
    registry.call_raw(encode(headers, b"\x07" * 32))
    proof = encode_parent_hash(headers)
    assert registry.refusal_raw(proof) == INVALID
    with pytest.raises(decoder.InvalidPacked):
        decoder.decode(proof, block_hash=lambda _: keccak(headers[0]), state_root=lambda _: None)


def test_a_parent_has_the_number_before_its_childs(registry, source):
    parent = tries.header(7, b"\1" * 32)
    child = tries.header(100, b"\2" * 32, keccak(parent))
    source.send("set", 100, keccak(child))
    walk = child + b"\x38" + parent + b"\x37"
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(walk)
    assert reverted.value.error == ("HeaderMismatch", 7)
    with pytest.raises(decoder.InvalidPacked, match="not that of the parent"):
        decoder.decode(walk, block_hash=lambda _: keccak(child), state_root=lambda _: None)
    with pytest.raises(packed.CannotPack, match="not belong to the parent"):
        encode([child, parent], b"\1" * 32)
    assert registry.refusal("proveTimestamp", parent, child, 0) == ("HeaderMismatch", 7)


def test_the_first_block_has_no_parent_whatever_its_header_says(registry, source):
    alien = tries.header(15_000_000, b"\1" * 32)
    first = tries.header(0, b"\2" * 32, keccak(alien))
    source.send("set", 0, keccak(first))
    proof = encode_parent_hash([first])
    assert registry.refusal_raw(proof) == INVALID
    with pytest.raises(decoder.InvalidPacked, match="no parent"):
        decoder.decode(proof, block_hash=lambda _: keccak(first), state_root=lambda _: None)
