"""Run `make demo-any-block` as a new user does."""

import re

import pytest

from devnet.consensus_client import ENVIRONMENT
from tests.demo.commands import demo, processes_with, run

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (ENVIRONMENT / "ready").exists(), reason="the specifications are not installed: make .venv-beacon/ready"
    ),
]
STEPS = ["INITIAL_STATE", "BLOCKHASH_AVAILABLE", "HEADER_ACCUMULATED", "ACCOUNT_ACCUMULATED"]


@pytest.mark.release
def test_demo_any_block_proves_an_old_block_by_a_jump(tmp_path):
    done = run([*demo("demo.any_block", tmp_path / "demo"), "--once"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"chain 31338  (\w+) +COMPLETED", done.stdout) == STEPS
    assert "equal to eth_getBalance on chain 31338 at that block" in done.stdout
    assert not processes_with(str(tmp_path))
