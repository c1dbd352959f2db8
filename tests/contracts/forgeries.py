"""Proofs of false facts that a registry would accept if it lacked certain checks. The attacker knows its memory layout.

Forgeries of the first format worked in one way. A branch took more subtrees than the stack had, so words below the
stack counted as subtrees. The registry forgot the pushed subtrees, whose facts nothing had verified, and a genuine
proof followed. `forget` does this with the present memory layout.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import rlp
from eth_utils.crypto import keccak

from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import HISTORY_ADDRESS, AccountToProve, encode
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
    # A branch takes only subtrees above the stack's bottom.
    "bottom": [Removal("SubtreeStack", "lt(lowest, bottom)", "0")],
    # Subtrees are pushed only within the stack's zone of memory.
    "zone": [
        Removal(
            "SubtreeStack",
            f"if (top - MemoryZones.STACK > MemoryZones.STACK_END - MemoryZones.STACK - SUBTREE) {_REVERT}",
        )
    ],
    # Memory is wiped of a header after its use.
    "wiping": [Removal("PackedHeader", "calldatacopy(zone, calldatasize(), size)")],
    # A root is that of the only subtree on the stack.
    "only": [Removal("SubtreeStack", f"if (Subtree.unwrap(lowest) != stack.bottom) {_REVERT}")],
    # Slots are proven in an open storage, and accounts outside of one. An open storage is closed once.
    "storage": [
        Removal("StateProof", f"if (proof.isStorageOpen) {_REVERT}\n        proof.owner", "proof.owner"),
        Removal("StateProof", f"if (proof.isStorageOpen) {_REVERT}\n        return", "return"),
        Removal("StateProof", f"if (!proof.isStorageOpen) {_REVERT}\n        root", "root"),
        Removal("StateProof", f"if (!proof.isStorageOpen) {_REVERT}\n            uint256 slot", "uint256 slot"),
        Removal("StateProof", f"if (proof.isStorageOpen) {_REVERT}\n                owner", "owner"),
    ],
    # An extension leads to a branch.
    "reach": [Removal("PackedTrie", f"if (child.reach() != 0) {_REVERT}")],
    # Only slots that the protocol writes contain block hashes.
    "window": [Removal("StateProof", f"if (slot >= historyWindow) {_REVERT}")],
}

# Answers of the registry's functions, by name and arguments.
Answers = Mapping[tuple[Any, ...], bytes]


@dataclass(frozen=True)
class Forgery:
    """A proof that a registry accepts only if it lacks all checks in `missing`.

    The block hash source vouches for `header`. The true proofs in `before` are sent first. The false proofs in `after`
    can follow. `lies` are the false answers afterwards. They are empty if `proof` is only another form of a genuine
    proof.
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

# Offsets of nodes and subtrees, and of words in a subtree (MemoryZones.sol, SubtreeStack.sol).
NODE, STACK = 0x400, 0x640
SUBTREE = 0xC0
REF, SIZE, KEY, DEPTH, REACH, LAST = range(0, SUBTREE, 0x20)
_CHILDREN = NODE + 3
_HASHED = 1 + 32

# First digits of the keys to forget. In memory these digits are also the RLP prefix of a 31-byte list, at which the key
# of a false subtree begins.
FORGOTTEN = "de"
FORGOTTEN_DEPTH = 3


def forget(dummy: Callable[[str, int], bytes], forged: Sequence[bytes]) -> bytes:
    """Return operations that push the `forged` subtrees and make the stack empty again.

    The keys of `forged` begin with FORGOTTEN and then 2, 3 and so on, all at FORGOTTEN_DEPTH. `dummy` returns an
    operation that pushes a subtree, given the first digits of its key and its depth. The stack must be empty before.
    The registry must lack the checks "bottom" and "zone".
    """
    false = STACK - SUBTREE
    # The children of this branch leave a false subtree in memory below the stack. Embedded nodes move the hashes into
    # place.
    gap = false + SIZE - 1 - _CHILDREN - _HASHED
    children = [own_child(0), *(hash_child(index, bytes(32)) for index in range(1, 1 + gap // _HASHED))]
    children.append(node_child(len(children), _node(gap % _HASHED)))
    children.append(hash_child(len(children), bytes(32)))  # the false subtree's size is a hash
    children.append(
        node_child(len(children), _node(DEPTH - KEY - 1))
    )  # the false subtree's key ends at the prefix of the next hash
    children.append(hash_child(len(children), FORGOTTEN_DEPTH.to_bytes(32)))
    pushed = dummy(f"{FORGOTTEN}10", FORGOTTEN_DEPTH + 1) + branch(1, *children) + b"".join(forged)
    # Another branch takes the false subtree, the first branch and the forged subtrees as children. Its own subtree
    # replaces the false one.
    count = 2 + len(forged)
    return pushed + branch(count, *map(own_child, range(count)))


def _node(size: int) -> bytes:
    """Return an embedded node of `size` bytes."""
    return bytes([0xC0 + size - 1]) + bytes(size - 1)


def _dummy_account(prefix: str, depth: int) -> bytes:
    return account(address_below(prefix), depth)


def _dummy_slot(prefix: str, depth: int) -> bytes:
    return slot(slot_below(prefix), depth, 1)


# --- Blocks -----------------------------------------------------------------------------------------------------------

RICH = 10**30
# This value is too large for its leaf to be embedded.
VALUE = 2**200

THREE, TEN = address_below("3"), address_below("a")
LOST = address_below(f"{FORGOTTEN}3")
ONE_SLOT, TWO_SLOT, THREE_SLOT, TEN_SLOT = (slot_below(prefix) for prefix in "123a")


@cache
def _world() -> World:
    """Return a world of accounts with a balance of 2: some right below the root, two below a branch, two below an
    extension.
    """
    world = World(random.Random(1), BLOCK)
    others = (address_below(prefix) for prefix in ("0", "61", "62", "701", "702"))
    for address in (THREE, TEN, LOST, *others):
        world.accounts[address] = (1, 2, tries.EMPTY_CODE_HASH)
    for address in (THREE, TEN):
        world.storages[address] = dict.fromkeys((ONE_SLOT, TWO_SLOT, THREE_SLOT, TEN_SLOT), VALUE)
    return world.close()


_NUMBER = bytes([1, BLOCK])


def _genuine(*requests: tuple[bytes, int, list[int]]) -> bytes:
    """Return the operations that prove facts of `_world`."""
    return _world().prove(requests, known=True).removeprefix(_NUMBER)


def _by_number(missing: set[str], operations: bytes, lies: Answers) -> Forgery:
    """Return a forgery about the block of `_world`, which is already accumulated."""
    world = _world()
    return Forgery(
        frozenset(missing), world.header, _NUMBER + operations, lies, before=[encode(world.header, world.root)]
    )


def _with(operations: bytes, after: bytes, inserted: bytes) -> bytes:
    """Return operations with `inserted` behind `after`, which must occur once."""
    assert operations.count(after) == 1
    return operations.replace(after, after + inserted)


def _balances(addresses: Iterable[bytes], number: int = BLOCK) -> Answers:
    return {("accountField", address, number, 1): RICH.to_bytes(32) for address in addresses}


def _no_balance(address: bytes) -> Answers:
    return {("accountField", address, BLOCK, 1): bytes(32)}


def _slot_is(owner: bytes, number: int, value: int) -> Answers:
    return {("accountStorageSlotValues", owner, BLOCK, number.to_bytes(32)): value.to_bytes(32)}


# The header of a block that nobody mined.
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
    rich = [address_below(f"{FORGOTTEN}{digit:x}") for digit in range(2, 6)]
    forged = [account(address, FORGOTTEN_DEPTH, 7, RICH) for address in rich]
    number = int.from_bytes(rlp.decode(header)[8])
    operations = forget(_dummy_account, forged) + genuine
    return Forgery(frozenset({"bottom", "zone"}), header, header + operations, _balances(rich, number))


def four_balances_under_a_header() -> Forgery:
    """Forge four balances without the checks "bottom" and "zone".

    If only "bottom" is missing, the branch can't be pushed, because `push` notices that it would lie below the stack's
    zone. Only absences can be forged then, as in `an_absence_at_what_a_header_left_in_memory`.
    """
    return _four_balances(_world().header, _genuine((THREE, 3, [])))


def four_balances_under_a_header_of_mainnet() -> Forgery:
    fixture = load_fixture("mainnet_21925176_4838b106_depth9.json")
    header = unhex(fixture["headerRlp"])
    nodes = [unhex(node) for node in fixture["account"]["proof"]]
    accounts = [AccountToProve(unhex(fixture["account"]["address"]), 3, nodes)]
    return _four_balances(header, encode(header, unhex(fixture["stateRoot"]), accounts).removeprefix(header))


def a_slot_and_the_absence_of_an_account_by_number() -> Forgery:
    """Forge a slot of an absent account, and the absence of an account. True facts about both can't be proven
    afterwards.
    """
    owner = address_below(f"{FORGOTTEN}2")
    forged = [
        open_storage(owner) + slot(5, 0, 99) + closing_account(FORGOTTEN_DEPTH),
        absent_account(LOST, FORGOTTEN_DEPTH),
    ]
    operations = forget(_dummy_account, forged) + _genuine((THREE, 3, []))
    return _by_number({"bottom", "zone"}, operations, {**_slot_is(owner, 5, 99), **_no_balance(LOST)})


def a_block_that_nobody_mined() -> Forgery:
    """Forge a block hash in a slot of the history contract, within a genuine proof of the contract's account."""
    world = _history_world({1: VALUE, 2: VALUE})
    genuine = world.prove([(HISTORY_ADDRESS, 0, [1])])
    forged = block_hash(slot_below(f"{FORGOTTEN}2"), FORGOTTEN_DEPTH, keccak(FALSE_HEADER))
    proof = _with(genuine, open_storage(HISTORY_ADDRESS), forget(_dummy_slot, [forged]))
    accumulate = encode(FALSE_HEADER, FALSE_ROOT)
    return Forgery(frozenset({"bottom", "zone"}), world.header, proof, FALSE_BLOCK, after=[accumulate])


def an_absence_at_what_a_header_left_in_memory() -> Forgery:
    """Forge an absence at a false subtree from a header's extra data.

    The 60 kB of extra data look like subtrees at every offset. The false subtree must lie below the stack's bottom,
    because every word above it was pushed.
    """
    fields = rlp.decode(_world().header)
    fields[12] = bytes(60_000)
    start = tries.encode(fields).index(fields[12], 400)
    subtree = bytearray(SUBTREE)
    subtree[REACH : REACH + 32] = (64).to_bytes(32)
    # The registry copies headers to memory from NODE on.
    within = (NODE + start - STACK) % SUBTREE
    fields[12] = (subtree * (60_000 // SUBTREE + 2))[within:][:60_000]
    header = tries.encode(fields)
    proof = header + also_absent_account(THREE) + _genuine((TEN, 3, []))
    return Forgery(frozenset({"bottom", "wiping"}), header, proof, _no_balance(THREE))


# --- Across the bottom of an open storage -----------------------------------------------------------------------------


def an_absent_slot_at_a_subtree_of_the_state() -> Forgery:
    """Forge a slot's absence at an account's leaf, which has the slot's place in the state trie."""
    operations = _genuine((THREE, 3, []), (TEN, 3, [ONE_SLOT]))
    forged = _with(operations, open_storage(TEN), also_absent_slot(THREE_SLOT))
    return _by_number({"bottom"}, forged, _slot_is(TEN, THREE_SLOT, 0))


def a_branch_of_the_state_in_a_storage() -> Forgery:
    """Take a subtree of the state as a storage's child. The result is only another form of a genuine proof.

    The storage returns the subtree that it takes, and the state root binds it. If the storage took several subtrees,
    its root would not be at its bottom.
    """
    address = address_below("61")
    leaf = account(address, 2)
    return _across(leaf, _genuine((address, 3, []), (TEN, 3, [ONE_SLOT])))


def an_extension_of_the_state_in_a_storage() -> Forgery:
    """Forge like `a_branch_of_the_state_in_a_storage`, but with an extension."""
    address = address_below("701")
    operations = _genuine((address, 3, []), (TEN, 3, [ONE_SLOT]))
    below, separator, _ = operations.partition(extension(1) + open_storage(TEN))
    assert separator
    return _across(below, operations)


def _across(before: bytes, operations: bytes) -> Forgery:
    """Return operations in which the part between `before` and the opening of the storage comes after the opening."""
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


# --- Open and missing storages ----------------------------------------------------------------------------------------


def an_absent_slot_outside_of_its_storage() -> Forgery:
    """Forge a slot's absence outside of its storage, at its owner's leaf in the state trie."""
    operations = _genuine((TEN, 0, [ONE_SLOT]))
    forged = _with(operations, closing_account(1), also_absent_slot(TEN_SLOT))
    return _by_number({"storage"}, forged, _slot_is(TEN, TEN_SLOT, 0))


def an_absent_account_in_a_storage() -> Forgery:
    """Forge an account's absence inside a storage, at a slot's leaf in the storage trie."""
    operations = _genuine((TEN, 3, [THREE_SLOT]))
    forged = _with(operations, slot(THREE_SLOT, 1, VALUE), also_absent_account(THREE))
    return _by_number({"storage"}, forged, _no_balance(THREE))


def an_absence_that_is_forgotten_with_a_storage_that_nobody_opened() -> Forgery:
    """Close the state's stack like a storage, so that a false absence on it is forgotten.

    Before any storage is opened, the owner of the storage is the zero address, which really is absent.
    """
    genuine = _genuine((bytes(20), 3, []))
    absent = absent_account(bytes(20), 1)
    assert genuine.startswith(absent)
    forged = absent_account(THREE, 0) + closing_absent_account(1) + genuine.removeprefix(absent)
    return _by_number({"storage"}, forged, _no_balance(THREE))


def balances_below_a_storage_that_stays_open() -> Forgery:
    """Prove the state under an open storage whose root equals the state root. Neither trie has a node at the slot's
    place.
    """
    genuine = _genuine((bytes(20), 3, []))
    absent = absent_account(bytes(20), 1)
    assert genuine.startswith(absent)
    state = absent_slot(slot_below(keccak(bytes(20)).hex()[0]), 1) + genuine.removeprefix(absent)
    return _by_number({"storage"}, _RICH_ACCOUNTS + open_storage(TEN) + state, _balances(_RICH))


def a_storage_that_is_opened_twice() -> Forgery:
    """Open a second storage above the first. The result is only another form, because nothing can close the first one
    any more.
    """
    operations = _genuine((TEN, 3, [ONE_SLOT]))
    return _by_number({"storage"}, open_storage(THREE) + operations, {})


# --- Other forgeries --------------------------------------------------------------------------------------------------


def an_extension_that_leads_to_a_leaf() -> Forgery:
    """Prove an account under an extension that leads to a leaf. No trie has such a root."""
    node = tries.extension("3", tries.reference(tries.leaf_below(keccak(THREE), 1, tries.account(1, 2))))
    header = tries.header(BLOCK, keccak(node))
    proof = header + account(THREE, 1) + extension(1)
    return Forgery(frozenset({"reach"}), header, proof, {("accountField", THREE, BLOCK, 1): (2).to_bytes(32)})


def a_hash_in_a_slot_that_the_protocol_does_not_write() -> Forgery:
    """Use a slot that the chain's genesis filled with a false hash. The value is real, but the protocol didn't write
    it.
    """
    world = _history_world({1: VALUE, HISTORY_WINDOW: int.from_bytes(keccak(FALSE_HEADER))})
    accounts = [world.to_prove(HISTORY_ADDRESS, 0, [], [HISTORY_WINDOW])]
    proof = encode(world.header, world.root, accounts, history_window=2**256)
    accumulate = encode(FALSE_HEADER, FALSE_ROOT)
    return Forgery(frozenset({"window"}), world.header, proof, FALSE_BLOCK, after=[accumulate])


FORGERIES = [
    four_balances_under_a_header_of_mainnet,
    four_balances_under_a_header,
    a_slot_and_the_absence_of_an_account_by_number,
    a_block_that_nobody_mined,
    an_absence_at_what_a_header_left_in_memory,
    an_absent_slot_at_a_subtree_of_the_state,
    a_branch_of_the_state_in_a_storage,
    an_extension_of_the_state_in_a_storage,
    balances_below_the_root,
    a_slot_below_the_root_of_its_storage,
    an_absent_slot_outside_of_its_storage,
    an_absent_account_in_a_storage,
    an_absence_that_is_forgotten_with_a_storage_that_nobody_opened,
    balances_below_a_storage_that_stays_open,
    a_storage_that_is_opened_twice,
    an_extension_that_leads_to_a_leaf,
    a_hash_in_a_slot_that_the_protocol_does_not_write,
]
