"""An EVM that tracks for each bit on its stack and in its memory whether it is defined, like valgrind's memcheck.

Memory is undefined until something is written there. Undefined bits may be copied and computed with, but must not
decide anything: a jump, an address, an offset or length, a hash, a log, or storage. Otherwise `UndefinedUse` is raised,
whatever value the bits have.

A word is an int. Its low 256 bits are the value, and the bits above are a mask of the undefined bits. So a fully
defined word is equal to its value. Values are those of any EVM with the same bytes in memory.

Opcodes are numbered as in the Yellow Paper, appendix H, and in EIP-145 (shifts), EIP-211 (data that calls return),
EIP-3855 (PUSH0) and EIP-5656 (MCOPY). Only opcodes in the registry's code are implemented. Gas isn't counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from eth_utils.crypto import keccak

from tests.contracts.simulator import PANIC, Log

BITS = 256
MAX = (1 << BITS) - 1

# More than the registry ever needs, and less than a transaction can pay for.
_MEMORY_LIMIT = 1 << 21
_JUMP_LIMIT = 1 << 18
_GROWTH = 4096

_hash = lru_cache(maxsize=1024)(keccak)


class UndefinedUse(AssertionError):
    """Undefined bits decided something. The message names it and its place in the code."""


class UnknownOpcode(AssertionError):
    """The interpreter doesn't implement the opcode."""


@dataclass(frozen=True)
class Execution:
    """The outcome of a call. `data` is its return value or error data, empty if it halted."""

    succeeded: bool
    data: bytes
    undefined: bytes
    """A mask of the undefined bits of `data`."""
    logs: tuple[Log, ...]
    storage: Mapping[int, int]
    """The non-zero storage after the call."""

    @property
    def halted(self) -> bool:
        """Return whether the call halted. It has the same meaning as the simulator's `Outcome.halted`."""
        return not self.succeeded and (not self.data or self.data.startswith(PANIC))

    def agrees(self, other: "Execution") -> bool:
        """Return whether both calls had the same effect. Undefined parts of the returned data may differ."""
        undefined = int.from_bytes(self.undefined) | int.from_bytes(other.undefined)
        return (
            (self.succeeded, len(self.data), self.logs) == (other.succeeded, len(other.data), other.logs)
            and self.storage == other.storage
            and (int.from_bytes(self.data) ^ int.from_bytes(other.data)) & ~undefined == 0
        )


# --- Words ------------------------------------------------------------------------------------------------------------


def _add(a: int, b: int) -> int:
    total = a + b & MAX
    return total if a <= MAX and b <= MAX else total | _carried(a, b)


def _sub(a: int, b: int) -> int:
    difference = a - b & MAX
    return difference if a <= MAX and b <= MAX else difference | _carried(a, b)


def _mul(a: int, b: int) -> int:
    product = a * b & MAX
    return product if (a <= MAX and b <= MAX) or a == 0 or b == 0 else product | _carried(a, b)


def _carried(a: int, b: int) -> int:
    """Return the undefined bits of a sum, difference or product. Carries spread an undefined bit to all higher bits."""
    undefined = (a | b) >> BITS
    return (-(undefined & -undefined) & MAX) << BITS


def _is_less(a: int, b: int) -> int:
    less = int(a & MAX < b & MAX)
    if a <= MAX and b <= MAX:
        return less
    return less if _most(a) < _least(b) or _least(a) >= _most(b) else less | 1 << BITS


def _is_greater(a: int, b: int) -> int:
    return _is_less(b, a)


def _is_less_signed(a: int, b: int) -> int:
    # With the sign bit flipped, negative numbers come before the others.
    return _is_less(a ^ 1 << BITS - 1, b ^ 1 << BITS - 1)


def _least(word: int) -> int:
    return word & ~(word >> BITS) & MAX


def _most(word: int) -> int:
    return (word | word >> BITS) & MAX


def _is_equal(a: int, b: int) -> int:
    if a <= MAX and b <= MAX:
        return int(a == b)
    difference = _xor(a, b)
    return _is_zero(difference)


def _is_zero(a: int) -> int:
    if a <= MAX:
        return int(a == 0)
    return 0 if _least(a) else int(a & MAX == 0) | 1 << BITS


def _and(a: int, b: int) -> int:
    if a <= MAX and b <= MAX:
        return a & b
    # A defined 0 makes the result a defined 0.
    return ((a | b) >> BITS & _most(a) & _most(b)) << BITS | a & b & MAX


def _or(a: int, b: int) -> int:
    if a <= MAX and b <= MAX:
        return a | b
    # A defined 1 makes the result a defined 1.
    return ((a | b) >> BITS & ~(_least(a) | _least(b))) << BITS | (a | b) & MAX


def _xor(a: int, b: int) -> int:
    return a ^ b if a <= MAX and b <= MAX else (a | b) >> BITS << BITS | (a ^ b) & MAX


def _not(a: int) -> int:
    return a ^ MAX


def _byte(place: int, a: int) -> int:
    if place > MAX:
        return _if_any(a, _byte(place & MAX, a) & MAX, 0xFF)
    if place > 31:
        return 0
    shift = 8 * (31 - place)
    return a >> shift & 0xFF | (a >> BITS + shift & 0xFF) << BITS


def _shl(shift: int, a: int) -> int:
    if shift > MAX:
        return _if_any(a, _shl(shift & MAX, a) & MAX, MAX)
    if shift >= BITS:
        return 0
    return a << shift & MAX if a <= MAX else (a >> BITS << shift & MAX) << BITS | (a & MAX) << shift & MAX


def _shr(shift: int, a: int) -> int:
    if shift > MAX:
        return _if_any(a, _shr(shift & MAX, a) & MAX, MAX)
    if shift >= BITS:
        return 0
    return a >> shift if a <= MAX else a >> BITS + shift << BITS | (a & MAX) >> shift


def _if_any(a: int, value: int, undefined: int) -> int:
    """Return a word shifted by an undefined distance. Zero stays defined; any other word becomes undefined."""
    return value | undefined << BITS if a else value


UNARY: dict[int, Callable[[int], int]] = {0x15: _is_zero, 0x19: _not}

BINARY: dict[int, Callable[[int, int], int]] = {
    0x01: _add,
    0x02: _mul,
    0x03: _sub,
    0x10: _is_less,
    0x11: _is_greater,
    0x12: _is_less_signed,
    0x14: _is_equal,
    0x16: _and,
    0x17: _or,
    0x18: _xor,
    0x1A: _byte,
    0x1B: _shl,
    0x1C: _shr,
}


# --- Everything else --------------------------------------------------------------------------------------------------


class _Ended(Exception):
    """The call has ended by RETURN, STOP or REVERT."""

    def __init__(self, *, succeeded: bool, data: bytes = b"", undefined: bytes = b"") -> None:
        self.succeeded = succeeded
        self.data = data
        self.undefined = undefined


class _Halted(Exception):
    """The call has ended by INVALID or out of gas."""


class _Frame:
    """One call: memory, input and effects. Methods are opcodes. They take their operands from the top of the stack."""

    def __init__(
        self,
        calldata: bytes,
        undefined: bytes,
        storage: Mapping[int, int],
        answer: bytes | None,
        scratch: int,
        fill: bytes,
    ) -> None:
        self._calldata = calldata
        self._calldata_undefined = undefined
        self._padded = calldata + bytes(32)
        self._answer = answer
        self._scratch = scratch
        self._fill = fill
        self._memory = bytearray()
        self._undefined = bytearray()
        self._returned = 0
        self.storage = dict(storage)
        self.logs: list[Log] = []

    def _reach(self, place: int, size: int) -> int:
        """Extend memory to the end of a range, and return that end."""
        end = place + size
        if end > len(self._memory):
            if place > MAX or size > MAX:
                raise UndefinedUse("a place in memory, or how much of it")
            if size == 0:
                return place
            if end > _MEMORY_LIMIT:
                raise _Halted
            pages = (end - len(self._memory)) // _GROWTH + 1
            self._memory += self._fill * pages
            self._undefined += b"\xff" * _GROWTH * pages
        return end

    def _read(self, place: int, size: int, what: str) -> bytes:
        """Return bytes of memory. They must be defined."""
        end = self._reach(place, size)
        undefined = self._undefined[place:end]
        if undefined != bytes(size):
            first = next(at for at, mask in enumerate(undefined) if mask)
            raise UndefinedUse(f"{what}: memory {place:#x} to {end:#x}, from {place + first:#x} on")
        return bytes(self._memory[place:end])

    def keccak256(self, place: int, size: int) -> int:
        digest = _hash(self._read(place, size, "a hash"))
        if place >= self._scratch:
            self._undefined[place : place + size] = b"\xff" * size
        return int.from_bytes(digest)

    def callvalue(self) -> int:
        return 0

    def calldataload(self, place: int) -> int:
        if place >= len(self._calldata):
            _check("a place in calldata", place)
            return 0
        word = int.from_bytes(self._padded[place : place + 32])
        if place < len(self._calldata_undefined):
            word |= int.from_bytes(self._calldata_undefined[place : place + 32].ljust(32, b"\0")) << BITS
        return word

    def calldatasize(self) -> int:
        return len(self._calldata)

    def calldatacopy(self, to: int, place: int, size: int) -> None:
        _check("a place in calldata", place)
        end = self._reach(to, size)
        self._memory[to:end] = self._calldata[place : place + size].ljust(size, b"\0")
        if place >= len(self._calldata) and to >= self._scratch:
            self._undefined[to:end] = b"\xff" * size
        else:
            self._undefined[to:end] = self._calldata_undefined[place : place + size].ljust(size, b"\0")

    def returndatasize(self) -> int:
        return self._returned

    def mload(self, place: int) -> int:
        end = self._reach(place, 32)
        word = int.from_bytes(self._memory[place:end])
        undefined = int.from_bytes(self._undefined[place:end])
        return undefined << BITS | word if undefined else word

    def mstore(self, place: int, word: int) -> None:
        end = self._reach(place, 32)
        self._memory[place:end] = (word & MAX).to_bytes(32)
        self._undefined[place:end] = (word >> BITS).to_bytes(32)

    def mstore8(self, place: int, word: int) -> None:
        self._reach(place, 1)
        self._memory[place] = word & 0xFF
        self._undefined[place] = word >> BITS & 0xFF

    def mcopy(self, to: int, place: int, size: int) -> None:
        end, to_end = self._reach(place, size), self._reach(to, size)
        self._memory[to:to_end] = self._memory[place:end]
        self._undefined[to:to_end] = self._undefined[place:end]

    def sload(self, place: int) -> int:
        _check("a place in storage", place)
        return self.storage.get(place, 0)

    def sstore(self, place: int, word: int) -> None:
        _check("a place in storage, or what is stored", place, word)
        self.storage[place] = word
        if word == 0:
            del self.storage[place]

    def gas(self) -> int:
        # The remaining gas must not decide anything.
        return MAX << BITS

    def log(self, place: int, size: int, *topics: int) -> None:
        _check("a topic", *topics)
        data = self._read(place, size, "a log")
        self.logs.append(Log(tuple(topic.to_bytes(32) for topic in topics), data))

    def staticcall(self, _: int, address: int, place: int, size: int, to: int, most: int) -> int:
        _check("who is called", address)
        self._read(place, size, "a call")
        self._reach(to, most)
        data = self._answer or b""
        self._returned = len(data)
        end = to + min(most, len(data))
        self._memory[to:end] = data[:most]
        self._undefined[to:end] = bytes(end - to)
        return int(self._answer is not None)

    def stop(self) -> None:
        raise _Ended(succeeded=True)

    def return_(self, place: int, size: int) -> None:
        end = self._reach(place, size)
        raise _Ended(succeeded=True, data=bytes(self._memory[place:end]), undefined=bytes(self._undefined[place:end]))

    def revert(self, place: int, size: int) -> None:
        raise _Ended(succeeded=False, data=self._read(place, size, "an error"), undefined=bytes(size))

    def invalid(self) -> None:
        raise _Halted


def _check(what: str, *words: int) -> None:
    for word in words:
        if word > MAX:
            raise UndefinedUse(what)


def _is_true(condition: int) -> bool:
    if condition > MAX and not _least(condition):
        raise UndefinedUse("whether to jump")
    return condition != 0


# Opcodes with an effect, and their number of operands.
_EFFECTS: dict[int, tuple[Callable[..., int | None], int]] = {
    0x00: (_Frame.stop, 0),
    0x20: (_Frame.keccak256, 2),
    0x34: (_Frame.callvalue, 0),
    0x35: (_Frame.calldataload, 1),
    0x36: (_Frame.calldatasize, 0),
    0x37: (_Frame.calldatacopy, 3),
    0x3D: (_Frame.returndatasize, 0),
    0x51: (_Frame.mload, 1),
    0x52: (_Frame.mstore, 2),
    0x53: (_Frame.mstore8, 2),
    0x54: (_Frame.sload, 1),
    0x55: (_Frame.sstore, 2),
    0x5A: (_Frame.gas, 0),
    0x5E: (_Frame.mcopy, 3),
    0xA1: (_Frame.log, 3),
    0xA2: (_Frame.log, 4),
    0xA3: (_Frame.log, 5),
    0xA4: (_Frame.log, 6),
    0xF3: (_Frame.return_, 2),
    0xFA: (_Frame.staticcall, 6),
    0xFD: (_Frame.revert, 2),
    0xFE: (_Frame.invalid, 0),
}

_JUMP, _JUMPI, _JUMPDEST, _POP = 0x56, 0x57, 0x5B, 0x50
_PUSH0, _PUSH32, _DUP1, _DUP16, _SWAP1, _SWAP16 = 0x5F, 0x7F, 0x80, 0x8F, 0x90, 0x9F

# Kinds of instructions, the most frequent first.
_IS_PUSH, _IS_DUP, _IS_BINARY, _IS_SWAP, _IS_POP, _IS_JUMPI, _IS_JUMP, _IS_UNARY, _IS_EFFECT, _IS_UNKNOWN = range(10)
_ARE_JUMPS = (_IS_JUMPI, _IS_JUMP)


class Machine:
    """A runner of calls of a contract's runtime code.

    Memory from `scratch` on is for temporary values. It becomes undefined after it is hashed, or when zeros from beyond
    the calldata's end are copied there. So no code can rely on old contents there, not even on zeros.
    """

    def __init__(self, code: bytes, *, scratch: int = MAX) -> None:
        self._decode(code)
        self._scratch = scratch

    def call(
        self,
        calldata: bytes,
        *,
        undefined: bytes = b"",
        storage: Mapping[int, int] | None = None,
        answer: bytes | None = None,
        fill: bytes = bytes(_GROWTH),
    ) -> Execution:
        """Return the outcome of a call.

        `undefined` is a mask of the first bytes of calldata. `answer` is the return value of a called contract, or None
        if that contract reverts. `fill`, 4096 bytes, is the content of unwritten memory. Raise UndefinedUse.
        """
        frame = _Frame(calldata, undefined, storage or {}, answer, self._scratch, fill)
        try:
            self._run(frame)
        except _Ended as end:
            kept = frame.storage if end.succeeded else storage or {}
            logs = tuple(frame.logs) if end.succeeded else ()
            return Execution(end.succeeded, end.data, end.undefined, logs, kept)
        except _Halted:
            return Execution(succeeded=False, data=b"", undefined=b"", logs=(), storage=storage or {})

    def _run(self, frame: _Frame) -> NoReturn:  # noqa: C901, PLR0912 (a branch for each kind of instruction)
        program, targets = self._program, self._targets
        stack: list[int] = []
        push, pop = stack.append, stack.pop
        at = jumps = 0
        try:
            while True:
                kind, operand = program[at]
                at += 1
                if kind == _IS_PUSH:
                    push(operand)
                elif kind == _IS_DUP:
                    push(stack[operand])
                elif kind == _IS_BINARY:
                    top = pop()
                    stack[-1] = operand(top, stack[-1])
                elif kind == _IS_SWAP:
                    stack[-1], stack[operand] = stack[operand], stack[-1]
                elif kind == _IS_POP:
                    pop()
                elif kind in _ARE_JUMPS:
                    target = pop()
                    if kind == _IS_JUMP or _is_true(pop()):
                        _check("where to jump", target)
                        if target not in targets or jumps == _JUMP_LIMIT:
                            raise _Halted
                        at = targets[target]
                        jumps += 1
                elif kind == _IS_UNARY:
                    stack[-1] = operand(stack[-1])
                elif kind == _IS_EFFECT:
                    function, count = operand
                    if count == 1:
                        result = function(frame, pop())
                    elif count == 2:
                        result = function(frame, pop(), pop())
                    else:
                        result = function(frame, *[pop() for _ in range(count)])
                    if result is not None:
                        push(result)
                else:
                    raise UnknownOpcode(f"{operand:#x} at {self._places[at - 1]:#x}")
        except UndefinedUse as error:
            raise UndefinedUse(f"Undefined bits decide {error}, at {self._places[at - 1]:#x} of the code.") from None

    def _decode(self, code: bytes) -> None:
        self._program: list[tuple[int, Any]] = []
        # Offset of each instruction in the code, and the index of the instruction at each jump destination.
        self._places: list[int] = []
        self._targets: dict[int, int] = {}
        # The EVM continues the code with zeros, which are STOP.
        code += b"\0"
        place = 0
        while place < len(code):
            opcode = code[place]
            if opcode == _JUMPDEST:
                self._targets[place] = len(self._program)
            else:
                self._program.append(_instruction(opcode, code[place + 1 :]))
                self._places.append(place)
            place += 1 + (opcode - _PUSH0 if _PUSH0 <= opcode <= _PUSH32 else 0)


def _instruction(opcode: int, after: bytes) -> tuple[int, Any]:
    """Return an instruction's kind and data. `after` is the code after the opcode."""
    if _PUSH0 <= opcode <= _PUSH32:
        return _IS_PUSH, int.from_bytes(after[: opcode - _PUSH0])
    if _DUP1 <= opcode <= _DUP16:
        return _IS_DUP, _DUP1 - opcode - 1
    if _SWAP1 <= opcode <= _SWAP16:
        return _IS_SWAP, _SWAP1 - opcode - 2
    for kind, table in ((_IS_BINARY, BINARY), (_IS_UNARY, UNARY), (_IS_EFFECT, _EFFECTS)):
        if opcode in table:
            return kind, table[opcode]
    return {_POP: _IS_POP, _JUMP: _IS_JUMP, _JUMPI: _IS_JUMPI}.get(opcode, _IS_UNKNOWN), opcode
