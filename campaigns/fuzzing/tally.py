"""The count of a campaign's trials, and the error that it raises for a finding."""

import re
from collections import Counter
from dataclasses import dataclass, field


class Divergence(AssertionError):
    """Contract and model differ, or both accept a false fact.

    The message has everything that is needed to repeat it.
    """


@dataclass
class Tally:
    done: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    """Accepted trials by kind of operation or call."""
    refused: Counter[str] = field(default_factory=Counter)
    """Refused trials by the model's sentence."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.done + other.done, self.accepted + other.accepted, self.refused + other.refused)


def sentence(refusal: str) -> str:
    """Replace numbers, so that refusals that differ only in a number have the same sentence."""
    return re.sub(r"\d+", "n", refusal)
