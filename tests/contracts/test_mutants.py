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
from campaigns.contract_mutants.trial import SURVIVED, TIMED_OUT, Command, Project, TrialError, Verdict, judge_all
from contracts import ARTIFACTS_DIR
from contracts.build import CODE, ROOT_DIR, code_of, read_sources, run_compiler
from tests.contracts.weakened import Removal

FORMS = """// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

function refuse() pure { revert(); }

contract Forms {
    error Wrong();
    enum Kind { FIRST, SECOND }
    uint256 private constant MOST = 100;
    bytes32 private constant LIMIT = bytes32(uint256(7));
    uint256 private constant ROOM = 1 << 255 | 2 * 16;
    address private constant SOMEBODY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    event Done(address who);
    mapping(uint256 => uint256) private kept;

    modifier small(uint256 a) {
        require(a < 9, unicode"ä");
        _;
    }

    function compound(uint256 a, bool b) external pure {
        if (b || a > MOST && !b) revert Wrong();
    }
    function orders(uint256 a, bytes32 b, Kind kind) external pure {
        if (0x08 <= a) return;
        if (b >= LIMIT) return;
        if (a + 2 == MOST) return;
        if (kind != Kind.FIRST) return;
        if (a > type(uint8).max) return;
    }
    function masks(uint256 a, uint256 b) external pure small(a) returns (uint256 c) {
        c = uint8(a) + (a & 0xff);
        c &= b;
        if (1 << a & b != 0) c = uint256(uint64(b));
    }
    function statements(uint256 a, bool b) external returns (uint256 c) {
        delete kept[a];
        refuse();
        emit Done(address(0));
        if (b) kept[a] = a;
        if (drop(a)) kept[a] = a;
        if (b) {
            kept[a]++;
            return a;
        } else {
            return c;
        }
    }
    function drop(uint256 a) private returns (bool c) {
        (a, kept[a]) = (kept[a], a);
        if (a > 9) return true;
        c = kept[a] > a;
    }
    function widths(uint256 a) external pure returns (address, uint256) {
        if (a == type(uint184).max) revert Wrong();
        return (address(uint160(a)), uint256(uint8(a)) & 6);
    }
    function shifts(uint256 a, uint256 b) external pure returns (uint256 c) {
        c = a << (256 - 4 * b) | b << (8 * b - 8) | a << MOST;
        c >>= 8;
        assembly {
            c := or(shr(b, c), or(shl(MOST, a), shl(sub(256, shl(3, b)), a)))
        }
    }
    function yulGuard(uint256 a) external pure returns (uint256 c) {
        assembly {
            function fail() { revert(0, 0) }
            function leaves() { leave }
            if calldatasize() { leaves() }
            if gt(a, MOST) { fail() }
            if or(eq(a, 5), and(a, 0xff)) { c := 1 }
            switch a
            case 0 { c := or(a, 8) }
            case 1 { c := 3 }
            default { invalid() }
        }
    }
    function yulStatements(uint256 a) external pure returns (uint256 c) {
        assembly {
            mstore(0, a)
            if a { mstore8(33, a) }
            if a {
                mcopy(0, 32, a)
                revert(1, 2)
            }
            let size := 0
            for { let i := add(a, size) } i { i := sub(i, 1) } {
                size := mload(a)
                if size { continue }
                if byte(1, a) {
                    size := a
                    break
                }
            }
            c := size
        }
    }
}
"""

EXPECTED = {
    "refuse": [
        "revert(); -> {}",
    ],
    "Forms.MOST": [
        "100 -> 99",
    ],
    "Forms.LIMIT": [
        "7 -> 6",
    ],
    "Forms.ROOM": [
        "255 -> 256",
        "2 -> 1",
        "16 -> 15",
    ],
    "Forms.SOMEBODY": [
        (
            "0x0000F90827F1C53a10cb7A02335B175320002935 -> "
            "address(uint160(0x0000F90827F1C53a10cb7A02335B175320002935) - 1)"
        ),
    ],
    "Forms.small": [
        "a < 9 -> a < 8",
        "a < 9 -> a <= 9",
        "a < 9 -> true",
    ],
    "Forms.compound": [
        "b || a > MOST && !b -> a > MOST && !b",
        "b || a > MOST && !b -> b",
        "b || a > MOST && !b -> false",
        "a > MOST -> a > (MOST + 1)",
        "a > MOST -> a >= MOST",
        "a > MOST && !b -> !b",
        "a > MOST && !b -> a > MOST",
    ],
    "Forms.orders": [
        "0x08 <= a -> 0x07 <= a",
        "0x08 <= a -> 0x08 < a",
        "0x08 <= a -> false",
        "b >= LIMIT -> b > LIMIT",
        "b >= LIMIT -> b >= bytes32(uint256(LIMIT) - 1)",
        "b >= LIMIT -> false",
        "a + 2 == MOST -> a + 1 == MOST",
        "a + 2 == MOST -> a + 2 <= MOST",
        "a + 2 == MOST -> a + 2 >= MOST",
        "a + 2 == MOST -> a + 3 == MOST",
        "a + 2 == MOST -> false",
        "kind != Kind.FIRST -> false",
        "kind != Kind.FIRST -> kind < Kind.FIRST",
        "kind != Kind.FIRST -> kind > Kind.FIRST",
        "a > type(uint8).max -> a > (uint256(type(uint8).max) + 1)",
        "a > type(uint8).max -> a >= type(uint8).max",
        "a > type(uint8).max -> false",
        "type(uint8).max -> type(uint16).max",
    ],
    "Forms.masks": [
        "small(a) -> ",
        "c = uint8(a) + (a & 0xff); -> {}",
        "a & 0xff -> a",
        "a & 0xff -> a & 0x1ff",
        "a & 0xff -> a & 0x7f",
        "c &= b -> c",
        "1 << a & b -> 1 << a",
        "1 << a & b -> b",
        "1 << a & b != 0 -> 0 << a & b != 0",
        "1 << a & b != 0 -> 2 << a & b != 0",
        "1 << a & b != 0 -> false",
        "1 << a & b != 0 -> true",
        "a -> (a + 4)",
        "a -> (a - 4)",
        "uint64(b) -> (b)",
        "uint64(b) -> uint56(b)",
        "uint64(b) -> uint72(b)",
    ],
    "Forms.statements": [
        "delete kept[a]; -> {}",
        "refuse(); -> {}",
        "emit Done(address(0)); -> {}",
        "b -> false",
        "b -> true",
        "drop(a) -> false",
        "drop(a) -> true",
        "kept[a] = a; -> {}",
        "b -> false (2)",
        "b -> true (2)",
        "kept[a]++; -> {}",
        "return a; -> {}",
        "return c; -> {}",
    ],
    "Forms.drop": [
        "(a, kept[a]) = (kept[a], a); -> {}",
        "a > 9 -> a > 10",
        "a > 9 -> a >= 9",
        "a > 9 -> false",
        "kept[a] > a -> false",
        "kept[a] > a -> kept[a] >= a",
        "kept[a] > a -> true",
    ],
    "Forms.widths": [
        "a == type(uint184).max -> a <= type(uint184).max",
        "a == type(uint184).max -> a >= type(uint184).max",
        "a == type(uint184).max -> false",
        "type(uint184).max -> type(uint176).max",
        "type(uint184).max -> type(uint192).max",
        "uint256(uint8(a)) & 6 -> uint256(uint8(a))",
        "uint256(uint8(a)) & 6 -> uint256(uint8(a)) & 14",
        "uint256(uint8(a)) & 6 -> uint256(uint8(a)) & 2",
        "uint8(a) -> (a)",
        "uint8(a) -> uint16(a)",
    ],
    "Forms.shifts": [
        "c = a << (256 - 4 * b) | b << (8 * b - 8) | a << MOST; -> {}",
        "(256 - 4 * b) -> ((256 - 4 * b) + 4)",
        "(256 - 4 * b) -> ((256 - 4 * b) - 4)",
        "(8 * b - 8) -> ((8 * b - 8) + 8)",
        "(8 * b - 8) -> ((8 * b - 8) - 8)",
        "MOST -> (MOST + 1)",
        "MOST -> (MOST - 1)",
        "c >>= 8; -> {}",
        "8 -> 9",
        "b -> add(b, 4)",
        "b -> sub(b, 4)",
        "MOST -> add(MOST, 1)",
        "MOST -> sub(MOST, 1)",
        "sub(256, shl(3, b)) -> add(sub(256, shl(3, b)), 8)",
        "sub(256, shl(3, b)) -> sub(sub(256, shl(3, b)), 8)",
    ],
    "Forms.yulGuard": [
        "revert(0, 0) -> {}",
        "leave -> {}",
        "calldatasize() -> 0",
        "calldatasize() -> 1",
        "gt(a, MOST) -> 0",
        "gt(a, MOST) -> gt(a, add(MOST, 1))",
        "gt(a, MOST) -> iszero(lt(a, MOST))",
        "or(eq(a, 5), and(a, 0xff)) -> 0",
        "or(eq(a, 5), and(a, 0xff)) -> 1",
        "or(eq(a, 5), and(a, 0xff)) -> and(a, 0xff)",
        "or(eq(a, 5), and(a, 0xff)) -> eq(a, 5)",
        "or(eq(a, 5), and(a, 0xff)) -> or(eq(a, 5), and(a, 0x100))",
        "or(eq(a, 5), and(a, 0xff)) -> or(eq(a, 5), and(a, 0xfe))",
        "eq(a, 5) -> iszero(gt(a, 5))",
        "eq(a, 5) -> iszero(lt(a, 5))",
        "and(a, 0xff) -> a",
        "and(a, 0xff) -> and(a, 0x1ff)",
        "and(a, 0xff) -> and(a, 0x7f)",
        "1 -> 0",
        "a -> 0",
        "a -> 1",
        "a -> 2",
        "c := or(a, 8) -> {}",
        "8 -> 7",
        "c := 3 -> {}",
        "3 -> 2",
        "invalid() -> {}",
    ],
    "Forms.yulStatements": [
        "mstore(0, a) -> {}",
        "a -> 0",
        "a -> 1",
        "33 -> 32",
        "a -> 0 (2)",
        "mcopy(0, 32, a) -> {}",
        "32 -> 31",
        "0 -> 1",
        "add(a, size) -> 0",
        "i -> 0",
        "i := sub(i, 1) -> {}",
        "1 -> 0",
        "size := mload(a) -> {}",
        "size -> 0",
        "byte(1, a) -> 0",
        "1 -> 0 (2)",
        "size := a -> {}",
        "break -> {}",
    ],
}


@pytest.fixture(scope="module")
def forms() -> list[Mutant]:
    sources = {"src/Forms.sol": FORMS}
    return generate(sources, syntax_trees(sources))


@pytest.mark.parametrize("function", EXPECTED)
def test_each_check_of_a_function_is_removed_and_weakened(forms, function):
    keys = [mutant.key for mutant in forms if mutant.function == function]
    found = [f"{key[1]} -> {key[2]}" + (f" ({key[3]})" if key[3] > 1 else "") for key in keys]
    assert found == EXPECTED[function]


KINDS = {
    "Forms.small: a < 9 -> true": "condition",
    "Forms.small: a < 9 -> a < 8": "bound",
    "Forms.small: a < 9 -> a <= 9": "comparison",
    "Forms.compound: a > MOST && !b -> !b": "operand",
    "Forms.masks: a & 0xff -> a": "mask",
    "Forms.masks: a & 0xff -> a & 0x7f": "mask",
    "Forms.masks: uint64(b) -> uint56(b)": "width",
    "Forms.statements: kept[a]++; -> {}": "statement",
    "Forms.shifts: 8 -> 9": "shift",
    "Forms.yulStatements: 33 -> 32": "number",
    "Forms.MOST: 100 -> 99": "constant",
}


def test_each_mutant_has_a_kind_by_which_it_is_shown_and_found(forms):
    kinds = {f"{mutant.key[0]}: {mutant.key[1]} -> {mutant.key[2]}": mutant.kind for mutant in forms}
    assert KINDS.items() <= kinds.items()
    assert set(kinds.values()) == set(KINDS.values())
    assert all(str(mutant).endswith(f"  [{mutant.kind}]") for mutant in forms)


def test_each_mutant_is_the_source_with_one_replacement_and_says_where(forms):
    assert {mutant.function for mutant in forms} == set(EXPECTED)
    for mutant in forms:
        mutated = mutant.apply(FORMS)
        line = FORMS.splitlines()[mutant.line - 1]
        assert line[mutant.column - 1 :].startswith(mutant.original.splitlines()[0])
        before = sum(len(each) + 1 for each in FORMS.splitlines()[: mutant.line - 1]) + mutant.column - 1
        assert mutated == FORMS[:before] + mutant.replacement + FORMS[before + len(mutant.original) :]
    assert len({mutant.apply(FORMS) for mutant in forms}) == len({mutant.key for mutant in forms}) == len(forms)


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


def test_mutants_are_caught_survive_or_hang(tiny, artifacts, compiler, store, monkeypatch):
    monkeypatch.setattr(trial, "_PATIENCE_SECONDS", 2)
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


def test_what_is_settled_is_not_tried_again(tiny, artifacts, compiler, store):
    changed = _changed(_project(artifacts), compiler, tiny["false"], tiny["value & type(uint256).max > (MOST + 1)"])
    before = judge_all(_project(artifacts, TEST_OF_TINY), changed, compiler=compiler, store=store, jobs=1)
    assert [verdict.outcome for verdict in before.values()] == ["tests", SURVIVED]
    more, caught = _project(artifacts, TEST_OF_HARNESS), next(iter(before))

    def is_settled(name: str, verdict: Verdict) -> bool:
        assert verdict == before[name]
        return name == caught

    after = judge_all(more, changed, compiler=compiler, store=store, jobs=1, is_settled=is_settled)
    assert [verdict.outcome for verdict in after.values()] == ["tests", "campaigns"]


def test_a_harness_has_the_code_of_the_mutant(tiny, artifacts, compiler, store):
    project = _project(artifacts, TEST_OF_TINY, TEST_OF_HARNESS)
    changed = _changed(project, compiler, tiny["value & type(uint256).max > (MOST + 1)"])
    verdicts = judge_all(project, changed, compiler=compiler, store=store, jobs=1)
    assert [verdict.outcome for verdict in verdicts.values()] == ["campaigns"]


# Run 1 is that without a mutation.
COUNTED = """
import pathlib, sys
runs = pathlib.Path({runs!r})
run = len(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text("x" * run)
"""


@pytest.mark.parametrize(
    ("ends", "outcome", "runs"),
    [
        pytest.param("assert run != 2, 'no chain'", SURVIVED, 4, id="fails once"),
        pytest.param("assert run == 1, 'wrong'", "tests", 3, id="fails twice"),
        pytest.param("sys.exit(run > 1)", "tests", 2, id="tells what it found"),
    ],
)
def test_what_fails_by_itself_catches_nothing(tiny, artifacts, compiler, store, tmp_path, ends, outcome, runs):
    counter = tmp_path / "runs"
    project = _project(artifacts, Command("tests", ("-c", COUNTED.format(runs=str(counter)) + ends)))
    changed = _changed(project, compiler, tiny["false"])
    verdicts = judge_all(project, changed, compiler=compiler, store=store, jobs=1)
    assert [verdict.outcome for verdict in verdicts.values()] == [outcome]
    assert len(counter.read_text()) == runs


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


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        pytest.param((Command("tests", ("-c", "assert False")),), "It fails without any mutation", id="fails"),
        pytest.param((trial.pytest("tests/none.py"),), r"none\.py` ended with 4", id="can't run"),
        pytest.param(None, "Nothing is known that tests Tiny", id="none"),
    ],
)
def test_without_commands_that_pass_nothing_is_said(tiny, artifacts, compiler, store, commands, message):
    project = Project(ROOT_DIR, artifacts, {"Tiny": commands} if commands else {})
    with pytest.raises(TrialError, match=message):
        judge_all(project, {tiny["false"]: {"Tiny": {"bytecode": "0x00"}}}, compiler=compiler, store=store, jobs=1)


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


def test_each_listed_mutant_exists_and_each_contract_has_tests():
    sources = read_sources("src")
    keys = {mutant.key for mutant in generate(sources, syntax_trees(sources))}
    assert set(read_list(LIST)) - keys == set()
    assert COMMANDS.keys() == {path.stem for path in ARTIFACTS_DIR.glob("*.json")}


def test_a_change_made_by_hand_is_one_replacement_of_all_its_edits():
    twice = [Removal("Tiny", "kept = value;", "kept = 0;"), Removal("Tiny", "++c;", "c += 2;")]
    [mutant] = named(TINY_SOURCES, {"counts twice, and keeps nothing": twice})
    assert mutant.apply(TINY) == TINY.replace("kept = value;", "kept = 0;").replace("++c;", "c += 2;")
    assert str(mutant) == f"src/Tiny.sol:{mutant.line}:9 counts twice, and keeps nothing  [named]"
    assert TINY.splitlines()[mutant.line - 1].strip() == "kept = value;"


def test_each_change_made_by_hand_can_be_made():
    sources = read_sources("src")
    assert all(mutant.apply(sources[mutant.source]) != sources[mutant.source] for mutant in named(sources))
