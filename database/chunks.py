"""Splits long lists, because databases limit the parameters of a statement, and because long locks hold others up."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive pieces of at most `size` items; no piece for an empty sequence."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def by_size(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield the items in order, in lists of at most the size `most` together. A larger item has a list of its own."""
    several: list[T] = []
    used = 0
    for item in items:
        more = size(item)
        if several and used + more > most:
            yield several
            several, used = [], 0
        several.append(item)
        used += more
    if several:
        yield several
