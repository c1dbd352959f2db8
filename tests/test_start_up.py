"""Commands load few modules before they act, because loading determines their start-up time."""

import ast
import os
import subprocess
import sys
from importlib import import_module

import pytest

import batch_query_client
from devnet.devchain import PROJECT

pytestmark = pytest.mark.outside


_MANAGE = "import manage; manage.main()"


def loaded(program: str, *arguments: str, **environment: str) -> set[str]:
    """Return the modules that a process has loaded when it ends."""
    at_exit = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    done = subprocess.run(
        [sys.executable, "-c", at_exit + program, *arguments],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT / "client/src"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


@pytest.fixture(scope="module")
def state(tmp_path_factory) -> str:
    """Return a folder with a valid database."""
    folder = str(tmp_path_factory.mktemp("state"))
    loaded(_MANAGE, "migrate", STATE_DIR=folder)
    return folder


def test_the_client_has_the_names_that_a_type_checker_sees_in_it():
    tree = ast.parse((PROJECT / "client/src/batch_query_client/__init__.py").read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted(seen) == sorted(batch_query_client._MODULES)
    for name, module in seen.items():
        member = getattr(batch_query_client, name)
        assert member is getattr(import_module(str(module)), name)
        assert getattr(member, "__module__", module) == module
    assert set(seen) <= set(dir(batch_query_client))
    with pytest.raises(AttributeError, match="no attribute 'Accounts'"):
        _ = batch_query_client.Accounts  # type: ignore[attr-defined]
