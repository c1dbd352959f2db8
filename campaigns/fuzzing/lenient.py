"""Runs operations as the registry does, byte for byte of its memory, and goes on wherever the registry refuses.

A registry that lacks one check ends in the root that is computed here. A header that commits to that root turns a
missing check into facts, which the judge then looks up. The rules are the registry's own checks, named one by one: a
sequence that breaks a single one is refused by nothing else.

This shares no code with the registry's model (`chains.packed`), which refuses at the first rule that is broken.
"""

from collections.abc import Callable
from typing import NamedTuple

from campaigns.fuzzing.judge import AccountField, BlockHash, Fact, Slot, ones, word
from chains.encoding import HISTORY_WINDOW
from chains.packed import HISTORY_ADDRESS
from chains.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT

# Places in memory, as in contracts/src/MemoryZones.sol; nodes' lists begin behind the longest prefix.
_NODE, _STACK, _STACK_END = 0x400, 0x640, 0x60640
_LIST = _NODE + 3
_MOST_LISTED = 16 * 33 + 1
# A subtree, word by word, as in contracts/src/SubtreeStack.sol.
_SUBTREE = 0xC0
_REF, _SIZE, _KEY, _DEPTH, _REACH, _LAST = range(6)

_MAX_DEPTH, _NIBBLES = 62, 64
_WORD = 1 << 256
_EMPTY_STRINGS = b"\x80" * 32
_EMPTY = int.from_bytes(b"\x80".ljust(32, b"\0"))
_HISTORY = int.from_bytes(HISTORY_ADDRESS)
_EMPTY_ROOT, _NO_CODE = int.from_bytes(EMPTY_TRIE_ROOT), int.from_bytes(EMPTY_CODE_HASH)

# More rules than a sequence breaks that can tell anything.
_MOST_BROKEN = 12


class _Lost(Exception):
    """The registry would read or write what isn't modelled here, or run out of gas."""


class Run(NamedTuple):
    """The end of operations if nothing is refused."""

    root: bytes | None
    """None where they halt, whatever is checked."""
    broken: tuple[str, ...]
    """Rules that they break, in this order."""
    facts: tuple[Fact, ...]
    """All facts that would become readable."""


def run(
    operations: bytes, number: int, keccak: Callable[[bytes], bytes], *, history_window: int = HISTORY_WINDOW
) -> Run:
    """Run the operations on the state of block `number`. Everything that they hash is hashed by `keccak`."""
    machine = _Machine(operations, number, keccak, history_window)
    try:
        root = machine.run()
    except _Lost:
        return Run(None, tuple(machine.broken), ())
    return Run(root, tuple(machine.broken), tuple(machine.facts))


def _shr(value: int, bits: int) -> int:
    """Shift as the EVM does: by a number without a sign."""
    return value >> bits if 0 <= bits < 256 else 0


def _shl(value: int, bits: int) -> int:
    return value << bits & _WORD - 1 if 0 <= bits < 256 else 0


class _Machine:
    def __init__(self, operations: bytes, number: int, keccak: Callable[[bytes], bytes], history_window: int) -> None:
        self._data, self._cursor = operations, 0
        self._number = number
        self._hash = keccak
        self._window = history_window
        self._memory = bytearray(_STACK - _NODE + 64 * _SUBTREE)
        self._bottom = self._top = _STACK
        self._is_open, self._owner = False, 0
        self.broken: list[str] = []
        self.facts: list[Fact] = []

    def _rule(self, holds: bool, name: str) -> None:  # noqa: FBT001 - it is what a rule is about
        if holds:
            return
        self.broken.append(name)
        if len(self.broken) > _MOST_BROKEN:
            raise _Lost

    # --- Memory -------------------------------------------------------------------------------------------------------

    def _write(self, place: int, content: bytes) -> None:
        begin, end = place - _NODE, place - _NODE + len(content)
        if begin < 0 or end > _STACK_END - _NODE:
            raise _Lost
        if end > len(self._memory):
            self._memory.extend(bytes(end + 16 * _SUBTREE - len(self._memory)))
        self._memory[begin:end] = content

    def _read(self, place: int, size: int) -> bytes:
        begin = place - _NODE
        if begin < 0 or begin + size > _STACK_END - _NODE:
            raise _Lost
        return bytes(self._memory[begin : begin + size]).ljust(size, b"\0")

    def _of(self, subtree: int, field: int) -> int:
        return int.from_bytes(self._read(subtree + 32 * field, 32))

    # --- Calldata -----------------------------------------------------------------------------------------------------

    def _at(self, place: int, size: int) -> bytes:
        """Bytes of calldata, behind whose end are zeros."""
        return self._data[place : place + size].ljust(size, b"\0")

    def _skip(self, size: int) -> int:
        place = self._cursor
        self._rule(place + size <= len(self._data), "bytes that weren't sent")
        self._cursor = place + size
        return place

    def _take(self, size: int) -> int:
        self._rule(size <= 32, "number beyond a word")
        place = self._skip(size)
        return int.from_bytes(self._at(place, size)) if size <= 32 else 0

    def _shortest(self) -> int:
        return self._shortest_of(self._take(1))

    def _shortest_of(self, size: int) -> int:
        value = self._take(size)
        self._rule(size == 0 or _shr(value, 8 * size - 8) != 0, "leading zero")
        return value

    # --- The stack ----------------------------------------------------------------------------------------------------

    def _push(self, ref: int, size: int, key: int, depth: int, reach: int, last: int) -> None:
        top = self._top
        self._rule(_STACK <= top <= _STACK_END - _SUBTREE, "subtree outside of the zone")
        self._rule(depth <= _MAX_DEPTH, "depth")
        self._write(top, b"".join(map(word, (ref, size, key, depth, reach, last))))
        self._top = top + _SUBTREE

    def _topmost(self, count: int) -> int:
        lowest = self._top - count * _SUBTREE
        self._rule(lowest >= self._bottom, "subtree below the bottom")
        return lowest

    def _pop(self, count: int) -> int:
        self._top = self._topmost(count)
        return self._top

    def _only(self) -> int:
        lowest = self._topmost(1)
        self._rule(lowest <= self._bottom, "one root")
        return lowest

    # --- Writing nodes ------------------------------------------------------------------------------------------------

    def _put(self, end: int, content: bytes, size: int | None = None) -> int:
        """Write bytes of which the first `size` count."""
        self._write(end, content)
        return end + (len(content) if size is None else size)

    def _put_bytes(self, end: int, value: int, size: int) -> int:
        """Write the lowest `size` bytes of a number, and zeros up to a word behind them."""
        return self._put(end, word(_shl(value, 256 - 8 * size)), size)

    def _put_integer(self, end: int, value: int) -> int:
        if 0 < value < 0x80:
            return self._put(end, bytes([value]))
        size = (value.bit_length() + 7) // 8
        return self._put_bytes(self._put(end, bytes([0x80 + size])), value, size)

    def _put_path(self, end: int, key: int, begin: int, to: int, *, leaf: bool) -> int:
        self._rule(begin < to <= _NIBBLES, "path of nibbles")
        length = (to - begin) % _WORD
        if length > 2 * _NIBBLES + 255:
            raise _Lost
        flags, nibbles = 0x20 if leaf else 0, _shl(key, 4 * begin)
        if length & 1:
            flags |= 0x10 | nibbles >> 252
            nibbles = _shl(nibbles, 4)
        size = length >> 1
        if size:
            end = self._put(end, bytes([0x81 + size & 0xFF]))
        end = self._put(end, bytes([flags]))
        return self._put(end, word(nibbles), size)

    def _put_reference(self, end: int, ref: int, size: int) -> int:
        if size == 0:
            return self._put(end, b"\xa0" + word(ref))
        return self._put(end, word(ref), size)

    def _finish(self, end: int) -> tuple[int, int]:
        """Return reference and size of the list that ends there."""
        length = end - _LIST
        self._rule(0 <= length <= _MOST_LISTED, "longest list")
        if not 0 <= length < 1 << 16:
            raise _Lost
        if length < 56:
            prefix = bytes([0xC0 + length])
        elif length < 256:
            prefix = bytes([0xF8, length])
        else:
            prefix = b"\xf9" + length.to_bytes(2)
        start = _LIST - len(prefix)
        self._write(start, prefix)
        node = self._read(start, end - start)
        if len(node) < 32:
            return int.from_bytes(node.ljust(32, b"\0")), len(node)
        return int.from_bytes(self._hash(node)), 0

    # --- Tries --------------------------------------------------------------------------------------------------------

    def _prefix(self, key: int, depth: int) -> int:
        self._rule(depth <= _NIBBLES, "nibbles of a key")
        return _shr(key, 256 - 4 * depth)

    def _full_branches(self) -> None:
        child = self._pop(1)
        self._rule(self._of(child, _SIZE) == 0, "full branch of no hash")
        ref, key, depth = (self._of(child, field) for field in (_REF, _KEY, _DEPTH))
        others = self._skip(15 * 32)
        while True:
            self._rule(depth != 0, "branch above the root")
            ref = self._full_branch(ref, self._prefix(key, depth) & 0x0F, others)
            depth = (depth - 1) % _WORD
            if self._cursor >= len(self._data) or self._data[self._cursor] != 0:
                break
            others = self._skip(1 + 15 * 32) + 1
        self._push(ref, 0, key, depth, 0, 0)

    def _full_branch(self, ref: int, place: int, others: int) -> int:
        hashes = [self._at(others + 32 * each, 32) for each in range(15)]
        hashes.insert(place, word(ref))
        node = b"\xf9\x02\x11" + b"".join(b"\xa0" + each for each in hashes) + b"\x80"
        self._write(_NODE, node)
        return int.from_bytes(self._hash(node))

    def _branch(self, count: int) -> None:
        size = self._take(1)
        lowest = self._pop(count)
        key, depth = self._of(lowest, _KEY), self._of(lowest, _DEPTH)
        self._rule(depth != 0, "branch above the root")
        end, cursor = self._put_children(lowest, count, size)
        self._skip(cursor - self._cursor)
        self._rule(count != 1 or end != _LIST + _MOST_LISTED, "full branch in its short form")
        self._push(*self._finish(end), key, (depth - 1) % _WORD, 0, 0)

    def _put_children(self, lowest: int, count: int, size: int) -> tuple[int, int]:
        """Write a branch's children, as `BranchWriter.put` does. Return where they end, and where calldata goes on."""
        cursor, child, behind = self._cursor, lowest, lowest + count * _SUBTREE
        depth = self._of(lowest, _DEPTH)
        bits = 256 - 4 * depth
        parent = _shr(self._of(lowest, _KEY), bits + 4)
        base, least, real = _LIST, 0, 0
        self._write(base, _EMPTY_STRINGS)
        for _ in range(size):
            form, place = divmod(self._at(cursor, 1)[0], 16)
            cursor += 1
            self._rule(place >= least, "order of hashes" if form == 0 else "order of nodes and subtrees")
            least = place + 1
            at = base + place
            if form == 0:
                length = 33
                self._write(at, b"\xa0" + self._at(cursor, 32))
                cursor += 32
            elif form == 1:
                node = self._at(cursor, 32)
                length = node[0] - 0xBF
                self._rule(2 <= length <= 31, "embedded node")
                if length < 0:
                    raise _Lost
                self._write(at, node)
                cursor += length
            elif form == 2:
                length = self._put_child(at, child, behind, depth)
                path = _shr(self._of(child, _KEY), bits)
                self._rule(path >> 4 == parent, "child of another branch")
                self._rule(path >> 4 != parent or path & 0x0F == place, "child at another place")
                child += _SUBTREE
            else:
                self._rule(False, "form of a child")
                length = 0
            real += length > 1
            self._write(at + length, _EMPTY_STRINGS)
            base += length - 1
        self._rule(child >= behind, "subtree left over")
        self._rule(real >= 2, "two children")
        return base + 17, cursor

    def _put_child(self, at: int, child: int, behind: int, depth: int) -> int:
        """Write the reference of a subtree. Return its length."""
        self._rule(child < behind, "subtree too many")
        self._rule(self._of(child, _DEPTH) == depth, "child of another depth")
        size = self._of(child, _SIZE)
        if size > 31:
            raise _Lost
        ref = word(self._of(child, _REF))
        self._write(at, ref if size else b"\xa0" + ref)
        return size or 33

    def _extend(self, length: int) -> None:
        child = self._pop(1)
        ref, size, key, depth, reach, _ = (self._of(child, field) for field in range(6))
        self._rule(length != 0, "extension of nothing")
        self._rule(length <= depth, "extension above the root")
        self._rule(reach == 0, "extension over no branch")
        self._push_extension(key, (depth - length) % _WORD, depth, ref, size)

    def _push_extension(self, key: int, depth: int, reach: int, ref: int, size: int) -> None:
        end = self._put_reference(self._put_path(_LIST, key, depth, reach, leaf=False), ref, size)
        self._push(*self._finish(end), key, depth, reach, 0)

    def _push_account(self, key: int, depth: int, nonce: int, balance: int, root: int, code: int) -> None:
        sizes = [1 if value < 0x80 else 1 + (value.bit_length() + 7) // 8 for value in (nonce, balance)]
        length = sum(sizes) + 66
        end = self._put_path(_LIST, key, depth, _NIBBLES, leaf=True)
        end = self._put(end, bytes([0xB8, length + 2, 0xF8, length]))
        end = self._put_integer(self._put_integer(end, nonce), balance)
        end = self._put(self._put(end, b"\xa0" + word(root)), b"\xa0" + word(code))
        self._push(*self._finish(end), key, depth, _NIBBLES, 0)

    def _push_slot(self, key: int, depth: int, value: int) -> None:
        self._rule(value != 0, "slot of zero")
        end = self._put_path(_LIST, key, depth, _NIBBLES, leaf=True)
        if value >= 0x80:
            end = self._put(end, bytes([0x81 + (value.bit_length() + 7) // 8]))
        self._push(*self._finish(self._put_integer(end, value)), key, depth, _NIBBLES, 0)

    def _push_empty(self, key: int, depth: int) -> None:
        self._push(_EMPTY, 1, key, depth, _NIBBLES, key)

    def _push_other_extension(self, key: int) -> None:
        depth = self._take(1)
        reach = depth + self._take(1)
        self._rule(reach <= _MAX_DEPTH, "depth below an extension")
        other = self._take_other_key(key, depth, reach)
        self._push_extension(other, depth, reach, self._take(32), 0)
        self._attach(key)

    def _take_other_key(self, key: int, depth: int, reach: int) -> int:
        self._rule(depth <= reach, "path that ends before it begins")
        self._rule(reach <= _NIBBLES, "path beyond a key")
        length = (reach - depth) % _WORD
        path = self._take(length + 1 >> 1)
        self._rule(length & 1 == 0 or _shr(path, 4 * length) == 0, "nibble too many")
        above = 256 - 4 * depth
        return _shl(_shr(key, above), above) | _shl(path, 256 - 4 * reach)

    def _attach(self, key: int) -> None:
        node = self._topmost(1)
        difference = key ^ self._of(node, _KEY)
        depth, reach, last = (self._of(node, field) for field in (_DEPTH, _REACH, _LAST))
        self._rule(self._prefix(difference, depth) == 0, "absent elsewhere")
        self._rule(self._prefix(difference, reach) != 0, "absent on its own path")
        self._rule(key > last, "order of absent keys")
        self._write(node + 32 * _LAST, word(key))

    def _root(self) -> int:
        node = self._only()
        self._rule(self._of(node, _DEPTH) == 0, "root at depth 0")
        ref, size = self._of(node, _REF), self._of(node, _SIZE)
        if size > 31:
            raise _Lost
        return int.from_bytes(self._hash(word(ref)[:size])) if size else ref

    # --- Operations ---------------------------------------------------------------------------------------------------

    def run(self) -> bytes:
        while self._cursor < len(self._data):
            self._operation(self._take(1))
        self._rule(not self._is_open, "storage left open")
        return word(self._root())

    def _operation(self, op: int) -> None:
        if op == 0x00:
            self._full_branches()
        elif op >> 4 == 1:
            self._branch((op & 0x0F) + 1)
        elif op >= 0x80:
            self._account(op)
        elif op == 0x40:
            self._rule(self._is_open, "slot without a storage")
            slot, _ = self._take_slot()
            self._prove_slot(slot)
        elif op == 0x30:
            self._rule(not self._is_open, "storage in a storage")
            self._owner = self._take(20)
            self._is_open, self._bottom = True, self._top
        elif op == 0x36:
            self._extend(self._take(1))
        elif op >= 0x70:
            self._absent_account(op)
        elif op == 0x43:
            self._block_hash()
        elif 0x32 <= op <= 0x35:
            self._zero_slot(op - 0x32)
        else:
            self._rule(False, "operation")

    def _close(self) -> int:
        """Return the root of the open storage."""
        self._rule(self._is_open, "storage to close")
        root = self._root()
        self._top, self._bottom = self._bottom, _STACK
        self._is_open = False
        return root

    def _take_slot(self) -> tuple[int, int]:
        slot = self._shortest()
        depth = self._take(1)
        value = self._shortest()
        self._push_slot(self._key(word(slot)), depth, value)
        return slot, value

    def _block_hash(self) -> None:
        self._rule(self._is_open, "slot without a storage")
        self._rule(self._owner == _HISTORY, "block hash of another contract")
        slot, value = self._take_slot()
        self._rule(slot < self._window, "block hash beyond the window")
        self.facts.append(BlockHash(word(value)))

    def _zero_slot(self, how: int) -> None:
        self._rule(self._is_open, "slot without a storage")
        slot = self._shortest()
        key = self._key(word(slot))
        if how == 3:
            depth = self._take(1)
            other = self._take_other_key(key, depth, _NIBBLES)
            self._push_slot(other, depth, self._shortest())
            self._attach(key)
        else:
            self._absent_key(how, key)
        self._prove_slot(slot)

    def _account(self, op: int) -> None:
        self._rule((op & 0x7F).bit_count() % 2 == 0, "parity of an account")
        root, follows, closes = _EMPTY_ROOT, op >> 1 & 3, op & 0x08
        owner = 0
        if closes:
            self._rule(not follows & 2, "storage root twice")
            owner, root = self._owner, self._close()
        else:
            self._rule(not self._is_open, "account in a storage")
            self._rule(self._is_open or op & 0x70 != 0, "account for nothing")
        head = self._take(2)
        if not closes:
            owner = self._take(20)
        nonce, balance = self._take_numbers(head)
        root, code = self._take_hashes(follows, root)
        self._push_account(self._key(_address(owner)), head >> 10, nonce, balance, root, code)
        self._prove_fields(
            owner, (0b0011 if op & 0x40 else 0) | (0b0100 if op & 0x20 else 0) | (0b1000 if op & 0x10 else 0)
        )

    def _absent_account(self, op: int) -> None:
        if op & 0x08:
            owner = self._owner
            self._rule(self._close() == _EMPTY_ROOT, "storage of an absent account")
        else:
            self._rule(not self._is_open, "account in a storage")
            owner = self._take(20)
        key, how = self._key(_address(owner)), op & 7
        if how > 3:
            head = self._take(2)
            other = self._take_other_key(key, head >> 10, _NIBBLES)
            nonce, balance = self._take_numbers(head)
            self._push_account(other, head >> 10, nonce, balance, *self._take_hashes(how & 3, _EMPTY_ROOT))
            self._attach(key)
        else:
            self._absent_key(how, key)
        self._prove_fields(owner, 0b1111)

    def _absent_key(self, how: int, key: int) -> None:
        if how == 0:
            self._push_empty(key, self._take(1))
        elif how == 1:
            self._push_other_extension(key)
        elif how == 2:
            self._attach(key)
        else:
            self._rule(False, "way to be absent")

    def _take_numbers(self, head: int) -> tuple[int, int]:
        size = head >> 6 & 0x0F
        self._rule(size <= 8, "nonce of 64 bits")
        nonce = self._shortest_of(size)
        return nonce, self._shortest_of(head & 0x3F)

    def _take_hashes(self, follows: int, root: int) -> tuple[int, int]:
        code = _NO_CODE
        if follows & 2:
            root = self._take(32)
            self._rule(root not in {0, _EMPTY_ROOT}, "storage root that is implied")
        if follows & 1:
            code = self._take(32)
            self._rule(code not in {0, _NO_CODE}, "code hash that is implied")
        return root, code

    def _key(self, name: bytes) -> int:
        return int.from_bytes(self._hash(name))

    def _prove_slot(self, slot: int) -> None:
        self.facts.append(Slot(self._number, _address(self._owner), word(slot)))

    def _prove_fields(self, owner: int, fields: int) -> None:
        self.facts += [AccountField(self._number, _address(owner), each) for each in ones(fields)]


def _address(number: int) -> bytes:
    return number.to_bytes(20)
