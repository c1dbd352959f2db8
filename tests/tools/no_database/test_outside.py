"""Tests marked `outside` import no inner modules: they know HTTP, commands, chains, models and settings."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from devnet.devchain import PROJECT

PRODUCT = {"accounts", "api", "attesting", "chains", "config", "explorer", "proving", "queries"}
# A new process reads chains.toml again. Tests simulate a restart with this function.
RESTART = "config.configured_chains.forget_chains"
# Tests make beacon chains with the code for SSZ trees, which is a published format, like RLP. They deploy and call the
# compiled contracts, which are published, too. Columns of models hold waits, whose codes the API tells.
PUBLISHED = re.compile(
    r"queries\.waits\.wait$|chains\.(?:contract_artifacts\b|beacon\.(?:blocks|jumps|ssz|states)\b|encoding\.decode_rlp$)"
)
MARK = re.compile(r"^pytestmark = .*\bpytest\.mark\.outside\b", re.MULTILINE)
OUTSIDE = sorted(path for path in (PROJECT / "tests").rglob("test_*.py") if MARK.search(path.read_text()))


@cache
def names_of(path: Path) -> frozenset[str]:
    """Return the dotted names that a module imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(".") > 1:
            # The name to patch may be given as text.
            names.update([node.value] if re.fullmatch(r"\w+(?:\.\w+)+", node.value) else ())
    return frozenset(names)


def with_helpers(path: Path) -> set[Path]:
    """Return the module, and all test modules that it imports directly or indirectly."""
    modules, todo = set[Path](), [path]
    while todo:
        if (module := todo.pop()) not in modules:
            modules.add(module)
            stems = [name.replace(".", "/") for name in names_of(module) if name.startswith("tests.")]
            files = [PROJECT / f"{each}.py" for stem in stems for each in (stem, stem.rpartition("/")[0])]
            todo += [file for file in files if file.exists()]
    return modules


def is_inside(name: str) -> bool:
    package, _, inner_name = name.partition(".")
    is_known = name == RESTART or PUBLISHED.match(name) or re.match(r"(?:models|settings)\b", inner_name)
    return package in PRODUCT and not is_known


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_test_marked_outside_imports_no_inner_module(path):
    known = {f"{module.relative_to(PROJECT)}: {name}" for module in with_helpers(path) for name in names_of(module)}
    assert sorted(each for each in known if is_inside(each.partition(": ")[2])) == []


def test_is_inside_tells_inner_modules_from_outer_ones():
    inside = ["proving.working.heads.read", "queries.submission", "accounts.keys.issue", "chains.tries.packed.encode"]
    assert [is_inside(name) for name in inside] == [True] * 4
    outside = ["proving.models.Transaction", "config.settings", "devnet.devchain.DevChain", RESTART, "models"]
    assert [is_inside(name) for name in outside] == [False] * 5
