"""Trial words: two answers of a call show which part of a word they are."""

from itertools import product
from typing import Literal

import pytest

from proving.slots.trials import ALL, FIRST, SECOND, Part, part_of


def test_a_part_of_whole_bytes_is_recognised_at_its_place():
    forms: tuple[Literal["unsigned", "signed", "left"], ...] = ("unsigned", "signed", "left")
    for form, size, offset in product(forms, range(1, 33), range(32)):
        if size + offset <= 32 and (size < 32 or form == "unsigned"):
            part = Part(8 * offset, 8 * size, form)
            assert part_of(part.answer(FIRST), part.answer(SECOND)) == part


@pytest.mark.parametrize(("offset", "size"), [(0, 255), (1, 255), (3, 112), (127, 112), (5, 24)])
def test_a_part_of_bits_is_recognised(offset, size):
    part = Part(offset, size)
    assert part_of(part.answer(FIRST), part.answer(SECOND)) == part


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
    assert part_of(first, second) is None
