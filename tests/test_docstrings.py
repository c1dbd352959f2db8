"""Docstrings of functions begin with a verb, and none begins with a question word or `of`.

ruff's D401 knows verbs, and not what stands before them instead.
"""

import ast
from collections.abc import Iterator
from itertools import pairwise

import pytest

from devnet.devchain import PROJECT

PACKAGES = (
    "accounts",
    "api",
    "attesting",
    "campaigns",
    "chains",
    "client",
    "config",
    "contracts",
    "database",
    "demo",
    "devnet",
    "explorer",
    "proving",
    "queries",
    "tests",
    "tools",
)
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
CLAUSES = {
    *("As", "How", "Of", "That", "Those", "What", "Whatever"),
    *("When", "Where", "Whether", "Which", "Who", "Whoever", "Why"),
}
# A class or a field may be named by a noun. A function does something; those of tests and campaigns may be named too.
NOUNS = {"A", "All", "An", "By", "Each", "For", "In", "Its", "None", "Only", "So", "The", "With"}


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_verb_or_a_noun(package):
    found = []
    documented = 0
    # Migrations are never edited.
    for path in sorted(set((PROJECT / package).rglob("*.py")) - set((PROJECT / package).glob("migrations/*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            for line, docstring in _docstrings(node):
                documented += 1
                is_named = package in {"tests", "campaigns"} or not isinstance(node, FUNCTIONS) or line != node.lineno
                if docstring.split()[0].rstrip(".,:;") in (CLAUSES if is_named else CLAUSES | NOUNS):
                    found.append(f"{path.relative_to(PROJECT)}:{line}: {docstring.splitlines()[0]}")
    assert documented
    assert not found


def _docstrings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a function or a class, and of what is assigned in a class or a module, by their lines."""
    if (
        isinstance(node, FUNCTIONS | ast.ClassDef)
        # A test's name is its description.
        and not node.name.startswith("test_")
        and (docstring := ast.get_docstring(node))
    ):
        yield node.lineno, docstring
    body = getattr(node, "body", None)
    for assigned, said in pairwise(body if isinstance(body, list) else []):
        if (
            isinstance(assigned, ast.Assign | ast.AnnAssign)
            and isinstance(said, ast.Expr)
            and isinstance(said.value, ast.Constant)
            and isinstance(said.value.value, str)
        ):
            yield said.lineno, said.value.value
