"""Tests of `make mutants`: generated mutants, their verdicts, and the report."""

import json
from pathlib import Path

import pytest

from campaigns.contract_mutants import trial
from campaigns.contract_mutants.__main__ import COMMANDS, LIST
from campaigns.contract_mutants.compiling import Compiler, Store, name_of
from campaigns.contract_mutants.generate import Mutant, Node, generate, syntax_trees
from campaigns.contract_mutants.named import named
from campaigns.contract_mutants.report import SAME_CODE, judge, read_list
from campaigns.contract_mutants.trial import SURVIVED, TIMED_OUT, Command, Project, Verdict, judge_all
from contracts import ARTIFACTS_DIR
from contracts.build import CODE, ROOT_DIR, code_of, read_sources, run_compiler

KINDS = {"bound", "comparison", "condition", "constant", "mask", "number", "operand", "shift", "statement", "width"}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return dict(read_sources("src"))


@pytest.fixture(scope="module")
def mutants(sources) -> list[Mutant]:
    return generate(sources, syntax_trees(sources))


def test_mutants_are_of_each_kind_and_differ_from_the_source_in_the_one_place_that_they_name(sources, mutants):
    assert {mutant.kind for mutant in mutants} == KINDS
    assert {mutant.source for mutant in mutants} > {"src/BeaconHistory.sol", "src/BranchWriter.sol"}
    assert len({(mutant.source, mutant.apply(sources[mutant.source])) for mutant in mutants}) == len(mutants)
    assert len({mutant.key for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        lines = sources[mutant.source].splitlines(keepends=True)
        before = "".join(lines[: mutant.line - 1]) + lines[mutant.line - 1][: mutant.column - 1]
        after = sources[mutant.source][len(before) + len(mutant.original) :]
        assert sources[mutant.source] == before + mutant.original + after
        assert mutant.apply(sources[mutant.source]) == before + mutant.replacement + after


# --- Trials -----------------------------------------------------------------------------------------------------------

TINY = """// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;
import {Bounds} from "./Bounds.sol";
contract Tiny {
    uint256 public kept;
    uint256 public immutable most = 50;
    error TooMuch();
    function keep(uint256 value) external {
        if (Bounds.isTooMuch(value)) revert TooMuch();
        kept = value;
    }
    function count(uint256 n) external pure returns (uint256 c) {
        unchecked { for (; n > 0; --n) ++c; }
    }
}
"""
BOUNDS = """// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;
library Bounds {
    uint256 private constant MOST = 8;
    function isTooMuch(uint256 value) internal pure returns (bool) {
        return value & type(uint256).max > MOST;
    }
}
"""
TINY_SOURCES = {"src/Tiny.sol": TINY, "src/Bounds.sol": BOUNDS}

# The test tries 8 and 10, so a mutant of the limit 9 survives.
TINY_TEST = """
from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed, Reverted

with DevChain(extra_args=("--gas-limit", str(10**12))) as chain:
    tiny = Deployed(chain, "Tiny")
    tiny.send("keep", 8)
    assert tiny.call("kept") == 8
    try:
        tiny.send("keep", 10)
    except Reverted:
        pass
    else:
        raise AssertionError("kept 10")
    assert tiny.call("count", 3) == 3
"""
TEST_OF_TINY = Command("tests", ("-c", TINY_TEST))


@pytest.fixture(scope="module")
def trees() -> dict[str, Node]:
    return syntax_trees(TINY_SOURCES)


@pytest.fixture(scope="module")
def tiny(trees) -> dict[str, Mutant]:
    """Return the mutants by their replacement text."""
    return {mutant.replacement: mutant for mutant in generate(TINY_SOURCES, trees)}


@pytest.fixture(scope="module")
def artifacts() -> dict[Path, str]:
    output = run_compiler(TINY_SOURCES, {"*": {"": ["ast"], "*": ["abi", *CODE]}})
    abi = output["contracts"]["src/Tiny.sol"]["Tiny"]["abi"]
    return {Path("Tiny.json"): json.dumps({"abi": abi, **code_of(output, "src/Tiny.sol", "Tiny")})}


@pytest.fixture(scope="module")
def compiler(trees, tmp_path_factory) -> Compiler:
    return Compiler(TINY_SOURCES, trees, Store(tmp_path_factory.mktemp("code")))


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "verdicts")


@pytest.mark.long
def test_mutants_are_caught_survive_or_hang(tiny, artifacts, compiler, store, monkeypatch):
    monkeypatch.setattr(trial, "_PATIENCE_SECONDS", 8)
    monkeypatch.setattr(trial, "_PATIENCE_FACTOR", 2)
    project = Project(ROOT_DIR, artifacts, {"Tiny": [TEST_OF_TINY]})
    expected = {
        tiny["false"]: "tests",
        tiny["value & type(uint256).max > (MOST + 1)"]: SURVIVED,
        tiny["n >= 0"]: TIMED_OUT,
        # The compiler removes a mask of all bits, so both codes are equal.
        tiny["value"]: SAME_CODE,
    }
    codes = compiler.compile_all(list(expected), jobs=2)
    changed = {mutant: project.changed(codes[mutant] or {}) for mutant in expected}
    assert [set(code) for code in changed.values()] == [{"Tiny"}] * 3 + [set()]
    changed = {mutant: code for mutant, code in changed.items() if code}
    verdicts = judge_all(project, changed, compiler=compiler, store=store, jobs=2)
    names = {mutant: name_of(code) for mutant, code in changed.items()}
    outcomes = {mutant: verdicts[names[mutant]].outcome if mutant in names else SAME_CODE for mutant in expected}
    assert outcomes == expected

    # The verdicts are stored, so no mutant is tried again.
    monkeypatch.setattr(Project, "judge", lambda *_, **__: pytest.fail("it was tried again"))
    told: list[Verdict] = []
    again = judge_all(
        project, changed, compiler=compiler, store=store, jobs=2, tell=lambda _, verdict: told.append(verdict)
    )
    assert again == verdicts
    assert sorted(told) == sorted(verdicts.values())


# --- The report -------------------------------------------------------------------------------------------------------


def _mutant(original: str, replacement: str, *, source: str = "src/One.sol", occurrence: int = 1) -> Mutant:
    return Mutant(source, "One.run", 0, 0, original, replacement, 1, 1, occurrence)


CAUGHT, GAP, EQUAL, EQUAL_TOO = (_mutant("a < b", other) for other in ("false", "a <= b", "b > a", "!(b <= a)"))
OUTCOMES = {
    CAUGHT: Verdict("tests", "test_one"),
    GAP: Verdict(SURVIVED, ""),
    EQUAL: Verdict(SURVIVED, ""),
    EQUAL_TOO: Verdict(SURVIVED, ""),
    _mutant("a", "b", source="src/Two.sol"): Verdict(SAME_CODE, ""),
}
CODES = {CAUGHT: "1", GAP: "2", EQUAL: "3", EQUAL_TOO: "3"}


def test_the_report_counts_by_contract_and_names_what_survives():
    report = judge(OUTCOMES, CODES, [EQUAL.key], list(OUTCOMES))
    assert report.table().splitlines() == [
        "contract  mutants  tests  same code  equivalent  survived",
        "One             4      1          0           2         1",
        "Two             1      0          1           0         0",
        "all             5      1          1           2         1",
    ]
    assert report.survivors() == [GAP]
    assert report.stale == []
    assert not report.is_fine()
    assert judge(OUTCOMES, CODES, [EQUAL.key, GAP.key], list(OUTCOMES)).is_fine()


# --- The contracts ----------------------------------------------------------------------------------------------------


def test_each_listed_mutant_exists_and_each_contract_has_tests(mutants):
    keys = {mutant.key for mutant in mutants}
    assert set(read_list(LIST)) - keys == set()
    assert COMMANDS.keys() == {path.stem for path in ARTIFACTS_DIR.glob("*.json")}


def test_each_change_made_by_hand_can_be_made(sources):
    assert all(mutant.apply(sources[mutant.source]) != sources[mutant.source] for mutant in named(sources))
