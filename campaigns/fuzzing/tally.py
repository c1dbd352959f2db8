"""What a campaign has tried, and what it raises on finding something."""

import re
from collections import Counter
from dataclasses import dataclass, field


class Divergence(AssertionError):
    """Contract and model differ, or both took what isn't so. The message holds all that it takes to see it again."""


@dataclass
class Tally:
    done: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    """The accepted ones, by kind of operation or of call."""
    refused: Counter[str] = field(default_factory=Counter)
    """The refused ones, by the model's sentence."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.done + other.done, self.accepted + other.accepted, self.refused + other.refused)


def sentence(refusal: str) -> str:
    """One for all refusals that differ in a number."""
    return re.sub(r"\d+", "n", refusal)
