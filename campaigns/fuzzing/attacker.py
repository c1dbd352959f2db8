"""Sequences of operations (docs/developing/proof-format.md) as an attacker would build them.

They end in a root that the attacker chooses, possibly that of a trie which no honest builder makes. If the registry
trusts that root, it accepts half of the sequences. The others have a fault, mostly only one. A registry without the
matching check would accept them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args

from eth_utils.crypto import keccak

from campaigns.fuzzing.chance import Chance
from chains.encoding import HISTORY_WINDOW, shortest
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
    BRANCH,
    BRANCH_WITH_NODES,
    CLOSES_STORAGE,
    CODE_HASH_FOLLOWS,
    END_OF_BRANCHES,
    EXTENSION,
    FULL_BRANCH,
    HASH_BYTES,
    HISTORY_ADDRESS,
    MAX_DEPTH,
    NIBBLES,
    OPEN_STORAGE,
    SLOT,
    STORAGE_ROOT_FOLLOWS,
    ZERO_SLOT,
)
from chains.tries.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT
from tests.contracts.operations import HASH_CHILD, NODE_CHILD, OWN_CHILD, branch
from tests.contracts.worlds import NEAR_SLOTS

Fault = Literal[
    # Faults in the positions of keys.
    "depth",
    "key of another place",
    "key of another branch",
    "key of a cousin",
    "too deep",
    "path of the key itself",
    "nibble too many",
    # Faults in keys that are absent at the top subtree.
    "attached elsewhere",
    "attached to a cousin",
    "attached though present",
    "attached at a branch",
    "attached out of order",
    # Faults in branches and extensions.
    "children",
    "form of a child",
    "size of an embedded node",
    "mask of hashes",
    "mask of nodes",
    "number of subtrees",
    "only child",
    "full branch of no hash",
    "sixteen hashes",
    "extension over anything",
    "length of an extension",
    "nothing below",
    # Faults in leaves and storage tries.
    "number",
    "nothing stored",
    "zero value",
    "block hash of another contract",
    "block hash beyond the window",
    "storage root twice",
    "storage of an absent account",
    "closed by another operation",
    "account within a storage",
    "slot outside of a storage",
    "storage in a storage",
    "storage left open",
    "nothing to close",
    "absent in no way",
    "implied hash",
    # Faults in operations of any kind.
    "no operation",
    "cut short",
    "disorder",
    "anything",
]
FAULTS: tuple[Fault, ...] = get_args(Fault)
# Share of sequences without a fault.
_CLEAN = 0.4
# Share of sequences that may have any number of faults.
_SHARE_OF_ANYTHING = 0.02

_DIGITS = "0123456789abcdef"
# Faults that mostly need an open storage with entries.
_IN_STORAGES = {
    "zero value",
    "block hash of another contract",
    "block hash beyond the window",
    "storage root twice",
    "account within a storage",
    "storage in a storage",
}
# Maximum number of inner subtrees. After that only leaves and absent keys follow.
_MOST_NODES = 9
# Number of nibbles before a key's position that a cousin shares with the key.
_WINDOWS = (4, 4, 4, 3, 2, 1, 0)
# First bytes that belong to no operation.
_NO_OPERATIONS = bytes([*range(0x20, 0x30), 0x31, *range(0x37, 0x40), 0x41, 0x42, *range(0x44, 0x70)])
# First bytes of operations that could be mistaken for one another.
_OPERATIONS = bytes(
    [0x00, 0x10, 0x11, 0x1F, 0x30, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x40, 0x41, 0x43, 0x72, 0x7A, 0x88]
)


class Names:
    """The accounts or slots that a trie can have, sorted by key. Names with a common key prefix are neighbours."""

    def __init__(self, names: Iterable[tuple[bytes, bytes]]) -> None:
        """Each of `names` has the bytes whose hash is the key, and the name in operations."""
        known = sorted({keccak(hashed).hex(): name for hashed, name in names}.items())
        self.keys = [key for key, _ in known]  # in hexadecimal digits
        self.names = [name for _, name in known]
        # A cache of the ranges of short paths, which are needed most.
        self._under: dict[str, range] = {}

    def under(self, path: str) -> range:
        """Return the range of names whose keys begin with a path."""
        places = self._under.get(path)
        if places is None:
            places = range(bisect_left(self.keys, path), bisect_right(self.keys, path + "g"))
            if len(path) < 3:
                self._under[path] = places
        return places

    def cousins(self, key: str, depth: int, window: int) -> Sequence[int]:
        """Return indexes of keys that share just the last `window` digits before `depth` with `key`.

        Their digit at `depth`, counted from 1, is higher. As children of one branch they would come after `key`.
        """
        begin, end = max(depth - 1 - window, 0), depth - 1
        # A path is at most as long as a key.
        if end == len(key):
            return []
        near, above, digit = key[begin:end], key[:end], key[end]
        return [
            place
            for place, other in enumerate(self.keys)
            if other[begin:end] == near and other[end] > digit and other[:end] != above
        ]


@cache
def _accounts() -> Names:
    chance = Chance("accounts")
    addresses = [HISTORY_ADDRESS, *(chance.randbytes(20) for _ in range(20_000))]
    return Names((address, address) for address in addresses)


@cache
def _slots() -> Names:
    chance = Chance("slots")
    small = range(10_000)
    numbers = [*small, *NEAR_SLOTS, 2**256 - 1, *(chance.getrandbits(8 * (1 + number % 32)) for number in small)]
    return Names((number.to_bytes(32), bytes([len(shortest(number))]) + shortest(number)) for number in numbers)


_HISTORY_KEY = keccak(HISTORY_ADDRESS).hex()


def _embedded_nodes(chance: Chance) -> Iterator[bytes]:
    """Yield lists of 2 to 31 bytes: possible contents of nodes, and random bytes that may be invalid RLP."""
    payloads = [b"\x80", b"\x20\x01", b"\x3a\x05", b"\x16\xc2\x20\x01", b"\x80" * 17]
    for size in range(1, 28):
        payloads += [bytes([0x80 + size, 0x20]) + chance.randbytes(size - 1) + b"\x07", chance.randbytes(size)]
    return (bytes([0xC0 + len(payload)]) + payload for payload in payloads)


_EMBEDDED = list(_embedded_nodes(Chance(3)))
# Nodes so small that a branch of two of them is itself embedded.
_TINY = [node for node in _EMBEDDED if len(node) < 6]

_AT_BRANCH, _AT_EXTENSION, _AT_LEAF, _AT_NOTHING = "branch", "extension", "leaf", "nothing"


class Node(NamedTuple):
    """The facts about the top subtree that the next operation needs."""

    kind: str
    key: str
    reach: int  # number of digits of the key after which the node's path ends
    last: str  # greatest key that was proven absent at the node
    is_hash: bool  # True if the reference is certainly a hash


class Attacker:
    """A builder of one sequence, which depends only on `chance`."""

    def __init__(
        self,
        chance: Chance,
        *,
        fault: Fault | None = None,
        block_hashes: Sequence[bytes] = (),
        hashes: Callable[[bytes], Sequence[bytes]] = lambda _: (),
    ) -> None:
        """`fault` is the fault that the sequence may have.

        With `block_hashes`, the history contract holds these hashes.

        `hashes` returns the hashes of nodes that operations rebuild.
        """
        self._chance = chance
        self._random = chance.random
        self._fault = fault
        self._faults_left = 1 if chance.happens(0.7) else 3
        self._block_hashes = list(block_hashes)
        self._needs_history = bool(block_hashes) or fault == "block hash beyond the window"
        self._hashes = hashes
        self._shown: Sequence[bytes] = ()
        self._operations: list[bytes] = []
        self._nodes_left = 1 + chance.below(_MOST_NODES)
        # The trie that is being built, and the owner of the storage.
        self._accounts, self._slots = _accounts(), _slots()
        self._names = self._accounts
        self._owner = b""
        self._storages: list[list[bytes]] = []

    def state(self) -> list[bytes]:
        """Return the operations as a list."""
        self._begin()
        if self._needs_history:
            self._branch("")
        else:
            self._subtree("")
        if self._fault == "storage left open":
            self._storage(self._name(self._pick(""))[1])
        elif self._fault == "nothing to close":
            self._leaf_of_account(b"", 0, self._chance.below(2), closes=True)
        elif self._fault == "no operation":
            at = self._chance.between(0, len(self._operations))
            self._operations.insert(at, bytes([self._chance.pick(_NO_OPERATIONS)]))
        if self._fault == "disorder":
            self._disturb()
        elif self._fault == "cut short":
            self._cut()
        return self._operations

    # --- Chance -------------------------------------------------------------------------------------------------------

    def _wrong(self, fault: Fault) -> bool:
        """Decide whether to make this fault at this point."""
        if self._fault == "anything":
            return self._random() < _SHARE_OF_ANYTHING
        if self._fault != fault or not self._faults_left or self._random() < 0.5:
            return False
        self._faults_left -= 1
        return True

    def _pick(self, path: str) -> int:
        """Return the index of a name whose key begins with the path."""
        if path and self._wrong("key of another place"):
            path = self._near(path, len(path) - 1)
        elif len(path) > 1 and self._wrong("key of another branch"):
            path = self._near(path, self._chance.below(len(path) - 1))
        elif (
            self._names is self._accounts
            and _HISTORY_KEY.startswith(path)
            and (self._needs_history or self._random() < 0.3)
        ):
            return self._names.under(_HISTORY_KEY)[0]
        return self._chance.pick(self._names.under(path) or range(len(self._names.keys)))

    def _near(self, path: str, at: int) -> str:
        """Return a path that differs from this one in one digit."""
        return path[:at] + _DIGITS[int(path[at], 16) ^ self._chance.between(1, 15)] + path[at + 1 :]

    def _depth(self, depth: int) -> int:
        if not self._wrong("depth"):
            return depth
        if self._random() < 0.5:
            return min(max(depth + self._chance.pick((1, -1)), 0), NIBBLES - 1)
        return self._chance.pick((0, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 1, self._chance.below(NIBBLES)))

    def _number(self, size: int) -> bytes:
        """Return a positive number without leading zeros, of at most `size` bytes."""
        if self._wrong("number"):
            return self._chance.pick((b"\0\x01", b"\x01" + self._chance.randbytes(size)))
        return shortest(self._chance.number(size) or 1)

    def _hash(self) -> bytes:
        """Return a random hash, or sometimes the hash of a node that this sequence has rebuilt."""
        if self._wrong("implied hash"):
            return self._chance.pick((EMPTY_TRIE_ROOT, EMPTY_CODE_HASH, bytes(HASH_BYTES)))
        if self._random() > 0.01:
            return self._chance.randbytes(HASH_BYTES)
        self._shown = self._shown or self._hashes(b"".join(self._operations)) or (keccak(b""),)
        return self._chance.pick(self._shown)

    # --- Nodes --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make the faults that need an empty stack."""
        if self._wrong("nothing below"):
            if self._random() < 0.5:
                self._operations.append(bytes([EXTENSION, 1]))
            else:
                self._absent(AT_SAME, self._name(self._pick(""))[1], b"")
        if self._names is self._accounts and self._wrong("absent in no way"):
            self._operations.append(bytes([ABSENT_ACCOUNT | AT_LEAF]) + self._name(self._pick(""))[1])

    def _subtree(self, path: str) -> Node:
        """Push a subtree with this path."""
        self._nodes_left -= 1
        is_inner = self._nodes_left > 0 and len(self._names.under(path)) > 1
        roll = self._random()
        if is_inner and roll < (0.5 if path else 0.65):
            node = self._branch(path)
        elif is_inner and roll < (0.65 if path else 0.75):
            node = self._extension(path)
        elif roll < 0.8:
            node = self._spine(path)
        else:
            node = self._end(path)
        return self._attach(path, node)

    def _branch(self, path: str) -> Node:
        """Push a branch of several keys, if the path has several."""
        places = [digit for digit in _DIGITS if self._names.under(path + digit)]
        count = min(self._chance.pick((1, 1, 2, 2, 2, 2, 3, 3, 4, 5)), len(places))
        if self._random() < 0.05:
            count = self._chance.between(1, len(places))
        chosen = self._chance.sample(places, count)
        if self._names is self._accounts and self._needs_history and _HISTORY_KEY.startswith(path):
            chosen[0] = _HISTORY_KEY[len(path)]
        chosen = sorted(set(chosen))
        return self._join(chosen, [self._subtree(path + digit) for digit in chosen])

    def _join(self, digits: Sequence[str], nodes: Sequence[Node]) -> Node:
        """Join the nodes on the stack into a branch, and return the branch."""
        key = nodes[0].key
        if len(nodes) == 1 and ((nodes[0].is_hash and self._random() < 0.3) or self._wrong("full branch of no hash")):
            self._operations.append(bytes([FULL_BRANCH]) + self._chance.randbytes(15 * HASH_BYTES))
            return Node(_AT_BRANCH, key, 0, "", is_hash=True)
        own = [int(digit, 16) for digit in digits]
        children = [bytes([OWN_CHILD << 4 | place]) for place in own]
        children += self._siblings([place for place in range(16) if place not in own], nodes)
        children.sort(key=lambda child: child[0] & 0x0F)
        is_hash = any(node.is_hash for node in nodes) or any(child[0] >> 4 == HASH_CHILD for child in children)
        count = len(own)
        if self._wrong("children"):
            children = self._spoil(children)
        if self._wrong("form of a child"):
            children = self._replace_child(children, bytes([self._chance.between(3, 15) << 4]), b"")
        if self._wrong("size of an embedded node"):
            size = self._chance.pick((1, 32, 33, 40, 56, 64))
            node = bytes([0xBF + size]) + self._chance.randbytes(size - 1)
            children = self._replace_child(children, bytes([NODE_CHILD << 4]), node)
        if self._wrong("number of subtrees"):
            count = self._chance.pick((count % 16 + 1, max(count - 1, 1)))
        hashes = nodes_mask = 0
        if self._wrong("mask of hashes"):
            hashes = 1 << self._chance.below(16)
        if self._wrong("mask of nodes"):
            nodes_mask = 1 << self._chance.below(16)
        self._operations.append(branch(count, *children, hashes=hashes, nodes=nodes_mask))
        return Node(_AT_BRANCH, key, 0, "", is_hash)

    def _siblings(self, places: list[int], nodes: Sequence[Node]) -> list[bytes]:
        """Return children that aren't on the stack, in random order."""
        chance = self._chance
        nodes_share = chance.pick((0.0, 0.0, 0.0, 0.3, 1.0))
        embedded = _TINY if chance.happens(0.5) else _EMBEDDED
        density = chance.pick((0.0, 0.15, 0.15, 0.5, 0.9))
        there = [place for place in places if self._random() < density]
        # A branch needs two children.
        missing = 2 - len(there) - sum(node.kind != _AT_NOTHING for node in nodes)
        if missing > 0 and not self._wrong("only child"):
            there += chance.sample([place for place in places if place not in there], missing)
        if self._wrong("sixteen hashes"):
            there, nodes_share = places, 0.0
        elif len(there) == 15:
            there.pop()
        return [
            bytes([NODE_CHILD << 4 | place]) + chance.pick(embedded)
            if self._random() < nodes_share
            else bytes([HASH_CHILD << 4 | place]) + self._hash()
            for place in there
        ]

    def _spoil(self, children: list[bytes]) -> list[bytes]:
        chance = self._chance
        at = chance.below(len(children))
        before, child, after = children[:at], children[at], children[at + 1 :]
        return chance.pick(
            (
                before + after,
                [*before, child, child, *after],
                [*after, child, *before],
                [*before, bytes([child[0] & 0xF0 | chance.below(16)]) + child[1:], *after],
                [*before, bytes([chance.below(4) << 4 | child[0] & 0x0F]) + child[1:], *after],
            )
        )

    def _replace_child(self, children: list[bytes], first: bytes, content: bytes) -> list[bytes]:
        """Replace a child that isn't on the stack by one whose first byte has the given high half."""
        others = [at for at, child in enumerate(children) if child[0] >> 4 != OWN_CHILD]
        if not others:
            return children
        at = self._chance.pick(others)
        return [*children[:at], bytes([first[0] | children[at][0] & 0x0F]) + content, *children[at + 1 :]]

    def _extension(self, path: str) -> Node:
        """Push an extension and its child."""
        key = self._names.keys[self._pick(path)]
        depth = min(len(path) + self._chance.between(1, 3), MAX_DEPTH - 1)
        inner = key[:depth]
        count = len(self._names.under(inner))
        if self._wrong("extension over anything"):
            node = self._empty(inner) if self._chance.happens(0.5) else self._end(inner)
            node = self._attach(inner, node)
        elif count > 1:
            node = self._branch(inner)
        else:
            below = self._chance.between(1, min(4, MAX_DEPTH - depth))
            node = self._join(key[depth], [self._climb(key, depth + below, depth + 1)])
        return self._extend(node, depth, len(path))

    def _extend(self, node: Node, depth: int, above: int) -> Node:
        length = depth - above
        if self._wrong("length of an extension"):
            length = self._chance.pick((0, length + 1, max(length - 1, 0), self._chance.below(NIBBLES)))
        self._operations.append(bytes([EXTENSION, length]))
        return Node(_AT_EXTENSION, node.key, depth, "", node.is_hash)

    def _spine(self, path: str) -> Node:
        """Push the path of one key from far below."""
        above = len(path)
        depth = self._chance.pick(
            (
                above + self._chance.between(1, 3),
                above + self._chance.between(1, 3),
                self._chance.between(above + 1, MAX_DEPTH) if above < MAX_DEPTH else above,
                MAX_DEPTH - self._chance.below(6),
            )
        )
        depth = MAX_DEPTH + 1 if self._wrong("too deep") else max(above, min(depth, MAX_DEPTH))
        return self._climb(self._names.keys[self._pick(path)], depth, above)

    def _climb(self, key: str, depth: int, above: int) -> Node:
        """Push a key's end at `depth` digits, and the nodes above it up to the path of `above` digits."""
        node = self._attach(key[:depth], self._end(key[:depth]))
        while depth > above:
            is_branch = node.kind == _AT_BRANCH or self._wrong("extension over anything")
            if is_branch and (depth - above > 6 or self._random() < 0.4):
                to = self._chance.between(above, min(depth - 1, above + 2))
                node, depth = self._extend(node, depth, to), to
            else:
                depth -= 1
                node = self._join_with_cousin(key, depth, node)
            if depth > above:
                node = self._attach(key[:depth], node)
        return node

    def _join_with_cousin(self, key: str, depth: int, node: Node) -> Node:
        """Join a node at `depth` + 1 digits of a key into a branch.

        Sometimes its sibling is a subtree of another key.
        """
        if self._wrong("key of a cousin") and (cousins := self._cousins(key, depth + 1)):
            cousin = self._names.keys[place := self._chance.pick(cousins)]
            return self._join(key[depth] + cousin[depth], [node, self._end_of(cousin[: depth + 1], place)])
        return self._join(key[depth], [node])

    def _cousins(self, key: str, depth: int) -> Sequence[int]:
        """Return indexes of keys that share some of the digits before `depth` with `key`, but not all."""
        for window in range(self._chance.pick(_WINDOWS), -1, -1):
            if cousins := self._names.cousins(key, depth, window):
                return cousins
        return ()

    # --- Ends ---------------------------------------------------------------------------------------------------------

    def _end(self, path: str) -> Node:
        """Push a leaf with this path, or prove such a key absent."""
        return self._end_of(path, self._pick(path))

    def _end_of(self, path: str, place: int) -> Node:
        key, name = self._name(place)
        roll = self._random()
        if name == HISTORY_ADDRESS and self._needs_history:
            roll = 0.0
        if self._names is self._slots and self._wrong("account within a storage"):
            return self._within(self._accounts, path)
        if self._names is self._accounts and self._wrong("slot outside of a storage"):
            return self._within(self._slots, path)
        if roll < 0.5:
            return self._slot(path, key, name) if self._names is self._slots else self._account(path, key, name)
        if roll < 0.66:
            return self._empty(path)
        if roll < 0.84 or len(path) == MAX_DEPTH:
            return self._other_leaf(path, key, name)
        return self._other_extension(path, key, name)

    def _within(self, others: Names, path: str) -> Node:
        """Push a leaf that belongs into the other kind of trie."""
        names, owner = self._names, self._owner
        self._names, self._owner = others, b""
        key, name = self._name(self._pick(path))
        if others is self._slots:
            node = self._slot(path, key, name)
        else:
            self._leaf_of_account(name, len(path), self._chance.below(4), closes=False)
            node = Node(_AT_LEAF, key, NIBBLES, "", is_hash=True)
        self._names, self._owner = names, owner
        return node

    def _empty(self, path: str) -> Node:
        key, name = self._name(self._pick(path))
        self._absent(AT_EMPTY, name, bytes([self._depth(len(path))]))
        return Node(_AT_NOTHING, key, NIBBLES, key, is_hash=False)

    def _slot(self, path: str, key: str, name: bytes) -> Node:
        begin = name + bytes([self._depth(len(path))])
        is_history = self._owner == HISTORY_ADDRESS
        is_kept = is_history and int.from_bytes(name[1:]) < HISTORY_WINDOW
        fault: Fault = "block hash beyond the window" if is_history else "block hash of another contract"
        if (is_kept and self._random() < 0.8) or (not is_kept and self._wrong(fault)):
            value = self._block_hashes.pop() if self._block_hashes else self._chance.randbytes(HASH_BYTES)
            value = shortest(int.from_bytes(value[12:] if self._random() < 0.05 else value))
            operation = BLOCK_HASH
        else:
            value = b"" if self._wrong("zero value") else self._number(32)
            operation = SLOT
        self._operations.append(bytes([operation]) + begin + bytes([len(value)]) + value)
        return Node(_AT_LEAF, key, NIBBLES, "", is_hash=len(path) < 4)

    def _account(self, path: str, key: str, name: bytes) -> Node:
        closes = name == HISTORY_ADDRESS or self._random() < (0.9 if self._fault in _IN_STORAGES else 0.35)
        if closes:
            self._storage(name)
            hashes = self._chance.below(2) | (STORAGE_ROOT_FOLLOWS if self._wrong("storage root twice") else 0)
        else:
            hashes = self._chance.below(4)
        self._leaf_of_account(name, len(path), hashes, closes=closes)
        return Node(_AT_LEAF, key, NIBBLES, "", is_hash=True)

    def _leaf_of_account(self, name: bytes, depth: int, hashes: int, *, closes: bool) -> None:
        head, body = self._account_body(depth, hashes)
        store = self._chance.between(0 if closes else 1, 7)
        if self._wrong("nothing stored"):
            store = 0
        operation = ACCOUNT | store << 4 | (CLOSES_STORAGE if closes else 0) | hashes << 1
        operation |= (operation & 0x7F).bit_count() & 1
        if self._wrong("closed by another operation"):
            operation ^= self._chance.pick((1, CLOSES_STORAGE | 1, 1 << self._chance.below(7), ACCOUNT))
        self._operations.append(bytes([operation]) + head + (b"" if closes else name) + body)

    def _account_body(self, depth: int, hashes: int) -> tuple[bytes, bytes]:
        """Return an account's head and tail with these hashes."""
        chance = self._chance
        nonce = self._number(8) if chance.happens(0.7) else b""
        balance = self._number(32 if chance.happens(0.2) else 12) if chance.happens(0.8) else b""
        head = (self._depth(depth) << 10 | len(nonce) << 6 | len(balance)).to_bytes(2)
        following = [self._hash() for bit in (STORAGE_ROOT_FOLLOWS, CODE_HASH_FOLLOWS) if hashes & bit]
        return head, b"".join([nonce, balance, *following])

    def _storage(self, owner: bytes) -> None:
        """Open a storage. The caller closes it."""
        if self._wrong("storage in a storage"):
            self._operations.append(bytes([OPEN_STORAGE]) + self._accounts.names[self._pick("")])
        self._operations.append(bytes([OPEN_STORAGE]) + owner)
        if self._storages and owner != HISTORY_ADDRESS and self._random() < 0.25:
            # Two accounts may have the same storage.
            self._operations += self._chance.pick(self._storages)
            return
        begin = len(self._operations)
        self._names, self._owner = self._slots, owner
        self._begin()
        self._subtree("")
        self._names, self._owner = self._accounts, b""
        if owner != HISTORY_ADDRESS:
            self._storages.append(self._operations[begin:])

    def _name(self, place: int) -> tuple[str, bytes]:
        return self._names.keys[place], self._names.names[place]

    def _empty_storage(self, owner: bytes) -> None:
        """Open an empty storage, as `_storage` does."""
        self._operations.append(bytes([OPEN_STORAGE]) + owner)
        self._names, self._owner = self._slots, owner
        self._attach("", self._empty(""))
        self._names, self._owner = self._accounts, b""

    def _absent(self, how: int, name: bytes, evidence: bytes) -> None:
        if self._names is self._slots:
            self._operations.append(bytes([ZERO_SLOT + how]) + name + evidence)
        elif self._random() < 0.8:
            self._operations.append(bytes([ABSENT_ACCOUNT | how]) + name + evidence)
        else:
            if self._wrong("storage of an absent account"):
                self._storage(name)
            else:
                self._empty_storage(name)
            self._operations.append(bytes([ABSENT_ACCOUNT | ABSENT_CLOSES_STORAGE | how]) + evidence)

    def _other_leaf(self, path: str, key: str, name: bytes) -> Node:
        depth = len(path)
        digits = self._other_digits(key, depth, NIBBLES)
        if self._names is self._slots:
            value = b"" if self._wrong("zero value") else self._number(32)
            body = bytes([len(value)]) + value
            self._absent(AT_LEAF, name, bytes([self._depth(depth)]) + self._packed(digits) + body)
        else:
            hashes = self._chance.below(4)
            head, body = self._account_body(depth, hashes)
            self._absent(AT_ACCOUNT | hashes, name, head + self._packed(digits) + body)
        return Node(_AT_LEAF, path + digits, NIBBLES, key, is_hash=self._names is self._accounts or depth < 4)

    def _other_extension(self, path: str, key: str, name: bytes) -> Node:
        depth = len(path)
        reach = self._chance.between(depth + 1, MAX_DEPTH if self._random() < 0.3 else min(depth + 4, MAX_DEPTH))
        digits = self._other_digits(key, depth, reach)
        length = reach - depth
        if self._wrong("length of an extension"):
            digits, others = digits.ljust(NIBBLES, "0"), (0, length + 1, NIBBLES - depth, MAX_DEPTH + 1 - depth)
            length = self._chance.pick(others)
            digits = digits[:length]
        extension = bytes([self._depth(depth), length]) + self._packed(digits) + self._hash()
        self._absent(AT_EXTENSION, name, extension)
        return Node(_AT_EXTENSION, path + digits, reach, key, is_hash=True)

    def _other_digits(self, key: str, begin: int, end: int) -> str:
        """Return other digits for a part of a key. The first of them may be the same."""
        digits = key[begin:end]
        if self._wrong("path of the key itself"):
            return digits
        at = 0 if self._random() < 0.7 else self._chance.below(end - begin)
        other = _DIGITS[int(digits[at], 16) ^ self._chance.between(1, 15)]
        count = end - begin - at - 1
        return digits[:at] + other + (f"{self._chance.getrandbits(4 * count):0{count}x}" if count else "")

    def _packed(self, digits: str) -> bytes:
        if len(digits) % 2 == 0:
            return bytes.fromhex(digits)
        return bytes.fromhex(("1" if self._wrong("nibble too many") else "0") + digits)

    def _attach(self, path: str, node: Node) -> Node:
        """Sometimes prove more keys absent at the top subtree."""
        names = self._names
        if node.kind == _AT_BRANCH:
            if self._wrong("attached at a branch"):
                self._absent(AT_SAME, names.names[self._pick(path)], b"")
            return node
        candidates: Sequence[int] = names.under(path)
        if self._wrong("attached elsewhere"):
            candidates = range(len(names.keys))
        elif path and self._wrong("attached to a cousin"):
            candidates = self._cousins(node.key, len(path) + 1) or range(len(names.keys))
        elif self._wrong("attached though present"):
            present = names.under(node.key[: node.reach])
            if present:
                self._absent(AT_SAME, names.names[self._chance.pick(present)], b"")
            return node
        elif len(candidates) < 2 or self._random() > 0.35:
            return node
        passed = node.key[: node.reach]
        last = node.last
        for place in sorted({self._chance.pick(candidates) for _ in range(self._chance.between(1, 3))}):
            key = names.keys[place]
            if not key.startswith(passed) and (key > last or self._wrong("attached out of order")):
                self._absent(AT_SAME, names.names[place], b"")
                last = key
        return node._replace(last=last)

    # --- Disorder -----------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Remove the last operations or the last bytes."""
        mine = self._operations
        if self._chance.happens(0.4):
            del mine[-self._chance.between(1, 3) :]
        else:
            mine[-1] = mine[-1][: self._chance.between(1, len(mine[-1]) - 1)]

    def _disturb(self) -> None:
        """Remove, repeat or exchange operations, or insert some of another sequence."""
        chance, mine = self._chance, self._operations
        at = chance.below(len(mine))
        before, there, after = mine[:at], mine[at], mine[at + 1 :]
        how = chance.below(9)
        if how < 4:
            there_too = chance.pick(mine)
            self._operations = [
                before + after,
                [*before, there, there, *after],
                [*before, there_too, there, *after],
                [*before, *after[:1], there, *after[1:]],
            ][how]
        elif how < 7:
            other = Attacker(chance).state()
            others_end = other[chance.below(len(other)) :]
            self._operations = [before + others_end, [*before, *other, there, *after], mine + other][how - 4]
        elif how == 7:
            mine[at] = bytes([chance.pick(_OPERATIONS)]) + there[1:]
        else:
            byte = chance.below(len(there))
            changed = there[byte] ^ 1 << chance.below(8)
            mine[at] = there[:byte] + bytes([changed]) + there[byte + 1 :]


def any_fault(chance: Chance) -> Fault | None:
    return None if chance.happens(_CLEAN) else chance.pick(FAULTS)


def forms(operation: bytes) -> Iterator[str]:
    """Yield the names that a tally counts for an operation: its first byte, and the kinds of a branch's children."""
    yield f"{operation[0]:02x}"
    if BRANCH <= operation[0] < END_OF_BRANCHES:
        yield from ["own child"] * ((operation[0] & 0x0F) + 1)
        yield from ["hash child"] * int.from_bytes(operation[1:3]).bit_count()
    if BRANCH_WITH_NODES <= operation[0] < END_OF_BRANCHES:
        yield from ["node child"] * int.from_bytes(operation[3:5]).bit_count()
