"""`make mutants`: changes made by hand and arguments for equivalence belong to the present sources. Contracts of the
package are tried, too.
"""

import re
from dataclasses import replace

import pytest

from campaigns.contract_mutants.__main__ import COMMANDS, LIST, run
from campaigns.contract_mutants.compiling import Compiler, Store
from campaigns.contract_mutants.generate import generate, syntax_trees
from campaigns.contract_mutants.named import CHANGES, named
from campaigns.contract_mutants.report import judge, read_list
from campaigns.contract_mutants.trial import Project, TrialError
from contracts.build import LIBRARY, ROOT_DIR, read_sources, stored

ADAPTER, OTHER, SUMS = (f"{LIBRARY}{path}" for path in ("adapters/Adapter.sol", "Other.sol", "Sums.sol"))
PACKAGE = {
    ADAPTER: """
        pragma solidity ^0.8.28;
        import {Sums, Total} from "../Sums.sol";
        abstract contract Limited {
            modifier limited(uint256 a) { if (a > 7) revert(); _; }
            function more(Total total) internal virtual returns (bool) { return Total.unwrap(total) == 5; }
        }
        contract Adapter is Limited {
            function sum(Total a, uint256 b) external limited(b) returns (uint256) {
                return more(a) ? 0 : a.checked(b);
            }
        }
    """,
    OTHER: """
        pragma solidity ^0.8.28;
        import {Sums} from "./Sums.sol";
        contract Other {
            function half(uint256 a) external pure returns (uint256) { return Sums.half(a); }
        }
    """,
    SUMS: """
        pragma solidity ^0.8.28;
        type Total is uint256;
        using Sums for Total global;
        library Sums {
            uint256 constant LEAST = 3;
            function checked(Total a, uint256 b) internal pure returns (uint256) {
                if (Total.unwrap(a) == b) revert();
                return _sum(Total.unwrap(a), b);
            }
            function half(uint256 a) internal pure returns (uint256) { if (a == 1) revert(); return a / 2; }
            function unused(uint256 a) internal pure returns (uint256) { if (a == 2) revert(); return a; }
            function _sum(uint256 a, uint256 b) private pure returns (uint256 sum) {
                assembly { if lt(a, LEAST) { revert(0, 0) } sum := add(a, b) }
            }
        }
    """,
}

# One mutant of each function.
CHOSEN = {("false", "condition"), ("2", "constant"), ("0", "condition")}


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_each_named_mutant_is_of_the_present_sources():
    sources = read_sources("src")
    mutants = list(named(sources))
    assert [mutant.function for mutant in mutants] == list(CHANGES)
    assert all(mutant.apply(sources[mutant.source]) != sources[mutant.source] for mutant in mutants)


def test_the_original_of_each_argument_is_in_its_contract():
    declaration = re.compile(r"^(?:abstract contract|contract|library) (\w+)", re.MULTILINE)
    contracts = {name: one_line(text) for text in read_sources("src").values() for name in declaration.findall(text)}
    missing = [
        (function, original)
        for function, original, _, _ in read_list(LIST)
        if original not in contracts.get(function.split(".")[0], "")
    ]
    assert missing == []


@pytest.mark.long
def test_each_argument_has_its_mutant():
    sources = read_sources("src", "test")
    known = generate(sources, syntax_trees(sources))
    assert judge({}, {}, read_list(LIST), known).stale == []


@pytest.mark.long
def test_mutants_of_the_package_change_the_contracts_that_have_their_code(tmp_path):
    trees = syntax_trees(PACKAGE)
    compiler = Compiler(PACKAGE, trees, Store(tmp_path))
    mutants = [mutant for mutant in generate(PACKAGE, trees) if (mutant.replacement, mutant.kind) in CHOSEN]
    codes = compiler.compile_all(mutants, jobs=1)
    assert {mutant.function: {*(codes[mutant] or {})} - {"package/Limited"} for mutant in mutants} == {
        "Limited.limited": {"package/Adapter"},
        "Limited.more": {"package/Adapter"},
        "Adapter.sum": {"package/Adapter"},
        "Sums.LEAST": {"package/Adapter"},
        "Sums.checked": {"package/Adapter"},
        "Sums._sum": {"package/Adapter"},
        "Sums.half": {"package/Other"},
        "Sums.unused": set(),
    }
    unchanged = replace(mutants[0], replacement=mutants[0].original)
    original = compiler.compile_all([unchanged], jobs=1)[unchanged]
    assert original
    adapter = "package/Adapter"
    assert all(code[adapter] != original[adapter] for code in codes.values() if code and adapter in code)


def test_a_contract_that_nothing_tests_is_named():
    untested = {name: commands for name, commands in COMMANDS.items() if name not in {"FactsReader", "Multicall"}}
    with pytest.raises(TrialError, match="Nothing tests FactsReader, Multicall, as far as COMMANDS"):
        Project(ROOT_DIR, stored(), untested)
    Project(ROOT_DIR, stored(), COMMANDS)


@pytest.mark.long
def test_the_command_lists_mutants_of_the_package(capsys):
    assert run("TrieWalk.sol", (1, 1), 1, only_survivors=False, only_list=True) == 0
    assert f"{LIBRARY}TrieWalk.sol:" in capsys.readouterr().out
