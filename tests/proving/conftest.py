"""Fixtures for several modules of this folder."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from devnet.devchain import PROJECT, DevChain
from tests.databases import same_database
from tests.deployed import deploy_on
from tests.proving import lock_order
from tests.proving.kills import Killer
from tests.proving.money import serve
from tests.proving.paths import connect
from tests.proving.prices import ETHER
from tests.proving.rollups import OP_STACK, charge_for_data
from tests.proving.sources import grow
from tests.service import SIGNER


@pytest.fixture
def old(chain: DevChain, db, settings, tmp_path) -> DevChain:
    """Configure a window of 10 blocks. Return a chain of 60 blocks in which Charlie's balance changes."""
    connect(chain, settings, tmp_path)
    deploy_on(chain)
    grow(chain, 50)
    return chain


@pytest.fixture(autouse=True)
def locks_in_order(request) -> Iterator[None]:
    """Check the order in which database transactions lock tables, in every test that runs inside a transaction of its
    own.
    """
    mark = request.node.get_closest_marker("django_db")
    if "db" not in request.fixturenames or (mark and mark.kwargs.get("transaction")):
        yield
        return
    with lock_order.recorded() as breaches:
        yield
    assert not breaches


@pytest.fixture
def killing(settings) -> Iterator[Killer]:
    with ExitStack() as stack:
        yield Killer(settings, stack)


@pytest.fixture
def in_a_hurry(monkeypatch) -> None:
    """Wait half a second for a signing service, and ask it again at once."""
    monkeypatch.setattr("chains.configured_signers.TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr("chains.configured_signers.REST_SECONDS", 0)


@pytest.fixture
def in_haste(monkeypatch) -> None:
    """Let commands wait two seconds for their transactions."""
    monkeypatch.setattr("proving.sending.transaction_monitor.WAIT_SECONDS", 2)


@pytest.fixture
def separate_transactions(monkeypatch) -> None:
    """Let no transactions of a turn be joined into one."""
    monkeypatch.setattr("proving.sending.orders.SHARED_GAS", 0)


@pytest.fixture
def start_command(settings, tmp_path, transactional_db) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts a command of `manage.py`. Its output is in a log with its name and number."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *options: str) -> subprocess.Popen[bytes]:
        env = {
            "LEASE_SECONDS": "2",
            **os.environ,
            "STATE_DIR": str(tmp_path),
            **same_database(),
            "CHAINS_FILE": str(settings.CHAINS_FILE),
        }
        command = [sys.executable, "manage.py", name, *options]
        with (tmp_path / f"{name.removeprefix('run')}{len(started)}.log").open("wb") as log:
            started.append(subprocess.Popen(command, cwd=PROJECT, env=env, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def start_worker(start_command) -> Callable[..., subprocess.Popen[bytes]]:
    return partial(start_command, "runworker")


@pytest.fixture
def costly(chain: DevChain, key, settings, tmp_path) -> DevChain:
    """Configure a service that spends real money. Return a chain that mines only on request."""
    chain.rpc("anvil_setBalance", SIGNER, hex(1000 * ETHER))
    serve(settings, tmp_path, chain)
    chain.rpc("evm_setAutomine", False)
    return chain


@pytest.fixture
def op_stack() -> Iterator[DevChain]:
    """Yield anvil's OP Stack chain. It charges the sender the data fee, but its receipts don't show the fee."""
    with DevChain(extra_args=OP_STACK) as chain:
        chain.mine(5)
        charge_for_data(chain)
        yield chain
