"""Fast random numbers, because the library's `choice` and `randrange` would take most of the time."""

import random
from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class Chance(random.Random):
    def pick(self, items: Sequence[_Item]) -> _Item:
        return items[int(self.random() * len(items))]

    def below(self, end: int) -> int:
        """Return a number from 0 to `end` - 1."""
        return int(self.random() * end)

    def between(self, first: int, last: int) -> int:
        """Return a number from `first` to `last`, both included."""
        return first + int(self.random() * (last - first + 1))

    def happens(self, share: float) -> bool:
        return self.random() < share

    def number(self, size: int) -> int:
        """Return a number of at most `size` bytes, often near a boundary or with fewer bytes."""
        if self.random() < 0.4:
            return self.pick((0, 1, 0x7F, 0x80, 0xFF, 0x100, (1 << 8 * size) - 1)) & (1 << 8 * size) - 1
        return self.getrandbits(8 * size if self.random() < 0.3 else self.between(1, 8 * size))
