"""Random subtrees, and random operations that mostly fit the given stack."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from eth_utils.crypto import keccak

from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.memory import Spoilt
from chains.encoding import HISTORY_WINDOW, shortest
from chains.tries.packed import (
    ABSENT_ACCOUNT,
    ABSENT_CLOSES_STORAGE,
    ACCOUNT,
    AT_EMPTY,
    AT_EXTENSION,
    AT_LEAF,
    AT_SAME,
    BLOCK_HASH,
    CLOSES_STORAGE,
    CODE_HASH_FOLLOWS,
    EXTENSION,
    FULL_BRANCH,
    HASH_BYTES,
    MAX_DEPTH,
    NIBBLES,
    OPEN_STORAGE,
    SLOT,
    STORAGE_ROOT_FOLLOWS,
    ZERO_SLOT,
)
from chains.tries.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT
from tests.contracts import operations
from tests.contracts.decoder import EMPTY, _Subtree
from tests.contracts.operations import hash_child, node_child

PLACES = range(16)
_IMPLIED = (EMPTY_TRIE_ROOT, EMPTY_CODE_HASH, bytes(32))
_BOUNDARY_DEPTHS = (0, 0, 1, 2, 3, 8, 9, 55, 56, 61, 62, 62, 63)
_BOUNDARY_BYTES = (0, 1, 0x1F, 0x20, 0x21, 0x3E, 0x3F, 0x40, 0x41, 0x80, 0xC0, 0xC1, 0xDE, 0xDF, 0xFF)


# --- Names ------------------------------------------------------------------------------------------------------------


class Name(NamedTuple):
    """An account or a slot: its key in the trie, and its name in operations."""

    key: int
    written: bytes


def account_name(address: bytes) -> Name:
    return Name(int.from_bytes(keccak(address)), address)


def slot_name(slot: int) -> Name:
    digits = shortest(slot)
    return Name(int.from_bytes(keccak(slot.to_bytes(32))), bytes([len(digits)]) + digits)


class Names:
    """Names that can be looked up by the first nibbles of their keys."""

    _NIBBLES = 3
    _COUNT = 2 << 4 * _NIBBLES

    def __init__(self, names: Iterable[Name]) -> None:
        self.all = sorted(names)
        self._near: list[list[Name]] = [[] for _ in range(1 << 4 * self._NIBBLES)]
        for name in self.all:
            self._near[prefix(name.key, self._NIBBLES)].append(name)

    @classmethod
    @cache
    def of_accounts(cls) -> "Names":
        chance = random.Random("accounts")
        return cls(account_name(chance.randbytes(20)) for _ in range(cls._COUNT))

    @classmethod
    @cache
    def of_slots(cls) -> "Names":
        """Return names of slots. Half of the slots are small numbers."""
        chance = Chance("slots")
        small = range(cls._COUNT // 2)
        return cls(map(slot_name, {*small, *(chance.number(32) for _ in small)}))

    def near(self, chance: Chance, key: int, depth: int) -> Name:
        """Return a name whose key shares the first nibbles (at most three) with a key. Any name if there is none."""
        fixed = min(depth, self._NIBBLES)
        free = 4 * (self._NIBBLES - fixed)
        return chance.pick(self._near[prefix(key, fixed) << free | chance.getrandbits(free)] or self.all)


# --- Subtrees ---------------------------------------------------------------------------------------------------------


def prefix(key: int, depth: int) -> int:
    return key >> 4 * (NIBBLES - depth)


def within(chance: Chance, key: int, depth: int) -> int:
    """Return another key that shares the first `depth` nibbles with this one."""
    free = 4 * (NIBBLES - depth)
    return key >> free << free | chance.getrandbits(free)


def flip_nibble(chance: Chance, key: int, first: int, last: int) -> int:
    """Change one nibble of a key, from `first` to `last`."""
    drawn = chance.below(15 * (last - first + 1))
    return key ^ (1 + drawn % 15) << 4 * (NIBBLES - 1 - first - drawn // 15)


def node(chance: Chance, size: int = 0) -> bytes:
    """Return a list of 2 to 31 bytes, which is an embedded node."""
    size = size or (chance.between(2, 31) if chance.happens(0.5) else chance.pick((2, 3, 30, 31)))
    return bytes([0xC0 + size - 1]) + chance.randbytes(size - 1)


def no_node(chance: Chance) -> bytes:
    """Return a list of a wrong size, or a string."""
    prefix_byte = chance.pick((0xC0, 0xDF, 0xDF, 0xE0, 0xF7, 0xF8, 0xF9, 0xFF, 0x00, 0x7F, 0x80, 0xBF))
    return bytes([prefix_byte]) + chance.randbytes(prefix_byte - 0xC0 if 0xC0 < prefix_byte <= 0xF7 else 0)


def subtree(chance: Chance, key: int, depth: int) -> _Subtree:
    """Return a subtree: hash, embedded node or empty; branch, extension or leaf; with or without absent keys."""
    kind = chance.random()
    if kind < 0.12:
        return Spoilt(EMPTY, key, depth, NIBBLES, key, rest=chance.randbytes(31))
    reach = chance.pick((0, NIBBLES, NIBBLES, -1))
    if reach < 0:
        reach = chance.between(depth + 1, MAX_DEPTH) if depth < MAX_DEPTH else 0
    # A branch has no absent keys, so this word has no meaning for it.
    last = 0 if reach and chance.happens(0.6) else chance.pick((key >> 1, key, 1, chance.getrandbits(256), 2**256 - 1))
    if kind < 0.35:
        return Spoilt(node(chance), key, depth, reach, last, rest=chance.randbytes(30))
    return _Subtree(b"\xa0" + chance.randbytes(HASH_BYTES), key, depth, reach, last)


def siblings(chance: Chance, key: int, depth: int, places: Iterable[int]) -> list[_Subtree]:
    """Return children of the branch above `depth` (not 0) on a key's path."""
    above = prefix(key, depth - 1) << 4
    free = 4 * (NIBBLES - depth)
    return [subtree(chance, (above | place) << free | chance.getrandbits(free), depth) for place in places]


def some(chance: Chance, places: Iterable[int] = PLACES) -> list[int]:
    """Choose some of the positions, mostly few."""
    which, mask = chance.random(), chance.getrandbits(16)
    if which < 0.7:
        mask &= chance.getrandbits(16)
        if which < 0.45:
            mask &= chance.getrandbits(16)
    elif which > 0.8:
        mask |= chance.getrandbits(16) if which < 0.92 else 0xFFFF
    return [place for place in places if mask >> place & 1]


# --- Operations -------------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """A writer of operations about a slot and an account, or about other names near the top subtree."""

    chance: Chance
    slot: Name
    account: Name

    def suiting(self, stack: Sequence[_Subtree], below: Sequence[_Subtree] | None, *, is_history: bool) -> bytes:
        """Return an operation that fits the open stack. If a storage is open, `below` is the state's stack."""
        chance = self.chance
        which = chance.random()
        if stack and stack[-1].depth:
            group = group_size(stack)
            if which < (0.5 if group > 1 else 0.25):
                return self.branch(stack, group)
            if which < 0.6 and (not stack[-1].reach or chance.happens(0.1)):
                return self.extension(stack[-1].depth)
        is_root = len(stack) == 1 and not stack[0].depth
        if below is not None and which > (0.4 if is_root else 0.97):
            return self.close(below, is_cancellation=bool(stack) and stack[-1].reference == EMPTY)
        # A few operations are in the wrong trie.
        if (below is not None) != chance.happens(0.04):
            return self._about_slot(stack, is_history=is_history)
        return self._about_account(stack)

    def _about_slot(self, stack: Sequence[_Subtree], *, is_history: bool) -> bytes:
        chance = self.chance
        which = chance.random()
        if which < 0.02:
            return self.open_storage()
        if which < 0.35:
            return self.slot_leaf(stack, SLOT)
        if which < (0.6 if is_history else 0.4):
            return self.slot_leaf(stack, BLOCK_HASH)
        how = chance.pick((AT_EMPTY, AT_EXTENSION, AT_LEAF, AT_SAME, AT_SAME))
        return self.zero_slot(stack, self._unless_branch(stack, how))

    def _about_account(self, stack: Sequence[_Subtree]) -> bytes:
        which = self.chance.random()
        if which < 0.1:
            return self.open_storage()
        if which < 0.5:
            return self.account_leaf(stack, closes=False)
        return self.absent_account(stack, self._how_absent(stack), closes=False)

    def branch(self, stack: Sequence[_Subtree], group: int) -> bytes:
        chance = self.chance
        count = group
        if chance.happens(0.12):
            count = chance.pick((chance.between(1, group), min(group + 1, 16)))
        mine = {place_of(subtree) for subtree in stack[-count:]}
        others = [place for place in some(chance) if place not in mine]
        if chance.happens(0.15):
            others = [place for place in PLACES if place not in mine]
        share_of_nodes = chance.pick((0, 0, 0.3, 0.8))
        if len(mine) == 1 and not others and chance.happens(0.9):
            others = [mine.copy().pop() ^ chance.between(1, 15)]
        nodes = {place for place in others if chance.happens(share_of_nodes)} if share_of_nodes else set()
        top = stack[-1]
        if count == 1 and chance.happens(0.3 if others and not nodes else 0.05):
            return self.full_branches(top.depth)
        return branch(chance, count, mine, others, nodes)

    def full_branches(self, depth: int) -> bytes:
        chance = self.chance
        times = chance.pick((1, 1, 1, 2, 3, min(depth, 4)))
        if chance.happens(0.02):
            times = min(depth, 8) + 1
        return b"".join(bytes([FULL_BRANCH]) + chance.randbytes(15 * HASH_BYTES) for _ in range(times))

    def extension(self, depth: int) -> bytes:
        chance = self.chance
        return bytes([EXTENSION, chance.pick((1, 1, 2, depth, chance.between(1, depth), chance.between(0, depth + 1)))])

    def open_storage(self) -> bytes:
        return bytes([OPEN_STORAGE]) + self.account.written

    def close(self, below: Sequence[_Subtree], *, is_cancellation: bool) -> bytes:
        """Return the operation that closes the open storage with its account."""
        if self.chance.happens(0.65 if is_cancellation else 0.05):
            leads_there = below and prefix(below[-1].key ^ self.account.key, below[-1].depth) == 0
            how = AT_SAME if leads_there and self.chance.happens(0.6) else self._how_absent(below)
            return self.absent_account(below, how, closes=True)
        return self.account_leaf(below, closes=True)

    def slot_leaf(self, stack: Sequence[_Subtree], operation: int) -> bytes:
        chance = self.chance
        name = self._name(stack, self.slot, Names.of_slots())
        if operation == BLOCK_HASH and chance.happens(0.8):
            name = slot_name(
                chance.pick((0, HISTORY_WINDOW - 1, HISTORY_WINDOW))
                if chance.happens(0.1)
                else chance.below(HISTORY_WINDOW)
            )
        return bytes([operation]) + name.written + bytes([self._depth(stack)]) + self._value()

    def zero_slot(self, stack: Sequence[_Subtree], how: int) -> bytes:
        names = Names.of_slots()
        name = self._name(stack, self.slot, names) if how != AT_SAME else self._absent(stack, self.slot, names)
        operation = bytes([ZERO_SLOT + how]) + name.written
        if how != AT_LEAF:
            return operation + self._where(stack, how, name.key)
        depth = self._depth(stack)
        return operation + bytes([depth]) + self._path(name.key, depth, NIBBLES - depth) + self._value()

    def account_leaf(self, stack: Sequence[_Subtree], *, closes: bool) -> bytes:
        chance = self.chance
        store = chance.below(8) if closes else chance.between(1, 7)
        follows = chance.below(2 if closes else 4)
        operation = ACCOUNT | store << 4 | (CLOSES_STORAGE if closes else 0) | follows << 1
        operation |= (operation & 0x7F).bit_count() & 1
        head, body = self._account_body(self._depth(stack), follows)
        name = b"" if closes else self._name(stack, self.account, Names.of_accounts()).written
        return bytes([operation]) + head + name + body

    def absent_account(self, stack: Sequence[_Subtree], how: int, *, closes: bool) -> bytes:
        names = Names.of_accounts()
        if closes:
            name = self.account
        else:
            name = (
                self._absent(stack, self.account, names) if how == AT_SAME else self._name(stack, self.account, names)
            )
        operation = bytes([ABSENT_ACCOUNT | (ABSENT_CLOSES_STORAGE if closes else 0) | how])
        operation += b"" if closes else name.written
        if how < AT_LEAF:
            return operation + self._where(stack, how, name.key)
        depth = min(self._depth(stack), 63)
        head, body = self._account_body(depth, how & 3)
        return operation + head + self._path(name.key, depth, NIBBLES - depth) + body

    def _how_absent(self, stack: Sequence[_Subtree]) -> int:
        """Choose a kind of absence for an account."""
        if self.chance.happens(0.02):
            return AT_LEAF
        return self._unless_branch(stack, self.chance.pick((AT_EMPTY, AT_EXTENSION, 4, 5, 6, 7, AT_SAME, AT_SAME)))

    def _unless_branch(self, stack: Sequence[_Subtree], how: int) -> int:
        """Return `how`, mostly replaced if it is AT_SAME and the top is a branch, where no key can be absent."""
        is_branch = not stack or not stack[-1].reach
        return AT_EMPTY if how == AT_SAME and is_branch and self.chance.happens(0.9) else how

    def _name(self, stack: Sequence[_Subtree], usual: Name, names: Names) -> Name:
        chance = self.chance
        if not stack or chance.happens(0.6):
            return usual
        return names.near(chance, stack[-1].key, max(stack[-1].depth - 1, 0))

    def _absent(self, stack: Sequence[_Subtree], usual: Name, names: Names) -> Name:
        """Return a name that is absent at the top subtree, if one is known."""
        chance = self.chance
        if not stack:
            return usual
        top = stack[-1]
        for name in (usual, *(names.near(chance, top.key, top.depth) for _ in range(2))):
            if name.key > top.last and prefix(name.key, top.depth) == prefix(top.key, top.depth):
                return name
        return usual

    def _depth(self, stack: Sequence[_Subtree]) -> int:
        chance = self.chance
        if stack and chance.happens(0.7):
            return stack[-1].depth
        if chance.happens(0.03):
            return chance.between(63, 255)
        return chance.pick(_BOUNDARY_DEPTHS) if chance.happens(0.7) else chance.below(63)

    def _where(self, stack: Sequence[_Subtree], how: int, key: int) -> bytes:
        chance = self.chance
        if how == AT_SAME:
            return b""
        depth = self._depth(stack)
        if how == AT_EMPTY:
            return bytes([depth])
        room = max(1, MAX_DEPTH - depth)
        length = chance.pick((1, 1, 2, 3, room, chance.between(1, room)))
        if chance.happens(0.03):
            length = chance.pick((0, room + 1, 255))
        return bytes([depth, length]) + self._path(key, depth, length) + self._hash()

    def _path(self, key: int, depth: int, length: int) -> bytes:
        """Return the path of another node. Sometimes it is the key's own path, or a nibble too long."""
        chance = self.chance
        length = max(0, min(length, NIBBLES))
        path = chance.getrandbits(4 * length)
        if chance.happens(0.05):
            path = prefix(key, min(depth + length, NIBBLES)) & (1 << 4 * length) - 1
        if length % 2 and chance.happens(0.04):
            path |= chance.between(1, 15) << 4 * length
        return path.to_bytes((length + 1) // 2)

    def _value(self) -> bytes:
        digits = self._digits(32, 40) or (b"" if self.chance.happens(0.05) else b"\1")
        return bytes([len(digits)]) + digits

    def _digits(self, most: int, beyond: int) -> bytes:
        """Return a number as bytes. Sometimes there are too many, up to `beyond`, or a leading zero."""
        chance = self.chance
        if chance.happens(0.97):
            return shortest(chance.number(most))
        digits = (
            chance.randbytes(chance.between(most + 1, beyond)) if chance.happens(0.5) else shortest(chance.number(8))
        )
        return b"\0" + digits[1:] if chance.happens(0.5) else digits

    def _account_body(self, depth: int, follows: int) -> tuple[bytes, bytes]:
        """Return the head, and the bytes after the address."""
        nonce, balance = self._digits(8, 15), self._digits(32, 63)
        head = (min(depth, 63) << 10 | len(nonce) << 6 | len(balance)).to_bytes(2)
        body = nonce + balance
        for flag in (STORAGE_ROOT_FOLLOWS, CODE_HASH_FOLLOWS):
            if follows & flag:
                body += self._hash()
        return head, body

    def _hash(self) -> bytes:
        return self.chance.pick(_IMPLIED) if self.chance.happens(0.02) else self.chance.randbytes(HASH_BYTES)


def place_of(subtree: _Subtree) -> int:
    return prefix(subtree.key, subtree.depth) & 0x0F


def group_size(stack: Sequence[_Subtree]) -> int:
    """Count the subtrees on top that could be children of one branch."""
    top = stack[-1]
    depth, above, place, count = top.depth, prefix(top.key, top.depth - 1), place_of(top), 1
    for sibling in stack[-2:-17:-1]:
        if sibling.depth != depth or prefix(sibling.key, depth - 1) != above or place_of(sibling) >= place:
            break
        place = place_of(sibling)
        count += 1
    return count


def branch(chance: Chance, count: int, mine: Iterable[int], hashes: Iterable[int], nodes: Iterable[int]) -> bytes:
    """Return a branch of `count` subtrees and other children. `nodes` are the positions of embedded nodes."""
    mine, nodes = set(mine), set(nodes)
    children = []
    for place in sorted({*hashes, *nodes} - mine):
        if place in nodes:
            children.append(node_child(place, no_node(chance) if chance.happens(0.01) else node(chance)))
        else:
            children.append(hash_child(place, chance.randbytes(HASH_BYTES)))
    return operations.branch(count, *children)


def mutate(chance: Chance, operation: bytes) -> bytes:
    """Change, remove or add one or two bytes."""
    spoilt = bytearray(operation)
    for _ in range(1 if chance.happens(0.7) else 2):
        if not spoilt:
            break
        # The first bytes decide most.
        place = chance.below(len(spoilt) if chance.happens(0.5) else min(len(spoilt), 6))
        how = chance.below(9)
        if how < 3:
            spoilt[place] ^= 1 << chance.below(8)
        elif how < 5:
            spoilt[place] = chance.pick(_BOUNDARY_BYTES) if chance.happens(0.6) else chance.below(256)
        elif how == 5:
            del spoilt[place:]
        elif how == 6:
            del spoilt[place]
        elif how == 7:
            spoilt[place:place] = chance.randbytes(chance.pick((1, 2, 32)))
        else:
            spoilt += chance.randbytes(chance.pick((1, 32)))
    return bytes(spoilt)
