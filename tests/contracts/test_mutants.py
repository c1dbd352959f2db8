"""The tool that tests the tests: which mutants there are, what becomes of them, and what the report says."""

import json
from pathlib import Path

import pytest

from campaigns.contract_mutants import trial
from campaigns.contract_mutants.__main__ import COMMANDS, LIST
from campaigns.contract_mutants.compiling import Code, Compiler, Store, name_of
from campaigns.contract_mutants.generate import Mutant, Node, generate, syntax_trees
from campaigns.contract_mutants.named import named
from campaigns.contract_mutants.report import SAME_CODE, Key, judge, read_list
from campaigns.contract_mutants.trial import SURVIVED, TIMED_OUT, Command, Project, Verdict, judge_all
from contracts import ARTIFACTS_DIR
from contracts.build import CODE, ROOT_DIR, code_of, read_sources, run_compiler
from tests.contracts.weakened import Removal

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


# --- Trying -----------------------------------------------------------------------------------------------------------

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
HARNESS = """// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;
import {Bounds} from "../src/Bounds.sol";
contract Harness {
    function isTooMuch(uint256 value) external pure returns (bool) {
        return Bounds.isTooMuch(value);
    }
}
"""
TINY_SOURCES = {"src/Tiny.sol": TINY, "src/Bounds.sol": BOUNDS, "test/Harness.sol": HARNESS}

# 9 is missing.
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
HARNESS_TEST = """
from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed

with DevChain() as chain:
    assert Deployed(chain, "test/Harness").call("isTooMuch", 9)
"""
TEST_OF_HARNESS = Command("campaigns", ("-c", HARNESS_TEST), harness=True)


@pytest.fixture(scope="module")
def trees() -> dict[str, Node]:
    return syntax_trees(TINY_SOURCES)


@pytest.fixture(scope="module")
def tiny(trees) -> dict[str, Mutant]:
    """By their replacements."""
    return {mutant.replacement: mutant for mutant in generate(TINY_SOURCES, trees)}


@pytest.fixture(scope="module")
def artifacts() -> dict[Path, str]:
    output = run_compiler(TINY_SOURCES, {"*": {"": ["ast"], "*": ["abi", *CODE]}})
    found = {}
    for path, source, name in (("Tiny", "src/Tiny.sol", "Tiny"), ("test/Harness", "test/Harness.sol", "Harness")):
        abi = output["contracts"][source][name]["abi"]
        found[Path(f"{path}.json")] = json.dumps({"abi": abi, **code_of(output, source, name)})
    return found


@pytest.fixture(scope="module")
def compiler(trees, tmp_path_factory) -> Compiler:
    return Compiler(TINY_SOURCES, trees, Store(tmp_path_factory.mktemp("code")))


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "verdicts")


def _project(artifacts: dict[Path, str], *commands: Command) -> Project:
    """This project, with other contracts."""
    return Project(ROOT_DIR, artifacts, {"Tiny": commands})


def _changed(project: Project, compiler: Compiler, *mutants: Mutant) -> dict[Mutant, Code]:
    codes = compiler.compile_all(mutants, jobs=2)
    return {mutant: project.changed(codes[mutant] or {}) for mutant in mutants}


@pytest.mark.long
def test_mutants_are_caught_survive_or_hang(tiny, artifacts, compiler, store, monkeypatch):
    monkeypatch.setattr(trial, "_PATIENCE_SECONDS", 8)
    monkeypatch.setattr(trial, "_PATIENCE_FACTOR", 2)
    project = _project(artifacts, TEST_OF_TINY)
    expected = {
        tiny["false"]: "tests",
        tiny["value & type(uint256).max > (MOST + 1)"]: SURVIVED,
        tiny["n >= 0"]: TIMED_OUT,
        # The mask has all bits, which the compiler sees.
        tiny["value"]: SAME_CODE,
    }
    changed = _changed(project, compiler, *expected)
    assert [set(code) for code in changed.values()] == [{"Tiny"}] * 3 + [set()]
    changed = {mutant: code for mutant, code in changed.items() if code}
    verdicts = judge_all(project, changed, compiler=compiler, store=store, jobs=2)
    names = {mutant: name_of(code) for mutant, code in changed.items()}
    found = {mutant: verdicts[names[mutant]].outcome if mutant in names else SAME_CODE for mutant in expected}
    assert found == expected

    # Known from now on, without trying anything.
    monkeypatch.setattr(Project, "judge", lambda *_, **__: pytest.fail("it was tried again"))
    told: list[Verdict] = []
    again = judge_all(
        project, changed, compiler=compiler, store=store, jobs=2, tell=lambda _, verdict: told.append(verdict)
    )
    assert again == verdicts
    assert sorted(told) == sorted(verdicts.values())


def test_a_harness_has_the_code_of_the_mutant(tiny, artifacts, compiler, store):
    project = _project(artifacts, TEST_OF_TINY, TEST_OF_HARNESS)
    changed = _changed(project, compiler, tiny["value & type(uint256).max > (MOST + 1)"])
    verdicts = judge_all(project, changed, compiler=compiler, store=store, jobs=1)
    assert [verdict.outcome for verdict in verdicts.values()] == ["campaigns"]


def test_one_that_does_not_compile_keeps_no_other_from_it(tiny, compiler):
    fine = tiny["value"]
    wrong = Mutant("src/Tiny.sol", "Tiny.keep", 0, 0, "", "nonsense", 1, 1)
    codes = compiler.compile_all([fine, wrong], jobs=2)
    assert codes[wrong] is None
    assert codes[fine] is not None
    assert set(codes[fine]["Tiny"]["immutables"]) == {"most"}
    # From what was kept.
    told: list[int] = []
    assert compiler.compile_all([fine, wrong], jobs=2, tell=told.append) == codes
    assert told == [2]


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


def test_a_listed_mutant_that_is_caught_or_gone_is_stale():
    gone = _mutant("a < b", "b > a", occurrence=2)
    outcomes = {CAUGHT: OUTCOMES[CAUGHT]}
    report = judge(outcomes, CODES, [CAUGHT.key, gone.key, EQUAL.key], list(OUTCOMES))
    assert report.stale == [
        "It needs no argument, its outcome is `tests`: One.run: a < b  ->  false",
        "There is no such mutant: One.run: a < b  ->  b > a (occurrence 2)",
    ]
    assert report.survivors() == []
    assert not report.is_fine()


ENTRY = 'function = "One.run"\noriginal = "a <\\n  b"\nreplacement = "b > a"\n'


def test_the_list_is_read_by_what_stays_when_lines_move(tmp_path):
    path = tmp_path / "list.toml"
    second = f'[[equivalent]]\n{ENTRY}occurrence = 2\nargument = "Neither."\n'
    path.write_text(f'[[equivalent]]\n{ENTRY}argument = "They say\\nthe same."\n{second}')
    key: Key = ("One.run", "a < b", "b > a", 1)
    assert read_list(path) == {key: "They say the same.", (*key[:3], 2): "Neither."}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"[[equivalent]]\n{ENTRY}", id="no argument"),
        pytest.param(f'[[equivalent]]\n{ENTRY}argument = " "', id="empty argument"),
        pytest.param(f'[[equivalent]]\n{ENTRY}argument = "So."\nline = 3', id="unknown field"),
        pytest.param(f'[[equivalent]]\n{ENTRY}argument = "So."\n' * 2, id="twice"),
    ],
)
def test_a_wrong_entry_of_the_list_is_an_error(tmp_path, text):
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(ValueError, match=r"list\.toml: an entry is incomplete, has something else, or is there twice"):
        read_list(tmp_path / "list.toml")


# --- The contracts ----------------------------------------------------------------------------------------------------


def test_each_listed_mutant_exists_and_each_contract_has_tests(mutants):
    keys = {mutant.key for mutant in mutants}
    assert set(read_list(LIST)) - keys == set()
    assert COMMANDS.keys() == {path.stem for path in ARTIFACTS_DIR.glob("*.json")}


def test_a_change_made_by_hand_is_one_replacement_of_all_its_edits():
    twice = [Removal("Tiny", "kept = value;", "kept = 0;"), Removal("Tiny", "++c;", "c += 2;")]
    [mutant] = named(TINY_SOURCES, {"counts twice, and keeps nothing": twice})
    assert mutant.apply(TINY) == TINY.replace("kept = value;", "kept = 0;").replace("++c;", "c += 2;")
    assert str(mutant) == f"src/Tiny.sol:{mutant.line}:9 counts twice, and keeps nothing  [named]"
    assert TINY.splitlines()[mutant.line - 1].strip() == "kept = value;"


def test_each_change_made_by_hand_can_be_made(sources):
    assert all(mutant.apply(sources[mutant.source]) != sources[mutant.source] for mutant in named(sources))
