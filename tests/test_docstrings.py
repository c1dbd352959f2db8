"""Docstrings of functions begin with a verb. ruff's D401 knows verbs, and not what stands before them instead."""

import ast

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
    "database",
    "demo",
    "devnet",
    "explorer",
    "proving",
    "queries",
    "tests",
    "tools",
)
NO_VERBS = {"As", "How", "Of", "That", "Those", "What", "When", "Where", "Whether", "Which", "Who", "Why"}


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_verb(package):
    found = []
    documented = 0
    # Migrations are never edited.
    for path in sorted(set((PROJECT / package).rglob("*.py")) - set((PROJECT / package).glob("migrations/*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            # A test's name is its description.
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("test_"):
                docstring = ast.get_docstring(node)
                documented += bool(docstring)
                if docstring and docstring.split()[0].rstrip(",:") in NO_VERBS:
                    found.append(f"{path.relative_to(PROJECT)}:{node.lineno}: {docstring.splitlines()[0]}")
    assert documented
    assert not found
