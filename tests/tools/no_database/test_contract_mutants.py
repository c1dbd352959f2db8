"""`make mutants`: changes made by hand and arguments for equivalence belong to the present sources. Contracts of the
package are tried, too.
"""

import re
from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from campaigns.contract_mutants.__main__ import COMMANDS, LIST, run
from campaigns.contract_mutants.compiling import Compiler, Store
from campaigns.contract_mutants.generate import generate, syntax_trees
from campaigns.contract_mutants.named import CHANGES, named
from campaigns.contract_mutants.report import judge, read_list
from campaigns.contract_mutants.trial import Project, TrialError
from contracts.build import LIBRARY, ROOT_DIR, read_sources, stored

ADAPTER = f"{LIBRARY}adapters/Adapter.sol"
SUMS = f"{LIBRARY}Sums.sol"
PACKAGE = {
    ADAPTER: """
        pragma solidity ^0.8.28;
        import {Sums} from "../Sums.sol";
        contract Adapter {
            function sum(uint256 a, uint256 b) external pure returns (uint256) { return Sums.checked(a, b); }
        }
    """,
    SUMS: """
        pragma solidity ^0.8.28;
        library Sums {
            function checked(uint256 a, uint256 b) internal pure returns (uint256) {
                if (a == b) revert();
                return a + b;
            }
        }
    """,
}


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_each_named_mutant_is_of_the_present_sources():
    sources = read_sources("src")
    mutants = list(named(sources))
    assert [mutant.function for mutant in mutants] == list(CHANGES)
    assert all(mutant.apply(sources[mutant.source]) != sources[mutant.source] for mutant in mutants)


def test_the_original_of_each_argument_is_in_its_contract():
    contracts = {PurePosixPath(path).stem: one_line(text) for path, text in read_sources("src").items()}
    # A library may have the name of what it is for, in a file with another name.
    declared = {
        name: text for text in contracts.values() for name in re.findall(r"\b(?:contract|library) (\w+)[^;]*?{", text)
    }
    missing = [
        (function, original)
        for function, original, _, _ in read_list(LIST)
        if original not in declared.get(function.split(".")[0], "")
    ]
    assert missing == []


@pytest.mark.long
def test_each_argument_has_its_mutant():
    sources = read_sources("src", "test")
    known = generate(sources, syntax_trees(sources))
    assert judge({}, {}, read_list(LIST), known).stale == []


@pytest.mark.long
def test_mutants_of_the_package_change_its_contracts(tmp_path):
    trees = syntax_trees(PACKAGE)
    mutants = [mutant for mutant in generate(PACKAGE, trees) if mutant.kind == "condition"]
    assert {mutant.source for mutant in mutants} == {SUMS}
    compiler = Compiler(PACKAGE, trees, Store(tmp_path))
    changed = compiler.compile_all(mutants, jobs=1)
    whole = compiler.compile_all([replace(mutants[0], end=mutants[0].start, replacement="")], jobs=1)
    codes = [code["Adapter"]["bytecode"] for code in [*changed.values(), *whole.values()] if code]
    assert len(set(codes)) == len(mutants) + 1


def test_a_contract_that_nothing_tests_is_named():
    untested = {name: commands for name, commands in COMMANDS.items() if name not in {"FactsReader", "Multicall"}}
    with pytest.raises(TrialError, match="Nothing is known that tests FactsReader, Multicall: COMMANDS in "):
        Project(ROOT_DIR, stored(), untested)
    Project(ROOT_DIR, stored(), COMMANDS)


@pytest.mark.long
def test_the_command_lists_mutants_of_the_package(capsys):
    assert run("TrieWalk.sol", (1, 1), 1, only_survivors=False, only_list=True) == 0
    assert f"{LIBRARY}TrieWalk.sol:" in capsys.readouterr().out
