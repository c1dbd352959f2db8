"""The compiler's known bugs. A bug of a version that compiles our sources can't concern them."""

import json
import re

import pytest

from chains.contract_artifacts import ARTIFACTS_DIR
from contracts.build import LIBRARY, SETTINGS, read_sources
from tests.fixtures_folder import RECORDED

BUGS: dict[str, list[str]] = json.loads((RECORDED / "compilers" / "solc_bugs.json").read_text())["versions"]

# Regular expressions for the text without which a bug can't show. The compiler's docs/bugs.json describes each bug.
_ARRAY_IN_STORAGE = r"^    \w+\[\w*\]\s+(?:public|internal|private)\s+\w+;"
NEEDS = {
    "UncheckedArrayStorageSizeOverflow": _ARRAY_IN_STORAGE,
    "LostStorageArrayWriteOnSlotOverflow": _ARRAY_IN_STORAGE,
    "TransientStorageClearingHelperCollision": r"\btransient\b",
    "InheritanceOrderReversalOnStorageEndWarning": r"\blayout\s+at\b",
    "VerbatimInvalidDeduplication": r"\bverbatim",
    "MissingSideEffectsOnSelectorAccess": r"[)\]]\.selector\b",
}
# These bugs depend on more than a text.
ARGUED = {
    "UnsoundSpillInMutualRecursion": "No two functions call each other. `TrieWalk._checkItems` calls itself.",
    "FullInlinerNonExpressionSplitArgumentEvaluationOrder": "It needs a sequence of the optimizer of one's own.",
}


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_the_compiler_of_all_artifacts_has_no_known_bug():
    """A newer compiler needs a newer list: the list may lack the last release alone."""
    compilers = {
        json.loads(path.read_text())["compiler"]["version"].partition("+")[0] for path in ARTIFACTS_DIR.rglob("*.json")
    }
    [compiler] = compilers
    listed = max((version for version in BUGS if number(version) <= number(compiler)), key=number)
    assert BUGS[listed] == []
    assert number(compiler)[:2] == number(listed)[:2]
    assert number(compiler)[2] - number(listed)[2] <= 1
    assert "details" not in SETTINGS["optimizer"]


def test_every_bug_of_a_compiler_that_the_package_accepts_is_looked_at():
    pragmas = {
        pragma
        for path, text in read_sources("src").items()
        if path.startswith(LIBRARY)
        for pragma in re.findall(r"^pragma solidity (.*);", text, re.MULTILINE)
    }
    assert pragmas == {f"^{min(BUGS, key=number)}"}
    assert {bug for bugs in BUGS.values() for bug in bugs} == NEEDS.keys() | ARGUED.keys()


@pytest.mark.parametrize("bug", NEEDS)
def test_no_source_of_the_package_has_what_a_bug_needs(bug):
    sources = {path: text for path, text in read_sources("src").items() if path.startswith(LIBRARY)}
    assert len(sources) > 10
    assert [path for path, text in sources.items() if re.search(NEEDS[bug], text, re.MULTILINE)] == []


@pytest.mark.parametrize(
    ("bug", "text"),
    [
        ("UncheckedArrayStorageSizeOverflow", "contract A {\n    uint256[2] private values;\n}"),
        ("TransientStorageClearingHelperCollision", "    uint256 transient value;"),
        ("InheritanceOrderReversalOnStorageEndWarning", "contract A layout at 2**255 {"),
        ("VerbatimInvalidDeduplication", 'verbatim_0i_1o(hex"60")'),
        ("MissingSideEffectsOnSelectorAccess", "return called().selector;"),
    ],
)
def test_what_a_bug_needs_is_found(bug, text):
    assert re.search(NEEDS[bug], text, re.MULTILINE)
