"""Headers that a block producer could make, to have chosen bytes in memory."""

import random
from typing import NamedTuple

from chains.packed.layout import HASHED_HEADER_FIELDS, HEADER_FACTS, HEADER_FIELDS, IMPLIED_HEADER_FIELDS, shortest

# Where the registry's stack lies, counted from where it copies headers to (`MemoryZones`), and bytes of what is in it.
_STACK_OFFSET = 0x640 - 0x400
_SUBTREE = 0xC0
_LONGEST = 60_000
_HUGE_LIST = 65_535


class Header(NamedTuple):
    encoded: bytes
    sizes: list[int]  # bytes of each field; negative for a list


def header(dice: random.Random, number: int, state_root: bytes, parent_hash: bytes) -> Header:
    """RLP of a header whose extra data, and all else that nobody checks, are hostile."""
    fixed = [parent_hash, dice.randbytes(32), dice.randbytes(20), state_root, dice.randbytes(32), dice.randbytes(32)]
    difficulty = b"" if dice.random() < 0.7 else shortest(dice.getrandbits(8 * dice.randint(1, 32)))
    fields = [*fixed, dice.randbytes(256), difficulty, shortest(number)]
    more = 0 if dice.random() < 0.05 else dice.randint(6, 14)
    for place in range(9, 9 + more):
        if place == 12:
            # Before it come prefixes of the header and of nine fields, and of the extra data itself.
            begin = 3 + 445 + sum(1 + len(each) for each in fields[7:]) + 3
            fields.append(_extra_data(dice, state_root, begin))
        else:
            fields.append(_small_field(dice))
    payload = b"".join(map(_string, fields))
    sizes = [len(each) for each in fields]
    if dice.random() < 0.05:
        # Later forks may come with lists, and with more fields than anybody can ask for.
        payload += b"\xc0" * 20
        sizes += [-1] * 20
    assert 256 <= len(payload) <= _HUGE_LIST
    return Header(b"\xf9" + len(payload).to_bytes(2) + payload, sizes)


def fields_to_prove(dice: random.Random, header: Header) -> bytes:
    """The operation that proves fields of a header; at times of those that can't be proven."""
    if dice.random() < 0.05:
        mask = dice.getrandbits(32)
    else:
        possible = [
            place
            for place, size in enumerate(header.sizes[:HEADER_FIELDS])
            if place not in IMPLIED_HEADER_FIELDS and (place in HASHED_HEADER_FIELDS or 0 <= size <= 32)
        ]
        mask = sum(1 << place for place in dice.sample(possible, min(len(possible), dice.choice([1, 1, 2, 5]))))
        mask |= (mask.bit_count() & 1) << 31
    return bytes([HEADER_FACTS]) + mask.to_bytes(4)


def _string(content: bytes) -> bytes:
    if len(content) == 1 and content[0] < 0x80:
        return content
    if len(content) < 56:
        return bytes([0x80 + len(content)]) + content
    digits = shortest(len(content))
    return bytes([0xB7 + len(digits)]) + digits + content


def _small_field(dice: random.Random) -> bytes:
    roll = dice.random()
    if roll < 0.3:
        return b""
    if roll < 0.6:
        return dice.randbytes(32)
    return shortest(dice.getrandbits(64 if roll < 0.9 else 256))


def _extra_data(dice: random.Random, state_root: bytes, begin: int) -> bytes:
    """`begin`: where in the header it begins, if it has 256 bytes or more."""
    roll = dice.random()
    size = dice.randrange(33) if roll < 0.5 else 300 + dice.randrange(700)
    if roll > 0.985:
        size = dice.choice([4_000, 20_000, _LONGEST])
    kind = dice.random()
    if kind < 0.4:
        return dice.randbytes(size)
    if kind < 0.5:
        return bytes([dice.choice([0x00, 0x01, 0x40, 0x80, 0xFF])]) * size
    # Subtrees as the registry's stack has them, at the places where they would lie.
    key = dice.randbytes(32)
    words = [
        dice.choice([state_root, dice.randbytes(32), b"\x80" + bytes(31)]),
        _word(dice.choice([0, 0, 1, 20, 31])),
        key,
        _word(dice.choice([0, 0, 1, 2, 3])),
        _word(dice.choice([0, 2, 64])),
        dice.choice([bytes(32), key]),
    ]
    filler = max(_STACK_OFFSET - begin, 0) % _SUBTREE
    return (bytes(filler) + b"".join(words) * (size // _SUBTREE + 1))[:size]


def _word(number: int) -> bytes:
    return number.to_bytes(32)
