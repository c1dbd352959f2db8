"""What must never verify, and that contract, Python verifier and py-trie agree; test_real_proofs.py has real proofs."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import rlp
from eth_utils.abi import function_abi_to_4byte_selector
from eth_utils.crypto import keccak

from chains import packed
from chains.encoding import hex_data
from chains.packed import BLOCK_HASH, HISTORY_ADDRESS, SLOT, AccountToProve, CannotPack, encode, encode_parent_hash
from contracts import NO_CONTRACT, load_artifact
from tests.contracts import decoder, tries
from tests.contracts.conftest import BLOCK, SOURCE_CHAIN_ID
from tests.contracts.decoder import InvalidPacked, PackedFacts
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.operations import branch, full_branch, hash_child, own_child
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
    """Accumulates a block with that state root."""

    def accumulate(root: bytes) -> None:
        header = tries.header(BLOCK, root)
        source.send("set", BLOCK, keccak(header))
        registry.send_raw(encode(header, root))

    return accumulate


@dataclass
class Recorded:
    """The model's readings of the packed calldata that it is given from now on."""

    # Where operations begin, with their bytes; among them what comes between headers and the operations.
    operations: list[tuple[int, int]] = field(default_factory=list)
    # Of listed children: whether it comes from the stack, and the size of its reference.
    children: set[tuple[bool, int]] = field(default_factory=set)
    # Where single bytes are: operations, sizes, depths, children.
    single: list[int] = field(default_factory=list)
    # Where everything is but hashes: also masks, numbers, addresses and paths.
    loose: set[int] = field(default_factory=set)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    record = Recorded()
    reader, proof = decoder._Reader, decoder._Decoder
    at_end, byte, take, children = reader.at_end, reader.byte, reader.take, proof._children

    # Before each operation, and nowhere else, the model looks whether there is one.
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

    def recording_children(self: decoder._Decoder, size: int, mine: Sequence[decoder._Subtree]) -> list[bytes]:
        found = children(self, size, mine)
        own = {child.place for child in mine}
        record.children |= {(place in own, len(child)) for place, child in enumerate(found)}
        return found

    monkeypatch.setattr(reader, "at_end", recording_operations)
    monkeypatch.setattr(reader, "byte", recording_single)
    monkeypatch.setattr(reader, "take", recording_loose)
    monkeypatch.setattr(proof, "_children", recording_children)
    return record


def test_no_function_begins_as_a_proof_does():
    functions = [entry for entry in load_artifact("FactsRegistry").abi if entry["type"] == "function"]
    first_bytes = {function_abi_to_4byte_selector(entry)[0] for entry in functions}
    assert len(functions) == 15
    assert not first_bytes & {*range(1, 9), 0x3B, 0x3C, *range(0xF8, 0xFB)}


# --- Random states ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10, 60])
def test_what_is_proven_of_random_states_reads_back_as_py_trie_has_it(registry, source, size):
    world = random_world(random.Random(size), BLOCK, size)
    source.send("set", BLOCK, world.block_hash)
    for most in (2, 6, 40):
        asked = world.ask(most)
        proof = world.prove(asked)
        facts = python_accepts(proof, world, accumulated=False)
        assert facts is not None
        assert world.agrees(facts)
        assert {address: set(account.slots) for address, account in facts.accounts.items()} == {
            each.address: set(each.slots) for each in asked
        }
        registry.send_raw(proof)
        for address, account in facts.accounts.items():
            for slot, value in account.slots.items():
                word = registry.call("accountStorageSlotValues", address, BLOCK, slot.to_bytes(32))
                assert word == value.to_bytes(32)
            words = [account.nonce.to_bytes(32), account.balance.to_bytes(32), account.storage_root, account.code_hash]
            asked_for = account.fields if account.exists else 0b1111
            for place, word in enumerate(words):
                if asked_for >> place & 1:
                    assert registry.call("accountField", address, BLOCK, place) == word


def test_random_states_have_every_form_of_node_and_of_absence(recorded):
    chance = random.Random(3)
    for number in range(150):
        # Few keys of a large state come below branches that are full otherwise, many of a small one below others.
        size, most = (200, 1) if number % 50 == 0 else (chance.choice([1, 2, 3, 20]), 6)
        world = random_world(chance, number, size)
        assert python_accepts(world.prove(world.ask(most)), world, accumulated=False)
    operations = {operation for _, operation in recorded.operations}
    # Branches in both forms and of several subtrees, extensions, a fact and a block hash of the history contract, zero
    # slots and absent accounts in four forms (78 and above: with a storage to close).
    assert {*b"\x00\x10\x11\x12\x30\x36\x40\x43\x32\x34\x35\x70\x72\x74\x77\x78\x7a\x7c"} <= operations
    # Children that are hashes, nodes of their own and empty places, as far as branches can have them sent.
    assert {(True, 33), (True, 31), (True, 1), (False, 33), (False, 31), (False, 1)} <= recorded.children


# --- By exhaustion ----------------------------------------------------------------------------------------------------


def _mainnet_shaped(levels: Sequence[int] = tries.MAINNET_LEVELS) -> tuple[bytes, list[AccountToProve]]:
    """The history contract with a slot and a block hash, another account, and one that isn't there."""
    chance = random.Random(5)
    addresses = [HISTORY_ADDRESS, chance.randbytes(20), chance.randbytes(20)]
    slot, hash_slot = keccak((3).to_bytes(32)), keccak((4).to_bytes(32))
    values = {slot: tries.encode(10**18), hash_slot: tries.encode(chance.randbytes(32))}
    storage_root, slots = tries.shaped(values, chance, (16, 16, 4))
    leaves = {
        keccak(addresses[0]): tries.account(3, 10**18, storage_root, chance.randbytes(32)),
        keccak(addresses[1]): tries.account(500, 10**17),
    }
    # The third is absent beside another account's leaf, where its own would be.
    near = bytearray(keccak(addresses[2]))
    near[-1] ^= 1
    leaves[bytes(near)] = tries.account(7, 10**19)
    root, proofs = tries.shaped(leaves, chance, levels)
    return root, [
        AccountToProve(addresses[0], 0b0011, proofs[keccak(addresses[0])], {3: slots[slot]}, {4: slots[hash_slot]}),
        AccountToProve(addresses[1], 0b1111, proofs[keccak(addresses[1])]),
        AccountToProve(addresses[2], 0b0011, proofs[bytes(near)]),
    ]


def test_no_other_value_of_any_control_byte_verifies(registry, trust, harness, recorded):
    root, accounts = _mainnet_shaped((16, 16, 16, 9, 2))
    trust(root)
    proof = encode(BLOCK, root, accounts)
    decoder.decode(proof, block_hash=lambda _: None, state_root=lambda _: root)
    operations = [operation for _, operation in recorded.operations]
    assert {0x00, 0x10, 0x11, SLOT, BLOCK_HASH} <= set(operations)
    # What to store is all that another value can change: of accounts, and of slots of the history contract.
    choices = {place for place, operation in recorded.operations if operation in {SLOT, BLOCK_HASH} or operation > 0x7F}
    assert len(choices) == 4
    assert len(recorded.loose) > 100
    assert harness.accepted(registry, [proof]) == [True]
    assert harness.accepted_bytes(registry, proof, sorted(recorded.loose - choices)) == 0
    # Of an account 7 other choices where there is a slot, else 6, as it can't be nothing. Of a slot one.
    assert harness.accepted_bytes(registry, proof, sorted(choices)) == 7 + 6 + 1 + 1


def test_no_flipped_bit_and_no_cut_of_a_generated_proof_verifies(registry, source, harness):
    root, accounts = _mainnet_shaped((16, 9, 2))
    header = tries.header(BLOCK, root)
    source.send("set", BLOCK, keccak(header))
    proof = encode(header, root, accounts, header_fields=[0, 11])
    assert harness.accepted(registry, [proof]) == [True]
    assert harness.accepted_flips(registry, proof) == 0
    assert not any(harness.accepted(registry, (proof[:size] for size in range(len(proof)))))


def test_a_flipped_bit_can_only_make_another_absent_slot_of_one(registry, trust, harness):
    """Whatever is absent where another was is absent, too: no root binds its name."""
    chance = random.Random(6)
    world = World(chance, BLOCK)
    world.accounts[ALICE] = (1, 2, EMPTY_CODE)
    world.storages[ALICE] = dict.fromkeys(range(12), 1)
    trust(world.close().root)
    asked = [0, 1, 100, 101, 102, 2**255, 2**255 + 1]
    proof = world.prove([(ALICE, 3, asked)], known=True)
    flipped = [
        proof[:place] + bytes([proof[place] ^ 1 << bit]) + proof[place + 1 :]
        for place in range(2, len(proof))
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
        assert len(slots) == len(asked)
        assert len(slots.keys() - set(asked)) == 1


def test_no_operation_left_out_or_sent_twice_verifies(registry, trust, harness, recorded):
    root, accounts = _mainnet_shaped()
    trust(root)
    proof = encode(BLOCK, root, accounts)
    decoder.decode(proof, block_hash=lambda _: None, state_root=lambda _: root)
    starts = sorted({*recorded.single, *(place for place, _ in recorded.operations)})
    pieces = [(start, end) for start in starts for end in [*starts, len(proof)] if end > start > 1]
    spoilt = [proof[:start] + proof[end:] for start, end in pieces]
    spoilt += [proof[:end] + proof[start:end] + proof[end:] for start, end in pieces if end - start < 700]
    assert len(spoilt) > 500
    assert not any(harness.accepted(registry, dict.fromkeys(spoilt)))


# --- By property ------------------------------------------------------------------------------------------------------

ALICE, BOB = b"\xa1" * 20, b"\xb0" * 20
ALICE_HEX = hex_data(ALICE)


@pytest.fixture(scope="module")
def world() -> World:
    """Alice with three slots, and nine accounts more."""
    chance = random.Random(9)
    world = World(chance, BLOCK)
    world.accounts[ALICE] = (5, 10**18, b"\x0c" * 32)
    world.storages[ALICE] = {1: 5, 2: 500, 3: 2**255}
    for _ in range(9):
        world.accounts[chance.randbytes(20)] = (1, 2, keccak(b""))
    return world.close()


def _branch_above(node: Sequence[bytes], own: int) -> bytes:
    """The operation of a node whose children are hashes, and of which one is the subtree on top."""
    return branch(
        1,
        *(
            own_child(place) if place == own else hash_child(place, child)
            for place, child in enumerate(node[:16])
            if child or place == own
        ),
    )


@pytest.mark.parametrize("depth", range(9))
def test_a_proof_cut_after_a_branch_does_not_prove_absence(accepts, depth):
    key = keccak(ALICE)
    root, proofs = tries.shaped({key: tries.account(1, 2)}, random.Random(1))
    nodes = [rlp.decode(node) for node in proofs[key]]
    places = [int(digit, 16) for digit in key.hex()]
    account = encode(BLOCK, root, [AccountToProve(ALICE, 3, proofs[key])])[2:]
    # As the encoder writes them, and with all children listed, which is another form where they are sixteen.
    above, listed = b"", b""
    for node, place in zip(nodes[:depth], places, strict=False):
        listed = _branch_above(node, place) + listed
        is_full = all(node[:16])
        above = (full_branch(node[:place] + node[place + 1 : 16]) if is_full else _branch_above(node, place)) + above
    assert account.endswith(above)
    # At an empty place; and, to see that the rest is right, the account itself.
    for branches in (above, listed):
        assert not accepts(root, b"\x70" + ALICE + bytes([depth]) + branches)
    if depth == len(nodes) - 1:
        assert accepts(root, account)
        assert not accepts(root, account.removesuffix(above) + listed)


@pytest.mark.parametrize("at", range(8))
def test_what_is_present_cannot_be_proven_absent(accepts, at):
    key = keccak(ALICE)
    leaf = tries.leaf(key, tries.account(1, 2))
    root = keccak(leaf)
    present = encode(BLOCK, root, [AccountToProve(ALICE, 3, [leaf])])[2:]
    head = (1 << 6 | 1).to_bytes(2)
    attempts = [
        b"\x70" + ALICE + b"\x00",
        b"\x71" + ALICE + b"\x00\x01" + key[:1] + bytes(32),
        b"\x74" + ALICE + head + key + b"\x01\x02",
        present + b"\x72" + ALICE,
        b"\x72" + ALICE,
        b"\x72" + ALICE + present,
        encode(BLOCK, root, [AccountToProve(BOB, 3, [leaf])])[2:] + b"\x72" + ALICE,
        encode(BLOCK, root, [AccountToProve(BOB, 3, [leaf])])[2:] + b"\x72" + BOB,
    ]
    assert accepts(root, present)
    assert not accepts(root, attempts[at])


def test_absent_keys_at_one_place_come_in_rising_order_and_once(accepts):
    leaf = tries.leaf(keccak(ALICE), tries.account(1, 2))
    root = keccak(leaf)
    absent = sorted((bytes([number]) * 20 for number in range(1, 5)), key=keccak)
    proof = encode(BLOCK, root, [AccountToProve(address, 3, [leaf]) for address in reversed(absent)])[2:]
    start = len(proof) - 3 * 21
    assert [proof[start + 1 + 21 * number :][:20] for number in range(3)] == absent[1:]
    same = [b"\x72" + address for address in absent[1:]]
    assert accepts(root, proof)
    assert accepts(root, proof[:start] + same[0] + same[2])
    assert not accepts(root, proof[:start] + same[1] + same[0] + same[2])
    assert not accepts(root, proof + same[2])
    assert not accepts(root, proof[:start] + b"\x72" + absent[0])
    # No account is absent as a slot is at a leaf of its own.
    assert not accepts(root, proof[:start] + b"\x73" + absent[1])


def test_slots_and_accounts_keep_to_their_own_tries(accepts, world, recorded):
    proof = world.prove([(ALICE, 3, [1, 2, 9])], known=True)[2:]
    assert accepts(world.root, proof)
    # Places are those of the whole calldata, which begins with the block's number. The account has code.
    starts = {operation: place - 2 for place, operation in reversed(recorded.operations)}
    opening, slots = proof[: starts[SLOT]], proof[starts[SLOT] : starts[0xCB]]
    closing, above = proof[starts[0xCB] : starts[0x10]], proof[starts[0x10] :]
    assert opening == b"\x30" + ALICE
    # The storage of another account, or of none.
    assert not accepts(world.root, proof.replace(ALICE, BOB))
    assert not accepts(world.root, slots + closing + above)
    assert not accepts(world.root, slots + opening + closing + above)
    # Opened twice, left open, closed twice, and not closed.
    assert not accepts(world.root, opening + proof)
    assert not accepts(world.root, proof + opening)
    assert not accepts(world.root, opening + slots + opening + closing + above)
    assert not accepts(world.root, opening + slots + closing + closing + above)
    assert not accepts(world.root, opening + slots + above)
    # An account among the slots.
    other = world.prove([(min(world.accounts), 3, [])], known=True)[2:]
    assert accepts(world.root, other)
    assert not accepts(world.root, opening + other + slots + closing + above)
    assert not accepts(world.root, other + proof)
    assert not accepts(world.root, proof + other)
    # An account that isn't there has no storage but the empty one.
    for absent in (b"\x78\x00", b"\x7a"):
        assert not accepts(world.root, opening.replace(ALICE, BOB) + slots + absent)


def test_a_proof_is_one_for_its_registry_and_its_block_only(chain, registry, source, world):
    source.send("set", BLOCK, world.block_hash)
    proof = world.prove([(ALICE, 3, [1])])
    stranger = Deployed(
        chain, "FactsRegistry", 1, Deployed(chain, "test/SettableBlockHashSource", 1).address, 8191, NO_CONTRACT
    )
    with pytest.raises(Reverted) as reverted:
        stranger.call_raw(proof)
    assert reverted.value.error == ("UnknownBlock", BLOCK)
    registry.send_raw(proof)
    other = tries.header(BLOCK + 1, keccak(b"another state"))
    source.send("set", BLOCK + 1, keccak(other))
    registry.send_raw(encode(other, keccak(b"another state")))
    known = world.prove([(ALICE, 3, [1])], known=True)
    registry.call_raw(known)
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(bytes([1, BLOCK + 1]) + known[2:])
    assert reverted.value.error == INVALID


@pytest.mark.parametrize(
    "proof",
    [b"", b"\x00", b"\x00\x00", b"\x01", b"\x01\x4d", b"\x02\x00\x4d", b"\x09" + bytes(8) + b"\x4d", b"\x37", b"\x7f"],
    ids=bytes.hex,
)
def test_what_names_a_block_is_written_in_one_way(registry, trust, proof):
    trust(tries.EMPTY_ROOT)
    operations = b"\x70" + ALICE + b"\x00"
    registry.call_raw(b"\x01\x4d" + operations)
    for tried in (proof, *([proof + operations] if proof != b"\x01\x4d" else [])):
        with pytest.raises(Reverted) as reverted:
            registry.call_raw(tried)
        assert reverted.value.error[0] in {"InvalidProof", "UnknownBlock"}


EMPTY_ROOT, EMPTY_CODE = tries.EMPTY_ROOT, tries.EMPTY_CODE_HASH
# Of an account with nonce 1, balance 2, and neither storage nor code, alone in its state. Depth 0.
_HEAD = (1 << 6 | 1).to_bytes(2)


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(b"\x80" + _HEAD + ALICE + b"\x01\x02", id="nothing to store"),
        pytest.param(b"\xc0" + _HEAD + ALICE + b"\x01\x02", id="odd parity"),
        pytest.param(b"\xc4" + _HEAD + ALICE + b"\x01\x02", id="storage root missing"),
        pytest.param(b"\xc4" + _HEAD + ALICE + b"\x01\x02" + EMPTY_ROOT, id="storage root implied"),
        pytest.param(b"\xc2" + _HEAD + ALICE + b"\x01\x02" + EMPTY_CODE, id="code hash implied"),
        pytest.param(b"\xc7" + _HEAD + ALICE + b"\x01\x02" + EMPTY_ROOT + EMPTY_CODE, id="both implied"),
        pytest.param(b"\xc8" + _HEAD + b"\x01\x02", id="no storage to close"),
        pytest.param(b"\xc1" + (2 << 6 | 1).to_bytes(2) + ALICE + b"\x00\x01\x02", id="nonce with a zero"),
        pytest.param(b"\xc1" + (1 << 6 | 2).to_bytes(2) + ALICE + b"\x01\x00\x02", id="balance with a zero"),
        pytest.param(b"\xc1" + (9 << 6 | 1).to_bytes(2) + ALICE + b"\x01" + bytes(8) + b"\x02", id="nonce of 9 bytes"),
        pytest.param(b"\xc1" + (1 << 6 | 33).to_bytes(2) + ALICE + b"\x01" + b"\x02" * 33, id="balance of 33 bytes"),
        pytest.param(b"\xc1" + (1 << 10 | 1 << 6 | 1).to_bytes(2) + ALICE + b"\x01\x02", id="deeper"),
        pytest.param(b"\xc1" + (63 << 10 | 1 << 6 | 1).to_bytes(2) + ALICE + b"\x01\x02", id="too deep"),
        pytest.param(b"\xc1" + _HEAD + BOB + b"\x01\x02", id="another address"),
        pytest.param(b"\xc1" + _HEAD + ALICE + b"\x01\x02\x00", id="a branch too many"),
        pytest.param(b"\xc1" + _HEAD + ALICE + b"\x01\x02\x36\x00", id="an empty extension"),
        pytest.param(b"\xc1" + _HEAD + ALICE + b"\x01\x02\x36\x01", id="an extension above the root"),
        pytest.param(b"\xc1" + _HEAD + ALICE + b"\x01\x02" * 2, id="more after it"),
        pytest.param((b"\xc1" + _HEAD + ALICE + b"\x01\x02") * 2, id="twice"),
        pytest.param(b"\x75" + BOB + _HEAD + keccak(ALICE) + b"\x01\x02" + EMPTY_CODE, id="another's code implied"),
        pytest.param(b"\x76" + BOB + _HEAD + keccak(ALICE) + b"\x01\x02" + EMPTY_ROOT, id="another's root implied"),
        pytest.param(b"\x73" + BOB + b"\x00", id="no such absence"),
        pytest.param(b"\x37", id="a header alone, without the header"),
        pytest.param(b"\x31" + (3).to_bytes(4), id="fields of a header, without it"),
    ],
)
def test_an_account_is_written_in_one_way(accepts, operation):
    root = keccak(tries.leaf(keccak(ALICE), tries.account(1, 2)))
    assert accepts(root, b"\xc1" + _HEAD + ALICE + b"\x01\x02")
    assert accepts(root, b"\x74" + BOB + _HEAD + keccak(ALICE) + b"\x01\x02")
    assert not accepts(root, operation)


_ROOT, _CODE = b"\x0a" * 32, b"\x0c" * 32
_OTHER = tries.account(1, 2, _ROOT, _CODE)


@pytest.mark.parametrize(
    ("root", "before", "operation", "rest"),
    [
        (EMPTY_ROOT, b"", 0x70, ALICE + b"\x00"),
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
def test_only_one_operation_does_it(accepts, root, before, operation, rest):
    for other in range(0x100):
        # The other accounts store something else.
        if other != operation and (operation < 0x80 or other < 0x80):
            assert not accepts(root, before + bytes([other]) + rest), hex(other)
    assert accepts(root, before + bytes([operation]) + rest)


def test_the_state_is_no_storage_to_close(accepts):
    account = b"\xc1" + _HEAD + ALICE + b"\x01\x02"
    state = keccak(tries.leaf(keccak(ALICE), tries.account(1, 2)))
    assert accepts(state, account)
    # An attacker with a root at hand could name it as the storage of the account that memory holds as owner: zero.
    above = keccak(tries.leaf(keccak(bytes(20)), tries.account(1, 2, state)))
    assert not accepts(above, account + b"\xc8" + _HEAD + b"\x01\x02")
    assert not accepts(EMPTY_ROOT, b"\x70" + ALICE + b"\x00" + b"\x78\x00")


_SLOT = b"\x40\x01\x05\x00\x01\x09"


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param(b"\x40\x02\x00\x05\x00\x01\x09", id="number with a zero"),
        pytest.param(b"\x40\x21" + bytes(32) + b"\x05\x00\x01\x09", id="number of 33 bytes"),
        pytest.param(b"\x40\x01\x05\x00\x02\x00\x09", id="value with a zero"),
        pytest.param(b"\x40\x01\x05\x00\x00", id="value of zero"),
        pytest.param(b"\x40\x01\x05\x00\x01\x00", id="value of a zero"),
        pytest.param(b"\x40\x01\x05\x00\x21" + bytes(32) + b"\x09", id="value of 33 bytes"),
        pytest.param(b"\x40\x00\x00\x01\x09", id="slot 0"),
        pytest.param(b"\x40\x01\x06\x00\x01\x09", id="another slot"),
        pytest.param(b"\x40\x01\x05\x00\x01\x08", id="another value"),
        pytest.param(b"\x40\x01\x05\x01\x01\x09", id="deeper"),
        pytest.param(b"\x40\x01\x05\x3f\x01\x09", id="too deep"),
        pytest.param(b"\x40\x01\x05\xff\x01\x09", id="as deep as a byte can tell"),
        pytest.param(_SLOT[:-1], id="cut"),
        pytest.param(_SLOT * 2, id="twice"),
        pytest.param(_SLOT + b"\x00", id="a branch that is cut"),
        pytest.param(_SLOT + b"\x36\x00", id="an empty extension"),
        pytest.param(b"\x43" + _SLOT[1:], id="a block hash of another contract than the history"),
        pytest.param(b"\x32\x01\x05\x00", id="zero at an empty place"),
        pytest.param(b"\x35\x01\x05\x00" + keccak((5).to_bytes(32)) + b"\x01\x09", id="zero at its own leaf"),
        pytest.param(b"\x35\x02\x00\x06\x00" + keccak((5).to_bytes(32)) + b"\x01\x09", id="zero slot with a zero"),
        pytest.param(b"\x35\x01\x06\x3f" + b"\x01" + b"\x01\x09", id="leaf too deep"),
        pytest.param(b"\x36\x01", id="an extension to nothing"),
        pytest.param(b"\x00" + bytes(480), id="a branch of nothing"),
        pytest.param(b"\x10\x02" + (b"\x00" + bytes(32)) + (b"\x01" + bytes(32)), id="a listed branch of nothing"),
        pytest.param(b"", id="nothing"),
        *(
            pytest.param(bytes([operation]) + _SLOT[1:], id=f"{operation:02x}")
            for operation in (*range(0x37, 0x40), 0x41, 0x42, *range(0x44, 0x70))
        ),
    ],
)
def test_a_slot_is_written_in_one_way(accepts, slots):
    storage = tries.leaf(keccak((5).to_bytes(32)), tries.encode(9))
    root = keccak(tries.leaf(keccak(ALICE), tries.account(1, 2, keccak(storage))))

    def under_alice(operations: bytes) -> bytes:
        return b"\x30" + ALICE + operations + b"\xc8" + _HEAD + b"\x01\x02"

    assert accepts(root, under_alice(_SLOT))
    assert accepts(root, under_alice(b"\x35\x01\x06\x00" + keccak((5).to_bytes(32)) + b"\x01\x09"))
    assert not accepts(root, under_alice(slots))
    # Outside of a storage it is no operation.
    for outside in {slots, _SLOT} - {b""}:
        assert not accepts(root, under_alice(_SLOT) + outside)
        assert not accepts(root, outside + under_alice(_SLOT))


# --- Block hashes -----------------------------------------------------------------------------------------------------

# Of the block before, which the history contract tells, and of one whose hash has fewer digits.
OLD = tries.header(BLOCK - 40, b"\x09" * 32, b"\x0a" * 32)
OLD_HASH = keccak(OLD)
SHORT_HASH = bytes(2) + b"\x77" * 30
OLD_SLOT, SHORT_SLOT, FACT_SLOT = (BLOCK - 40) % 8191, 8190, 0


def _history_world(owner: bytes = HISTORY_ADDRESS, **way: Any) -> World:
    """The history contract with three slots, and accounts beside it."""
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
    # Block hashes are no facts.
    for slot in (OLD_SLOT, SHORT_SLOT):
        assert registry.call("tryAccountStorageSlotValues", address, BLOCK, slot.to_bytes(32))[0] is False
    assert registry.logged(registry.send_raw(proof)) == []


def test_a_known_hash_is_trusted_as_one_that_the_source_vouches_for(registry, source, history):
    old = encode(OLD, b"\x09" * 32)
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(old)
    assert reverted.value.error == ("UnknownBlock", BLOCK - 40)
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
    # And no other header of that number is.
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(encode(tries.header(BLOCK - 40, b"\x08" * 32), b"\x08" * 32))
    assert reverted.value.error == ("HeaderMismatch", BLOCK - 40)


def test_vouching_tells_which_headers_would_be_accepted(registry, source, history):
    _vouch(source, history.header)
    assert registry.call("vouches", BLOCK, history.block_hash)
    # It is by number that the source vouches.
    assert not registry.call("vouches", BLOCK + 1, history.block_hash)
    assert not registry.call("vouches", BLOCK, OLD_HASH)
    # Nobody vouches for zero, which is what the source answers where it doesn't.
    assert not registry.call("vouches", BLOCK + 1, bytes(32))
    assert not registry.call("vouches", BLOCK, bytes(32))
    registry.send_raw(history.prove([Asked(HISTORY_ADDRESS, 0, [], [OLD_SLOT])]))
    # A header's own number counts, not this one.
    assert registry.call("vouches", 5, OLD_HASH)
    assert not registry.call("vouches", 5, bytes(32))


def test_only_the_history_contracts_slots_make_hashes_known(accepts):
    """The same storage, of an account that is another one, or that says it is the history contract."""
    world = _history_world(ALICE)
    as_fact = world.prove([(ALICE, 0, [OLD_SLOT])], known=True)[2:]
    assert accepts(world.root, as_fact)
    as_slot = b"\x40\x01" + bytes([OLD_SLOT])
    assert as_fact.count(as_slot) == 1
    as_hash = as_fact.replace(as_slot, b"\x43" + as_slot[1:])
    assert not accepts(world.root, as_hash)
    assert not accepts(world.root, as_hash.replace(ALICE, HISTORY_ADDRESS))
    # An account that isn't there has no such storage, whoever it is.
    slot_end = as_hash.index(b"\x43\x01") + 3 + 2 + 32
    for address in (ALICE, HISTORY_ADDRESS):
        for closing in (b"\x78\x00", b"\x7a"):
            assert not accepts(world.root, b"\x30" + address + as_hash[21:slot_end] + closing)


@pytest.mark.parametrize("window", [8191, 393168])
def test_only_slots_that_the_protocol_writes_make_hashes_known(chain, source, window):
    """Other slots name no blocks, whatever a genesis has put into them."""
    registry = Deployed(chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, window, NO_CONTRACT)
    assert registry.call("historyWindow") == window
    slots = [window - 1, window, 2**255 + 5]
    world = World(random.Random(1), BLOCK)
    world.accounts[HISTORY_ADDRESS] = (1, 0, b"\x0c" * 32)
    world.storages[HISTORY_ADDRESS] = {slot: int.from_bytes(OLD_HASH) for slot in slots}
    _vouch(source, world.close().header)
    for slot in slots:
        wanted = [world.to_prove(HISTORY_ADDRESS, 0, [], [slot])]
        proof = encode(world.header, world.root, wanted, history_window=2**256)
        if slot < window:
            assert encode(world.header, world.root, wanted, history_window=window) == proof
            facts = _decode(world, proof, window)
            assert facts.known_hashes == {OLD_HASH}
            registry.call_raw(proof)
            continue
        with pytest.raises(CannotPack, match=f"Slot {slot} is none of the {window}"):
            encode(world.header, world.root, wanted, history_window=window)
        with pytest.raises(InvalidPacked, match="no block hash in this slot"):
            _decode(world, proof, window)
        with pytest.raises(Reverted) as reverted:
            registry.call_raw(proof)
        assert reverted.value.error == INVALID


def _decode(world: World, proof: bytes, window: int) -> PackedFacts:
    return decoder.decode(
        proof, block_hash=lambda _: keccak(world.header), state_root=lambda _: None, history_window=window
    )


_HISTORY_LEAF = b"\x43\x01\x05\x00\x20" + OLD_HASH


@pytest.mark.parametrize(
    "owner",
    [
        bytes(20),
        (int.from_bytes(HISTORY_ADDRESS) - 1).to_bytes(20),
        (int.from_bytes(HISTORY_ADDRESS) + 1).to_bytes(20),
        b"\xff" * 20,
    ],
    ids=bytes.hex,
)
def test_no_other_contract_holds_block_hashes(accepts, owner):
    storage = tries.leaf(keccak((5).to_bytes(32)), tries.encode(OLD_HASH))
    for account, operation in ((owner, b"\x40"), (HISTORY_ADDRESS, b"\x40"), (HISTORY_ADDRESS, b"\x43")):
        root = keccak(tries.leaf(keccak(account), tries.account(1, 2, keccak(storage))))
        operations = b"\x30" + account + operation + _HISTORY_LEAF[1:] + b"\xc8" + _HEAD + b"\x01\x02"
        assert accepts(root, operations)
    root = keccak(tries.leaf(keccak(owner), tries.account(1, 2, keccak(storage))))
    assert not accepts(root, b"\x30" + owner + _HISTORY_LEAF + b"\xc8" + _HEAD + b"\x01\x02")


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param(b"\x43\x02\x00\x05\x00\x20" + OLD_HASH, id="number with a zero"),
        pytest.param(b"\x43\x21" + bytes(32) + b"\x05\x00\x20" + OLD_HASH, id="number of 33 bytes"),
        pytest.param(b"\x43\x00\x00\x20" + OLD_HASH, id="slot 0"),
        pytest.param(b"\x43\x01\x06\x00\x20" + OLD_HASH, id="another slot"),
        pytest.param(b"\x43\x01\x05\x00\x20" + keccak(OLD_HASH), id="another hash"),
        pytest.param(b"\x43\x01\x05\x00\x21\x00" + OLD_HASH, id="hash of 33 bytes"),
        pytest.param(b"\x43\x01\x05\x00\x20" + bytes(32), id="hash of zeros"),
        pytest.param(b"\x43\x01\x05\x00\x00", id="no hash"),
        pytest.param(b"\x43\x01\x05\x3f\x20" + OLD_HASH, id="too deep"),
        pytest.param(_HISTORY_LEAF[:-1], id="cut"),
        pytest.param(_HISTORY_LEAF * 2, id="twice"),
        pytest.param(_HISTORY_LEAF + b"\x40" + _HISTORY_LEAF[1:], id="also as a fact"),
        pytest.param(b"\x40" + _HISTORY_LEAF[1:] + _HISTORY_LEAF, id="a fact before"),
        pytest.param(_HISTORY_LEAF + b"\x37", id="a header's end in a storage"),
        pytest.param(_HISTORY_LEAF + b"\x38", id="a parent in a storage"),
        pytest.param(_HISTORY_LEAF + b"\x39", id="a parent's hash in a storage"),
        *(
            pytest.param(bytes([op]) + _HISTORY_LEAF[1:], id=f"{op:02x}")
            for op in (*range(0x37, 0x40), 0x41, 0x42, *range(0x44, 0x70))
        ),
    ],
)
def test_a_block_hash_is_written_in_one_way(accepts, slots):
    storage = tries.leaf(keccak((5).to_bytes(32)), tries.encode(OLD_HASH))
    root = keccak(tries.leaf(keccak(HISTORY_ADDRESS), tries.account(1, 2, keccak(storage))))

    def under_history(operations: bytes) -> bytes:
        return b"\x30" + HISTORY_ADDRESS + operations + b"\xc8" + _HEAD + b"\x01\x02"

    assert accepts(root, under_history(_HISTORY_LEAF))
    assert not accepts(root, under_history(slots))
    # Outside of a storage it is no operation.
    assert not accepts(root, slots)
    assert not accepts(root, under_history(_HISTORY_LEAF) + slots)


def test_what_an_untrusted_state_says_of_blocks_is_not_kept(chain, registry, source, history):
    proof = history.prove([Asked(HISTORY_ADDRESS, 0, [], [OLD_SLOT])], known=True)
    header = tries.header(BLOCK, keccak(b"another state"))
    _vouch(source, header)
    registry.send_raw(encode(header, keccak(b"another state")))
    transaction = {"from": SENDER, "to": registry.address, "data": hex_data(proof), "gas": hex(10**7)}
    assert chain.rpc("eth_sendTransactionSync", transaction)["status"] == "0x0"
    assert not registry.call("vouches", BLOCK - 40, OLD_HASH)


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
    """A block with Alice, and the three that come after it."""
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
    # Those in between are neither accumulated nor known.
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
    # From there on with another transaction, which needs the source no more.
    source.send("set", BLOCK + 3, bytes(32))
    registry.send_raw(encode(lineage.headers[2:], lineage.root))
    assert registry.call("stateRoot", BLOCK) == lineage.root


def test_headers_are_written_in_one_way(registry, source, lineage):
    first, second, third, _ = lineage.headers
    facts = b"\x31" + (0x801).to_bytes(4)
    _vouch(source, first)
    registry.call_raw(b"\x38".join(lineage.headers) + facts + b"\x37")
    registry.send_raw(first + b"\x37")
    number = bytes([1, BLOCK + 3])
    for spoilt in (
        # In another order, with one left out or sent twice, and with what is no header.
        b"\x38".join([second, first]) + b"\x37",
        b"\x38".join([first, third]) + b"\x37",
        b"\x38".join([first, first]) + b"\x37",
        b"\x38".join([first, second, second]) + b"\x37",
        b"\x38".join([first, second[:-1]]) + b"\x37",
        b"\x38".join([second, third]) + b"\x37",
        b"\x38".join([first, second[:200]]),
        first + second + b"\x37",
        first + b"\x38\x38" + second + b"\x37",
        first + b"\x38",
        first + b"\x38\x37",
        first + b"\x38\x39",
        first + b"\x38" + number + b"\x37",
        b"\x38" + first + b"\x37",
        # With fields before the last, and with other ends.
        first + facts + b"\x38" + second + b"\x37",
        first + b"\x38" + second,
        first + b"\x38" + second + b"\x38",
        first + b"\x38" + second + b"\x3a",
        first + b"\x38" + second + b"\x37\x37",
        first + b"\x38" + second + b"\x37\x39",
        first + b"\x39\x37",
        first + b"\x39\x39",
        first + b"\x39\x00",
        first + b"\x39" + second,
        first + b"\x39" + second + b"\x37",
        first + facts + b"\x39",
        first + b"\x39" + facts,
        second + b"\x39",
        # After a number there is no header to walk from, nor one whose parent it would be.
        number + b"\x37",
        number + b"\x39",
        number + b"\x38" + second + b"\x37",
        number + b"\x38" + second + b"\x39",
        number + facts + b"\x39",
    ):
        with pytest.raises(Reverted):
            registry.call_raw(spoilt)
        with pytest.raises(decoder.InvalidPacked):
            decoder.decode(
                spoilt,
                block_hash=lambda number: keccak(first) if number == BLOCK + 3 else None,
                state_root=lambda number: rlp.decode(first)[3] if number == BLOCK + 3 else None,
            )


@pytest.mark.parametrize("before", [0, 1], ids=["alone", "walked to"])
def test_the_first_block_of_all_has_no_parent_to_be_known(registry, source, before):
    genesis = tries.header(0, b"\x07" * 32)
    headers = [tries.header(1, b"\x08" * 32, keccak(genesis)), genesis][1 - before :]
    _vouch(source, headers[0])
    registry.call_raw(encode(headers, b"\x07" * 32))
    proof = encode_parent_hash(headers)
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(proof)
    assert reverted.value.error == INVALID
    with pytest.raises(decoder.InvalidPacked):
        decoder.decode(proof, block_hash=lambda _: keccak(headers[0]), state_root=lambda _: None)


def test_a_header_that_is_none_ends_the_walk_even_where_a_hash_leads_to_it(registry, source):
    """The walk meets what no chain has: a parent whose RLP is that of no header."""
    for broken in (b"\xf8" + bytes(56), tries.header(BLOCK, bytes(32)), tries.encode([b"\x01" * 32, b"\x02" * 600])):
        child = tries.header(BLOCK + 1, b"\x07" * 32, keccak(broken))
        _vouch(source, child)
        for end in (b"\x37", b"\x39"):
            with pytest.raises(Reverted) as reverted:
                registry.call_raw(child + b"\x38" + broken + end)
            assert reverted.value.error == ("InvalidHeader",)


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
    with pytest.raises(packed.CannotPack, match="not that of the parent"):
        encode([child, parent], b"\1" * 32)
    with pytest.raises(Reverted) as reverted:
        registry.call("proveTimestamp", parent, child, 0)
    assert reverted.value.error == ("HeaderMismatch", 7)


def test_the_first_block_has_no_parent_whatever_its_header_says(registry, source):
    alien = tries.header(15_000_000, b"\1" * 32)
    first = tries.header(0, b"\2" * 32, keccak(alien))
    source.send("set", 0, keccak(first))
    proof = encode_parent_hash([first])
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(proof)
    assert reverted.value.error == INVALID
    with pytest.raises(decoder.InvalidPacked, match="no parent"):
        decoder.decode(proof, block_hash=lambda _: keccak(first), state_root=lambda _: None)
