"""Operations at their limits: each depth, size, position and length. The contract must agree with the model.

Cases come in random order with random contents. After all cases, they are repeated with other contents.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.operations import (
    PLACES,
    Names,
    branch,
    node,
    prefix,
    siblings,
    slot_name,
    subtree,
)
from campaigns.fuzzing.scenes import Case
from campaigns.fuzzing.steps import Bench
from campaigns.fuzzing.tally import Tally
from chains.contract_artifacts import Artifact
from chains.tries.packed import (
    ABSENT_ACCOUNT,
    ABSENT_CLOSES_STORAGE,
    ACCOUNT,
    AT_ACCOUNT,
    AT_EMPTY,
    AT_EXTENSION,
    AT_LEAF,
    AT_SAME,
    BLOCK_HASH,
    BRANCH_WITH_NODES,
    CLOSES_STORAGE,
    EXTENSION,
    FULL_BRANCH,
    HASH_BYTES,
    HISTORY_ADDRESS,
    MAX_DEPTH,
    NIBBLES,
    SLOT,
    STORE_NONCE_AND_BALANCE,
    ZERO_SLOT,
)
from chains.tries.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT
from devnet.devchain import DevChain
from tests.contracts import operations
from tests.contracts.decoder import EMPTY, _Subtree
from tests.contracts.nearly import nearly
from tests.contracts.operations import hash_child, node_child

_DEPTHS = range(MAX_DEPTH + 1)
_BYTES = range(256)
# Masks of a branch's places: none, each alone, and some of many.
_MASKS = (0, *(1 << place for place in range(16)), 0x0003, 0x8001, 0x7FFF, 0xFFFE, 0x5555, 0xAAAA, 0xFFFF)
# Depths of leaves at which the path takes one byte, has an odd number of nibbles, or makes the leaf shorter than a
# hash.
_LEAF_DEPTHS = (0, 1, 8, 9, 10, 54, 55, 56, 57, 61, 62)


def _hashed(chance: Chance, key: int, depth: int, reach: int = 0, last: int = 0) -> _Subtree:
    return _Subtree(b"\xa0" + chance.randbytes(HASH_BYTES), key, depth, reach, last)


def _anything(chance: Chance, depth: int) -> _Subtree:
    return subtree(chance, chance.getrandbits(256), depth)


def _digits(chance: Chance, size: int) -> bytes:
    """Return a number without leading zeros, often one whose RLP is a single byte."""
    return (bytes([chance.pick((1, 0x7F, 0x80, 0xFF))]) + chance.randbytes(size))[:size]


# --- Extensions -------------------------------------------------------------------------------------------------------


def _extension(chance: Chance, depth: int, length: int) -> Case:
    return Case(bytes([EXTENSION, length]), [_hashed(chance, chance.getrandbits(256), depth)])


def _extension_of_node(chance: Chance, size: int, length: int) -> Case:
    return Case(bytes([EXTENSION, length]), [_Subtree(node(chance, size), chance.getrandbits(256), MAX_DEPTH)])


def _other_extension(chance: Chance, depth: int, length: int) -> Case:
    path = chance.randbytes((length + 1) // 2)
    if length % 2 and chance.happens(0.8):
        path = bytes([path[0] & 0x0F]) + path[1:]
    operation = bytes([ZERO_SLOT + AT_EXTENSION, 1, 5, depth, length]) + path + chance.randbytes(HASH_BYTES)
    return Case(operation, [], [])


# --- Leaves -----------------------------------------------------------------------------------------------------------


def _slot(chance: Chance, depth: int, value: bytes) -> Case:
    name = chance.pick(Names.of_slots().all).written
    return Case(bytes([SLOT]) + name + bytes([depth, len(value)]) + value, [], [])


def _slot_of_size(chance: Chance, depth: int, size: int) -> Case:
    return _slot(chance, depth, _digits(chance, size))


def _slot_of_byte(chance: Chance, depth: int, byte: int) -> Case:
    return _slot(chance, depth, bytes([byte]))


def _slot_number(chance: Chance, operation: int, size: int) -> Case:
    where = {BLOCK_HASH: b"\3\1\7", SLOT: b"\3\1\7", ZERO_SLOT + AT_EMPTY: b"\3"}[operation]
    return Case(bytes([operation, size]) + _digits(chance, size) + where, [], [])


def _other_slot(chance: Chance, depth: int) -> Case:
    path = chance.randbytes((NIBBLES - depth + 1) // 2 if depth <= NIBBLES else 0)
    if depth % 2 and chance.happens(0.8):
        path = bytes([path[0] & 0x0F]) + path[1:] if path else path
    return Case(bytes([ZERO_SLOT + AT_LEAF, 1, 5, depth]) + path + b"\1\7", [], [])


def _empty_place(chance: Chance, depth: int) -> Case:
    return Case(bytes([ZERO_SLOT + AT_EMPTY, 1, 5, depth]), [], [])


def _account_head(chance: Chance, depth: int, nonce: int, balance: int) -> Case:
    operation = bytes([ACCOUNT | STORE_NONCE_AND_BALANCE | 1])
    head = (depth << 10 | nonce << 6 | balance).to_bytes(2)
    return Case(operation + head + chance.randbytes(20) + _digits(chance, nonce) + _digits(chance, balance), [])


_STORAGES: dict[str, Callable[[Chance], list[_Subtree] | None]] = {
    "none": lambda _: None,
    "nothing": lambda _: [],
    "empty": lambda _: [_Subtree(EMPTY, 5, 0, NIBBLES, 5)],
    "trie": lambda chance: [_hashed(chance, 5, 0)],
    "node": lambda chance: [_Subtree(node(chance), 5, 0)],
    "below": lambda _: [_Subtree(EMPTY, 5, 1, NIBBLES, 5)],
    "two": lambda chance: [_hashed(chance, 5, 0), _Subtree(EMPTY, 5, 0, NIBBLES, 5)],
}


def _account(chance: Chance, operation: int, storage: str, hashes: tuple[bytes, bytes]) -> Case:
    """Return a case with an account, present or absent.

    For an empty hash in `hashes`, the wrong number of bytes is written.
    """
    is_open = storage != "none"
    name = b"" if is_open and operation & (CLOSES_STORAGE | ABSENT_CLOSES_STORAGE) else chance.randbytes(20)
    follows = operation >> 1 & 3 if operation >= ACCOUNT else operation & 3
    head, numbers = (4 << 10 | 1 << 6 | 1).to_bytes(2), b"\1\2"
    digests = b"".join(digest or b"\1" for digest, flag in zip(hashes, (2, 1), strict=True) if follows & flag)
    if operation >= ACCOUNT:
        body = head + name + numbers + digests
    elif operation & AT_ACCOUNT:
        body = name + head + chance.randbytes(30) + numbers + digests
    else:
        body = name + [b"\3", b"\1\2\x77" + chance.randbytes(32), b"", b""][operation & 3]
    return Case(bytes([operation]) + body, [_anything(chance, 3)], _STORAGES[storage](chance))


# --- Keys that are absent at a node -----------------------------------------------------------------------------------


def _attach(chance: Chance, depth: int, reach: int, agrees: int, after: int) -> Case:
    """Return a case with a key that shares exactly `agrees` nibbles with the node's key.

    `after` is its distance from the last absent key.
    """
    name = chance.pick(Names.of_slots().all)
    other = name.key
    if agrees < NIBBLES:
        free = 4 * (NIBBLES - 1 - agrees)
        other = (prefix(name.key, agrees + 1) ^ chance.between(1, 15)) << free | chance.getrandbits(free)
    item = _hashed(chance, other, depth, reach, name.key - after)
    return Case(bytes([ZERO_SLOT + AT_SAME]) + name.written, [], [item])


def _attachments() -> Iterator[tuple[int, int, int, int]]:
    for depth in _DEPTHS:
        reaches = {0, NIBBLES, *(reach for reach in (depth + 1, depth + 2, MAX_DEPTH) if depth < reach <= MAX_DEPTH)}
        for reach in sorted(reaches):
            places = {depth - 1, depth, depth + 1, reach - 1, reach, reach + 1, NIBBLES - 1, NIBBLES}
            for agrees in sorted(places & {*range(NIBBLES + 1)}):
                yield from ((depth, reach, agrees, after) for after in (1, 0, -1))


# --- Branches ---------------------------------------------------------------------------------------------------------


def _full_branch(chance: Chance, depth: int, times: int) -> Case:
    operation = bytes([FULL_BRANCH]) + chance.randbytes(15 * HASH_BYTES)
    return Case(operation * times, [_hashed(chance, chance.getrandbits(256), depth)])


def _branch_of_length(chance: Chance, length: int) -> Case:
    """Return a case with a branch whose list has `length` bytes."""
    # Each of the sixteen children and the value takes at least a byte. An embedded node takes 1 to 30 more, a hash 32.
    bytes_left = length - 17
    hashes = chance.between(max(0, (bytes_left - 16 * 30 + 1) // 2), min(bytes_left // 32, 16))
    bytes_left -= 32 * hashes
    nodes = chance.between((bytes_left + 29) // 30, min(bytes_left, 16 - hashes))
    more = [32] * hashes
    for others in reversed(range(nodes)):
        more.append(chance.between(max(1, bytes_left - 30 * others), min(30, bytes_left - others)))
        bytes_left -= more[-1]
    more += [0] * (16 - len(more))
    chance.shuffle(more)
    own = chance.pick([place for place in PLACES if more[place]])
    parts = []
    item = _anything(chance, 2)
    item.key = item.key & ~(15 << 4 * 62) | own << 4 * 62
    for place, size in enumerate(more):
        reference = b"\xa0" + chance.randbytes(HASH_BYTES) if size == 32 else node(chance, size + 1) if size else b""
        if place == own:
            item = _Subtree(reference, item.key, 2)
        elif size == 32:
            parts.append(hash_child(place, reference[1:]))
        elif size:
            parts.append(node_child(place, reference))
    return Case(operations.branch(1, *parts), [item])


def _branch_of_kinds(chance: Chance, _: int) -> Case:
    """Return a case with a branch whose children are each a subtree, a hash, an embedded node or empty."""
    weights = chance.pick(((1, 1, 1, 1), (1, 5, 0, 1), (1, 0, 5, 1), (5, 1, 1, 0), (1, 3, 3, 0), (2, 0, 0, 1)))
    kinds = chance.choices("shn ", weights, k=16)
    mine = [place for place in PLACES if kinds[place] == "s"] or [chance.below(16)]
    hashes, nodes = ([place for place in PLACES if kinds[place] == kind] for kind in "hn")
    items = siblings(chance, chance.getrandbits(256), chance.pick((1, 2, 9, 33, MAX_DEPTH)), mine)
    return Case(branch(chance, len(mine), mine, hashes, set(nodes) - set(mine)), items)


def _branch_of_count(chance: Chance, there: int, taken: int) -> Case:
    """Return a case with a branch that takes another number of subtrees than there are on the stack.

    Its children are those on the stack and those that only seem to be there.
    """
    places = sorted(chance.sample(PLACES, min(max(there, taken), 16)))
    items = siblings(chance, chance.getrandbits(256), 3, places)
    return Case(branch(chance, taken, places[-taken:], [], []), items[len(items) - there :])


def _masks(chance: Chance, hashes: int, nodes: int) -> Case:
    """Return a case with a branch of these masks, whose children are there. Some masks give a place two children."""
    [item] = siblings(chance, chance.getrandbits(256), 3, [chance.below(16)])
    count = (hashes | nodes).bit_count()
    content = [node(chance) if nodes >> place & 1 else chance.randbytes(HASH_BYTES) for place in PLACES[:count]]
    return Case(bytes([BRANCH_WITH_NODES]) + hashes.to_bytes(2) + nodes.to_bytes(2) + b"".join(content), [item])


def _node_child(chance: Chance, first: int, place: int) -> Case:
    """Return a case with an embedded node that begins with this byte."""
    [item] = siblings(chance, chance.getrandbits(256), 3, [15])
    content = chance.randbytes(first - 0xC0 if 0xC0 < first <= 0xF7 else chance.below(3))
    return Case(operations.branch(1, node_child(place, bytes([first]) + content)), [item])


# --- Wrong at any depth -----------------------------------------------------------------------------------------------


# Branches that each break exactly one rule. They take a subtree as child 5.
_WRONG_BRANCHES: dict[str, Callable[[Chance], bytes]] = {
    "a hash at the subtree's place": lambda chance: operations.branch(
        1, _hash_child(chance, 5), _hash_child(chance, 9)
    ),
    "a node at the subtree's place": lambda chance: operations.branch(
        1, node_child(5, node(chance)), _hash_child(chance, 9)
    ),
    "an only child": lambda _: operations.branch(1),
    "a node of 32 bytes": lambda chance: operations.branch(1, node_child(9, b"\xdf" + chance.randbytes(31))),
}


def _hash_child(chance: Chance, place: int) -> bytes:
    return hash_child(place, chance.randbytes(HASH_BYTES))


def _wrong_branch(chance: Chance, depth: int, how: str) -> Case:
    operation = _WRONG_BRANCHES[how](chance)
    children = siblings(chance, chance.getrandbits(256), depth, (5,))
    if how == "an only child":
        # The stack's subtree is a real child, so the branch would have only one child.
        children = [_hashed(chance, children[0].key, depth)]
    return Case(operation, children)


def _full_branch_of_node(chance: Chance, depth: int) -> Case:
    item = _Subtree(node(chance), chance.getrandbits(256), depth)
    return Case(bytes([FULL_BRANCH]) + chance.randbytes(15 * HASH_BYTES), [item])


def _extension_of_no_branch(chance: Chance, depth: int, reach: int) -> Case:
    """Return a case with an extension above a leaf or an extension, which isn't allowed."""
    item = _hashed(chance, chance.getrandbits(256), depth, max(reach, depth + 1))
    return Case(bytes([EXTENSION, chance.between(1, depth)]), [item])


# --- Words that are nearly the same -----------------------------------------------------------------------------------


def _absent_with_storage(chance: Chance, root: bytes) -> Case:
    storage = _Subtree(b"\xa0" + root, chance.getrandbits(256), 0)
    return Case(bytes([ABSENT_ACCOUNT | ABSENT_CLOSES_STORAGE | AT_EMPTY, 3]), [], [storage])


def _block_hash(_: Chance, owner: bytes, slot: int) -> Case:
    return Case(bytes([BLOCK_HASH]) + slot_name(slot).written + b"\3\1\7", [], [], owner)


# --- Any operation ----------------------------------------------------------------------------------------------------


def _any(chance: Chance, operation: int, is_open: bool, size: int) -> Case:  # noqa: FBT001 (a parameter of a case)
    stack = [_anything(chance, 1)]
    storage = [_anything(chance, 1)] if is_open else None
    return Case(bytes([operation]) + chance.randbytes(size), stack, storage)


def _any_of_slot(chance: Chance, operation: int, owner: bytes, where: bytes) -> Case:
    name = slot_name(chance.below(40))
    return Case(bytes([operation]) + name.written + where, [], [_hashed(chance, name.key ^ 1, 3, NIBBLES)], owner)


_ORDINARY = b"\7" * 32
# Pairs of a storage root and a code hash, one of which is ordinary.
_PAIRS = [
    pair
    for odd in (_ORDINARY, bytes(32), EMPTY_TRIE_ROOT, EMPTY_CODE_HASH, b"")
    for pair in {(odd, _ORDINARY): None, (_ORDINARY, odd): None}
]
_VALUES = (b"\1", b"\x7f", b"\x80", b"\xff" * 32, b"\5" * 5)
_LENGTHS = (*range(MAX_DEPTH + 4), 127, 128, 255)

_Families = list[tuple[Callable[..., Case], Iterable[tuple[object, ...]]]]

_FAMILIES: _Families = [
    (_extension, product(_DEPTHS, _LENGTHS)),
    (_extension_of_node, product(range(2, 32), range(1, MAX_DEPTH + 1))),
    (_other_extension, product((*_DEPTHS, 63, 64, 255), (0, 1, 2, 3, 31, 32, 60, 61, 62, 63, 64, 255))),
    (_slot, product(_BYTES, _VALUES)),
    (_slot_of_size, product(_DEPTHS, range(41))),
    (_slot_of_byte, product(_LEAF_DEPTHS, _BYTES)),
    (_slot_number, product((SLOT, BLOCK_HASH, ZERO_SLOT + AT_EMPTY), _BYTES)),
    (_other_slot, product((*_BYTES, *_DEPTHS, *_DEPTHS))),
    (_empty_place, product(_BYTES)),
    (_account_head, product(range(64), range(16), (0, 1, 2, 24, 31, 32, 33, 63))),
    (_account, product(range(ABSENT_ACCOUNT, 256), _STORAGES, _PAIRS)),
    (_attach, _attachments()),
    (_full_branch, product(_DEPTHS, (1, 2, 3))),
    (_branch_of_length, product((*range(19, 530), *range(50, 62), *range(250, 262)))),
    (_branch_of_kinds, product(range(3000))),
    (_branch_of_count, product(range(17), range(1, 17))),
    (_masks, product(_MASKS, _MASKS)),
    (_node_child, product(_BYTES, (0, 7, 14))),
    (_any, product(_BYTES, (False, True), (0, 1, 2, 3, 23, 40, 100, 482))),
    (_any_of_slot, product(_BYTES, (HISTORY_ADDRESS, b"\1" * 20), (b"", b"\3\1\7", b"\3", b"\3\1\7\7"))),
]
# These few cases come first, because no other cases break these rules at most depths or in such a small part.
_FIRST_FAMILIES: _Families = [
    (_wrong_branch, product(_DEPTHS[1:], _WRONG_BRANCHES)),
    (_full_branch_of_node, product(_DEPTHS[1:])),
    (_extension_of_no_branch, product(_DEPTHS[1:], (0, NIBBLES))),
    (_absent_with_storage, product((EMPTY_TRIE_ROOT, *nearly(EMPTY_TRIE_ROOT)))),
    (_block_hash, product((HISTORY_ADDRESS, *nearly(HISTORY_ADDRESS)), (5,))),
    (_block_hash, product((HISTORY_ADDRESS,), (5 | 1 << bit for bit in range(256)))),
]
CASES, FIRST_CASES = (
    [(build, parameters) for build, each in families for parameters in each]
    for families in (_FAMILIES, _FIRST_FAMILIES)
)


def run(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try at least `count` operations, deterministic in `seed`. Raise Divergence."""
    chance = Chance(seed)
    bench = Bench(chain, f"boundaries.run, seed {seed}, count {count}", artifact)
    done = 0
    cases: list[tuple[Callable[..., Case], tuple[object, ...]]] = []
    while done < count:
        if not cases:
            # Cases are taken from the end of the list.
            cases = [*chance.sample(CASES, len(CASES)), *chance.sample(FIRST_CASES, len(FIRST_CASES))]
        build, parameters = cases.pop()
        done += bench.add_case(chance, build(chance, *parameters))
    bench.finish()
    return bench.tally
