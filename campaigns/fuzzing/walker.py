"""A reader of Merkle Patricia tries (Yellow Paper, appendix D). It uses only nodes that were shown.

It shares no code with the registry or its model. It is stricter than necessary: it refuses any node on a key's path
that no trie has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eth_utils.crypto import keccak
from rlp.codec import consume_length_prefix
from rlp.exceptions import RLPException

KEY_DIGITS = 64
EMPTY_ROOT = keccak(b"\x80")

_EMPTY = b"\x80"
_HASH = 0xA0
_LEAF_FLAG, _ODD_FLAG = 2, 1


class NotShown(Exception):
    """A key leads to a node that nobody has shown, so nothing is known about its value."""


class Odd(Exception):
    """A key leads to something that no trie has. The message names it."""


@dataclass(frozen=True)
class Branch:
    children: list[bytes]  # the RLP of each child


@dataclass(frozen=True)
class Extension:
    path: str
    child: bytes  # the child's RLP


@dataclass(frozen=True)
class Leaf:
    path: str
    value: bytes


Node = Branch | Extension | Leaf


class Walker:
    def __init__(self, shown: Mapping[bytes, bytes]) -> None:
        """`shown` has the RLP of nodes by their hashes. The caller computes the hashes."""
        self._shown = shown
        self._read: dict[bytes, Node] = {}

    def value(self, root: bytes, key: str) -> bytes:
        """Return the trie's value at a key of 64 hexadecimal digits. Empty if there is none.

        Raise NotShown and Odd.
        """
        if root == EMPTY_ROOT:
            return b""
        node, passed = self._by_hash(root), 0
        while True:
            if passed >= KEY_DIGITS and not isinstance(node, Leaf):
                raise Odd("A key ends above a leaf.")
            if isinstance(node, Branch):
                child = node.children[int(key[passed], 16)]
                passed += 1
                if child == _EMPTY:
                    return b""
                node = self._child(child)
            elif isinstance(node, Extension):
                if not key.startswith(node.path, passed):
                    return b""
                passed += len(node.path)
                node = self._branch_below(node)
            else:
                if passed + len(node.path) != KEY_DIGITS:
                    raise Odd("A leaf ends a key that is too short, or too long.")
                return node.value if key.endswith(node.path) else b""

    def leaves(self, root: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the key and value of each leaf that the shown nodes lead to. Invalid nodes are left out."""
        if root == EMPTY_ROOT:
            return
        try:
            node = self._by_hash(root)
        except (NotShown, Odd):
            return
        waiting: list[tuple[str, Node]] = [("", node)]
        while waiting:
            path, node = waiting.pop()
            if isinstance(node, Leaf):
                if len(path) + len(node.path) == KEY_DIGITS:
                    yield path + node.path, node.value
                continue
            if isinstance(node, Branch):
                below = [(f"{path}{place:x}", child) for place, child in enumerate(node.children) if child != _EMPTY]
            else:
                below = [(path + node.path, node.child)]
            for longer, child in below:
                try:
                    below_it = self._branch_below(node) if isinstance(node, Extension) else self._child(child)
                except (NotShown, Odd):
                    continue
                if len(longer) <= KEY_DIGITS:
                    waiting.append((longer, below_it))

    def _by_hash(self, digest: bytes) -> Node:
        if digest not in self._read:
            if digest not in self._shown:
                raise NotShown(digest.hex())
            self._read[digest] = parse(self._shown[digest])
        return self._read[digest]

    def _child(self, reference: bytes) -> Node:
        """Return the node that a branch or an extension refers to by its hash, or embeds."""
        if reference[0] != _HASH:
            return parse(reference)
        node = self._by_hash(reference[1:])
        if len(self._shown[reference[1:]]) < 32:
            raise Odd("A node of less than 32 bytes is referred to by its hash.")
        return node

    def _branch_below(self, extension: Extension) -> Branch:
        node = self._child(extension.child)
        if not isinstance(node, Branch):
            raise Odd("An extension leads to something else than a branch.")
        return node


def parse(encoded: bytes) -> Node:
    """Decode one node, without checking embedded lists. Raises `Odd` if it is malformed."""
    items = split(encoded)
    if len(items) == 17:
        return _branch(items)
    if len(items) != 2:
        raise Odd("A node is neither a branch nor an extension nor a leaf.")
    digits = string(items[0]).hex()
    flags = int(digits[:1] or "f", 16)
    if flags > (_LEAF_FLAG | _ODD_FLAG) or (not flags & _ODD_FLAG and digits[1] != "0"):
        raise Odd("A path is not hex-prefixed.")
    path = digits[1:] if flags & _ODD_FLAG else digits[2:]
    if flags & _LEAF_FLAG:
        value = string(items[1])
        if not value:
            raise Odd("A leaf holds nothing.")
        return Leaf(path, value)
    if not path:
        raise Odd("An extension is empty.")
    if not _refers(items[1]):
        raise Odd("An extension leads to nothing.")
    if items[1][0] != _HASH and not isinstance(parse(items[1]), Branch):
        raise Odd("An extension leads to something else than a branch.")
    return Extension(path, items[1])


def _branch(items: list[bytes]) -> Branch:
    *children, value = items
    if value != _EMPTY:
        raise Odd("A branch holds a value.")
    there = [child for child in children if child != _EMPTY]
    if len(there) < 2:
        raise Odd("A branch has fewer than two children.")
    if not all(map(_refers, there)):
        raise Odd("A child of a branch is neither a hash nor a node of less than 32 bytes.")
    return Branch(children)


def _refers(child: bytes) -> bool:
    return child[0] == _HASH or (child[0] >= 0xC0 and len(child) < 32)


def split(encoded: bytes) -> list[bytes]:
    """Return the RLP of each item of a list. Raise Odd if the encoding isn't canonical or not a list."""
    content, is_list = _content(encoded, 0, len(encoded))
    if not is_list:
        raise Odd("Where a list belongs there are bytes.")
    items = []
    cursor = content.start
    while cursor < len(encoded):
        content, _ = _content(encoded, cursor, None)
        items.append(encoded[cursor : content.stop])
        cursor = content.stop
    if cursor != len(encoded):
        raise Odd("The last item of a list is cut.")
    return items


def string(encoded: bytes) -> bytes:
    """Return the bytes of an item. Raise Odd if it is a list or isn't canonical."""
    content, is_list = _content(encoded, 0, len(encoded))
    if is_list:
        raise Odd("Where bytes belong there is a list.")
    return encoded[content]


def _content(encoded: bytes, start: int, end: int | None) -> tuple[slice, bool]:
    """Return the range of an item's content at `start`, and whether the item is a list. Raise Odd.

    `end` is the required end of the item, or None.
    """
    try:
        _, kind, length, begin = consume_length_prefix(encoded, start)
    except (RLPException, IndexError) as error:
        raise Odd("This is no canonical RLP.") from error
    if end is not None and begin + length != end:
        raise Odd("An item of RLP has another length than it says.")
    return slice(begin, begin + length), kind is list
