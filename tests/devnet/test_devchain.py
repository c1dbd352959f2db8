import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
from eth_account import Account

from devnet.devchain import ACCOUNTS, PROJECT, DevChain, DevChainError


def answers(url: str) -> bool:
    try:
        requests.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}, timeout=5)
    except requests.ConnectionError:
        return False
    return True


def test_it_starts_a_chain_and_leaves_nothing_behind():
    chain = DevChain(chain_id=4242)
    with chain:
        url, home = chain.url, Path(chain._home)
        assert int(chain.rpc("eth_chainId"), 16) == 4242
        assert chain.head() == 0
        chain.mine(3)
        assert chain.head() == 3
        assert home.is_dir()
    assert not answers(url)
    assert not home.exists()
    assert chain.url == ""


def test_it_can_start_again_after_a_stop():
    chain = DevChain()
    for _ in range(2):
        with chain:
            assert chain.head() == 0


def test_it_mines_by_itself_when_blocks_have_a_time():
    with DevChain(block_seconds=0.2) as chain:
        deadline = time.monotonic() + 30
        while chain.head() < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_finalizes_two_blocks_below_the_head():
    with DevChain() as chain:
        chain.mine(5)
        assert int(chain.rpc("eth_getBlockByNumber", "finalized", False)["number"], 16) == 3


def test_its_accounts_are_funded_and_their_keys_fit(devchain):
    for address, key in ACCOUNTS:
        assert Account.from_key(key).address == address
        assert int(devchain.rpc("eth_getBalance", address, "latest"), 16) > 10**18


def test_it_names_a_port_in_use(devchain):
    port = int(devchain.url.rsplit(":", 1)[1])
    with pytest.raises(DevChainError, match=rf"^Port {port} is in use by another program\.$"):
        DevChain(port=port).start()


def test_it_tells_why_anvil_did_not_start():
    chain = DevChain(extra_args=["--no-such-option"])
    with pytest.raises(DevChainError, match="no-such-option"):
        chain.start()
    assert chain._home == ""


def test_it_tells_what_the_node_refused(devchain):
    with pytest.raises(DevChainError, match="refused eth_nonsense"):
        devchain.rpc("eth_nonsense")


def test_it_ends_when_its_parent_is_killed():
    script = """
import os, signal
from devnet.devchain import DevChain
chain = DevChain()
chain.start()
print(chain.url, chain._home, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    parent = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=False)
    url, home = parent.stdout.split()
    deadline = time.monotonic() + 30
    while answers(url) or Path(home).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
