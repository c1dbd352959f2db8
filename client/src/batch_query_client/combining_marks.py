"""Combining marks in texts that people or contracts have written. Many at one character draw over other texts."""

import re
import unicodedata
from collections.abc import Callable, Iterator

# Source: Unicode Technical Standard #39, section 5.4. ENS names have no more either (ENSIP-15).
_MAX_MARKS = 4
# No mark is below U+0300.
_RUN = re.compile(rf"[\u0300-\U0010ffff]{{{_MAX_MARKS + 1},}}")


def is_mark(character: str) -> bool:
    """Return whether the character is drawn above, below or around the one before it."""
    # Some marks have a width of their own by their category, and are drawn at the character before all the same.
    return unicodedata.category(character) in {"Mn", "Me"} or unicodedata.combining(character) != 0


def with_few_marks(text: str, instead: Callable[[str], str] = lambda _: "") -> str:
    """Return the text with at most 4 marks at a character. `instead` returns the text for a further mark."""
    return _RUN.sub(lambda run: "".join(_pieces(run[0], instead)), text)


def _pieces(run: str, instead: Callable[[str], str]) -> Iterator[str]:
    marks = 0
    for character in run:
        if is_mark(character):
            marks += 1
        # Marks behind spacing marks and invisible characters are still at the same letter.
        elif unicodedata.category(character) not in {"Mc", "Cf"}:
            marks = 0
        yield instead(character) if marks > _MAX_MARKS and is_mark(character) else character
