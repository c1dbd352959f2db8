"""Run `make demo-rollup` as a new user does."""

import re

import pytest

from tests.demo.commands import demo, processes_with, run

pytestmark = pytest.mark.long

STEPS = ["INITIAL_STATE", "BLOCKHASH_AVAILABLE", "HEADER_ACCUMULATED", "ACCOUNT_ACCUMULATED"]


@pytest.mark.release
def test_demo_rollup_proves_a_balance_and_a_log_on_the_chain_below_and_on_a_third(tmp_path):
    done = run([*demo("demo.rollup", tmp_path / "demo"), "--once"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"chain 31338  (\w+) +COMPLETED", done.stdout) == STEPS * 2
    assert re.findall(r"block \d+, as chain (\d+) knows it", done.stdout) == ["31337", "31339"]
    assert done.stdout.count("equal to eth_getBalance on chain 31338 at that block") == 2
    assert done.stdout.count("equal to that of eth_getTransactionReceipt on chain 31338") == 2
    first_balance, second_balance = re.findall(r"decimal +(\d+) wei", done.stdout)
    assert first_balance == second_balance
    assert not processes_with(str(tmp_path))
