"""The encoder and the Python verifier. tests/contracts compares both with the contract and py-trie."""

import random
from contextlib import suppress

import pytest
import rlp
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from chains.tries.packed import HISTORY_ADDRESS, AccountToProve, CannotPack, encode
from tests.contracts import decoder, tries, worlds

ALICE = b"\xa1" * 20
LEAF = tries.leaf(keccak(ALICE), tries.account(1, 2))
ROOT = keccak(LEAF)
ACCOUNT = AccountToProve(ALICE, 0b0011, [LEAF])
HEADER = tries.header(5, ROOT)


def under(root: bytes, calldata: bytes) -> decoder.PackedFacts:
    return decoder.decode(calldata, block_hash=lambda _: keccak(HEADER), state_root=lambda _: root)


def test_one_account_takes_its_bytes_and_no_more():
    # The bytes are: block 5 by number; operation and account head (depth 0, sizes 1 and 1), address, nonce, balance.
    assert encode(5, ROOT, [ACCOUNT]).hex() == "0105" + "c1" + "0041" + ALICE.hex() + "01" + "02"


def test_a_branch_takes_the_hashes_of_the_others_and_their_places_where_some_are_empty():
    """The proof has both forms of branches: one of sixteen hashes, below one of three children."""
    key = keccak(ALICE)
    root, proofs = tries.shaped({key: tries.account(1, 2)}, random.Random(1), (3, 16))
    calldata = encode(5, root, [AccountToProve(ALICE, 0b0011, proofs[key])])
    above, below = (rlp.decode(node)[:16] for node in proofs[key][:2])
    own, own_below = key[0] >> 4, key[0] & 15
    others = [child for index, child in enumerate(below) if index != own_below]
    full = b"\x00" + b"".join(others)
    hashes = {index: child for index, child in enumerate(above) if child and index != own}
    listed = b"\x10" + sum(1 << index for index in hashes).to_bytes(2) + b"".join(hashes.values())
    leaf = b"\xc1" + (2 << 10 | 1 << 6 | 1).to_bytes(2) + ALICE + b"\x01\x02"
    assert len(others) == 15
    assert calldata == b"\x01\x05" + leaf + full + listed
    assert set(under(root, calldata).accounts) == {ALICE}


def test_subtrees_meet_in_a_branch_and_an_extension_leads_to_another():
    """The proven slots are 40364 and 3. Slot 40364 shares eight nibbles with slot 105566, whose leaf has 31 bytes."""
    keys = {slot: keccak(slot.to_bytes(32)).hex() for slot in (40364, 105566, 3)}
    assert [key[:9] for key in keys.values()] == ["f291631cd", "f291631c0", "c2575a0e9"]
    storage = tries.build({bytes.fromhex(key): tries.encode(1) for key in keys.values()})
    state = tries.leaf(keccak(ALICE), tries.account(1, 2, storage.root_hash))
    slots = {slot: tries.proof(storage, bytes.fromhex(keys[slot])) for slot in (40364, 3)}
    sibling = tries.encode([bytes.fromhex("3" + keys[105566][9:]), b"\x01"])
    assert len(sibling) == 31
    calldata = encode(5, keccak(state), [AccountToProve(ALICE, 0, [state], slots)])
    assert calldata == b"\x01\x05" + b"".join(
        [
            b"\x30" + ALICE,
            bytes.fromhex("40 01 03 01 01 01"),  # slot 3 at depth 1, value 1
            bytes.fromhex("40 02 9dac 09 01 01"),
            bytes.fromhex("20 0000 0001") + sibling,  # two children: the node at place 0, and the slot
            bytes.fromhex("36 07"),
            bytes.fromhex("11 0000"),  # both slots
            bytes.fromhex("89 0041 01 02"),
        ]
    )


def test_header_fields_come_with_even_parity():
    assert encode(HEADER, ROOT, header_fields=[0, 11]) == HEADER + bytes.fromhex("31 00000801 37")
    assert encode(HEADER, ROOT, header_fields=[0]) == HEADER + bytes.fromhex("31 80000001 37")
    # The state root and the number need no request, because each header stores them.
    assert encode(HEADER, ROOT, header_fields=[3, 8]) == HEADER + b"\x37"


@pytest.mark.parametrize(
    ("slots", "history", "exists", "why"),
    [
        pytest.param({5}, {5}, True, "both as a fact and as a block hash", id="twice"),
        pytest.param(set(), {6}, True, "Slot 6 .* holds no block hash", id="empty slot"),
        pytest.param(set(), {5}, False, "Slot 5 .* holds no block hash", id="absent contract"),
    ],
)
def test_inconsistent_block_hashes_are_not_packed(slots, history, exists, why):
    storage = tries.leaf(keccak((5).to_bytes(32)), tries.encode(b"\x55" * 32))
    owner = HISTORY_ADDRESS if exists else ALICE
    state = tries.leaf(keccak(owner), tries.account(1, 0, keccak(storage)))
    proofs = [{slot: [storage] for slot in slots_asked} for slots_asked in (slots, history)]
    with pytest.raises(CannotPack, match=why):
        encode(5, keccak(state), [AccountToProve(HISTORY_ADDRESS, 0, [state], *proofs)])


def read_in(world: worlds.World, calldata: bytes, *, known: bool) -> decoder.PackedFacts:
    return decoder.decode(
        calldata,
        block_hash=lambda number: world.block_hash if number == world.number else None,
        state_root=lambda number: world.root if known and number == world.number else None,
    )


@pytest.mark.long
@settings(derandomize=True, max_examples=40, deadline=None, database=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 1, 2, 3, 20, 60]), st.sampled_from([1, 6, 20]), st.booleans())
def test_requested_facts_are_packed_in_one_way_and_no_flipped_bit_proves_another_fact(seed, size, most, known):
    chance = random.Random(seed)
    world = worlds.random_world(chance, chance.choice([0, 1, 255, 256, chance.randrange(2**64)]), size)
    requested = world.ask(most)
    packed = world.prove(requested, known=known)
    assert world.prove(chance.sample(requested, len(requested)), known=known) == packed
    facts = read_in(world, packed, known=known)
    assert world.agrees(facts)
    assert {address: {*account.slots, *account.history} for address, account in facts.accounts.items()} == {
        each.address: {*each.slots, *each.history} for each in requested
    }
    for _ in range(20):
        offset, bit = chance.randrange(len(packed)), chance.randrange(8)
        flipped = packed[:offset] + bytes([packed[offset] ^ 1 << bit]) + packed[offset + 1 :]
        # A flipped bit may change which facts are stored, or replace an absent account by another absent one.
        with suppress(decoder.InvalidPacked):
            assert world.agrees(read_in(world, flipped, known=known))


@pytest.mark.parametrize(
    ("block", "accounts", "fields", "why"),
    [
        pytest.param(5, [], [], "nothing to prove", id="nothing"),
        pytest.param(5, [ACCOUNT], [0], "together with the header", id="header fields without header"),
        pytest.param(2**64, [ACCOUNT], [], "64 bits", id="block number"),
        pytest.param(-1, [ACCOUNT], [], "64 bits", id="negative block number"),
        pytest.param(HEADER, [], [31], "no field 31", id="header field"),
        pytest.param([], [], [], "no header", id="no headers"),
        pytest.param([HEADER, HEADER], [], [], "not belong to the parent", id="headers that are no chain"),
        pytest.param(5, [AccountToProve(ALICE, 3, [LEAF], {}, {1: []})], [], "not the history", id="history of others"),
    ],
)
def test_contradictory_requests_are_not_packed(block, accounts, fields, why):
    with pytest.raises(CannotPack, match=why):
        encode(block, ROOT, accounts, header_fields=fields)


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(b"\x81", id="not RLP"),
        pytest.param(b"\xb8\x38" + bytes(56), id="no list"),
        pytest.param(tries.encode([b"\x40" + keccak(ALICE), tries.account()]), id="no such node"),
        pytest.param(tries.encode([[b"\x20"], tries.account()]), id="path in a list"),
        pytest.param(tries.encode([b"\x20" + keccak(ALICE), [b"\x01" * 40]]), id="value in a list"),
        pytest.param(tries.leaf(keccak(ALICE), b"\x81"), id="account not RLP"),
        pytest.param(tries.leaf(keccak(ALICE), tries.encode([b"", b"", b""])), id="account of three fields"),
        pytest.param(tries.leaf(keccak(ALICE), tries.encode([[], b"", b"", b""])), id="account of lists"),
    ],
)
def test_malformed_nodes_are_not_packed(node):
    with pytest.raises(CannotPack):
        encode(5, keccak(node), [AccountToProve(ALICE, 3, [node])])
