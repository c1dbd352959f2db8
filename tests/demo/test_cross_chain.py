"""Run `make demo-cross-chain` as a new user does."""

import re

import pytest

from tests.demo.commands import demo, processes_with, run

pytestmark = pytest.mark.long

STEPS = ["INITIAL_STATE", "BLOCKHASH_AVAILABLE", "HEADER_ACCUMULATED", "ACCOUNT_ACCUMULATED"]


@pytest.fixture
def command(tmp_path) -> list[str]:
    return [*demo("demo.cross_chain", tmp_path / "demo"), "--once"]


def test_it_proves_a_balance_on_each_chain_while_one_attester_is_down(command, tmp_path):
    done = run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"Attester (\d) is down", done.stdout) == ["3"]
    for chain in (31337, 31338):
        assert re.findall(rf"chain {chain}  (\w+) +COMPLETED", done.stdout) == STEPS
        assert f"equal to eth_getBalance on chain {chain} at that block" in done.stdout
    own, other = (int(balance) for balance in re.findall(r"decimal +(\d+) wei", done.stdout))
    assert own != other
    own_registry, other_registry = re.findall(r"BALANCE\) on (0x\w{40})", done.stdout)
    assert own_registry != other_registry
    # Workers also ask attesters between batches, so attester 3 may have been asked while it was running.
    assert done.stdout.index("Attester 3 is down") < done.stdout.index("Asking for the balance")
    assert "Shutting down" in (tmp_path / "demo" / "attester-3" / "attester.log").read_text()
    assert not processes_with(str(tmp_path))
