"""Subtrees that differ in one nibble or in one level of depth are refused, for each nibble and at each depth.

StepHarness runs an operation on a stack that the test prepares.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import pytest
from eth_utils.crypto import keccak

from campaigns.fuzzing.memory import NODE_BYTES, STACK, SUBTREE, harness_calldata, raw
from campaigns.fuzzing.steps import HARNESS
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import BRANCH_WITH_NODES, HISTORY_ADDRESS, MAX_DEPTH, NIBBLES
from tests.contracts import decoder, deployed, operations, tries
from tests.contracts.nearly import nearly
from tests.contracts.simulator import Call, Simulator

SLOT = 5
KEY = int.from_bytes(keccak(SLOT.to_bytes(32)))
# Indices of two children in one branch.
THREE, TEN = 0x3, 0xA
DEPTHS = range(1, MAX_DEPTH + 1)
_INVALID_PROOF = keccak(text="InvalidProof()")[:4]


class Tried(NamedTuple):
    name: str
    subtrees: list[decoder._Subtree]
    operation: bytes
    left: decoder._Subtree | None
    """The subtree that the operation must leave on the stack, or None if the operation must be refused."""
    owner: bytes = bytes(20)
    """The owner of the open storage."""

    def calldata(self) -> bytes:
        image = bytes(NODE_BYTES) + b"".join(map(raw, self.subtrees))
        return harness_calldata(STACK, STACK + SUBTREE * len(self.subtrees), self.owner, image, self.operation)


def misjudged(simulator: Simulator, harness: deployed.Deployed, tried: list[Tried]) -> list[str]:
    """Return the names of trials with a wrong outcome."""
    outcomes = simulator.run([Call(harness.address, each.calldata()) for each in tried])
    return [
        each.name
        for each, outcome in zip(tried, outcomes, strict=True)
        if not (
            not outcome.succeeded and outcome.data == _INVALID_PROOF
            if each.left is None
            else outcome.succeeded and outcome.data[STACK : STACK + SUBTREE] == raw(each.left)
        )
    ]


@pytest.fixture(scope="module")
def step_harness(chain) -> deployed.Deployed:
    return deployed.Deployed(chain, HARNESS, HISTORY_WINDOW)


# --- Children of a branch ---------------------------------------------------------------------------------------------


def flip(key: int, nibble: int, by: int) -> int:
    """Return the key with one nibble changed. Nibbles are counted from the first."""
    return key ^ by << 4 * (NIBBLES - 1 - nibble)


def child(depth: int, index: int) -> decoder._Subtree:
    """Return the subtree at this index of the branch on KEY's path. Keys of two indices differ in all lower nibbles."""
    free = 4 * (NIBBLES - depth)
    below = (KEY ^ index * int("1" * NIBBLES, 16)) & (1 << free) - 1
    key = ((KEY >> free) & ~0x0F | index) << free | below
    return decoder._Subtree(b"\xa0" + bytes([index]) * 32, key, depth)


def pair(depth: int) -> list[decoder._Subtree]:
    return [child(depth, THREE), child(depth, TEN)]


BOTH = operations.branch(2, operations.own_child(THREE), operations.own_child(TEN))


def true_siblings() -> Iterator[Tried]:
    for depth in DEPTHS:
        both = pair(depth)
        node = tries.branch({THREE: both[0].reference, TEN: both[1].reference})
        yield Tried(f"depth {depth}", both, BOTH, decoder._Subtree(tries.reference(node), both[0].key, depth - 1))


def other_paths() -> Iterator[Tried]:
    for depth in DEPTHS:
        for nibble in range(depth - 1):
            lower, upper = pair(depth)
            # Each of a nibble's four bits is changed at some depth.
            upper.key = flip(upper.key, nibble, 1 << (depth + nibble) % 4)
            yield Tried(f"nibble {nibble} of the path to depth {depth}", [lower, upper], BOTH, None)


def other_paths_twice() -> Iterator[Tried]:
    """Change two nibbles equally. A comparison that folds paths by "xor" would miss this."""
    for depth in DEPTHS:
        for distance in (1, 2, 4, 8, 16, 32):
            for nibble in range(depth - 1 - distance):
                lower, upper = pair(depth)
                for each in (nibble, nibble + distance):
                    upper.key = flip(upper.key, each, 1 << (depth + nibble) % 4)
                name = f"nibbles {nibble} and {nibble + distance} of the path to depth {depth}"
                yield Tried(name, [lower, upper], BOTH, None)


def other_places() -> Iterator[Tried]:
    for depth in DEPTHS:
        for index in range(16):
            lower, upper = pair(depth)
            for name, both in {"3": [child(depth, index), upper], "a": [lower, child(depth, index)]}.items():
                places = [THREE if name == "a" else index, index if name == "a" else TEN]
                node = tries.branch({place: each.reference for place, each in zip(places, both, strict=True)})
                above = decoder._Subtree(tries.reference(node), both[0].key, depth - 1)
                rises = places[0] < places[1]
                yield Tried(f"place {index:x}, not {name}, at depth {depth}", both, BOTH, above if rises else None)


def other_depths() -> Iterator[Tried]:
    for depth in DEPTHS:
        for other in range(MAX_DEPTH + 2):
            if other != depth:
                lower, upper = pair(depth)
                upper.depth = other
                yield Tried(f"depth {other} beside {depth}", [lower, upper], BOTH, None)


def wrong_branches() -> Iterator[Tried]:
    """Break one rule of branches at each depth, and keep the others."""
    digest, short = b"\x66" * 32, b"\xc2\x05\x05"
    three, far = operations.own_child(THREE), operations.hash_child(9, digest)
    far_alone = operations.branch(1, far)
    wrong = {
        "a place taken twice, by a hash": operations.branch(1, operations.hash_child(THREE, digest), far),
        "a place taken twice, by a node": operations.branch(1, operations.node_child(THREE, short), far),
        "a hash and a node at a place": operations.branch(1, operations.node_child(9, short), far),
        "a mask of no nodes": bytes([BRANCH_WITH_NODES]) + far_alone[1:3] + bytes(2) + far_alone[3:],
        "an only child": operations.branch(1, three),
        "a node of 32 bytes": operations.branch(1, three, operations.node_child(9, b"\xdf" + b"\x05" * 31)),
        "a node of 1 byte": operations.branch(1, three, operations.node_child(9, b"\xc0")),
    }
    for depth, (how, operation) in product(DEPTHS, wrong.items()):
        yield Tried(f"{how} at depth {depth}", [child(depth, THREE)], operation, None)
    # Places that don't rise: the same place twice, and two subtrees in the wrong order.
    for depth in DEPTHS:
        for how, indexes in {"the same place twice": (THREE, THREE), "a subtree out of order": (TEN, THREE)}.items():
            subtrees = [child(depth, index) for index in indexes]
            yield Tried(f"{how} at depth {depth}", subtrees, operations.branch(2, far), None)


def wrong_children() -> Iterator[Tried]:
    """Put a full branch above a child that isn't a hash, and an extension above a child that isn't a branch, at each
    depth.
    """
    for depth in DEPTHS:
        short = decoder._Subtree(b"\xc2\x05\x05", KEY, depth)
        yield Tried(
            f"a full branch of a node at depth {depth}", [short], operations.full_branch([bytes(32)] * 15), None
        )
        for reach in (depth + 1, NIBBLES):
            subtree = decoder._Subtree(b"\xa0" + b"\x77" * 32, KEY, depth, reach)
            yield Tried(f"an extension of {depth} to {reach}", [subtree], operations.extension(1), None)


def one_of_sixteen() -> Iterator[Tried]:
    operation = operations.branch(16, *map(operations.own_child, range(16)))
    for depth in (2, 9, 33, MAX_DEPTH):
        for index in range(16):
            children = [child(depth, each) for each in range(16)]
            children[index].key = flip(children[index].key, depth - 2, 1)
            yield Tried(f"child {index:x} of sixteen at depth {depth}", children, operation, None)


# --- Keys that are absent at a node -----------------------------------------------------------------------------------


def absences(depth: int, reach: int) -> Iterator[Tried]:
    """Claim that a slot is absent at a node whose key differs from the slot's in one nibble: above the node, within its
    path, or below.
    """
    for nibble in range(NIBBLES):
        key = flip(KEY, nibble, 1 << (depth + nibble) % 4)
        node = decoder._Subtree(b"\xa0" + b"\x77" * 32, key, depth, reach)
        expected = decoder._Subtree(node.reference, key, depth, reach, KEY) if depth <= nibble < reach else None
        yield Tried(
            f"nibble {nibble} of a key, from {depth} to {reach}", [node], operations.also_absent_slot(SLOT), expected
        )


def absent_at_leaves() -> Iterator[Tried]:
    for depth in range(MAX_DEPTH + 1):
        yield from absences(depth, NIBBLES)


def absent_at_extensions() -> Iterator[Tried]:
    for reach in DEPTHS:
        yield from absences(reach // 2, reach)


# --- Words that are compared ------------------------------------------------------------------------------------------


def storages_that_are_not_empty() -> Iterator[Tried]:
    """Claim that an account with this storage root is absent. Only the empty trie's root is right."""
    owner = int.from_bytes(keccak(HISTORY_ADDRESS))
    for root in (*nearly(tries.EMPTY_ROOT), tries.EMPTY_ROOT):
        expected = decoder._Subtree(decoder.EMPTY, owner, 3, NIBBLES, owner) if root == tries.EMPTY_ROOT else None
        storage = decoder._Subtree(tries.hash_reference(root), KEY, 0)
        yield Tried(f"root {root.hex()}", [storage], operations.closing_absent_account(3), expected, HISTORY_ADDRESS)


def other_owners_and_slots() -> Iterator[Tried]:
    """Prove a block hash in a slot of another owner, or in a slot outside the window."""
    digest = b"\x77" * 32
    slots = [SLOT, HISTORY_WINDOW, *(SLOT | 1 << bit for bit in range(HISTORY_WINDOW.bit_length(), 256))]
    for owner, slot in [
        *((owner, SLOT) for owner in nearly(HISTORY_ADDRESS)),
        *((HISTORY_ADDRESS, each) for each in slots),
    ]:
        key = keccak(slot.to_bytes(32))
        node = tries.leaf_below(key, 3, tries.encode(digest))
        is_true = (owner, slot) == (HISTORY_ADDRESS, SLOT)
        expected = decoder._Subtree(tries.reference(node), int.from_bytes(key), 3, NIBBLES) if is_true else None
        yield Tried(f"slot {slot} of {owner.hex()}", [], operations.block_hash(slot, 3, digest), expected, owner)


# --- Tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.long("absent_at_leaves-4032", "other_paths_twice-8154")
@pytest.mark.parametrize(
    ("tried", "count"),
    [
        (true_siblings, 62),
        (other_paths, 61 * 62 // 2),
        (other_paths_twice, sum((61 - distance) * (62 - distance) // 2 for distance in (1, 2, 4, 8, 16, 32))),
        (other_places, 62 * 32),
        (other_depths, 62 * 63),
        (wrong_branches, 62 * 9),
        (wrong_children, 62 * 3),
        (one_of_sixteen, 4 * 16),
        (absent_at_leaves, 63 * 64),
        (absent_at_extensions, 62 * 64),
        (storages_that_are_not_empty, 127 + 1),
        (other_owners_and_slots, 80 + 2 + 243),
    ],
)
def test_no_nibble_and_no_depth_is_left_out(
    simulator, step_harness, tried: Callable[[], Iterator[Tried]], count: int
) -> None:
    each = list(tried())
    assert len(each) == count
    assert misjudged(simulator, step_harness, each) == []
