import itertools
import random

import pytest

from campaigns.fuzzing.interpreter import (
    BINARY,
    BITS,
    MAX,
    UNARY,
    Machine,
    UndefinedUse,
    UnknownOpcode,
)

ADD, MUL, SUB, SLT, BYTE, SHL, SHR = 0x01, 0x02, 0x03, 0x12, 0x1A, 0x1B, 0x1C
WORDS = (0, 1, 2, 31, 32, 33, 0x80, 0xFF, 255, 256, 2**64, 2**128 - 1, 2**255 - 1, 2**255, MAX - 1, MAX)


# fmt: off
OPCODES = {
    "stop": 0x00, "add": 0x01, "and": 0x16, "or": 0x17, "keccak256": 0x20, "calldataload": 0x35, "calldatasize": 0x36,
    "calldatacopy": 0x37, "returndatasize": 0x3D, "pop": 0x50, "mload": 0x51, "mstore": 0x52, "mstore8": 0x53,
    "sload": 0x54, "sstore": 0x55, "jump": 0x56, "jumpi": 0x57, "gas": 0x5A, "mcopy": 0x5E, "dup1": 0x80,
    "swap1": 0x90, "log1": 0xA1, "log4": 0xA4, "return": 0xF3, "staticcall": 0xFA, "revert": 0xFD, "invalid": 0xFE,
}
# fmt: on


def assemble(text: str) -> bytes:
    """Return the code of named opcodes. A number is pushed, `here:` is a jump destination, `@here` pushes its place."""
    words = text.split()
    sizes = [1 if word in OPCODES or word.endswith(":") else 33 for word in words]
    places = {word: sum(sizes[:at]) for at, word in enumerate(words) if word.endswith(":")}
    return b"".join(
        bytes([OPCODES[word]])
        if word in OPCODES
        else b"\x5b"
        if word in places
        else push(places[word[1:] + ":"] if word[0] == "@" else int(word, 0))
        for word in words
    )


def push(word: int) -> bytes:
    return b"\x7f" + word.to_bytes(32)


def apply(opcode: int, *operands: int) -> int:
    return UNARY[opcode](*operands) if opcode in UNARY else BINARY[opcode](*operands)


def assignments(word: int, undefined: int) -> list[int]:
    """Return all words that a word with a few undefined bits can be."""
    places = [place for place in range(BITS) if undefined >> place & 1]
    return [
        (word & ~undefined) | sum(bit << place for bit, place in zip(bits, places, strict=True))
        for bits in itertools.product((0, 1), repeat=len(places))
    ]


@pytest.mark.parametrize("opcode", [*UNARY, *BINARY], ids=hex)
def test_a_bit_counts_as_defined_where_no_undefined_bit_changes_it(opcode: int) -> None:
    chance = random.Random(opcode)
    bits = [0, 1, 2, 7, 8, 127, 254, 255]
    for _ in range(400):
        words = [
            chance.choice([*WORDS, chance.getrandbits(BITS), chance.randrange(300)])
            for _ in range(1 if opcode in UNARY else 2)
        ]
        if len(words) == 2 and chance.random() < 0.3:
            # Few bits then decide comparisons.
            words[1] = words[0] ^ 1 << chance.choice(bits)
        masks = [sum(1 << place for place in chance.sample(bits, chance.choice([0, 1, 2, 3]))) for _ in words]
        result = apply(opcode, *(mask << BITS | word for word, mask in zip(words, masks, strict=True)))
        possible = [apply(opcode, *each) for each in itertools.product(*map(assignments, words, masks))]
        varying = 0
        for other in possible:
            varying |= other ^ possible[0]
        assert result & MAX == apply(opcode, *words)
        undefined = result >> BITS
        if opcode in {ADD, SUB, MUL} or (opcode in {BYTE, SHL, SHR} and masks[0]):
            # These may call more bits undefined, never fewer.
            assert varying & ~undefined == 0
        else:
            assert varying == undefined


def test_sums_differences_and_products_are_defined_below_the_lowest_undefined_bit() -> None:
    word, factor = 0x1234, 0x5678 | 0xFF00 << BITS
    for opcode, value in ((ADD, 0x68AC), (SUB, 0x1234 - 0x5678 & MAX), (MUL, 0x1234 * 0x5678)):
        assert apply(opcode, word, factor) == (MAX & ~0xFF) << BITS | value
        assert apply(opcode, factor, word) >> BITS == MAX & ~0xFF
    assert apply(MUL, 0, factor) == 0


# Forbidden uses of an undefined word, written "?". Operands are pushed from the last to the first.
USES = {
    "where to jump": "? jump",
    "whether to jump": "? 0 jumpi",
    "where a word is read": "? mload",
    "where a word is written": "7 ? mstore",
    "where a byte is written": "7 ? mstore8",
    "where memory is copied to": "32 0 ? mcopy",
    "where memory is copied from": "32 ? 0 mcopy",
    "how much memory is copied": "? 0 0 mcopy",
    "where calldata is copied to": "32 0 ? calldatacopy",
    "where calldata is copied from": "32 ? 0 calldatacopy",
    "how much calldata is copied": "? 0 0 calldatacopy",
    "where calldata is read": "? calldataload",
    "where it is hashed": "32 ? keccak256",
    "how much is hashed": "? 0 keccak256",
    "what is hashed": "? 0 mstore 32 0 keccak256",
    "where storage is read": "? sload",
    "where is stored": "7 ? sstore",
    "what is stored": "? 7 sstore",
    "a topic": "? 0 0 log1",
    "where what is logged is": "7 32 ? log1",
    "how much is logged": "7 ? 0 log1",
    "what is logged": "? 0 mstore 7 32 0 log1",
    "who is called": "0 0 0 0 ? gas staticcall",
    "where what a call is given is": "0 0 32 ? 9 gas staticcall",
    "how much a call is given": "0 0 ? 0 9 gas staticcall",
    "what a call is given": "? 0 mstore 0 0 32 0 9 gas staticcall",
    "where an answer goes": "32 ? 0 0 9 gas staticcall",
    "how long an answer may be": "? 0 0 0 9 gas staticcall",
    "where the result is": "32 ? return",
    "how long the result is": "? 0 return",
    "where an error is": "32 ? revert",
    "how long an error is": "? 0 revert",
    "what an error is": "? 0 mstore 32 0 revert",
}


def with_word(text: str, word: str) -> Machine:
    return Machine(assemble("0 0 mstore " + text.replace("?", word)))


@pytest.mark.parametrize("use", USES)
def test_undefined_bits_decide_nothing(use: str) -> None:
    with pytest.raises(UndefinedUse):
        with_word(USES[use], "8192 mload").call(b"")
    # A single undefined bit is enough.
    with pytest.raises(UndefinedUse):
        with_word(USES[use], "8192 mload 1 and").call(b"")
    with_word(USES[use], "0 8192 mstore 8192 mload").call(b"")


def test_undefined_bits_may_be_moved_and_returned() -> None:
    # A word of memory that is undefined except for its last byte, and the same word seven bytes on.
    text = "5 31 mstore8 0 mload 64 mstore 96 64 71 mcopy 104 0 return"
    execution = Machine(assemble(text)).call(b"", fill=bytes([0xAA]) * 4096)
    word = bytes([0xFF]) * 31 + bytes([0])
    assert execution.succeeded
    assert execution.undefined[64:] == word[:7] + word + b"\xff"


def test_calldata_may_be_undefined_in_part() -> None:
    code = "32 2 0 calldatacopy 3 calldataload 32 mstore 64 0 return"
    execution = Machine(assemble(code)).call(bytes(10), undefined=b"\1\2\3\4\5")
    assert execution.undefined == b"\3\4\5" + bytes(29) + b"\4\5" + bytes(30)


def test_a_jump_whose_condition_is_surely_true_may_have_undefined_bits() -> None:
    assert Machine(assemble("0 mload 1 or @then jumpi invalid then: stop")).call(b"").succeeded


def test_memory_for_work_is_undefined_once_it_was_hashed_or_wiped() -> None:
    hashed = "100 0 0 calldatacopy 40 50 keccak256 pop"
    wiped = "100 0 0 calldatacopy 40 calldatasize 50 calldatacopy"
    for text in (hashed, wiped):
        code = assemble(text + " 100 0 return")
        kept, scratch = Machine(code).call(bytes(100)), Machine(code, scratch=50).call(bytes(100))
        assert kept.data == scratch.data
        assert kept.undefined == bytes(100)
        assert scratch.undefined == bytes(50) + b"\xff" * 40 + bytes(10)
        # The compiler's own memory is never work memory.
        assert Machine(code, scratch=51).call(bytes(100)).undefined == bytes(100)


def test_an_opcode_that_no_contract_has_is_an_error() -> None:
    with pytest.raises(UnknownOpcode, match="0x4"):
        Machine(b"\x04").call(b"")


def test_a_call_that_never_ends_halts() -> None:
    assert Machine(assemble("again: @again jump")).call(b"").halted
    assert Machine(assemble("again: 1 @again jumpi")).call(b"").halted
