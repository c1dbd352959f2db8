"""Forgeries that might have worked, and what is next to them: each is tried under the root that it would need.

What each attempt would forge is false, or true but told in a second way. Beside it stands what is taken.
"""

import random
from collections.abc import Iterable

import pytest
from eth_utils.crypto import keccak

from chains.packed import ABSENT_ACCOUNT, ABSENT_CLOSES_STORAGE, AT_SAME, HEADER_ALONE, MAX_DEPTH, PARENT
from tests.contracts import tries
from tests.contracts.conftest import BLOCK
from tests.contracts.deployed import Reverted
from tests.contracts.operations import (
    absent_account,
    absent_at_extension,
    absent_beside_leaf,
    absent_slot,
    account,
    address_below,
    also_absent_account,
    also_absent_slot,
    branch,
    closing_account,
    extension,
    full_branch,
    hash_child,
    open_storage,
    own_child,
    slot,
    slot_below,
)
from tests.contracts.tries import hash_reference, reference

LEAF = tries.account(1, 2)
OTHERS = tuple(bytes([number]) * 32 for number in range(1, 16))


def _nibble(key: bytes, place: int) -> int:
    return int(key.hex()[place], 16)


# --- Absence at nodes that prove none ---------------------------------------------------------------------------------

FIRST, SECOND, ELSEWHERE = address_below("125"), address_below("129"), address_below("2")
FORK = account(FIRST, 3) + account(SECOND, 3) + branch(2, own_child(5), own_child(9))
FORK_NODE = tries.branch({
    place: reference(tries.leaf_below(keccak(address), 3, LEAF)) for place, address in ((5, FIRST), (9, SECOND))
})  # fmt: skip
# An address whose key leaves the extension, and the beginnings of keys that follow it to the branch: to places of which
# one is free, and both others aren't.
BESIDE = address_below("13", "2")
BELOW = [["12c"], ["125f", "1250"], ["1294"]]


def test_keys_are_absent_at_an_extension_only_where_they_leave_it(accepts):
    root = keccak(tries.extension("12", reference(FORK_NODE)))
    assert accepts(root, FORK + extension(2))
    assert accepts(root, FORK + extension(2) + also_absent_account(BESIDE))
    below = [address_below(*prefixes) for prefixes in BELOW]
    for address in (*below, FIRST, SECOND):
        assert not accepts(root, FORK + extension(2) + also_absent_account(address))
        # Nor at the branch, be it one of two subtrees or one of sixteen hashes.
        assert not accepts(root, FORK + also_absent_account(address) + extension(2))
    # Not where another key has left it either: this one follows it.
    assert not accepts(root, absent_at_extension(below[0], 0, "12", keccak(FORK_NODE)))
    assert accepts(root, absent_at_extension(BESIDE, 0, "12", keccak(FORK_NODE)))


@pytest.mark.parametrize("prefixes", BELOW, ids=["12c", "125", "129"])
def test_no_key_is_absent_at_a_branch_of_sixteen_hashes(accepts, prefixes):
    address = address_below(*prefixes)
    leaf = tries.leaf_below(keccak(FIRST), 1, LEAF)
    children = {place: hash_reference(other) for place, other in zip((0, *range(2, 16)), OTHERS, strict=True)}
    root = keccak(tries.branch({**children, 1: reference(leaf)}))
    assert accepts(root, account(FIRST, 1) + full_branch(OTHERS))
    assert not accepts(root, account(FIRST, 1) + full_branch(OTHERS) + also_absent_account(address))
    assert accepts(root, account(FIRST, 1) + also_absent_account(address) + full_branch(OTHERS))


def test_absence_of_a_slot_is_not_told_at_a_node_of_the_state(accepts):
    """The other stack ends in a leaf, an extension or an empty place, and the slot's own is still empty."""
    number = slot_below("3")
    for below, root in (
        (account(FIRST, 0), keccak(tries.leaf(keccak(FIRST), LEAF))),
        (FORK + extension(2), keccak(tries.extension("12", reference(FORK_NODE)))),
        (absent_account(FIRST, 0), tries.EMPTY_ROOT),
    ):
        assert accepts(root, below)
        for closing in (b"", closing_account(0), bytes([ABSENT_ACCOUNT | ABSENT_CLOSES_STORAGE | AT_SAME])):
            assert not accepts(root, below + open_storage(BESIDE) + also_absent_slot(number) + closing)


# --- As deep as a trie can be -----------------------------------------------------------------------------------------


def _hung(node: bytes, key: bytes, depth: int, others: Iterable[int] = ()) -> tuple[bytes, bytes]:
    """The root of a trie that holds a node so deep, by the reference to it, and the operations above it.

    Beside it are hashes, at so many places away from it.
    """
    place = _nibble(key, depth - 1)
    siblings = {(place + away) % 16: other for away, other in zip((1, *others), OTHERS, strict=False)}
    children = {own: hash_child(own, other) for own, other in siblings.items()} | {place: own_child(place)}
    upper = tries.branch({**{own: hash_reference(other) for own, other in siblings.items()}, place: node})
    operations = branch(1, *(children[own] for own in sorted(children))) + extension(depth - 1)
    return keccak(tries.extension(key.hex()[: depth - 1], reference(upper))), operations


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1])
def test_subtrees_are_as_deep_as_they_may_be_and_no_deeper(accepts, depth):
    address, number = address_below("7"), slot_below("7")
    key, slot_key = keccak(address), keccak(number.to_bytes(32))
    beside = key[:-1] + bytes([key[-1] ^ 1])
    leaf = reference(tries.leaf_below(key, depth, LEAF))
    other_leaf = reference(tries.leaf_below(beside, depth, LEAF))
    for pushed, node, away in (
        (account(address, depth), leaf, ()),
        (absent_beside_leaf(address, beside, depth), other_leaf, ()),
        (absent_account(address, depth), tries.EMPTY, (2,)),
    ):
        root, above = _hung(node, key, depth, away)
        assert accepts(root, pushed + above) == (depth <= MAX_DEPTH)
    for pushed, node, away in (
        (slot(number, depth, 9), reference(tries.leaf_below(slot_key, depth, b"\x09")), ()),
        (absent_slot(number, depth), tries.EMPTY, (2,)),
    ):
        storage_root, above = _hung(node, slot_key, depth, away)
        root = keccak(tries.leaf(key, tries.account(1, 2, storage_root)))
        operations = open_storage(address) + pushed + above + closing_account(0)
        assert accepts(root, operations) == (depth <= MAX_DEPTH)


@pytest.mark.parametrize("reach", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1])
@pytest.mark.parametrize("depth", [0, 1, MAX_DEPTH - 2])
def test_extensions_lead_as_deep_as_they_may_and_no_deeper(accepts, depth, reach):
    address = address_below("7")
    key = keccak(address)
    nibbles = key.hex()[depth:reach]
    path = f"{int(nibbles[0], 16) ^ 1:x}{nibbles[1:]}"
    node = tries.extension(path, hash_reference(OTHERS[0]))
    pushed = absent_at_extension(address, depth, path, OTHERS[0])
    root, above = _hung(reference(node), key, depth) if depth > 1 else (keccak(node), b"")
    if depth == 1:
        children = {7: reference(node), 8: hash_reference(OTHERS[1])}
        root, above = keccak(tries.branch(children)), branch(1, own_child(7), hash_child(8, OTHERS[1]))
    assert accepts(root, pushed + above) == (reach <= MAX_DEPTH)


# --- What is left in memory -------------------------------------------------------------------------------------------


def test_no_storage_goes_on_with_what_another_has_left(accepts):
    """Two accounts with the same three slots: the second's are still in memory, above the top."""
    numbers = sorted((slot_below(digit) for digit in "37a"), key=lambda number: keccak(number.to_bytes(32)))
    keys = [keccak(number.to_bytes(32)) for number in numbers]
    slots = [slot(number, 1, 9) for number in numbers]
    own = [own_child(_nibble(key, 0)) for key in keys]
    leaves = {_nibble(key, 0): reference(tries.leaf_below(key, 1, b"\x09")) for key in keys}
    storage_root = keccak(tries.branch(leaves))
    leaf = tries.account(1, 2, storage_root)
    root = keccak(tries.branch({1: reference(tries.leaf_below(keccak(FIRST), 1, leaf)),
                                2: reference(tries.leaf_below(keccak(ELSEWHERE), 1, leaf))}))  # fmt: skip
    storage = b"".join(slots) + branch(3, *own)
    first = open_storage(FIRST) + storage + closing_account(1)
    second = open_storage(ELSEWHERE)
    end = closing_account(1) + branch(2, own_child(1), own_child(2))
    assert accepts(root, first + second + storage + end)
    assert not accepts(root, first + second + end)
    # Nor with what lies below, in the stack of the state: the first account's leaf.
    for pushed in range(3):
        assert not accepts(root, first + second + b"".join(slots[:pushed]) + branch(3, *own) + end)


def test_an_account_has_one_leaf(accepts):
    """It can't be proven once for itself, and once more for its storage."""
    number = slot_below("3")
    storage_root = keccak(tries.leaf(keccak(number.to_bytes(32)), b"\x09"))
    root = keccak(tries.leaf(keccak(FIRST), tries.account(1, 2, storage_root)))
    closing = open_storage(FIRST) + slot(number, 0, 9) + closing_account(0)
    own = b"\xc4" + (1 << 6 | 1).to_bytes(2) + FIRST + b"\x01\x02" + storage_root
    assert accepts(root, closing)
    assert accepts(root, own)
    for twice in (own + closing, closing + own, closing + closing, own + own):
        assert not accepts(root, twice)


def _seeming(address: bytes, depth: int) -> bytes:
    """The words of a subtree, as memory holds them: an account's leaf."""
    node = tries.leaf_below(keccak(address), depth, LEAF)
    return b"".join((keccak(node), bytes(32), keccak(address), depth.to_bytes(32), (64).to_bytes(32), bytes(32)))


def test_headers_leave_no_subtrees_in_memory(registry, source):
    """Their bytes were in the zone of the stack: here they look like subtrees, at any place there."""
    leaves = {1: reference(tries.leaf_below(keccak(FIRST), 1, LEAF)), 2: hash_reference(OTHERS[0])}
    root = keccak(tries.branch(leaves))
    above = branch(1, own_child(1), hash_child(2, OTHERS[0]))
    for shift in range(0, 192, 16):
        extra = (bytes(shift) + _seeming(FIRST, 1) * 300)[:60_000]
        last = tries.header(BLOCK, root, extra_data=extra)
        first = tries.header(BLOCK + 1, b"\x09" * 32, keccak(last), extra)
        source.send("set", BLOCK + 1, keccak(first))
        headers = first + bytes([PARENT]) + last
        registry.call_raw(headers + bytes([HEADER_ALONE]))
        registry.call_raw(headers + account(FIRST, 1) + above)
        for operations in (above, open_storage(FIRST) + above, account(FIRST, 1) + above + above):
            with pytest.raises(Reverted) as reverted:
                registry.call_raw(headers + operations)
            assert reverted.value.error == ("InvalidProof",)


# --- Children that tell their own length ------------------------------------------------------------------------------


def test_another_cut_of_a_branch_into_children_is_refused(accepts):
    """Its bytes are the same, but some of what one child ends with is told to be the next one's."""
    chance = random.Random(7)
    nodes = {3: b"\xc3" + b"\xc2\x05\x06", 4: b"\xc2\x80\x80", 9: b"\xd0" + chance.randbytes(16)}
    children = {1: reference(tries.leaf_below(keccak(FIRST), 1, LEAF)), **nodes}
    root = keccak(tries.branch(children))
    told = {place: bytes([0x10 | place]) + node for place, node in nodes.items()}
    assert accepts(root, account(FIRST, 1) + branch(1, own_child(1), *told.values()))
    for spoilt in (
        [told[3][:2] + b"\xc2", b"\x14" + b"\x05\x06" + nodes[4], told[9]],
        [told[3], b"\x14\xc2\x80", b"\x15\x80", told[9]],
        [told[3], b"\x14\xc2\x80\x80", b"\x15\x80", told[9]],
        [b"\x13" + nodes[3] + nodes[4], told[9]],
        [b"\x13" + nodes[3], b"\x14" + nodes[4], b"\x15\x80", told[9]],
        [told[3], told[4], b"\x18" + nodes[9]],
        [told[3], told[4], b"\x0a" + nodes[9]],
    ):
        assert not accepts(root, account(FIRST, 1) + branch(1, own_child(1), *spoilt))
