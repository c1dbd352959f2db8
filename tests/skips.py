"""Tell in one line at the end of a run what was skipped, and why. A line for each place would hide it."""

from collections import Counter
from collections.abc import Iterable

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if reports := terminalreporter.getreports("skipped"):
        terminalreporter.write_line(told(reports))


def told(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> str:
    """Return the number of skipped tests by reason, the most frequent first."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in reports if isinstance(report.longrepr, tuple | list)
    )
    return "Skipped: " + "; ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
