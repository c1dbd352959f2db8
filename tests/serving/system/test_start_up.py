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

# Each of these takes a tenth of a second or more to import.
OF_SERVICE = {
    *("web3", "siwe", "eth_account", "eth_abi", "eth_utils", "rlp", "prometheus_client"),
    *("aiohttp", "Crypto", "celery", "psycopg", "config.urls"),
}
OF_CLIENT = {"pydantic", "httpx", "rich", "keyring", "trie", "rlp", "eth_utils", "eth_account", "Crypto", "asyncio"}


_MANAGE = "import manage; manage.main()"
_BQS = "from batch_query_client.command_line import main; main()"


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


@pytest.mark.long
@pytest.mark.parametrize("command", ["migrate", "check_chains --help", "stop", "resume", "cancel --help"])
def test_commands_load_nothing_of_chains_and_pages_before_they_need_it(state, command):
    modules = loaded(_MANAGE, *command.split(), STATE_DIR=state)
    assert "proving.models" in modules
    assert OF_SERVICE & modules == set()


# Modules of packages that only the extras `celery` and `era` install. The demos and `make run` lack them.
OF_EXTRAS = ("celery", "kombu", "redis", "amqp", "vine", "billiard", "dateutil", "tzlocal", "cramjam")


@pytest.mark.parametrize("program", ["demo.command", "demo.cross_chain", "demo.rollup", "config.wsgi", "tools.testnet"])
def test_the_demos_and_the_service_load_no_package_of_an_extra(tmp_path, program):
    modules = loaded(
        f"import {program}",
        PYTHONPATH=f"{PROJECT / 'dev'}:{PROJECT / 'client/src'}",
        STATE_DIR=str(tmp_path),
        DJANGO_SETTINGS_MODULE="config.settings",
    )
    assert modules.isdisjoint(OF_EXTRAS)


def test_the_web_server_searches_for_no_garbage_in_what_it_has_loaded(tmp_path):
    at_exit = "import atexit, gc, config.wsgi; atexit.register(lambda: print(gc.get_freeze_count(), file=sys.stderr))"
    counts = [int(word) for word in loaded(at_exit, STATE_DIR=str(tmp_path)) if word.isdigit()]
    assert max(counts) > 100_000


@pytest.mark.parametrize("command", ["", "submit", "watch", "verify", "login"])
def test_help_of_the_client_loads_nothing_of_what_commands_do(command):
    modules = loaded(_BQS, *command.split(), "--help")
    assert "click" in modules
    assert OF_CLIENT & modules == set()


def test_a_program_loads_the_part_of_the_client_that_it_uses():
    modules = loaded("from batch_query_client import verify_webhook")
    assert "batch_query_client.webhooks" in modules
    assert {"httpx", "trie", "rlp", "eth_utils"} & modules == set()


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
