"""A test takes a second at most, unless it has a mark that allows more, and uses no more than its folder says.

pyproject.toml imports this module. A slow or loaded machine fails no test. The seconds in which it waited for a core
don't count, and the others are compared with those of a unit of work, which the same process measures around it.
"""

import hashlib
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

# A test that takes up to three times as long may owe it to the others that run at the same time.
_LIMIT_SECONDS, _MARGIN = 1.0, 3.0
_MOST_STORIES = 40
# A unit of work, and its seconds on a core that nothing else uses.
_UNIT_ROUNDS, _UNIT_SECONDS = 20_000, 0.008
# A test that is shorter starts no measurement.
_SHORT_SECONDS = 0.4

# Benchmarks, which take longer, are elsewhere.
_TESTS = Path(__file__).parent
_MARKS = ("release", "long", "story", "geth", "op_stack")
# Folders by what their tests use. Each has what those before it have, too.
_FOLDERS = ["no_database", "database", "chain", "system"]

# How many times as long as on an idle core the last units have taken.
_slowness = deque([1.0], maxlen=5)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "story: shows a capability on the real thing, and may take over a second")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` selects tests, leave marks that name rows of a table to these rows alone. A story isn't long."""
    for item in items:
        item.own_markers[:] = [mark for mark in item.own_markers if mark.name not in _MARKS or _is_of(mark, item)]
        if any(mark.name == "story" for mark in item.own_markers):
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "long"]
        item.user_properties.append(("layer", _layer(item)))
    if misplaced := [item.nodeid for item in items if _TESTS in item.path.parents and _is_misplaced(item)]:
        raise pytest.UsageError(f"Move these to a folder for what they use, of {_FOLDERS}: " + ", ".join(misplaced))
    stories = sum(item.get_closest_marker("story") is not None for item in items)
    if stories > _MOST_STORIES:
        raise pytest.UsageError(f"{stories} tests are stories; at most {_MOST_STORIES} may be.")


def _is_of(mark: pytest.Mark, item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    return not mark.args or item.callspec.id in mark.args


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    began = time.perf_counter() - _waited()
    yield
    if item.config.getoption("database") == "postgresql":
        return  # `make test` doesn't run it there.
    seconds = time.perf_counter() - _waited() - began
    if seconds < _SHORT_SECONDS:
        return
    _slowness.append(_unit_seconds() / _UNIT_SECONDS)
    limit = _LIMIT_SECONDS * _MARGIN * max(1.0, *_slowness)
    if seconds > limit and _TESTS in item.path.parents and _layer(item) not in _MARKS:
        pytest.fail(f"It took {seconds:.1f} s; {limit:.1f} s is the limit now. Shorten it, or mark it `long`.")


def _layer(item: pytest.Item) -> str:
    """Return the test's mark that allows more time, or the folder that tells what it uses."""
    marks = {mark.name for mark in item.iter_markers()}
    return next((mark for mark in _MARKS if mark in marks), item.path.parent.name)


def _is_misplaced(item: pytest.Item) -> bool:
    """Return whether a test uses more than its folder says. A long one may."""
    assert isinstance(item, pytest.Function)
    fixtures, folder, used = set(item.fixturenames), item.path.parent.name, "no_database"
    if fixtures & {"db", "transactional_db"} or item.get_closest_marker("django_db"):
        used = "database"
    if fixtures & {"chain", "devchain"}:
        used = "chain"
    if "browser" in fixtures:
        used = "system"
    is_long = any(item.get_closest_marker(mark) for mark in _MARKS if mark != "story")
    return folder not in _FOLDERS or (_FOLDERS.index(used) > _FOLDERS.index(folder) and not is_long)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the tests by layer, and their seconds with those of fixtures."""
    tests, seconds = Counter[str](), defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                (layer,) = (str(value) for name, value in report.user_properties if name == "layer")
                tests[layer] += report.when == "call"
                seconds[layer] += report.duration
    told = [f"{layer}: {number} tests, {seconds[layer]:.0f} s" for layer, number in tests.most_common()]
    terminalreporter.write_line("; ".join(told))


def _waited() -> float:
    """Return for how many seconds this thread has waited for a core. 0 where the system doesn't tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _unit_seconds() -> float:
    began, digest = time.perf_counter(), b""
    for _ in range(_UNIT_ROUNDS):
        digest = hashlib.sha256(digest).digest()
    return time.perf_counter() - began
