"""Calls in one request. Each has a judge of its outcome."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from campaigns.fuzzing.ledger import Read
from campaigns.fuzzing.tally import Divergence
from tests.contracts.simulator import MOST_WEIGHT, Call, Log, Outcome, Simulator

Judge = Callable[[Outcome], str]
"""Returns the fault of an outcome, or an empty string."""


def succeeds(outcome: Outcome) -> str:
    return "" if outcome.succeeded else "a call fails that others need"


def takes(logs: Collection[Log]) -> Judge:
    """Return a judge that expects the call to succeed with these logs, in any order."""

    def judge(outcome: Outcome) -> str:
        if not outcome.succeeded:
            return f"the contract {'halts' if outcome.halted else 'refuses it'}"
        return "" if Counter(outcome.logs) == Counter(logs) else f"it logs {outcome.logs}, not {logs}"

    return judge


def refuses(errors: Collection[bytes]) -> Judge:
    """Return a judge that expects one of these errors, given as selectors."""

    def judge(outcome: Outcome) -> str:
        if outcome.succeeded or outcome.halted:
            return f"the contract {'takes it' if outcome.succeeded else 'halts'}"
        return "" if outcome.data[:4] in errors else f"it has another error: {outcome.data.hex()}"

    return judge


def answers(read: Read) -> Judge:
    def judge(outcome: Outcome) -> str:
        if outcome.succeeded and outcome.data == read.answer:
            return ""
        return f"{read.data.hex()} answers {outcome.data.hex()}, not {read.answer.hex()}"

    return judge


class _Expected(NamedTuple):
    call: Call
    judge: Judge
    shown: Callable[[], str]


class Batch:
    """Calls in one request. Each sees only the storage that `first` and the earlier calls have written."""

    # A full batch still has room for calls that belong to it.
    _FULL = MOST_WEIGHT // 2

    def __init__(self, simulator: Simulator, first: Sequence[Call] = ()) -> None:
        self._simulator = simulator
        self._first = first
        self._begin()

    def _begin(self) -> None:
        self._expected: list[_Expected] = []
        self._weight = sum(call.weight for call in self._first)

    @property
    def is_full(self) -> bool:
        """Return whether the batch should run now. Only a few more calls that belong together fit."""
        return self._weight > self._FULL

    def add(self, call: Call, judge: Judge, shown: Callable[[], str]) -> None:
        """Add a call. `shown` returns text that reproduces the call."""
        self._expected.append(_Expected(call, judge, shown))
        self._weight += call.weight

    def add_reads(self, to: str, reads: Iterable[Read], shown: Callable[[], str]) -> None:
        for read in reads:
            self.add(Call(to, read.data), answers(read), shown)

    def run(self) -> None:
        """Run and remove all added calls. Raise Divergence."""
        outcomes = self._simulator.run([expected.call for expected in self._expected], first=self._first)
        for expected, outcome in zip(self._expected, outcomes, strict=True):
            if why := expected.judge(outcome):
                raise Divergence(f"{why}. {expected.shown()}")
        self._begin()
