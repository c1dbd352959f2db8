"""Hash tree roots of encoded SSZ objects, and branches to their parts (Ethereum consensus specifications, `ssz/`).

Only the types that beacon blocks and states need are here. They compute roots from bytes, and don't decode objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from itertools import accumulate
from typing import Protocol

_CHUNK = 32
_OFFSET = 4
# Maximum elements of a list whose elements differ in size. The format allows a million transactions in a block. Hashing
# a million empty ones takes minutes, and no gas limit of the next years has room for them.
_MOST_ELEMENTS = 1 << 16


class InvalidSsz(ValueError):
    """The bytes don't encode an object of that type. The message is one sentence."""


class Type(Protocol):
    @property
    def size(self) -> int | None:
        """Return the size of each object in bytes. None if objects differ in size."""

    def root(self, data: bytes) -> bytes:
        """Return the hash tree root of an encoded object. Raises `InvalidSsz`."""


# --- Trees ------------------------------------------------------------------------------------------------------------


def merge(left: bytes, right: bytes) -> bytes:
    return sha256(left + right).digest()


@cache
def zeros(height: int) -> bytes:
    """Return the root of a tree whose leaves are all zero."""
    return merge(zeros(height - 1), zeros(height - 1)) if height else bytes(_CHUNK)


def tree_root(leaves: Sequence[bytes], depth: int, height: int = 0) -> bytes:
    """Return the root of a tree of the leaves. Missing leaves are zeros, or roots of trees of zeros of this height."""
    return _layers(leaves, depth, height)[depth][0]


def siblings(leaves: Sequence[bytes], depth: int, index: int) -> list[bytes]:
    """Return the siblings on the path from a leaf to the root. Missing ones are roots of trees of zeros."""
    layers = _layers(leaves, depth)
    places = [index >> height ^ 1 for height in range(depth)]
    return [layers[height][at] if at < len(layers[height]) else zeros(height) for height, at in enumerate(places)]


def climb(node: bytes, branch: Sequence[bytes], index: int) -> bytes:
    """Return the root that follows from a node at this index and its branch."""
    for height, sibling in enumerate(branch):
        node = merge(sibling, node) if index >> height & 1 else merge(node, sibling)
    return node


def integer_leaf(value: int) -> bytes:
    return value.to_bytes(_CHUNK, "little")


def progressive_root(leaves: Sequence[bytes], depth: int = 0) -> bytes:
    """Return the root of a progressive tree of the leaves (EIP-7916).

    On the left it has a tree of depth 0. The node on the right has a tree of depth 2 on its left, and so on until no
    leaves are left.
    """
    if not leaves:
        return zeros(0)
    here, rest = leaves[: 1 << depth], leaves[1 << depth :]
    return merge(tree_root(here, depth), progressive_root(rest, depth + 2))


def progressive_siblings(leaves: Sequence[bytes], index: int, depth: int = 0) -> list[bytes]:
    """Return the siblings on the path from a leaf to the root of a progressive tree."""
    here, rest = leaves[: 1 << depth], leaves[1 << depth :]
    if index < 1 << depth:
        return [*siblings(here, depth, index), progressive_root(rest, depth + 2)]
    return [*progressive_siblings(rest, index - (1 << depth), depth + 2), tree_root(here, depth)]


def progressive_index(index: int) -> int:
    """Return the generalized index of a progressive container's field."""
    spine, depth = 2, 0
    while index >= 1 << depth:
        index -= 1 << depth
        spine, depth = spine << 1 | 1, depth + 2
    return spine << 1 + depth | index


def list_root(leaves: Sequence[bytes], depth: int) -> bytes:
    """Return the hash tree root of a list of at most 2 ** depth leaves."""
    return merge(tree_root(leaves, depth), integer_leaf(len(leaves)))


def _layers(leaves: Sequence[bytes], depth: int, height: int = 0) -> list[Sequence[bytes]]:
    if len(leaves) > 1 << depth:
        raise InvalidSsz(f"There are {len(leaves)} leaves in a tree of depth {depth}.")
    layers: list[Sequence[bytes]] = [leaves or [zeros(height)]]
    for at in range(height, height + depth):
        below = layers[-1]
        padded = [*below, zeros(at)] if len(below) % 2 else below
        layers.append([merge(*pair) for pair in zip(padded[::2], padded[1::2], strict=True)])
    return layers


def _depth(count: int) -> int:
    """Return the depth of the smallest tree that has this many leaves."""
    return (count - 1).bit_length() if count else 0


def _chunks(data: bytes) -> list[bytes]:
    return [data[at : at + _CHUNK].ljust(_CHUNK, b"\0") for at in range(0, len(data), _CHUNK)]


# --- Types ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bytes:
    """A fixed number of bytes. It also stands for a little-endian integer, and for a vector of bits or of roots."""

    size: int

    def root(self, data: bytes) -> bytes:
        if len(data) != self.size:
            raise InvalidSsz(f"{len(data)} bytes are not {self.size}.")
        if len(data) <= _CHUNK:
            return data.ljust(_CHUNK, b"\0")
        return tree_root(_chunks(data), _depth(-(-self.size // _CHUNK)))


@dataclass(frozen=True)
class ByteList:
    limit: int
    size: None = None

    def root(self, data: bytes) -> bytes:
        if len(data) > self.limit:
            raise InvalidSsz(f"{len(data)} bytes are more than {self.limit}.")
        return merge(tree_root(_chunks(data), _depth(-(-self.limit // _CHUNK))), integer_leaf(len(data)))


@dataclass(frozen=True)
class BitList:
    limit: int | None
    """None: the list is progressive."""
    size: None = None

    def root(self, data: bytes) -> bytes:
        if not data or not data[-1]:
            raise InvalidSsz("A list of bits has no length.")
        # The highest bit marks the end of the list.
        number = int.from_bytes(data, "little")
        count = number.bit_length() - 1
        if self.limit is not None and count > self.limit:
            raise InvalidSsz(f"{count} bits are more than {self.limit}.")
        bits = (number ^ 1 << count).to_bytes(-(-count // 8), "little")
        return merge(_limited_root(_chunks(bits), self.limit, 256), integer_leaf(count))


@dataclass(frozen=True)
class List:
    """A list of composite objects, or of integers."""

    element: Type
    limit: int | None
    """None: the list is progressive."""
    packed: bool = False
    """True if elements are integers, several in a leaf."""
    size: None = None

    def root(self, data: bytes) -> bytes:
        parts = _elements(self.element, data)
        if self.limit is not None and len(parts) > self.limit:
            raise InvalidSsz(f"{len(parts)} elements are more than {self.limit}.")
        if self.packed and self.element.size:
            tree = _limited_root(_chunks(data), self.limit, _CHUNK // self.element.size)
        else:
            tree = _limited_root([self.element.root(part) for part in parts], self.limit, 1)
        return merge(tree, integer_leaf(len(parts)))


@dataclass(frozen=True)
class Vector:
    """A fixed number of composite objects of one size."""

    element: Type
    count: int

    @property
    def size(self) -> int | None:
        return None if self.element.size is None else self.element.size * self.count

    def root(self, data: bytes) -> bytes:
        parts = _elements(self.element, data)
        if len(parts) != self.count:
            raise InvalidSsz(f"{len(parts)} elements are not {self.count}.")
        return tree_root([self.element.root(part) for part in parts], _depth(self.count))


@dataclass(frozen=True)
class Container:
    fields: Mapping[str, Type]
    progressive: bool = False
    """True if its tree is progressive, with a leaf on the right that says which fields are active (EIP-7495)."""

    @cached_property
    def size(self) -> int | None:
        sizes = [field.size for field in self.fields.values()]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def fixed_size(self) -> int:
        """Return the size of the fields of fixed size, and of the places of the others."""
        return sum(_OFFSET if field.size is None else field.size for field in self.fields.values())

    def parts(self, data: bytes) -> dict[str, bytes]:
        """Return each field's encoding. Raises `InvalidSsz`."""
        fixed = self.fixed_size
        if len(data) < fixed:
            raise InvalidSsz(f"{len(data)} bytes are fewer than a container's {fixed}.")
        encodings: dict[str, bytes] = {}
        places: dict[str, int] = {}
        at = 0
        for name, field in self.fields.items():
            if field.size is None:
                places[name] = int.from_bytes(data[at : at + _OFFSET], "little")
                at += _OFFSET
            else:
                encodings[name] = data[at : at + field.size]
                at += field.size
        encodings |= zip(places, _split(data, list(places.values()), fixed), strict=True)
        return {name: encodings[name] for name in self.fields}

    @cached_property
    def _places(self) -> list[tuple[Type, int, int]]:
        """Return each field with its place, if all have a fixed size."""
        ends = list(accumulate(field.size or 0 for field in self.fields.values()))
        return list(zip(self.fields.values(), [0, *ends], ends, strict=False))

    def leaves(self, data: bytes) -> list[bytes]:
        """Return the root of each field. Raises `InvalidSsz`."""
        if len(data) == self.size:
            return [field.root(data[start:end]) for field, start, end in self._places]
        parts = self.parts(data)
        return [field.root(parts[name]) for name, field in self.fields.items()]

    def root(self, data: bytes) -> bytes:
        return self._root(self.leaves(data))

    def branch(self, data: bytes, name: str) -> tuple[bytes, list[bytes]]:
        """Return the object's root, and the siblings on the path from a field's root to it. Raises `InvalidSsz`."""
        return self.branch_of(self.leaves(data), name)

    def branch_of(self, leaves: Sequence[bytes], name: str) -> tuple[bytes, list[bytes]]:
        """Return the same by the root of each field."""
        index = list(self.fields).index(name)
        if self.progressive:
            return self._root(leaves), [*progressive_siblings(leaves, index), self._active_fields]
        return self._root(leaves), siblings(leaves, _depth(len(leaves)), index)

    def _root(self, leaves: Sequence[bytes]) -> bytes:
        if self.progressive:
            return merge(progressive_root(leaves), self._active_fields)
        return tree_root(leaves, _depth(len(leaves)))

    @property
    def _active_fields(self) -> bytes:
        return integer_leaf((1 << len(self.fields)) - 1)


def _limited_root(leaves: Sequence[bytes], limit: int | None, in_a_leaf: int) -> bytes:
    """Return the root of the tree below a list of at most `limit` elements."""
    return progressive_root(leaves) if limit is None else tree_root(leaves, _depth(-(-limit // in_a_leaf)))


def _elements(element: Type, data: bytes) -> list[bytes]:
    if element.size is not None:
        if len(data) % element.size:
            raise InvalidSsz(f"{len(data)} bytes are no multiple of {element.size}.")
        return [data[at : at + element.size] for at in range(0, len(data), element.size)]
    if not data:
        return []
    first = int.from_bytes(data[:_OFFSET], "little")
    if first > _OFFSET * _MOST_ELEMENTS:
        raise InvalidSsz(f"A list has more than {_MOST_ELEMENTS} elements.")
    places = [int.from_bytes(data[at : at + _OFFSET], "little") for at in range(0, min(first, len(data)), _OFFSET)]
    return _split(data, places, len(places) * _OFFSET)


def _split(data: bytes, places: Sequence[int], first: int) -> list[bytes]:
    """Split the data at its offsets. The first offset must be `first`."""
    if (
        (places[0] if places else len(data)) != first
        or list(places) != sorted(places)
        or max(places, default=0) > len(data)
    ):
        raise InvalidSsz("Offsets don't rise from the end of the fixed part.")
    ends = [*places[1:], len(data)] if places else []
    return [data[start:stop] for start, stop in zip(places, ends, strict=True)]
