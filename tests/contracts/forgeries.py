"""Proofs of false facts that a registry without a certain check would accept, by an attacker who knows its memory
layout.

The forgeries of the first format were of one kind: a branch took more subtrees than the stack had, and the words below
the stack passed for the rest. So all pushed subtrees, with facts that nobody had seen, were forgotten, and a genuine
proof followed. `forget` does that with the present memory layout.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import rlp
from eth_utils.crypto import keccak

from chains.encoding import HISTORY_WINDOW
from chains.packed import HISTORY_ADDRESS, AccountToProve, encode
from tests.contracts import tries
from tests.contracts.conftest import BLOCK
from tests.contracts.operations import (
    absent_account,
    absent_slot,
    account,
    address_below,
    also_absent_account,
    also_absent_slot,
    block_hash,
    branch,
    closing_absent_account,
    closing_account,
    extension,
    hash_child,
    node_child,
    open_storage,
    own_child,
    slot,
    slot_below,
)
from tests.contracts.weakened import Removal
from tests.contracts.worlds import World
from tests.fixtures_folder import load_fixture, unhex

# --- Checks -----------------------------------------------------------------------------------------------------------

_REVERT = "revert InvalidProof();"

CHECKS: Mapping[str, Sequence[Removal]] = {
    # A taken subtree lies above the stack's bottom.
    "bottom": [Removal("SubtreeStack", "lt(lowest, bottom)", "0")],
    # A pushed subtree lies in the stack's zone.
    "zone": [
        Removal(
            "SubtreeStack",
            f"if (top - MemoryZones.STACK > MemoryZones.STACK_END - MemoryZones.STACK - SUBTREE) {_REVERT}",
        )
    ],
    # No part of a header stays in memory.
    "wiping": [Removal("PackedHeader", "calldatacopy(zone, calldatasize(), size)")],
    # The root of the only subtree.
    "only": [Removal("SubtreeStack", f"if (Subtree.unwrap(lowest) != stack.bottom) {_REVERT}")],
    # A branch contains all subtrees that it takes, and no others.
    "all children": [Removal("BranchWriter", "            if lt(child, behind) { refuse() }")],
    "own children": [Removal("BranchWriter", "if iszero(lt(child, behind)) { refuse() }")],
    # Slots are proven in an open storage, accounts outside of one, and an open storage is closed once.
    "storage": [
        Removal("StateProof", f"if (proof.isStorageOpen) {_REVERT}\n        proof.owner", "proof.owner"),
        Removal("StateProof", f"if (proof.isStorageOpen) {_REVERT}\n        return", "return"),
        Removal("StateProof", f"if (!proof.isStorageOpen) {_REVERT}\n        root", "root"),
        Removal("StateProof", f"if (!proof.isStorageOpen) {_REVERT}\n            uint256 slot", "uint256 slot"),
        Removal("StateProof", f"if (proof.isStorageOpen) {_REVERT}\n                owner", "owner"),
    ],
    # Extensions lead to branches.
    "reach": [Removal("PackedTrie", f"if (child.reach() != 0) {_REVERT}")],
    # Only slots that the protocol writes hold block hashes.
    "window": [Removal("StateProof", f"if (slot >= historyWindow) {_REVERT}")],
}

# Answers of functions by name and arguments.
Answers = Mapping[tuple[Any, ...], bytes]


@dataclass(frozen=True)
class Forgery:
    """A registry accepts `proof` only if it lacks all checks in `missing`.

    The block hash source vouches for `header`. `before` was sent earlier, and is true. `after` is a false proof that
    can follow. `lies` are the false answers then; none if the proof is only another form of a genuine one.
    """

    missing: frozenset[str]
    header: bytes
    proof: bytes
    lies: Answers
    before: Sequence[bytes] = ()
    after: Sequence[bytes] = ()
    refusal: str = "InvalidProof()"
    """The error by which a complete registry refuses `proof`."""


# --- Memory -----------------------------------------------------------------------------------------------------------

# Offsets of nodes, subtrees and a subtree's words, as in MemoryZones.sol and SubtreeStack.sol.
NODE, STACK = 0x400, 0x640
SUBTREE = 0xC0
REF, SIZE, KEY, DEPTH, REACH, LAST = range(0, SUBTREE, 0x20)
_CHILDREN = NODE + 3
_HASHED = 1 + 32

# First digits of the keys to forget. In memory they also are the prefix of a list of 31 bytes, where the key of a false
# subtree begins.
FORGOTTEN = "de"
FORGOTTEN_DEPTH = 3


def forget(dummy: Callable[[str, int], bytes], forged: Sequence[bytes]) -> bytes:
    """Return operations that push subtrees and leave the stack as empty as before.

    The first of `forged` pushes a subtree whose key begins with FORGOTTEN and 2, the next one with 3 and so on, all at
    FORGOTTEN_DEPTH. `dummy` does so for the first digits of a key and a depth. The stack must be empty, and the checks
    of the bottom and of the zone missing.
    """
    false = STACK - SUBTREE
    # A branch whose children leave a false subtree there: hashes, and nodes that move them into place.
    gap = false + SIZE - 1 - _CHILDREN - _HASHED
    children = [own_child(0), *(hash_child(place, bytes(32)) for place in range(1, 1 + gap // _HASHED))]
    children.append(node_child(len(children), _node(gap % _HASHED)))
    children.append(hash_child(len(children), bytes(32)))  # The size of a hash.
    children.append(node_child(len(children), _node(DEPTH - KEY - 1)))  # The key, up to the prefix of the next hash.
    children.append(hash_child(len(children), FORGOTTEN_DEPTH.to_bytes(32)))
    pushed = dummy(f"{FORGOTTEN}10", FORGOTTEN_DEPTH + 1) + branch(1, *children) + b"".join(forged)
    # The false subtree, the first branch and the forged ones become children of another branch, at the false one's
    # place.
    count = 2 + len(forged)
    return pushed + branch(count, *map(own_child, range(count)))


def _node(size: int) -> bytes:
    """Return a node of `size` bytes."""
    return bytes([0xC0 + size - 1]) + bytes(size - 1)


def _dummy_account(prefix: str, depth: int) -> bytes:
    return account(address_below(prefix), depth)


def _dummy_slot(prefix: str, depth: int) -> bytes:
    return slot(slot_below(prefix), depth, 1)


# --- Blocks -----------------------------------------------------------------------------------------------------------

RICH = 10**30
# A value that is too large for its node to be embedded.
VALUE = 2**200

THREE, TEN = address_below("3"), address_below("a")
LOST = address_below(f"{FORGOTTEN}3")
ONE_SLOT, TWO_SLOT, THREE_SLOT, TEN_SLOT = (slot_below(prefix) for prefix in "123a")


@cache
def _world() -> World:
    """Return accounts with a balance of 2: some right below the root, two below a branch and two below an extension."""
    world = World(random.Random(1), BLOCK)
    others = (address_below(prefix) for prefix in ("0", "61", "62", "701", "702"))
    for address in (THREE, TEN, LOST, *others):
        world.accounts[address] = (1, 2, tries.EMPTY_CODE_HASH)
    for address in (THREE, TEN):
        world.storages[address] = dict.fromkeys((ONE_SLOT, TWO_SLOT, THREE_SLOT, TEN_SLOT), VALUE)
    return world.close()


_NUMBER = bytes([1, BLOCK])


def _genuine(*asked: tuple[bytes, int, list[int]]) -> bytes:
    """Return the operations that prove facts of the world."""
    return _world().prove(asked, known=True).removeprefix(_NUMBER)


def _by_number(missing: set[str], operations: bytes, lies: Answers) -> Forgery:
    """Return a forgery about the world's block, which is accumulated."""
    world = _world()
    return Forgery(
        frozenset(missing), world.header, _NUMBER + operations, lies, before=[encode(world.header, world.root)]
    )


def _with(operations: bytes, after: bytes, inserted: bytes) -> bytes:
    """Return operations with others inserted after `after`, which occurs once."""
    assert operations.count(after) == 1
    return operations.replace(after, after + inserted)


def _balances(addresses: Iterable[bytes], number: int = BLOCK) -> Answers:
    return {("accountField", address, number, 1): RICH.to_bytes(32) for address in addresses}


def _no_balance(address: bytes) -> Answers:
    return {("accountField", address, BLOCK, 1): bytes(32)}


def _slot_is(owner: bytes, number: int, value: int) -> Answers:
    return {("accountStorageSlotValues", owner, BLOCK, number.to_bytes(32)): value.to_bytes(32)}


# A header that nobody mined.
FALSE_ROOT = b"\x66" * 32
FALSE_HEADER = tries.header(999_999, FALSE_ROOT, b"\x55" * 32)
FALSE_BLOCK: Answers = {
    ("vouches", 999_999, keccak(FALSE_HEADER)): True.to_bytes(32),
    ("stateRoot", 999_999): FALSE_ROOT,
}


def _history_world(slots: Mapping[int, int]) -> World:
    world = World(random.Random(2), BLOCK)
    world.accounts[HISTORY_ADDRESS] = (1, 0, b"\x0c" * 32)
    world.storages[HISTORY_ADDRESS] = dict(slots)
    return world.close()


# --- Below the bottom of the stack ------------------------------------------------------------------------------------


def _four_balances(header: bytes, genuine: bytes) -> Forgery:
    rich = [address_below(f"{FORGOTTEN}{place:x}") for place in range(2, 6)]
    forged = [account(address, FORGOTTEN_DEPTH, 7, RICH) for address in rich]
    number = int.from_bytes(rlp.decode(header)[8])
    operations = forget(_dummy_account, forged) + genuine
    return Forgery(frozenset({"bottom", "zone"}), header, header + operations, _balances(rich, number))


def four_balances_under_a_header() -> Forgery:
    """Forge four balances where the checks of the bottom and of the zone are missing.

    If only the check of the bottom is missing, the branch to forget can't be pushed: `push` itself notices that it
    would lie below the stack's zone. Then only absences can be forged, see below.
    """
    return _four_balances(_world().header, _genuine((THREE, 3, [])))


def four_balances_under_a_header_of_mainnet() -> Forgery:
    fixture = load_fixture("mainnet_17463226_388c818c_depth8.json")
    header = unhex(fixture["headerRlp"])
    nodes = [unhex(node) for node in fixture["account"]["proof"]]
    wanted = [AccountToProve(unhex(fixture["account"]["address"]), 3, nodes)]
    return _four_balances(header, encode(header, unhex(fixture["stateRoot"]), wanted).removeprefix(header))


def a_slot_and_the_absence_of_an_account_by_number() -> Forgery:
    """The account exists, and the slot's owner doesn't. True facts about them can't be proven any more."""
    owner = address_below(f"{FORGOTTEN}2")
    forged = [
        open_storage(owner) + slot(5, 0, 99) + closing_account(FORGOTTEN_DEPTH),
        absent_account(LOST, FORGOTTEN_DEPTH),
    ]
    operations = forget(_dummy_account, forged) + _genuine((THREE, 3, []))
    return _by_number({"bottom", "zone"}, operations, {**_slot_is(owner, 5, 99), **_no_balance(LOST)})


def a_block_that_nobody_mined() -> Forgery:
    """Forge a block's hash in a slot of the history contract, whose proof is genuine otherwise."""
    world = _history_world({1: VALUE, 2: VALUE})
    genuine = world.prove([(HISTORY_ADDRESS, 0, [1])])
    forged = block_hash(slot_below(f"{FORGOTTEN}2"), FORGOTTEN_DEPTH, keccak(FALSE_HEADER))
    proof = _with(genuine, open_storage(HISTORY_ADDRESS), forget(_dummy_slot, [forged]))
    accumulate = encode(FALSE_HEADER, FALSE_ROOT)
    return Forgery(frozenset({"bottom", "zone"}), world.header, proof, FALSE_BLOCK, after=[accumulate])


def an_absence_at_what_a_header_left_in_memory() -> Forgery:
    """The 60 kB of extra data look like subtrees at every offset. The one below the stack suffices. Above the
    bottom none works, because every word there was pushed.
    """
    fields = rlp.decode(_world().header)
    fields[12] = bytes(60_000)
    start = tries.encode(fields).index(fields[12], 400)
    subtree = bytearray(SUBTREE)
    subtree[REACH : REACH + 32] = (64).to_bytes(32)
    # Headers are hashed from NODE on.
    within = (NODE + start - STACK) % SUBTREE
    fields[12] = (subtree * (60_000 // SUBTREE + 2))[within:][:60_000]
    header = tries.encode(fields)
    proof = header + also_absent_account(THREE) + _genuine((TEN, 3, []))
    return Forgery(frozenset({"bottom", "wiping"}), header, proof, _no_balance(THREE))


# --- Across the bottom of an open storage -----------------------------------------------------------------------------


def an_absent_slot_at_a_subtree_of_the_state() -> Forgery:
    """The slot has a value. The state trie has an account's leaf in its place."""
    operations = _genuine((THREE, 3, []), (TEN, 3, [ONE_SLOT]))
    forged = _with(operations, open_storage(TEN), also_absent_slot(THREE_SLOT))
    return _by_number({"bottom"}, forged, _slot_is(TEN, THREE_SLOT, 0))


def a_branch_of_the_state_in_a_storage() -> Forgery:
    """This is only another form: the storage returns what it takes, and the state's root binds it. Taking several
    subtrees of the state leaves a storage whose root isn't at its bottom.
    """
    address = address_below("61")
    leaf = account(address, 2)
    return _across(leaf, _genuine((address, 3, []), (TEN, 3, [ONE_SLOT])))


def an_extension_of_the_state_in_a_storage() -> Forgery:
    """Forge like `a_branch_of_the_state_in_a_storage`, with an extension."""
    address = address_below("701")
    operations = _genuine((address, 3, []), (TEN, 3, [ONE_SLOT]))
    below, found, _ = operations.partition(extension(1) + open_storage(TEN))
    assert found
    return _across(below, operations)


def _across(before: bytes, operations: bytes) -> Forgery:
    """Move the operations between `before` and the storage behind the storage's opening."""
    between, opening, following = operations.removeprefix(before).partition(open_storage(TEN))
    assert between
    assert operations == before + between + opening + following
    return _by_number({"bottom"}, before + opening + between + following, {})


# --- Several subtrees instead of one ----------------------------------------------------------------------------------

_RICH = [bytes([number]) * 20 for number in range(1, 5)]
_RICH_ACCOUNTS = b"".join(account(address, 9, 7, RICH) for address in _RICH)


def balances_below_the_root() -> Forgery:
    return _by_number({"only"}, _RICH_ACCOUNTS + _genuine((THREE, 3, [])), _balances(_RICH))


def a_slot_below_the_root_of_its_storage() -> Forgery:
    forged = _with(_genuine((TEN, 3, [ONE_SLOT])), open_storage(TEN), slot(7, 0, 99))
    return _by_number({"only"}, forged, _slot_is(TEN, 7, 99))


def balances_that_a_branch_takes_and_leaves_out() -> Forgery:
    address = address_below("0")
    genuine = _genuine((address, 3, []))
    before = account(address, 1) + branch(1)[:1]
    assert genuine.startswith(before)
    above = branch(1 + len(_RICH))[:1] + genuine.removeprefix(before)
    operations = account(address, 1) + _RICH_ACCOUNTS + above
    return _by_number({"all children"}, operations, _balances(_RICH))


def a_subtree_that_was_popped_but_is_still_in_memory() -> Forgery:
    """This is only another form: a hash from memory proves no more than one from calldata. With two equal storages,
    the first leaves a slot's leaf above the stack, exactly where the second would have its next one.
    """
    operations = _genuine((THREE, 3, [ONE_SLOT, TWO_SLOT, THREE_SLOT]), (TEN, 3, [ONE_SLOT]))
    leaf = tries.leaf_below(keccak(THREE_SLOT.to_bytes(32)), 1, tries.encode(VALUE))
    sent = hash_child(3, keccak(leaf))
    assert operations.count(sent) == 1
    return _by_number({"own children"}, operations.replace(sent, own_child(3)), {})


# --- Open and missing storages ----------------------------------------------------------------------------------------


def an_absent_slot_outside_of_its_storage() -> Forgery:
    """The slot has a value. The state trie has its owner's leaf in its place."""
    operations = _genuine((TEN, 0, [ONE_SLOT]))
    forged = _with(operations, closing_account(1), also_absent_slot(TEN_SLOT))
    return _by_number({"storage"}, forged, _slot_is(TEN, TEN_SLOT, 0))


def an_absent_account_in_a_storage() -> Forgery:
    """The account exists. The storage trie has a slot's leaf in its place."""
    operations = _genuine((TEN, 3, [THREE_SLOT]))
    forged = _with(operations, slot(THREE_SLOT, 1, VALUE), also_absent_account(THREE))
    return _by_number({"storage"}, forged, _no_balance(THREE))


def an_absence_that_is_forgotten_with_a_storage_that_nobody_opened() -> Forgery:
    """The state's stack is closed like a storage. Before any storage is opened, its owner is the zero address,
    which is absent indeed.
    """
    genuine = _genuine((bytes(20), 3, []))
    absent = absent_account(bytes(20), 1)
    assert genuine.startswith(absent)
    forged = absent_account(THREE, 0) + closing_absent_account(1) + genuine.removeprefix(absent)
    return _by_number({"storage"}, forged, _no_balance(THREE))


def balances_below_a_storage_that_stays_open() -> Forgery:
    """The storage's root is the state's. Neither has a node in the slot's place."""
    genuine = _genuine((bytes(20), 3, []))
    absent = absent_account(bytes(20), 1)
    assert genuine.startswith(absent)
    state = absent_slot(slot_below(keccak(bytes(20)).hex()[0]), 1) + genuine.removeprefix(absent)
    return _by_number({"storage"}, _RICH_ACCOUNTS + open_storage(TEN) + state, _balances(_RICH))


def a_storage_that_is_opened_twice() -> Forgery:
    """This is only another form: the second storage begins above the first, which nobody can close any more."""
    operations = _genuine((TEN, 3, [ONE_SLOT]))
    return _by_number({"storage"}, open_storage(THREE) + operations, {})


# --- Others -----------------------------------------------------------------------------------------------------------


def an_extension_that_leads_to_a_leaf() -> Forgery:
    """No trie has the root."""
    node = tries.extension("3", tries.reference(tries.leaf_below(keccak(THREE), 1, tries.account(1, 2))))
    header = tries.header(BLOCK, keccak(node))
    proof = header + account(THREE, 1) + extension(1)
    return Forgery(frozenset({"reach"}), header, proof, {("accountField", THREE, BLOCK, 1): (2).to_bytes(32)})


def a_hash_in_a_slot_that_the_protocol_does_not_write() -> Forgery:
    """The slot has the value, but the chain's maker has put it there."""
    world = _history_world({1: VALUE, HISTORY_WINDOW: int.from_bytes(keccak(FALSE_HEADER))})
    wanted = [world.to_prove(HISTORY_ADDRESS, 0, [], [HISTORY_WINDOW])]
    proof = encode(world.header, world.root, wanted, history_window=2**256)
    accumulate = encode(FALSE_HEADER, FALSE_ROOT)
    return Forgery(frozenset({"window"}), world.header, proof, FALSE_BLOCK, after=[accumulate])


OF_MAINNET = [four_balances_under_a_header_of_mainnet]

FORGERIES = [
    four_balances_under_a_header,
    a_slot_and_the_absence_of_an_account_by_number,
    a_block_that_nobody_mined,
    an_absence_at_what_a_header_left_in_memory,
    an_absent_slot_at_a_subtree_of_the_state,
    a_branch_of_the_state_in_a_storage,
    an_extension_of_the_state_in_a_storage,
    balances_below_the_root,
    a_slot_below_the_root_of_its_storage,
    balances_that_a_branch_takes_and_leaves_out,
    a_subtree_that_was_popped_but_is_still_in_memory,
    an_absent_slot_outside_of_its_storage,
    an_absent_account_in_a_storage,
    an_absence_that_is_forgotten_with_a_storage_that_nobody_opened,
    balances_below_a_storage_that_stays_open,
    a_storage_that_is_opened_twice,
    an_extension_that_leads_to_a_leaf,
    a_hash_in_a_slot_that_the_protocol_does_not_write,
]
