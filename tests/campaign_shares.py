"""Campaigns: tests of so many cases that a run of `make test` takes a share of them, chosen by the commit.

`make test CAMPAIGNS=all` takes all, and `CAMPAIGNS=text` the share that the text chooses.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

import pytest

from devnet.devchain import PROJECT

ALL = "all"

Case = TypeVar("Case")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "campaign(one_in, always): of these a run takes a share, and `always`")
    seed()


def pytest_report_header() -> str:
    """Return what this run takes, and how to run the same again or all."""
    if seed() == ALL:
        return "campaigns: all of each"
    return f"campaigns: a share of each; the same again: make test CAMPAIGNS={seed()}; all: make test CAMPAIGNS={ALL}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    without = _left_out(items)
    config.hook.pytest_deselected(items=[*without])
    items[:] = [item for item in items if item not in without]


def seed() -> str:
    """Return what chooses the share: `CAMPAIGNS`, else the commit, else today's date, for a copy without a history."""
    # Processes that share the tests have the same one, from the environment.
    if not os.environ.get("CAMPAIGNS"):
        os.environ["CAMPAIGNS"] = _commit() or f"{datetime.now(UTC):%Y-%m-%d}"
    return os.environ["CAMPAIGNS"]


def _commit() -> str:
    try:
        asked = ["git", "rev-parse", "--short=12", "HEAD"]
        return subprocess.run(asked, cwd=PROJECT, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def share(name: str, cases: Iterable[Case], *, one_in: int) -> Iterator[Case]:
    """Yield each `one_in`-th of the cases, from the one that the run's seed and the campaign's name choose; or all."""
    if seed() == ALL:
        return iter(cases)
    return islice(cases, _first(name, one_in), None, one_in)


def _first(name: str, one_in: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed()} {name}".encode()).digest()) % one_in


def _left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return what this run doesn't take of the tests with `@pytest.mark.campaign(one_in=..., always=[...])`.

    `always` names the parameters of cases that have failed once.
    """
    campaigns: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("campaign")
        if mark and item.name.partition("[")[2].removesuffix("]") not in mark.kwargs.get("always", ()):
            campaigns.setdefault(item.nodeid.partition("[")[0], []).append(item)
    taken = {item for name, cases in campaigns.items() for item in share(name, cases, one_in=_one_in(cases[0]))}
    return {item for cases in campaigns.values() for item in cases if item not in taken}


def _one_in(item: pytest.Item) -> int:
    mark = item.get_closest_marker("campaign")
    assert mark
    one_in: int = mark.kwargs["one_in"]
    return one_in
