"""Branches and extensions of packed proofs: each has one form, and is what a trie can hold.

What is malformed is also tried under the root that it would have if it were taken, where it would have one: there
nothing but the check that it fails keeps it from verifying.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from eth_utils.crypto import keccak

from tests.contracts import tries
from tests.contracts.operations import (
    absent_account,
    absent_at_extension,
    absent_beside_leaf,
    absent_slot,
    account,
    address_below,
    branch,
    closing_account,
    extension,
    full_branch,
    hash_child,
    node_child,
    open_storage,
    own_child,
    slot,
    slot_below,
)
from tests.contracts.tries import hash_reference, reference

LEAF = tries.account(1, 2)


def leaf(address: bytes, depth: int) -> bytes:
    """The reference to the leaf that `operations.account` pushes."""
    return reference(tries.leaf_below(keccak(address), depth, LEAF))


def root_of(children: Mapping[int, bytes]) -> bytes:
    """Return the root of a trie whose uppermost node is the branch of these children."""
    return keccak(tries.branch(children))


# --- Branches ---------------------------------------------------------------------------------------------------------

# Two accounts below the root, and a third child.
THREE, TEN = address_below("3"), address_below("a")
BOTH = account(THREE, 1) + account(TEN, 1)
OTHER = b"\x77" * 32
CHILDREN = {0x3: leaf(THREE, 1), 0xA: leaf(TEN, 1), 0xC: hash_reference(OTHER)}
AT_3, AT_A, AT_C = own_child(0x3), own_child(0xA), hash_child(0xC, OTHER)
# The shortest list that is a node, as far as its length tells, and the longest.
SHORTEST, LONGEST = b"\xc1\x05", b"\xde" + b"\x05" * 30


def refused(name: str, operations: bytes, would_be: Mapping[int, bytes] | None = None) -> Any:
    """`would_be` are the children of the branch that it says there is."""
    return pytest.param(operations, CHILDREN if would_be is None else would_be, id=name)


@pytest.mark.parametrize(
    ("operations", "would_be"),
    [
        # Out of order.
        refused("own children swapped", BOTH + branch(2, AT_A, AT_3, AT_C)),
        refused("subtrees swapped", account(TEN, 1) + account(THREE, 1) + branch(2, AT_3, AT_A, AT_C)),
        refused("both swapped", account(TEN, 1) + account(THREE, 1) + branch(2, AT_A, AT_3, AT_C)),
        refused("a hash before its place", BOTH + branch(2, AT_3, AT_C, AT_A)),
        refused(
            "a node before its place",
            BOTH + branch(2, AT_3, node_child(0xC, SHORTEST), AT_A),
            CHILDREN | {0xC: SHORTEST},
        ),
        # One place twice.
        refused("a hash twice", BOTH + branch(2, AT_3, AT_A, AT_C, AT_C)),
        refused("two hashes at one place", BOTH + branch(2, AT_3, AT_A, hash_child(0xC, bytes(32)), AT_C)),
        refused("a node and a hash at one place", BOTH + branch(2, AT_3, AT_A, node_child(0xC, SHORTEST), AT_C)),
        refused("a hash and a subtree at one place", BOTH + branch(2, AT_3, hash_child(0xA, bytes(32)), AT_A, AT_C)),
        refused("a subtree and a hash at one place", BOTH + branch(2, AT_3, AT_A, hash_child(0xA, bytes(32)), AT_C)),
        refused(
            "one subtree twice",
            account(THREE, 1) * 2 + branch(2, AT_3, AT_3, AT_C),
            {0x3: CHILDREN[0x3], 0xC: CHILDREN[0xC]},
        ),
        # Own children elsewhere, missing, and too many.
        refused(
            "a subtree at another place",
            BOTH + branch(2, AT_3, own_child(0xB), AT_C),
            {0x3: CHILDREN[0x3], 0xB: CHILDREN[0xA], 0xC: CHILDREN[0xC]},
        ),
        refused(
            "subtrees at each other's places",
            account(TEN, 1) + account(THREE, 1) + branch(2, AT_3, AT_A, AT_C),
            {0x3: CHILDREN[0xA], 0xA: CHILDREN[0x3], 0xC: CHILDREN[0xC]},
        ),
        refused("the second missing", BOTH + branch(2, AT_3, AT_C), {3: CHILDREN[3], 12: CHILDREN[12]}),
        refused("the first missing", BOTH + branch(2, AT_A, AT_C), {10: CHILDREN[10], 12: CHILDREN[12]}),
        refused("both missing", BOTH + branch(2, hash_child(5, OTHER), AT_C), {5: CHILDREN[12], 12: CHILDREN[12]}),
        refused("more than it takes", BOTH + branch(1, AT_3, AT_A, AT_C)),
        refused(
            "more than there are",
            account(TEN, 1) + branch(1, AT_A, own_child(0xB), AT_C),
            {0xA: CHILDREN[0xA], 0xC: CHILDREN[0xC]},
        ),
        refused("more taken than listed", BOTH + branch(3, AT_3, AT_A, AT_C)),
        refused("more taken than there are", account(TEN, 1) + branch(2, AT_3, AT_A, AT_C)),
        refused("sixteen taken", BOTH + branch(16, AT_3, AT_A, AT_C)),
        refused("a subtree left below", BOTH + branch(1, AT_A, AT_C), {10: CHILDREN[10], 12: CHILDREN[12]}),
        # As many as `size` doesn't tell.
        refused("one more than size", BOTH + branch(2, AT_3, AT_A, AT_C, size=2)),
        refused("one less than size", BOTH + branch(2, AT_3, AT_A, AT_C, size=4)),
        refused("size 0", BOTH + branch(2, AT_3, AT_A, AT_C, size=0)),
        refused("size 1", BOTH + branch(2, AT_3, AT_A, AT_C, size=1)),
        refused("size 255", BOTH + branch(2, AT_3, AT_A, AT_C, size=255)),
        refused("no children", BOTH + branch(2)),
        refused("a hash that is cut", BOTH + branch(2, AT_3, AT_A, AT_C[:-1])),
        refused("a byte more", BOTH + branch(2, AT_3, AT_A, AT_C, b"\x00", size=3)),
        # Children of other forms.
        *(
            refused(f"a child {form:x}c", BOTH + branch(2, AT_3, AT_A, bytes([form << 4 | 0xC]) + OTHER))
            for form in range(1, 16)
        ),
        refused("the other form", BOTH + full_branch([OTHER] * 15)),
        refused("a third form", BOTH + b"\x20" + branch(2, AT_3, AT_A, AT_C)[1:]),
        # Nodes that are none, as if they were copied as they are.
        refused(
            "an empty list", BOTH + branch(2, AT_3, AT_A, AT_C, node_child(0xD, b"\xc0")), CHILDREN | {0xD: b"\xc0"}
        ),
        refused(
            "a list of 32 bytes",
            BOTH + branch(2, AT_3, AT_A, AT_C, node_child(0xD, b"\xdf" + b"\x05" * 31)),
            CHILDREN | {0xD: b"\xdf" + b"\x05" * 31},
        ),
        refused(
            "a list of 58 bytes",
            BOTH + branch(2, AT_3, AT_A, AT_C, node_child(0xD, b"\xf8\x38" + b"\x05" * 56)),
            CHILDREN | {0xD: b"\xf8\x38" + b"\x05" * 56},
        ),
        refused(
            "a string",
            BOTH + branch(2, AT_3, AT_A, AT_C, node_child(0xD, b"\x82\x05\x05")),
            CHILDREN | {0xD: b"\x82\x05\x05"},
        ),
        refused(
            "the longest prefix of a string", BOTH + branch(2, AT_3, AT_A, AT_C, node_child(0xD, b"\xbf" + bytes(8)))
        ),
        refused("an empty place", BOTH + branch(2, AT_3, AT_A, AT_C, node_child(0xD, tries.EMPTY))),
        refused("a hash as a node", BOTH + branch(2, AT_3, AT_A, node_child(0xC, CHILDREN[0xC]))),
        refused("a node that is cut", BOTH + branch(2, AT_3, AT_A, AT_C, node_child(0xD, LONGEST[:-1]))),
        # Fewer than two children.
        refused("one child", account(TEN, 1) + branch(1, AT_A), {0xA: CHILDREN[0xA]}),
        refused(
            "a child and an empty place",
            absent_account(THREE, 1) + account(TEN, 1) + branch(2, AT_3, AT_A),
            {0xA: CHILDREN[0xA]},
        ),
        refused("a hash and an empty place", absent_account(THREE, 1) + branch(1, AT_3, AT_C), {0xC: CHILDREN[0xC]}),
        refused("an empty place", absent_account(THREE, 1) + branch(1, AT_3), {}),
        refused("empty places", absent_account(THREE, 1) + absent_account(TEN, 1) + branch(2, AT_3, AT_A), {}),
    ],
)  # fmt: skip
def test_children_are_listed_in_one_way(accepts, operations, would_be):
    """Above two accounts and a hash."""
    assert accepts(root_of(CHILDREN), BOTH + branch(2, AT_3, AT_A, AT_C))
    assert not accepts(root_of(CHILDREN), operations)
    if would_be != CHILDREN:
        assert not accepts(root_of(would_be), operations)


@pytest.mark.parametrize(
    ("operations", "children"),
    [
        pytest.param(account(THREE, 1) + branch(1, AT_3, AT_C), {3: CHILDREN[3], 12: CHILDREN[12]}, id="two children"),
        pytest.param(
            absent_account(THREE, 1) + account(TEN, 1) + branch(2, AT_3, AT_A, AT_C),
            {0xA: CHILDREN[0xA], 0xC: CHILDREN[0xC]},
            id="an empty place beside two children",
        ),
        pytest.param(
            BOTH + branch(2, node_child(0, LONGEST), AT_3, node_child(5, SHORTEST), AT_A, node_child(15, LONGEST)),
            {0: LONGEST, 3: CHILDREN[3], 5: SHORTEST, 10: CHILDREN[10], 15: LONGEST},
            id="nodes of all lengths",
        ),
        pytest.param(
            account(THREE, 1) + branch(1, *(AT_3 if place == 3 else node_child(place, LONGEST) for place in range(16))),
            {place: CHILDREN[3] if place == 3 else LONGEST for place in range(16)},
            id="fifteen nodes",
        ),
        pytest.param(
            BOTH + branch(2, *({3: AT_3, 10: AT_A}.get(place, hash_child(place, OTHER)) for place in range(16))),
            {place: CHILDREN.get(place, CHILDREN[12]) for place in range(16)},
            id="sixteen hashes, of which two are subtrees",
        ),
        pytest.param(
            account(THREE, 1) + full_branch([OTHER] * 15),
            {place: CHILDREN[3] if place == 3 else CHILDREN[12] for place in range(16)},
            id="sixteen hashes",
        ),
    ],
)  # fmt: skip
def test_branches_of_all_forms_are_taken(accepts, operations, children):
    assert accepts(root_of(children), operations)


def test_sixteen_subtrees_make_a_branch(accepts):
    addresses = [address_below(f"{place:x}") for place in range(16)]
    root = root_of({place: leaf(address, 1) for place, address in enumerate(addresses)})
    leaves = b"".join(account(address, 1) for address in addresses)
    assert accepts(root, leaves + branch(16, *map(own_child, range(16))))
    assert not accepts(root, leaves + branch(15, *map(own_child, range(16))))
    assert not accepts(root, leaves + leaves[-len(account(addresses[0], 1)) :] + branch(16, *map(own_child, range(16))))


@pytest.mark.parametrize("place", range(16))
def test_a_branch_of_sixteen_hashes_is_written_in_one_way(accepts, place):
    address = address_below(f"{place:x}")
    children = {each: hash_reference(bytes([each]) * 32) for each in range(16)} | {place: leaf(address, 1)}
    root, own = root_of(children), account(address, 1)
    others = [children[each][1:] for each in range(16) if each != place]
    listed = [own_child(each) if each == place else hash_child(each, children[each][1:]) for each in range(16)]
    assert accepts(root, own + full_branch(others))
    assert not accepts(root, own + branch(1, *listed))
    assert not accepts(root, own + full_branch(others[:-1]))
    assert not accepts(root, own + full_branch([*others, OTHER]))
    assert not accepts(root, own + full_branch([others[1], others[0], *others[2:]]))
    # Nor is there one above the root, or of nothing.
    assert not accepts(root, own + full_branch(others) * 2)
    assert not accepts(root_of(children | {place: hash_reference(root)}), own + full_branch(others) * 2)
    assert not accepts(root, full_branch(others))


@pytest.mark.parametrize("is_cancellation", [False, True], ids=["a leaf of less than 32 bytes", "an empty place"])
def test_a_branch_of_sixteen_hashes_holds_nothing_else(accepts, is_cancellation):
    """Not even under the root that it would have if what is on the stack were taken for a hash."""
    number, depth = 5, 40
    key = keccak(number.to_bytes(32))
    place = int(key.hex()[depth - 1], 16)
    own = tries.EMPTY if is_cancellation else tries.leaf_below(key, depth, b"\x09")
    assert len(own) < 32
    others = {each: hash_reference(bytes([each]) * 32) for each in range(16) if each != place}
    listed = [own_child(each) if each == place else hash_child(each, others[each][1:]) for each in range(16)]
    pushed = absent_slot(number, depth) if is_cancellation else slot(number, depth, 9)

    def under(child: bytes, operation: bytes) -> bool:
        """With an extension from the storage's root down to the branch, in which there is that child."""
        storage = tries.extension(key.hex()[: depth - 1], reference(tries.branch(others | {place: child})))
        state = tries.leaf(keccak(THREE), tries.account(1, 2, keccak(storage)))
        operations = open_storage(THREE) + pushed + operation + extension(depth - 1) + closing_account(0)
        return bool(accepts(keccak(state), operations))

    assert under(own, branch(1, *listed))
    sent = [others[each][1:] for each in others]
    for child in (own, hash_reference(own.ljust(32, b"\0"))):
        assert not under(child, full_branch(sent))


def test_children_belong_to_one_branch(accepts):
    """Below the root's child at place 1: the accounts of two prefixes, which may not be of that branch."""

    def attempt(*below: tuple[str, int, int]) -> bool:
        """For each a prefix, a depth and the place it is said to be at. Under the root that it would have."""
        accounts, children = b"", {}
        for prefix, depth, place in below:
            accounts += account(address_below(prefix), depth)
            children[place] = leaf(address_below(prefix), depth)
        root = root_of({1: reference(tries.branch(children)), 15: hash_reference(OTHER)})
        operations = accounts + branch(2, *map(own_child, children))
        return bool(accepts(root, operations + branch(1, own_child(1), hash_child(15, OTHER))))

    assert attempt(("12", 2, 2), ("14", 2, 4))
    # Of another branch, or deeper: at their place in this one, or at that in their own.
    assert not attempt(("12", 2, 2), ("34", 2, 4))
    assert not attempt(("12", 2, 2), ("14", 3, 4))
    assert not attempt(("12", 2, 2), ("124", 3, 4))
    assert not attempt(("12", 2, 2), ("4", 1, 4))
    assert not attempt(("12", 3, 2), ("14", 2, 4))
    assert not attempt(("121", 3, 1), ("14", 2, 4))


# --- Extensions -------------------------------------------------------------------------------------------------------

PATH = "123"


def fork() -> tuple[bytes, bytes]:
    """Operations that push a branch of two accounts below that path, and the branch."""
    first, second = address_below(PATH + "5"), address_below(PATH + "9")
    operations = account(first, 4) + account(second, 4) + branch(2, own_child(5), own_child(9))
    return operations, tries.branch({5: leaf(first, 4), 9: leaf(second, 4)})


def root_above(path: str, child: bytes) -> bytes:
    """Return the root of a trie whose uppermost node is the extension to a child, by the reference to it."""
    return keccak(tries.extension(path, child))


def test_an_extension_leads_to_a_branch(accepts):
    operations, below = fork()
    root = root_above(PATH, reference(below))
    assert accepts(root, operations + extension(3))
    for length in (0, 1, 2, 4, 64, 255):
        assert not accepts(root, operations + extension(length))
    assert not accepts(root, extension(3) + operations)
    assert not accepts(root, extension(3))
    assert not accepts(root, operations)


@pytest.mark.parametrize("upper", [PATH[:1], PATH[:2]])
def test_an_extension_leads_to_no_other_extension(accepts, upper):
    """Two extensions in a row would be two nodes for one."""
    operations, below = fork()
    lower = PATH.removeprefix(upper)
    between = reference(tries.extension(lower, reference(below)))
    assert not accepts(root_above(upper, between), operations + extension(len(lower)) + extension(len(upper)))
    # Nor to one that a key doesn't follow. Below a branch it may be.
    absent = address_below(*(upper + digit for digit in "0456789abcdef"))
    other = absent_at_extension(absent, len(upper), lower, keccak(below))
    assert not accepts(root_above(upper, between), other + extension(len(upper)))
    place = int(upper[-1], 16)
    above = tries.branch({place: between, 15: hash_reference(OTHER)})
    root = root_above(upper[:-1], reference(above)) if upper[:-1] else keccak(above)
    other += branch(1, own_child(place), hash_child(15, OTHER)) + extension(len(upper[:-1])) * bool(upper[:-1])
    assert accepts(root, other)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_an_extension_leads_neither_to_a_leaf_nor_to_an_empty_place(accepts, length):
    present, absent = address_below(PATH + "5"), address_below(PATH + "9")
    own = leaf(present, length)
    for operations, child in (
        (account(present, length), own),
        (absent_beside_leaf(absent, keccak(present), length), own),
        (absent_account(present, length), tries.EMPTY),
    ):
        assert not accepts(root_above(PATH[:length], child), operations + extension(length))
        # Below a branch it may be, beside two others.
        place = int(PATH[length - 1], 16)
        above = tries.branch({place: child, 14: hash_reference(OTHER), 15: hash_reference(OTHER)})
        root = root_above(PATH[: length - 1], reference(above)) if length > 1 else keccak(above)
        up = branch(1, own_child(place), hash_child(14, OTHER), hash_child(15, OTHER))
        assert accepts(root, operations + up + extension(length - 1) * (length > 1))


@pytest.mark.parametrize("depth", [2, 40])
def test_an_extension_in_a_storage_leads_neither_to_a_leaf_nor_to_an_empty_place(accepts, depth):
    """Embedded or not."""
    number = slot_below("12")
    key = keccak(number.to_bytes(32))
    own = reference(tries.leaf_below(key, depth, b"\x09"))
    assert (len(own) < 32) == (depth == 40)
    for pushed, child in ((slot(number, depth, 9), own), (absent_slot(number, depth), tries.EMPTY)):
        storage_root = root_above(key.hex()[:depth], child)
        state = tries.leaf(keccak(THREE), tries.account(1, 2, storage_root))
        assert not accepts(keccak(state), open_storage(THREE) + pushed + extension(depth) + closing_account(0))
