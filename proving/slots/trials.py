"""Trial words in the place of a slot's: how the answer of a call follows from the word.

Each byte of the first word is another one, and begins with the bits 01. The second word has all bits turned. So a part
of the word shows its size and its place by the two answers.
"""

from dataclasses import dataclass
from typing import Literal

ALL = (1 << 256) - 1
FIRST = int.from_bytes(bytes(range(0x40, 0x60)))
SECOND = FIRST ^ ALL
OF_SWITCHES = (FIRST, SECOND, 0, int.from_bytes(bytes([1] * 32)))
"""Words for a slot that may switch between answers: with each bit set and not, and with small numbers in its bytes."""


@dataclass(frozen=True)
class Part:
    """A part of a word that is the answer of a call."""

    offset: int = 0
    """In bits, counted from the lowest."""
    size: int = 256
    """In bits."""
    form: Literal["unsigned", "signed", "left", "bool"] = "unsigned"
    """The form of the answer: padded by zeros, or by the sign, or on the right; or 1 unless the part is 0."""

    @property
    def is_whole(self) -> bool:
        return self.size == 256

    def of(self, word: int) -> int:
        """Return the part of a word as a number."""
        content = (word >> self.offset) & ((1 << self.size) - 1)
        is_negative = self.form == "signed" and content >> (self.size - 1)
        return content - (1 << self.size) if is_negative else content

    def answer(self, word: int) -> int:
        """Return the word that the call answers if the slot holds `word`."""
        content = self.of(word)
        if self.form == "left":
            return content << (256 - self.size)
        return bool(content) if self.form == "bool" else content & ALL


def part_of(first: int, second: int) -> Part | None:
    """Return the part that two answers are, with the first and the second trial word. None: neither is."""
    turned = first ^ second
    if not turned:
        return None
    if first == FIRST and turned == ALL:
        return Part()
    if turned == ALL:
        # The sign fills the word: its run ends with the second bit of the part, which differs from the first.
        size = max((value ^ (ALL if value >> 255 else 0)).bit_length() for value in (first, second)) + 1
        return _at_one_place(first, second, size, "signed")
    shift = (turned & -turned).bit_length() - 1
    size = turned.bit_length() - shift
    if turned >> shift != (1 << size) - 1:
        return None
    if not shift:
        return _at_one_place(first, second, size, "unsigned")
    is_left = shift + size == 256 and size % 8 == 0
    return _at_one_place(first, second, size, "left") if is_left else None


def _at_one_place(first: int, second: int, size: int, form: Literal["unsigned", "signed", "left"]) -> Part | None:
    parts = [Part(offset, size, form) for offset in range(257 - size)]
    fitting = [part for part in parts if (part.answer(FIRST), part.answer(SECOND)) == (first, second)]
    at_bytes = [part for part in fitting if part.offset % 8 == 0]
    candidates = at_bytes or fitting
    return candidates[0] if len(candidates) == 1 else None
