"""Splits long lists, because databases limit the parameters of a statement, and because long locks hold others up."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Consecutive pieces of at most `size` items; no piece for an empty sequence."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
