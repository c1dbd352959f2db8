"""Skip tests whose mark names a program that isn't there.

One line at the end of a run tells what was skipped, and why. A line for each place would hide it.
"""

from collections import Counter
from collections.abc import Iterable

import pytest

from devnet.geth import GETH, GETH_1_16


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "geth: needs geth; `make test-geth` runs it, or `make test-geth-long` if it is long"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not (GETH.exists() and GETH_1_16.exists()):
        for item in items:
            if item.get_closest_marker("geth"):
                item.add_marker(pytest.mark.skip(reason="geth is not built: make geth"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if reports := terminalreporter.getreports("skipped"):
        terminalreporter.write_line(told(reports))


def told(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> str:
    """Return the number of skipped tests by reason, the most frequent first."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in reports if isinstance(report.longrepr, tuple | list)
    )
    return "Skipped: " + "; ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
