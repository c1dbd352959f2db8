"""Skip tests whose mark names a program that isn't there.

One line at the end of a run tells what was skipped, and why. A line for each place would hide it.
"""

from collections import Counter
from collections.abc import Iterable

import pytest

from devnet import op_stack
from devnet.geth import GETH, GETH_1_16

# Files that are there once a mark's programs are built, by the mark and the command that builds them.
_BUILT = {("geth", "geth"): (GETH, GETH_1_16), ("op_stack", "geth op-stack"): (GETH, op_stack.PROGRAMS / "ready")}


def pytest_configure(config: pytest.Config) -> None:
    for mark, command in _BUILT:
        target = mark.replace("_", "-")
        config.addinivalue_line(
            "markers",
            f"{mark}: needs `make {command}`; `make test-{target}` runs it, or `make test-{target}-long` if it is long",
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for (mark, command), files in _BUILT.items():
        if not all(file.exists() for file in files):
            for item in items:
                if item.get_closest_marker(mark):
                    item.add_marker(pytest.mark.skip(reason=f"its programs are not built: make {command}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if reports := terminalreporter.getreports("skipped"):
        terminalreporter.write_line(told(reports))


def told(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> str:
    """Return the number of skipped tests by reason, the most frequent first."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in reports if isinstance(report.longrepr, tuple | list)
    )
    return "Skipped: " + "; ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
