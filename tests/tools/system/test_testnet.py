"""`make testnet` on development chains in place of Sepolia and OP Sepolia.

`tests/real_nodes/system/test_testnet.py` runs it on a real pair.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chains.chains_file import load_chains
from chains.contract_artifacts import DEPLOYER
from devnet.beacon_api import BeaconApi, BeaconBlock, BeaconNode
from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from tests.chain_fixtures import chain_fixture
from tests.tools.terminal import BEACON_NODE, PASSPHRASE, SEPOLIA_NODE, Terminal, files
from tools import testnet


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(tmp_path) as running:
        yield running


# The command reads proofs at older blocks.
sepolia = chain_fixture(lambda chain: chain.mine(5), scope="function", chain_id=testnet.SEPOLIA, block_seconds=1)


op_sepolia = chain_fixture(scope="function", chain_id=testnet.OP_SEPOLIA, block_seconds=1)


def fund(chain: DevChain, address: str, ether: float) -> None:
    """Send ETH like a faucet."""
    chain.rpc("eth_sendTransaction", {"from": ACCOUNTS[0][0], "to": address, "value": hex(int(ether * 10**18))})


def test_a_wrong_answer_is_asked_for_again_and_ctrl_c_ends(terminal):
    terminal.start()
    terminal.answer(SEPOLIA_NODE, "node")
    terminal.until(
        r"SEPOLIA_RPC_URL can't be used\. It must be an http or https URL\. Type another one, or stop with Ctrl-C"
    )
    terminal.until(SEPOLIA_NODE)
    terminal.interrupt()
    assert terminal.said.endswith("\nStopped. To continue: make testnet\n")
    assert not terminal.secrets.exists()


@pytest.mark.long
def test_without_a_terminal_answers_come_from_the_environment_and_standard_input(terminal, sepolia, op_sepolia):
    nodes = {"SEPOLIA_RPC_URL": sepolia.url, "OP_SEPOLIA_RPC_URL": op_sepolia.url}

    def said(typed: str, **variables: str) -> str:
        done = subprocess.run(
            terminal.command("--wait-minutes", "0"),
            cwd=PROJECT,
            env={"PATH": os.environ["PATH"]} | variables,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode
        return done.stdout + done.stderr

    missing = "SEPOLIA_RPC_URL is missing: type it, or set it in the environment. To try again: make testnet\n"
    assert missing in said("")
    why = "It must be an http or https URL. To try again: make testnet\n"
    assert f"OP_SEPOLIA_RPC_URL can't be used. {why}" in said("", **nodes | {"OP_SEPOLIA_RPC_URL": "node"})
    assert not terminal.secrets.exists()
    assert "The money is not there yet. When it is, run this again: make testnet\n" in said("secret one\n", **nodes)
    assert files(terminal.secrets)["testnet.password"] == (0o600, "secret one")
    # If the key can't be decrypted, nobody should send ETH to it.
    (terminal.secrets / "testnet.password").write_text("another one")
    told = said("", **nodes)
    assert "testnet.json can't be decrypted with its password.\n" in told
    assert "To begin" not in told


@pytest.mark.release
def test_make_testnet_serves_op_sepolia_where_sepolia_s_registry_can_not_be_deployed(terminal, sepolia, op_sepolia):
    """The printed command deploys it once that is possible."""
    terminal.start(SEPOLIA_RPC_URL=sepolia.url, OP_SEPOLIA_RPC_URL=op_sepolia.url)
    terminal.answer(PASSPHRASE, "")
    address = terminal.until(r"Signer: (0x\w{40}), a new key")[1]
    terminal.answer(BEACON_NODE, "")
    terminal.until("To begin on OP Sepolia")
    deployer = sepolia.rpc("eth_getCode", DEPLOYER, "latest")
    sepolia.rpc("anvil_setCode", DEPLOYER, "0x00")
    fund(sepolia, address, 1)
    terminal.until(r"Sepolia \(11155111\) has other code than the deterministic deployer's")
    line = terminal.until(r"Batches for Sepolia wait until this works: (.+)")[1]
    fund(op_sepolia, address, 1)
    terminal.until(r"The facts registry for chain 11155111 on chain 11155420 is at 0x")
    terminal.until("Serving until Ctrl-C: http")
    sepolia.rpc("anvil_setCode", DEPLOYER, deployer)
    environment = {"PATH": os.environ["PATH"], "SEPOLIA_RPC_URL": sepolia.url, "OP_SEPOLIA_RPC_URL": op_sepolia.url}
    done = subprocess.run(line, shell=True, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert re.match("The facts registry for chain 11155111 on chain 11155111 is at 0x", done.stdout), done.stderr


@pytest.mark.long
def test_a_beacon_node_is_asked_for_once_and_jumps_are_configured(terminal, sepolia, tmp_path):
    node = BeaconNode(testnet.SEPOLIA, 1_655_733_600, {9: bytes(32)})
    node.blocks[bytes(32)] = BeaconBlock(9, 0, bytes(32), bytes(32), bytes(32))
    with BeaconApi(node) as beacon:
        url = beacon.url.replace("//", "//me:secret@")
        for asks in (True, False):
            terminal.start(SEPOLIA_RPC_URL=sepolia.url, OP_SEPOLIA_RPC_URL="http://127.0.0.1:1")
            if asks:
                terminal.answer(PASSPHRASE, "")
                terminal.answer(BEACON_NODE, url)
            terminal.until(rf"Beacon node {beacon.url[7:]}: slot 9, of 2022-06-20 14:01 UTC, is final")
            terminal.until(r"To begin on Sepolia")
            assert "secret@" not in terminal.said
    assert files(terminal.secrets)["sepolia_beacon_url"] == (0o600, url)
    urls = {**dict.fromkeys(testnet.NODES, "https://node.example"), testnet.BEACON: url}
    copy = tmp_path / ".testnet" / "chains.toml"
    assert [chain.beacon_urls for chain in load_chains(copy, urls).chains] == [(url,), ()]
    assert copy.read_text().count('"../secrets/testnet.json"') == 2


def test_the_file_of_chains_is_one_that_the_service_takes():
    urls = dict.fromkeys(testnet.NODES, "https://node.example")
    chains = load_chains(PROJECT / testnet.CHAINS_FILE, urls)
    assert [(each.source_id, each.destination_id) for each in chains.connections] == [
        (testnet.SEPOLIA, testnet.SEPOLIA),
        (testnet.SEPOLIA, testnet.OP_SEPOLIA),
    ]
    assert all(chain.test_network for chain in chains.chains)
