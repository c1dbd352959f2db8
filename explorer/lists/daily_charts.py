"""Charts of days, as places in percent, so that a template draws them without a script or a style."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from explorer.formatting.amounts import in_millions
from explorer.lists.daily_history import Day, History

# Of the width that a day has.
_BAR = 0.78


@dataclass(frozen=True)
class Bar:
    kind: str  # of its colour
    x: float  # percent, as the others
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True)
class Chart:
    name: str
    total: str
    note: str  # behind the total
    top: str  # what the upper edge stands for
    bars: tuple[Bar, ...]
    columns: tuple[str, ...]  # of the table that says the same
    rows: tuple[tuple[date, tuple[int, ...]], ...]  # the newest day first

    @property
    def first(self) -> date:
        return self.rows[-1][0]

    @property
    def middle(self) -> date:
        return self.rows[len(self.rows) // 2][0]


def of(history: History) -> tuple[Chart, Chart, Chart]:
    days = history.days
    proven, gas = sum(day.proven for day in days), sum(day.gas for day in days)
    done, ended = sum(day.done for day in days), sum(day.ended for day in days)
    return (
        _chart(
            "Proven",
            f"{proven:,}",
            f"accounts, slots and headers; {days[-1].proven:,} today",
            days,
            {"Accounts, slots and headers": lambda day: day.proven},
        ),
        _chart("Gas used", in_millions(gas), f"{in_millions(days[-1].gas)} today", days, {"Gas": lambda day: day.gas}),
        _chart(
            "Success",
            _share(done, ended),
            f"{done:,} of {ended:,} batches done",
            days,
            {"Done": lambda day: day.done, "Rejected": lambda day: day.rejected},
        ),
    )


def _share(part: int, whole: int) -> str:
    """Return the share in percent. It is only whole, or nothing, if it really is."""
    if part in {0, whole}:
        return "100 %" if whole and part else "0 %"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"


def _chart(name: str, total: str, note: str, days: Sequence[Day], columns: dict[str, Callable[[Day], int]]) -> Chart:
    values = [(day, tuple(count(day) for count in columns.values())) for day in days]
    top = _round(max(sum(of_day) for _, of_day in values))
    return Chart(
        name=name,
        total=total,
        note=note,
        top=in_millions(top),
        bars=tuple(_bars(values, list(columns), top)),
        columns=tuple(columns),
        rows=tuple((day.date, of_day) for day, of_day in reversed(values)),
    )


def _bars(values: Sequence[tuple[Day, tuple[int, ...]]], names: Sequence[str], top: int) -> Iterable[Bar]:
    """Yield the bars, one over the other where a day has several."""
    step = 100 / len(values)
    for at, (day, of_day) in enumerate(values):
        below = 0
        for column, count in enumerate(of_day):
            if not count:
                continue
            kind = "bad" if column else "today" if at == len(values) - 1 else "past"
            said = f"{day.date:%Y-%m-%d}: {count:,}{f' {names[column].lower()}' if len(names) > 1 else ''}"
            below += count
            x, y = step * (at + (1 - _BAR) / 2), 100 - 100 * below / top
            yield Bar(kind, round(x, 2), round(y, 2), round(step * _BAR, 2), round(100 * count / top, 2), said)


def _round(most: int) -> int:
    """Return 1, 2 or 5 times a power of ten, and no less than `most`."""
    power: int = 10 ** (len(str(max(most, 1))) - 1)
    return next(times * power for times in (1, 2, 5, 10) if times * power >= most)
