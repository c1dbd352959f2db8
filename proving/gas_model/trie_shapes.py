"""How large a proof of many keys of one trie is, told by the proofs of a few.

Keys are hashes, so those that are asked for lie anywhere in the trie: the ways of a few tell how deep and how wide it
is, and of `n` keys at random `16^k * (1 - (1 - 16^-k)^n)` nodes at depth `k` are on their ways, on average.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from eth_utils.crypto import keccak

from chains.encoding import Item, decode_rlp
from chains.header import Header
from chains.rpc import AccountProof, ProofRequest
from chains.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT, Account
from proving.facts import AccountFact, Fact, SlotFact

_BRANCH = 17


class End(Enum):
    """The kind of node at which a path ends."""

    LEAF = "leaf"  # at the key's own
    OTHER = "other"  # at another key's leaf, or an extension elsewhere: the key is absent
    EMPTY = "empty"  # at an empty place of a branch, or in the empty trie: same


@dataclass(frozen=True)
class TriePath:
    branches: Sequence[tuple[int, int]]
    """Each branch of the path, from the root: its depth in nibbles, and the number of its children."""
    depth: int
    """Depth of the end, in nibbles."""
    end: End


def path_of(key: bytes, nodes: Sequence[bytes]) -> TriePath:
    """Return the way to an address or a slot (32 bytes), by the nodes of its proof, which was verified."""
    digits = keccak(key).hex()
    by_hash = {keccak(node): node for node in nodes}
    branches: list[tuple[int, int]] = []
    depth = 0
    node = _read(keccak(nodes[0]), by_hash) if nodes else b""
    while not isinstance(node, bytes):
        if len(node) == _BRANCH:
            branches.append((depth, sum(child != b"" for child in node[:-1])))
            node = _read(node[int(digits[depth], 16)], by_hash)
            depth += 1
            continue
        nibbles, is_leaf = _nibbles(node[0])
        if is_leaf or not digits[depth:].startswith(nibbles):
            return TriePath(branches, depth, End.LEAF if is_leaf and digits[depth:] == nibbles else End.OTHER)
        depth += len(nibbles)
        node = _read(node[1], by_hash)
    return TriePath(branches, depth, End.EMPTY)


def _read(reference: Item, by_hash: dict[bytes, bytes]) -> Item:
    """Return the node; empty bytes where there is none. A node of less than 32 bytes stands in its parent itself."""
    return decode_rlp(by_hash[reference]) if isinstance(reference, bytes) and reference else reference


def _nibbles(encoded: Item) -> tuple[str, bool]:
    """Return the nibbles of a hex-prefix encoded path (Yellow Paper, appendix C), and whether it ends in a leaf."""
    digits = encoded.hex() if isinstance(encoded, bytes) else ""
    flag = int(digits[0], 16)
    return digits[1 if flag & 1 else 2 :], flag > 1


_PLACES = 16
# More children than that on average are sixteen.
_FULL = _PLACES - 0.5
_HASH = 32
# What a branch takes beside hashes, in bytes: where it has all sixteen children and one is proven, and else, beside a
# byte for each child (docs/developing/proof-format.md).
_FULL_BYTES, _BRANCH_BYTES = 1, 2
# As nodes send them: lengths, and a byte for each place; and a leaf with an account of the usual size.
_RAW_BRANCH, _RAW_LEAF = 20, 115
# As an upper bound, a branch has this many more children than were seen, and one of two comes last.
_MORE, _TWO = 3.0, 2.0


@dataclass(frozen=True)
class Nodes:
    """The nodes of one trie in one or several proofs: what they take, on average."""

    size: float = 0.0  # packed, in bytes, without leaves
    raw_size: float = 0.0  # as a node sends them, in bytes
    raw_count: float = 0.0
    full: float = 0.0  # branches of sixteen children of which one is proven
    branches: float = 0.0  # others
    children: float = 0.0  # of those
    others: float = 0.0  # leaves that prove that other keys are absent

    def __add__(self, other: "Nodes") -> "Nodes":
        return Nodes(
            self.size + other.size,
            self.raw_size + other.raw_size,
            self.raw_count + other.raw_count,
            self.full + other.full,
            self.branches + other.branches,
            self.children + other.children,
            self.others + other.others,
        )


@dataclass(frozen=True)
class Level:
    """The branches at one depth."""

    share: float  # of the keys on whose way there is one
    children: float


@dataclass(frozen=True)
class Shape:
    levels: Mapping[int, Level]  # by depth
    ends: Mapping[tuple[int, End], float]
    """By depth: the share of the keys whose way ends there so."""

    @property
    def absent(self) -> float:
        """Return the share of the keys that the trie does not have."""
        return sum(share for (_, end), share in self.ends.items() if end != End.LEAF)

    def nodes(self, keys: float, transactions: int = 1) -> Nodes:
        """Count the nodes that prove `keys` in some transactions, each for keys in one part of the trie.

        Transactions have in common only what is on the way to where one ends and the next begins.
        """
        visited = {depth: _distinct(depth, keys * level.share, transactions) for depth, level in self.levels.items()}
        ended = {
            (depth, end): keys * share if end == End.LEAF else _distinct(depth, keys * share, transactions)
            for (depth, end), share in self.ends.items()
        }
        found = Nodes(
            raw_size=sum(_RAW_LEAF * count for (_, end), count in ended.items() if end != End.EMPTY),
            raw_count=sum(count for (_, end), count in ended.items() if end != End.EMPTY),
            others=sum(count for (_, end), count in ended.items() if end == End.OTHER),
        )
        for depth, level in self.levels.items():
            count = visited[depth]
            # What comes from below is not sent.
            below = [visited.get(depth + 1, 0.0), ended.get((depth + 1, End.LEAF), 0.0)]
            hashes = max(0.0, count * level.children - sum(below) - ended.get((depth + 1, End.OTHER), 0.0))
            # Those of sixteen with one on the ways: all, or none where there are two on average.
            places = _distinct(depth + 1, keys * level.share, transactions)
            full = max(0.0, 2 * count - places) if level.children > _FULL else 0.0
            found += Nodes(
                size=hashes * _HASH + full * _FULL_BYTES + (count - full) * (_BRANCH_BYTES + level.children),
                raw_size=count * (_RAW_BRANCH + _HASH * level.children),
                raw_count=count,
                full=full,
                branches=count - full,
                children=(count - full) * level.children,
            )
        return found

    @property
    def deeper(self) -> "Shape":
        """Return a shape on the high side: each way is as deep as the deepest and one branch more.

        It leads to the key's own leaf.
        """
        if self.ends.keys() == {(0, End.EMPTY)}:
            return self
        levels = {
            depth: Level(1.0, level.children if level.children > _FULL else min(_PLACES, level.children + _MORE))
            for depth, level in self.levels.items()
        }
        below = max(levels, default=-1) + 1
        return Shape(levels | {below: Level(1.0, _TWO)}, {(below + 1, End.LEAF): 1.0})


def of_paths(paths: Sequence[TriePath]) -> Shape:
    """Return the shape that the ways of some keys, at least one, show."""
    children: dict[int, list[int]] = {}
    for path in paths:
        for depth, count in path.branches:
            children.setdefault(depth, []).append(count)
    levels = {
        depth: Level(len(counts) / len(paths), sum(counts) / len(counts)) for depth, counts in sorted(children.items())
    }
    ends = Counter((path.depth, path.end) for path in paths)
    return Shape(levels, {place: count / len(paths) for place, count in ends.items()})


def of_random_keys(count: int) -> Shape:
    """Return the shape of a trie of this number of keys, by the paths of some of them."""
    levels: dict[int, Level] = {}
    ends: dict[tuple[int, End], float] = {}
    before = 1.0  # the share of the keys whose way comes to this depth
    for depth in range(_PLACES):
        share = 1 - (1 - _PLACES**-depth) ** (count - 1) if count > 1 else 0.0
        if share < 0.01:
            ends[depth, End.LEAF] = before
            break
        filled = 1 - (1 - _PLACES ** -(depth + 1)) ** (count - 1)
        levels[depth] = Level(share, max(_TWO, 1 + (_PLACES - 1) * filled / share))
        if before > share:
            ends[depth, End.LEAF] = before - share
        before = share
    return Shape(levels, ends)


def of_children(*counts: int) -> Shape:
    """Return the shape of a trie whose paths all have branches with these numbers of children, and then a leaf."""
    levels = {depth: Level(1.0, float(count)) for depth, count in enumerate(counts)}
    return Shape(levels, {(len(counts), End.LEAF): 1.0})


def _distinct(depth: int, keys: float, transactions: int) -> float:
    """Return how many of the nodes at a depth are on the paths of this number of keys."""
    places = float(_PLACES**depth)
    found = -places * math.expm1(keys * math.log1p(-1 / places)) if depth else 1.0
    return min(keys, found + transactions - 1)


# --- Samples --------------------------------------------------------------------------------------------------------

# Of the accounts, of accounts with requested slots, and of each account's slots.
_ACCOUNTS, _CONTRACTS, _SLOTS = 4, 4, 4
# What is not known is taken for the largest of mainnet.
LEAF_BYTES = 80

_T = TypeVar("_T")


@dataclass(frozen=True)
class Storage:
    """The storage of an account."""

    shape: Shape
    value_size: float = _HASH  # of a slot that is not zero, in bytes


@dataclass(frozen=True)
class Tries:
    """The tries of a source chain, as the proofs of some accounts tell. The rest is assumed as large as mainnet's."""

    state: Shape | None = None
    leaf_size: float = LEAF_BYTES  # nonce, balance and hashes of an account, in bytes
    storages: Mapping[str, Storage] = field(default_factory=dict)  # by address, of some


def samples(header: Header, here: Iterable[Fact], everywhere: Iterable[Fact]) -> list[ProofRequest]:
    """Choose a few of the accounts that are asked for at a block, and those with the most slots asked for anywhere."""
    slots: dict[str, list[int]] = {}
    for fact in everywhere:
        if isinstance(fact, SlotFact):
            slots.setdefault(fact.address, []).append(int(fact.slot, 16))
    contracts = sorted(slots, key=lambda address: len(slots[address]), reverse=True)[:_CONTRACTS]
    others = sorted({fact.address for fact in here if isinstance(fact, AccountFact)}.difference(contracts))
    chosen = [*_spread(others, _ACCOUNTS), *contracts]
    return [
        ProofRequest(header.number, header.hash, header.state_root, address, _spread(slots.get(address, ()), _SLOTS))
        for address in chosen
    ]


def of_samples(proofs: Sequence[AccountProof]) -> Tries:
    """Return what the proofs tell about the tries."""
    ways: list[TriePath] = []
    leaves: list[int] = []
    storages: dict[str, Storage] = {}
    for proof in proofs:
        ways.append(path_of(bytes.fromhex(proof.address[2:]), proof.nodes))
        if proof.account.exists:
            leaves.append(_leaf_size(proof.account))
        if proof.slots:
            storages[proof.address] = _storage(proof)
    if not leaves:
        return Tries(of_paths(ways), storages=storages)
    return Tries(of_paths(ways), sum(leaves) / len(leaves), storages)


def _storage(proof: AccountProof) -> Storage:
    present = [_size(slot.value) for slot in proof.slots if slot.value]
    shape = of_paths([path_of(slot.slot.to_bytes(32), slot.nodes) for slot in proof.slots])
    return Storage(shape, sum(present) / len(present)) if present else Storage(shape)


def _leaf_size(account: Account) -> int:
    hashes = (account.storage_root != EMPTY_TRIE_ROOT) + (account.code_hash != EMPTY_CODE_HASH)
    return _size(account.nonce) + _size(account.balance) + _HASH * hashes


def _size(number: int) -> int:
    """Return the size in bytes."""
    return (number.bit_length() + 7) // 8


def _spread(items: Sequence[_T], most: int) -> list[_T]:
    """Return at most `most` items, from all over the list."""
    return [items[place * len(items) // most] for place in range(most)] if len(items) > most else list(items)
