"""Long lists in bounded pieces: databases bound the parameters of a statement, and writers the length of a lock."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Consecutive pieces of at most `size` items. None for an empty sequence."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
