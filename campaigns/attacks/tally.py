"""What was answered, by operation and status: how often, how soon, and what of it was wrong."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

# Of what was wrong, so much is kept.
_KEPT = 20


@dataclass
class Tally:
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By operation, and status or what there was instead."""
    seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def note(self, operation: str, status: object, seconds: float, fault: str = "") -> None:
        self.counts[operation, str(status)] += 1
        self.seconds.append(seconds)
        if fault and len(self.faults) < _KEPT:
            self.faults.append(fault)

    @classmethod
    def of_all(cls, tallies: Iterable["Tally"]) -> "Tally":
        whole = cls()
        for tally in tallies:
            whole.counts += tally.counts
            whole.seconds += tally.seconds
            whole.faults += tally.faults
        return whole

    @property
    def slowest(self) -> float:
        return max(self.seconds, default=0)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[98] if len(self.seconds) > 1 else self.slowest

    def times(self) -> str:
        return (
            f"half within {statistics.median(self.seconds) * 1000:.0f} ms, 99 % within {self.p99 * 1000:.0f} ms, all "
            f"within {self.slowest * 1000:.0f} ms"
        )

    def table(self) -> Iterator[str]:
        """Lines: a row for each operation, a column for each status."""
        statuses = sorted({status for _, status in self.counts})
        names = sorted({name for name, _ in self.counts})
        rows = [
            ["", *statuses, "all"],
            *(
                [name, *(str(self.counts[name, status] or "") for status in statuses), str(self._of(name))]
                for name in names
            ),
            ["all", *(str(self._with(status)) for status in statuses), str(self.counts.total())],
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, *cells in rows:
            shown = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
            yield f"{name:<{widths[0]}}  {'  '.join(shown)}"

    def _of(self, name: str) -> int:
        return sum(count for (each, _), count in self.counts.items() if each == name)

    def _with(self, status: str) -> int:
        return sum(count for (_, each), count in self.counts.items() if each == status)
