"""The end of a run tells in one line what was skipped."""

import pytest

from tests.skips import told


def skipped(reason: str) -> pytest.TestReport:
    place = ("tests/some.py", 7, f"Skipped: {reason}")
    return pytest.TestReport("tests/some.py::test", (*place[:2], ""), {}, "skipped", place, "setup")


def test_skips_are_told_in_one_line_by_reason():
    reports = [skipped(reason) for reason in ("nginx is missing", "there is no jq", "nginx is missing")]
    assert told(reports) == "Skipped: 2 (nginx is missing); 1 (there is no jq)"
