"""Trials of a slot's word: how the answer of a call follows from the word.

A trial keeps the slot's own word and turns some of its bits: first bits everywhere, then those of regions that get
smaller where the answers aren't clear. So a flag, an enum, or a neighbour's bits spoil only trials of their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from queries.storage_layout import ALL, Part

FIRST = int.from_bytes(bytes(range(0x40, 0x60)))
"""Each byte is another one, and begins with the bits 01. So a part shows its size and its place by two answers."""
SECOND = FIRST ^ ALL
LOW_BITS = int.from_bytes(bytes([1] * 32))
"""The lowest bit of each byte."""
OF_SWITCHES = (FIRST, SECOND, 0, LOW_BITS)
"""Words for a slot that may switch between answers: with each bit set and not, and with small numbers in its bytes."""
SIZES = (32, 8, 1)
"""Sizes of regions in bits. In each, a trial turns all bits, and another the lowest of each byte."""
# Regions whose answers aren't clear, and in which smaller ones are tried.
_MOST_UNCLEAR = 3


@dataclass
class WordTrials:
    """The answers of a call over a slot's word with bits turned."""

    word: int
    base: int
    """The answer over the word itself."""
    answers: dict[int, int | None] = field(default_factory=dict)
    """Each belongs to turned bits. None: the call fails."""

    @property
    def is_quiet(self) -> bool:
        return set(self.answers.values()) <= {self.base}

    @property
    def only_fails(self) -> bool:
        """Return whether the call fails if it doesn't answer the same."""
        return set(self.answers.values()) <= {self.base, None}

    @property
    def is_clear(self) -> bool:
        """Return whether the answers show which part of the word is the answer."""
        return (part := self.part) is not None and not self.is_switched(part)

    @property
    def others(self) -> list[int]:
        """Return words that change the answer. Those with which the call fails come last."""
        changing = [bits for bits, answer in self.answers.items() if answer != self.base]
        return [self.word ^ bits for bits in sorted(changing, key=lambda bits: self.answers[bits] is None)]

    @property
    def may_hold(self) -> bool:
        """Return whether the answer may be a part of the word."""
        size = (self.base ^ ALL).bit_length() + 1 if self.base >> 255 else self.base.bit_length()
        # Zeros on the right may be none of the word's.
        zeros = max(0, _low(self.base))
        mask = (1 << size) - 1 >> zeros
        return any((self.word >> at) & mask == self.base >> zeros & mask for at in range(256))

    def regions(self, size: int) -> Iterator[int]:
        """Yield the bits to turn in regions of a size: one of `SIZES`."""
        places = [*range(0, 256, size)]
        if size != SIZES[0]:
            above = SIZES[SIZES.index(size) - 1]
            unclear = [at for at in range(0, 256, above) if self._is_unclear(at, above)][:_MOST_UNCLEAR]
            places = [at for at in places if at - at % above in unclear]
        for at in places:
            bits = ((1 << size) - 1) << at
            yield from (bits, bits & LOW_BITS) if size > 1 else (bits,)

    def _is_unclear(self, at: int, size: int) -> bool:
        bits = ((1 << size) - 1) << at
        all_turned, lowest_turned = self.answers.get(bits, self.base), self.answers.get(bits & LOW_BITS, self.base)
        if all_turned is None:
            return True
        turned = all_turned ^ self.base
        return turned // (turned & -turned) != (1 << size) - 1 if turned else lowest_turned != self.base

    @property
    def part(self) -> Part | None:
        """Return the part of the word that is the answer. None: no part is, or several may be."""
        fitting: dict[Part, tuple[int, int]] = {}
        for part in self._candidates():
            if part not in fitting and part.answer(self.word) == self.base and (fit := self._fit(part)):
                fitting[part] = fit
        best = [part for part, fit in fitting.items() if fit == max(fitting.values())]
        # Words with which an enum is out of range end with its byte.
        best = [part for part in best if part.offset % 8 == 0 == (part.offset + part.size) % 8] or best
        is_clear = len({part.offset for part in best}) == 1
        return min(best, key=lambda part: (part.form != "unsigned", part.size)) if is_clear else None

    def is_switched(self, part: Part) -> bool:
        """Return whether bits outside of the part change the answer, too."""
        return any(answer not in {None, part.answer(self.word ^ bits)} for bits, answer in self.answers.items())

    def further(self, part: Part, known: Sequence[int]) -> Iterator[int]:
        """Yield bits to turn that may show that a part isn't the answer always, such as if it is a `known` word."""
        mask, low, high = part.mask, 1 << part.offset, 1 << (part.offset + part.size - 1)
        words = [self.word & ~mask | inside for inside in (0, low, high, (self.word ^ low) & mask)]
        # Small numbers in its byte tell an enum from a boolean.
        byte = 0xFF << part.offset // 8 * 8 if part.size <= 8 else 0
        words += [self.word & ~byte | number * (byte & LOW_BITS) for number in range(8) if byte]
        # A small number next to it, such as a status, may choose another answer.
        shown = (FIRST if part.size > 8 else self.word ^ low) & mask
        words += [shown | number * LOW_BITS & ~mask for number in range(1, 6)]
        is_plain = None not in (self.answers.get(FIRST), self.answers.get(SECOND)) and not self.is_switched(part)
        if is_plain:
            words += [self.word & ~mask | word << part.offset for word in known if word < 1 << part.size]
        if part.offset == 1:
            # It may be the length of a string: from 32 bytes on in the whole word, and before in its lowest byte.
            words += [2 * 256 + 1, SECOND & ~0xFF | 2 * 31]
        # A boolean is true over both patterns, whichever bits it has.
        if not is_plain or part.form == "bool":
            words += [self.word & ~mask | inside for inside in (FIRST & mask, SECOND & mask, 0)]
            words += [FIRST & ~mask, SECOND & ~mask | low]
        turned = dict.fromkeys(self.word ^ word for word in words)
        yield from (bits for bits in turned if bits and bits not in self.answers)

    def holds(self, part: Part) -> bool:
        """Return whether no answer contradicts a part. Of an enum, most words may fail."""
        inside = [(self.word ^ bits) & part.mask for bits in (FIRST, SECOND) if part.offset % 8 == 0]
        is_shown = any(self.answers.get(bits) is not None for bits in (FIRST, SECOND, *inside))
        return self.part == part and (part.size <= 8 or is_shown)

    def shown(self, part: Part) -> int:
        """Return another word, from which the call answers by the part: neither 0 nor as before, if there is one."""
        shown = {bits: answer for bits, answer in self.answers.items() if answer == part.answer(self.word ^ bits)}
        shown[0] = self.base
        return self.word ^ min(shown, key=lambda bits: (not shown[bits], shown[bits] == self.base, bits != FIRST))

    def _candidates(self) -> Iterator[Part]:
        first, second = self.answers.get(FIRST), self.answers.get(SECOND)
        if first is not None and second is not None and first != second:
            # Each bit of the part turns one of the answer, unless its sign turns more.
            size = (first ^ second).bit_count()
            yield from (Part(offset, size) for offset in range(257 - size))
            yield from (Part(offset, size, "left") for offset in range(257 - size) if size % 8 == 0 and size < 256)
            if size == 256:
                yield from (Part(8 * at, 8 * bytes_, "signed") for bytes_ in range(1, 32) for at in range(33 - bytes_))
        edges = {0, 256, *(edge for bits in self.answers for edge in (_low(bits), bits.bit_length()))}
        for bits, answer in self.answers.items():
            if answer is None or answer == self.base:
                continue
            turned = answer ^ self.base
            start, end = _low(bits) - _low(turned), bits.bit_length() + 256 - turned.bit_length()
            for edge in edges:
                if 0 <= start < edge:
                    yield Part(start, edge - start)
                    yield Part(start, edge - start, "signed")
                if edge < end <= 256 and (end - edge) % 8 == 0:
                    yield Part(edge, end - edge, "left")
        if self.base in (0, 1):
            yield from (Part(at, 8, "bool") for at in range(0, 256, 8))

    def _fit(self, part: Part) -> tuple[int, int] | None:
        """Return how well the answers fit a part, to be compared. None: they contradict it."""
        explained = switched = 0
        is_shown = False
        for bits, answer in self.answers.items():
            inside, expected = bits & part.mask, part.answer(self.word ^ bits)
            if answer is None or (not inside and answer == self.base):
                continue
            if answer == expected:
                explained += 1
                is_shown |= answer != self.base
            elif inside == bits:
                return None
            else:
                switched += 1
        return (explained, -switched) if is_shown else None


def _low(bits: int) -> int:
    """Return the place of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
