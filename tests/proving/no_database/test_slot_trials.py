"""Trials of a word: the answers over turned bits show which part of the word is the answer."""

from itertools import product
from typing import Literal

import pytest

from proving.slots.trials import FIRST, SECOND, SIZES, WordTrials
from queries.storage_layout import ALL, Part

# A word whose bytes differ.
_WORD = int.from_bytes(bytes(range(0x81, 0xA1)))


def tried(word: int, base: int, **answers: int) -> WordTrials:
    turned = {"first": FIRST, "second": SECOND}
    return WordTrials(word, base, {turned[name]: answer for name, answer in answers.items()})


def of_part(part: Part, word: int) -> WordTrials:
    first, second = part.answer(word ^ FIRST), part.answer(word ^ SECOND)
    return tried(word, part.answer(word), first=first, second=second)


@pytest.mark.parametrize("word", [0, 1001, _WORD])
def test_a_part_of_whole_bytes_is_recognised_at_its_place(word):
    forms: tuple[Literal["unsigned", "signed", "left"], ...] = ("unsigned", "signed", "left")
    for form, size, offset in product(forms, range(1, 33), range(0, 32, 5)):
        if size + offset <= 32 and (size < 32 or form == "unsigned"):
            part = Part(8 * offset, 8 * size, form)
            assert of_part(part, word).part == part


@pytest.mark.parametrize(("offset", "size"), [(0, 255), (1, 255), (3, 112), (127, 112), (5, 24)])
def test_a_part_of_bits_is_recognised(offset, size):
    part = Part(offset, size)
    assert of_part(part, _WORD).part == part


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (FIRST, FIRST),
        (0, 0),
        (1, 1),
        (SECOND, FIRST),
        (FIRST + 1, SECOND + 1),
        (FIRST * 2 & ALL, SECOND * 2 & ALL),
        (FIRST // 3, SECOND // 3),
        (FIRST, 5),
        (FIRST & (ALL ^ 0xFF00), SECOND & (ALL ^ 0xFF00)),
        (FIRST ^ ALL >> 128, SECOND ^ ALL >> 128),
        # A bit has too many places.
        (FIRST & 1, SECOND & 1),
    ],
)
def test_other_answers_are_no_part(first, second):
    assert not tried(0, 0, first=first, second=second).is_clear


@pytest.mark.parametrize("part", [Part(44, 1), Part(192, 8), Part(13, 27), Part(48, 208), Part(64, 64, "signed")])
@pytest.mark.parametrize("spoiled", [0, 3, 31])
def test_regions_show_a_part_beside_bits_that_spoil_trials(part, spoiled):
    """The call fails if bits of one byte turn, or answers otherwise."""
    byte = 0xFF << 8 * spoiled & ~part.mask
    for fault in (None, 7):
        of = WordTrials(_WORD, part.answer(_WORD))
        for bits in (FIRST, SECOND, *(bits for size in SIZES for bits in of.regions(size))):
            of.answers[bits] = fault if bits & byte else part.answer(_WORD ^ bits)
        for size in SIZES:
            for bits in of.regions(size):
                of.answers[bits] = fault if bits & byte else part.answer(_WORD ^ bits)
        assert of.part == part, (fault, of.part)
