"""`make testnet` as a process, with two development chains in place of Sepolia and OP Sepolia."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from chains.chains_file import load_chains
from chains.contract_artifacts import DEPLOYER
from demo import client
from devnet.beacon_api import BeaconApi, BeaconBlock, BeaconNode
from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from tests.chain_fixtures import chain_fixture
from tests.chains.lying_node import ask, error, lying_node
from tests.contracts.l1_block import L1Block
from tests.real_nodes.driven_geth import DrivenGeth
from tools import testnet

SECONDS = 300
ADDRESS, KEY = ACCOUNTS[2]


class Command:
    """The running command, and the folder with its chains file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / testnet.CHAINS_FILE).parent.mkdir(parents=True)
        shutil.copy(PROJECT / testnet.CHAINS_FILE, folder / testnet.CHAINS_FILE)
        self.said = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str, typed: str = "", **variables: str) -> None:
        self.stop()
        command = [sys.executable, "-m", "tools.testnet", "--folder", str(self.folder), *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env={"PATH": os.environ["PATH"]} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self.said = ""
        assert self._process.stdin is not None
        self._process.stdin.write(typed)
        self._process.stdin.close()

    def until(self, pattern: str) -> re.Match[str]:
        """Read up to a line that contains the pattern."""
        assert self._process is not None
        assert self._process.stdout is not None
        while not (match := re.search(pattern, self.said)):
            line = self._process.stdout.readline()
            assert line, self.said
            self.said += line
        return match

    def ended(self) -> int:
        """Read to the end of the output. Return the exit code."""
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout:
            self.said += self._process.stdout.read()
        return self._process.wait(SECONDS)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)  # Ctrl-C in a terminal signals the group
            self.ended()


@pytest.fixture
def command(tmp_path) -> Iterator[Command]:
    running = Command(tmp_path)
    yield running
    running.stop()


# The command reads proofs at older blocks.
sepolia = chain_fixture(lambda chain: chain.mine(5), scope="function", chain_id=testnet.SEPOLIA, block_seconds=1)


op_sepolia = chain_fixture(scope="function", chain_id=testnet.OP_SEPOLIA, block_seconds=1)


def fund(chain: DevChain, address: str, ether: float) -> None:
    """Send ETH like a faucet."""
    chain.rpc("eth_sendTransaction", {"from": ACCOUNTS[0][0], "to": address, "value": hex(int(ether * 10**18))})


def prove(url: str, destination: DevChain | DrivenGeth, source: DevChain | DrivenGeth, block: int) -> None:
    api_key = client.take_api_key(url, ADDRESS, KEY, destination.chain_id)
    data = {str(source.chain_id): {f"block:{block}": {"accounts": {ADDRESS: {"props": ["BALANCE"]}}}}}
    body = {"destinationChainId": str(destination.chain_id), "fee": "0", "data": data}
    batch = client.submit(url, api_key, body)
    client.follow(url, api_key, batch, lambda _: None, SECONDS)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False


def files(folder: Path) -> dict[str, tuple[int, str]]:
    return {path.name: (path.stat().st_mode & 0o777, path.read_text()) for path in (folder / "secrets").iterdir()}


@pytest.mark.release
def test_make_testnet_asks_waits_for_money_deploys_serves_and_goes_on_where_it_was(
    command, sepolia, op_sepolia, tmp_path
):
    url, op_url = f"{sepolia.url}/?key=secret-one", f"{op_sepolia.url}/?key=secret-two"
    passphrase = "secret three"
    command.start(typed=f"{url}\n{op_url}\n{passphrase}\n")
    address = command.until(r"Signer: (0x\w{40}), a new key")[1]
    need = command.until(rf"To begin on Sepolia \(11155111\), send (\S+) ETH to {address}: deploying 1 registry")
    assert files(tmp_path) == {
        "sepolia_rpc_url": (0o600, url),
        "op_sepolia_rpc_url": (0o600, op_url),
        "testnet.password": (0o600, passphrase),
        "testnet.json": (0o600, (tmp_path / "secrets" / "testnet.json").read_text()),
    }
    fund(sepolia, address, float(need[1]))
    registry = command.until(r"The facts registry for chain 11155111 on chain 11155111 is at (0x\w{40})")[1]
    # The command goes on without OP Sepolia if the signer has no ETH there.
    command.until(rf"To begin on OP Sepolia \(11155420\), send \S+ ETH to {address}")
    command.until("Batches for OP Sepolia are accepted, and wait until there is money, and you run:\n  make testnet")
    service = command.until(r"Serving until Ctrl-C: (http://127\.0\.0\.1:\d+)/new-batch")[1]
    wait_until(lambda: answers(f"{service}/explorer"))
    prove(service, sepolia, sepolia, sepolia.head())
    command.stop()
    output = command.said

    fund(op_sepolia, address, 1)
    block = sepolia.head()
    of_block = sepolia.rpc("eth_getBlockByNumber", hex(block), False)
    L1Block(op_sepolia).tell(block, bytes.fromhex(of_block["hash"][2:]), timestamp=int(of_block["timestamp"], 16))
    command.start()
    command.until(rf"Signer: {address}, kept in")
    command.until(rf"The facts registry for chain 11155111 on chain 11155111 is at {registry}")
    command.until(r"The facts registry for chain 11155111 on chain 11155420 is at 0x")
    service = command.until(r"Serving until Ctrl-C: (http://127\.0\.0\.1:\d+)/new-batch")[1]
    assert "To begin" not in command.said
    wait_until(lambda: answers(f"{service}/healthz"))
    prove(service, op_sepolia, sepolia, block)
    command.stop()
    output += command.said
    assert "secret" not in output.replace(str(tmp_path / "secrets"), "")


@pytest.mark.geth
@pytest.mark.release
def test_make_testnet_comes_from_nothing_to_a_done_batch_on_a_sepolia_with_amsterdam_s_rules(command, op_sepolia):
    with DrivenGeth(testnet.SEPOLIA, amsterdam_time=0) as geth:
        geth.mine(5)
        with geth.mining():
            command.start(typed="\n", SEPOLIA_RPC_URL=geth.url, OP_SEPOLIA_RPC_URL=op_sepolia.url)
            need = command.until(
                r"To begin on Sepolia \(11155111\), send (\S+) ETH to (0x\w{40}): deploying 1 registry"
            )
            geth.give(need[2], round(float(need[1]) * 10**18))
            registry = command.until(r"The facts registry for chain 11155111 on chain 11155111 is at (0x\w{40})")[1]
            service = command.until(r"Serving until Ctrl-C: (http://127\.0\.0\.1:\d+)/new-batch")[1]
            wait_until(lambda: answers(f"{service}/explorer"))
            prove(service, geth, geth, geth.head())
            fund(op_sepolia, need[2], 1)
            command.start(SEPOLIA_RPC_URL=geth.url, OP_SEPOLIA_RPC_URL=op_sepolia.url)
            command.until(rf"The facts registry for chain 11155111 on chain 11155111 is at {registry}")
            command.until(r"The facts registry for chain 11155111 on chain 11155420 is at 0x")
            command.until("Serving until Ctrl-C: http")
            command.stop()


@pytest.mark.release
def test_make_testnet_reads_its_answers_from_the_environment_and_may_be_stopped(command, sepolia, op_sepolia, tmp_path):
    nodes = {"SEPOLIA_RPC_URL": sepolia.url, "OP_SEPOLIA_RPC_URL": op_sepolia.url}
    command.start(typed="\n", **nodes)
    for name in ("Sepolia", "OP Sepolia"):
        command.until(rf"To begin on {name} \(\d+\), send .+: deploying 1 registry takes at most .+\n  https://\S+ \(")
    command.stop()
    assert command.said.endswith("Stopped. This goes on from here: make testnet\n")
    # For an empty passphrase, the command makes a random one.
    assert sorted(files(tmp_path)) == ["testnet.json", "testnet.password"]
    assert len(files(tmp_path)["testnet.password"][1]) > 40
    command.start("--wait-minutes", "0", **nodes)
    assert command.ended() == 1
    assert command.said.endswith("The money is not there yet. When it is, run this again: make testnet\n")
    # If the key can't be decrypted, nobody should send ETH to it.
    (tmp_path / "secrets" / "testnet.password").write_text("another one")
    command.start(**nodes)
    assert command.ended() == 1
    assert command.said.endswith("testnet.json can't be decrypted with its password.\n")
    assert "To begin" not in command.said


@pytest.mark.release
def test_make_testnet_serves_op_sepolia_where_sepolia_s_registry_can_not_be_deployed(command, sepolia, op_sepolia):
    """The printed command deploys it once that is possible."""
    command.start(typed="\n", SEPOLIA_RPC_URL=sepolia.url, OP_SEPOLIA_RPC_URL=op_sepolia.url)
    address = command.until(r"Signer: (0x\w{40}), a new key")[1]
    command.until("To begin on OP Sepolia")
    deployer = sepolia.rpc("eth_getCode", DEPLOYER, "latest")
    sepolia.rpc("anvil_setCode", DEPLOYER, "0x00")
    fund(sepolia, address, 1)
    command.until(r"Sepolia \(11155111\) has other code than the deterministic deployer's")
    line = command.until(r"Batches for Sepolia wait until this works: (.+)")[1]
    fund(op_sepolia, address, 1)
    command.until(r"The facts registry for chain 11155111 on chain 11155420 is at 0x")
    command.until("Serving until Ctrl-C: http")
    sepolia.rpc("anvil_setCode", DEPLOYER, deployer)
    environment = {"PATH": os.environ["PATH"], "SEPOLIA_RPC_URL": sepolia.url, "OP_SEPOLIA_RPC_URL": op_sepolia.url}
    done = subprocess.run(line, shell=True, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert re.match("The facts registry for chain 11155111 on chain 11155111 is at 0x", done.stdout), done.stderr


@pytest.mark.release
def test_make_testnet_goes_on_to_op_sepolia_while_sepolia_has_no_money_and_without_it_while_its_node_is_away(
    command, sepolia, op_sepolia
):
    command.start(typed="\n", SEPOLIA_RPC_URL=sepolia.url, OP_SEPOLIA_RPC_URL=op_sepolia.url)
    address = command.until(r"Signer: (0x\w{40}), a new key")[1]
    fund(op_sepolia, address, 1)
    command.until(r"On OP Sepolia \(11155420\), deploying 1 registry takes at most 0\.\d+ ETH at present")
    command.until(r"The facts registry for chain 11155111 on chain 11155420 is at 0x")
    command.until(rf"To begin on Sepolia \(11155111\), send \S+ ETH to {address}")
    command.until("Batches for Sepolia are accepted, and wait until there is money, and you run:\n  make testnet")
    command.until("Serving until Ctrl-C: http")
    fund(sepolia, address, 1)
    command.start(SEPOLIA_RPC_URL=sepolia.url, OP_SEPOLIA_RPC_URL="http://127.0.0.1:1")
    command.until(r"OP_SEPOLIA_RPC_URL can't be used\. .+\nGoing on without OP Sepolia\. To try it again: make testnet")
    command.until(r"The facts registry for chain 11155111 on chain 11155111 is at 0x")
    command.until("Serving until Ctrl-C: http")


@pytest.mark.long
def test_a_node_that_can_not_be_used_is_not_kept(command, sepolia, op_sepolia, tmp_path):
    def without_proofs(body):
        return error(body, -32601, "no") if body["method"] == "eth_getProof" else ask(sepolia.url, body)

    with lying_node(without_proofs) as url:
        command.start(typed=f"{url}\n")
        assert command.ended() == 1
    assert "SEPOLIA_RPC_URL can't be used. no_proofs: " in command.said
    command.start(typed=f"{op_sepolia.url}\n")
    assert command.ended() == 1
    assert command.said == "SEPOLIA_RPC_URL can't be used. A node of chain 11155420, and not of chain 11155111.\n"
    command.start()
    assert command.ended() == 1
    assert command.said == "SEPOLIA_RPC_URL is missing: set it in the environment, or run this on a terminal.\n"
    assert not (tmp_path / "secrets").exists()


@pytest.mark.long
def test_a_beacon_node_is_asked_for_once_and_jumps_are_configured(command, sepolia, tmp_path):
    node = BeaconNode(testnet.SEPOLIA, 1_655_733_600, {9: bytes(32)})
    node.blocks[bytes(32)] = BeaconBlock(9, 0, bytes(32), bytes(32), bytes(32))
    with BeaconApi(node) as beacon:
        url = beacon.url.replace("//", "//me:secret@")
        nodes = {"SEPOLIA_RPC_URL": sepolia.url, "OP_SEPOLIA_RPC_URL": "http://127.0.0.1:1"}
        command.start("--wait-minutes", "0", typed=f"\n{url}\n", **nodes)
        for _ in range(2):
            # The second run asks nothing.
            command.until(rf"Beacon node {beacon.url[7:]}: slot 9, of 2022-06-20 14:01 UTC, is final")
            command.until(r"To begin on Sepolia")
            assert "secret@" not in command.said
            command.start("--wait-minutes", "0", **nodes)
    assert files(tmp_path)["sepolia_beacon_url"] == (0o600, url)
    urls = {**dict.fromkeys(testnet.NODES, "https://node.example"), testnet.BEACON: url}
    copy = tmp_path / ".testnet" / "chains.toml"
    assert [chain.beacon_urls for chain in load_chains(copy, urls).chains] == [(url,), ()]
    assert copy.read_text().count('"../secrets/testnet.json"') == 2


@pytest.mark.long
def test_a_beacon_node_that_is_no_url_is_not_kept(command, sepolia, tmp_path):
    command.start(typed="\nbeacon\n", SEPOLIA_RPC_URL=sepolia.url, OP_SEPOLIA_RPC_URL="http://127.0.0.1:1")
    assert command.ended() == 1
    assert command.said.endswith("SEPOLIA_BEACON_URL can't be used. It must be an http or https URL.\n")
    assert "sepolia_beacon_url" not in files(tmp_path)


def test_the_file_of_chains_is_one_that_the_service_takes():
    urls = dict.fromkeys(testnet.NODES, "https://node.example")
    chains = load_chains(PROJECT / testnet.CHAINS_FILE, urls)
    assert [(each.source_id, each.destination_id) for each in chains.connections] == [
        (testnet.SEPOLIA, testnet.SEPOLIA),
        (testnet.SEPOLIA, testnet.OP_SEPOLIA),
    ]
    assert all(chain.test_network for chain in chains.chains)
