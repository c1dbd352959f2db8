"""`make testnet` on a terminal, on a real pair: a forked Sepolia by geth, and OP Sepolia by the OP Stack above it.

The chains' genesis has the deterministic deployer, as the real networks have it.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
import requests

from demo import client
from devnet.devchain import ACCOUNTS
from tests.chains.lying_node import Raw, ask, lying_node
from tests.real_nodes.driven_node import give
from tests.real_nodes.facts import Node
from tests.real_nodes.rollup import Rollup, rollup
from tests.tools.terminal import (
    BEACON_NODE,
    OP_SEPOLIA_NODE,
    PASSPHRASE,
    SECONDS,
    SEPOLIA_NODE,
    Terminal,
    files,
    wait_until,
)
from tools.testnet import OP_SEPOLIA, SEPOLIA

pytestmark = [pytest.mark.op_stack, pytest.mark.outside]

ADDRESS, KEY = ACCOUNTS[2]
DEAD = "http://127.0.0.1:1"
NO_URL = "It must be an http or https URL."
SERVING = r"Serving until Ctrl-C: (http://127\.0\.0\.1:\d+)/new-batch"
# A registry of Sepolia's facts on Sepolia itself needs contracts for the block hashes, several calls, and old blocks.
CONTRACTS_ON_SEPOLIA = 4


@pytest.fixture(scope="module")
def pair() -> Iterator[Rollup]:
    with rollup((SEPOLIA, OP_SEPOLIA), is_forked=True) as running:
        running.wait_for_block(5)
        yield running


@pytest.fixture
def terminal(tmp_path) -> Iterator[Terminal]:
    with Terminal(tmp_path) as running:
        yield running


def test_a_user_comes_from_nothing_to_facts_that_are_read_on_both_chains(terminal, pair):
    """Wrong nodes are typed first, and money comes to one chain. The command is stopped while it deploys and serves."""
    terminal.start()
    terminal.answer(SEPOLIA_NODE, pair.l2.url)
    refused(terminal, "SEPOLIA_RPC_URL", f"A node of chain {OP_SEPOLIA}, and not of chain {SEPOLIA}.")
    terminal.answer(SEPOLIA_NODE, f"{pair.l1.url}/?key=secret-one")
    terminal.until(r"  node +head +age .+\n  127\.0\.0\.1:\d+ .+ back to block 1\n")
    terminal.answer(OP_SEPOLIA_NODE, DEAD)
    refused(terminal, "OP_SEPOLIA_RPC_URL", "127.0.0.1:1 can't be reached.")
    terminal.answer(OP_SEPOLIA_NODE, f"{pair.l2.url}/?key=secret-two")
    terminal.answer(PASSPHRASE, "secret three")
    address = terminal.until(r"Signer: (0x\w{40}), a new key in ")[1]
    terminal.answer(BEACON_NODE, pair.l1.url)
    why = f"Beacon node {pair.l1.url[7:]} answered with HTTP status 404."
    refused(terminal, "SEPOLIA_BEACON_URL", why)
    terminal.answer(BEACON_NODE, "")
    of_sepolia = terminal.until(
        rf"To begin on Sepolia \({SEPOLIA}\), send (\S+) ETH to {address}: .+ Faucets:\n  https:"
    )
    of_op = terminal.until(
        rf"To begin on OP Sepolia \({OP_SEPOLIA}\), send (\S+) ETH to {address}: .+ Faucets:\n  http"
    )
    terminal.until(r"Waiting up to 30 minutes for one of these\. Ctrl-C stops; nothing is lost\.\n")
    fund(pair.l1, address, of_sepolia[1])
    terminal.until(rf"On Sepolia \({SEPOLIA}\), deploying 1 registry takes at most 0\.\d+ ETH")
    terminal.until(r"  (?:Waiting for transaction|Transaction) 0x\w{64} ")
    terminal.interrupt()
    assert terminal.said.endswith("Stopped. To continue: make testnet\n")
    said = terminal.said

    terminal.start()
    terminal.until(rf"Signer: {address}, kept in ")
    on_sepolia = terminal.until(rf"The facts registry for chain {SEPOLIA} on chain {SEPOLIA} is at (0x\w{{40}})")[1]
    # Each contract was created once.
    assert nonce(pair.l1, address) == CONTRACTS_ON_SEPOLIA
    terminal.until(rf"To begin on OP Sepolia \({OP_SEPOLIA}\), send \S+ ETH to {address}: ")
    terminal.until(
        r"Batches for OP Sepolia wait until you have done this, stopped this, and run it again:\n  make testnet\n"
    )
    service = serving(terminal)
    api_key = client.take_api_key(service, ADDRESS, KEY, SEPOLIA)
    read(pair, SEPOLIA, service, api_key, on_sepolia, *submitted(service, api_key, pair, SEPOLIA))
    waiting = submitted(service, api_key, pair, OP_SEPOLIA)
    terminal.interrupt()
    said += terminal.said
    sent = nonce(pair.l1, address)

    fund(pair, address, of_op[1])
    terminal.start()
    terminal.until(rf"The facts registry for chain {SEPOLIA} on chain {SEPOLIA} is at {on_sepolia}\n")
    on_op = terminal.until(rf"The facts registry for chain {SEPOLIA} on chain {OP_SEPOLIA} is at (0x\w{{40}})\n")[1]
    # The batch that waited, under the same API key.
    read(pair, OP_SEPOLIA, serving(terminal), api_key, on_op, *waiting)
    terminal.interrupt()
    said += terminal.said
    assert "To begin" not in terminal.said
    assert "not shown" not in terminal.said
    assert nonce(pair.l1, address) == sent
    assert "secret" not in said.replace(str(terminal.secrets), "")
    assert files(terminal.secrets) == {
        "sepolia_rpc_url": (0o600, f"{pair.l1.url}/?key=secret-one"),
        "op_sepolia_rpc_url": (0o600, f"{pair.l2.url}/?key=secret-two"),
        "sepolia_beacon_url": (0o600, "none"),
        "testnet.password": (0o600, "secret three"),
        "testnet.json": (0o600, (terminal.secrets / "testnet.json").read_text()),
    }


@pytest.mark.long
def test_each_wrong_answer_is_named_and_the_question_asked_again(terminal, pair):
    def without_proofs(body):
        error = {"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32601, "message": "no"}}
        return error if body["method"] == "eth_getProof" else ask(pair.l1.url, body)

    terminal.start()
    with (
        lying_node(lambda _: Raw(b"<html>no key</html>")) as garbage,
        lying_node(lambda _: Raw(b"key?", 401)) as closed,
        lying_node(without_proofs) as no_proofs,
    ):
        for typed, why in {
            "": "SEPOLIA_RPC_URL is missing: type it, or set it in the environment.",
            "node": NO_URL,
            "ws://127.0.0.1:1": NO_URL,
            DEAD: "127.0.0.1:1 can't be reached.",
            garbage: f"{garbage[7:]} answered with something that is not JSON; the node said: “<html>no key</html>”.",
            closed: f"{closed[7:]} answered with HTTP status 401; the node said: “key?”.",
            pair.l2.url: f"A node of chain {OP_SEPOLIA}, and not of chain {SEPOLIA}.",
            no_proofs: "The node can't serve a source chain: it has no proofs (eth_getProof).",
        }.items():
            terminal.answer(SEPOLIA_NODE, typed)
            refused(terminal, "SEPOLIA_RPC_URL", why)
        terminal.answer(SEPOLIA_NODE, pair.l1.url)
        for typed, why in {
            "node": NO_URL,
            DEAD: "127.0.0.1:1 can't be reached.",
            garbage: f"{garbage[7:]} answered with something that is not JSON; the node said: “<html>no key</html>”.",
            pair.l1.url: f"A node of chain {SEPOLIA}, and not of chain {OP_SEPOLIA}.",
        }.items():
            terminal.answer(OP_SEPOLIA_NODE, typed)
            refused(terminal, "OP_SEPOLIA_RPC_URL", why)
        terminal.answer(OP_SEPOLIA_NODE, pair.l2.url)
        terminal.answer(PASSPHRASE, "")
        for typed, why in {
            "node": NO_URL,
            DEAD: "Beacon node 127.0.0.1:1 can't be reached.",
            pair.l1.url: f"Beacon node {pair.l1.url[7:]} answered with HTTP status 404.",
        }.items():
            terminal.answer(BEACON_NODE, typed)
            refused(terminal, "SEPOLIA_BEACON_URL", why)
    terminal.until(BEACON_NODE)
    assert sorted(files(terminal.secrets)) == [
        *("op_sepolia_rpc_url", "sepolia_rpc_url", "testnet.json", "testnet.password")
    ]


@pytest.mark.long
def test_ctrl_c_at_any_moment_loses_nothing_and_no_question_comes_twice(terminal, pair):
    """Money comes to OP Sepolia first. At last, the terminal's window is closed."""
    answers = {SEPOLIA_NODE: pair.l1.url, OP_SEPOLIA_NODE: pair.l2.url, PASSPHRASE: "", BEACON_NODE: ""}
    for place, question in enumerate(answers):
        terminal.start()
        for earlier in list(answers)[max(0, place - 1) : place]:
            terminal.answer(earlier, answers[earlier])
        terminal.until(question)
        terminal.interrupt()
        assert terminal.said.endswith("\nStopped. To continue: make testnet\n")
        assert terminal.said.count("not shown") == min(place + 1, 2)
    address = terminal.said.partition("Signer: ")[2][:42]
    terminal.start()
    terminal.answer(BEACON_NODE, answers[BEACON_NODE])
    # While the database is made, and while money is awaited.
    for until in (r"SEPOLIA_BEACON_URL: kept in .+\n", r"Waiting up to 30 minutes"):
        terminal.until(until)
        terminal.interrupt()
        assert terminal.said.endswith("\nStopped. To continue: make testnet\n")
        terminal.start()
    terminal.until("Waiting up to 30 minutes")
    fund(pair, address, "0.02")
    on_op = terminal.until(rf"The facts registry for chain {SEPOLIA} on chain {OP_SEPOLIA} is at (0x\w{{40}})\n")[1]
    terminal.until(rf"To begin on Sepolia \({SEPOLIA}\), send \S+ ETH to {address}: ")
    terminal.until(
        "Batches for Sepolia wait until you have done this, stopped this, and run it again:\n  make testnet\n"
    )
    service = serving(terminal)
    terminal.close()
    wait_until(lambda: not answers_at(service))

    terminal.start()
    terminal.until(rf"Signer: {address}, kept in ")
    terminal.until(rf"The facts registry for chain {SEPOLIA} on chain {OP_SEPOLIA} is at {on_op}\n")
    service = serving(terminal)
    api_key = client.take_api_key(service, ADDRESS, KEY, OP_SEPOLIA)
    read(pair, OP_SEPOLIA, service, api_key, on_op, *submitted(service, api_key, pair, OP_SEPOLIA))
    assert "not shown" not in terminal.said


@pytest.mark.long
def test_a_node_that_fails_is_named_while_the_command_goes_on(terminal, pair, tmp_path):
    down = set[str]()

    def real(url: str) -> Callable[[Any], Any]:
        return lambda body: Raw(status=503) if url in down else ask(url, body)

    with lying_node(real(pair.l1.url)) as sepolia, lying_node(real(pair.l2.url)) as op_sepolia:
        terminal.start()
        terminal.answer(SEPOLIA_NODE, sepolia)
        terminal.answer(OP_SEPOLIA_NODE, op_sepolia)
        terminal.answer(PASSPHRASE, "")
        address = terminal.until(r"Signer: (0x\w{40}), a new key in ")[1]
        terminal.answer(BEACON_NODE, "")
        terminal.until("Waiting up to 30 minutes")
        down.update([pair.l1.url, pair.l2.url])
        terminal.until(rf"Sepolia can't be used yet\. {sepolia[7:]} .*HTTP status 503")
        terminal.until(rf"OP Sepolia can't be used yet\. {op_sepolia[7:]} .*HTTP status 503")
        down.clear()
        terminal.until("To begin on OP Sepolia")
        terminal.interrupt()
        down.add(pair.l1.url)
        terminal.start()
        kept = terminal.secrets / "sepolia_rpc_url"
        terminal.until(
            rf"SEPOLIA_RPC_URL can't be used\. {sepolia[7:]} answered with HTTP status 503\. "
            rf"To try again: make testnet \(first remove {kept}, to be asked for another one\)\n"
        )
        assert terminal.ended() != 0
        down.clear()
        down.add(pair.l2.url)
        fund(pair.l1, address, "0.2")
        terminal.start()
        terminal.until(rf"OP_SEPOLIA_RPC_URL can't be used\. {op_sepolia[7:]} answered with HTTP status 503\. ")
        terminal.until(r"Going on without OP Sepolia\.\n")
        terminal.until(rf"The facts registry for chain {SEPOLIA} on chain {SEPOLIA} is at (0x\w{{40}})")
        terminal.until(rf"OP Sepolia can't be used yet\. {op_sepolia[7:]} .*HTTP status 503")
        serving(terminal)


def refused(terminal: Terminal, name: str, why: str) -> None:
    """Read that an answer can't be used, why, and what to do."""
    at = terminal.until(rf"{name} (?:can't be used|is missing).*\n")[0]
    assert why in at
    assert at.endswith(
        " Type another one, or stop with Ctrl-C. docs/operating/test-network.md says where nodes come from.\n"
    )


def serving(terminal: Terminal) -> str:
    """Return the URL of the service, which answers."""
    url = terminal.until(SERVING)[1]
    wait_until(lambda: answers_at(url))
    return url


def answers_at(url: str) -> bool:
    try:
        return requests.get(f"{url}/explorer", timeout=30).ok
    except requests.RequestException:
        return False


def submitted(service: str, api_key: str, pair: Rollup, destination: int) -> tuple[str, int]:
    """Submit a batch about a balance on Sepolia. Return its id and the block."""
    block = pair.l1.head()
    data = {str(SEPOLIA): {f"block:{block}": {"accounts": {ADDRESS: {"props": ["BALANCE"]}}}}}
    return client.submit(service, api_key, {"destinationChainId": str(destination), "fee": "0", "data": data}), block


def read(pair: Rollup, destination: int, service: str, api_key: str, registry: str, batch: str, block: int) -> None:
    """Follow the batch until it is DONE, and read its fact on the destination."""
    client.follow(service, api_key, batch, lambda _: None, SECONDS)
    url = (pair.l1 if destination == SEPOLIA else pair.l2).url
    balance = client.account_field(url, registry, ADDRESS, block, client.BALANCE)
    assert int.from_bytes(balance) == int(pair.l1.rpc("eth_getBalance", ADDRESS, hex(block)), 16) > 0


def fund(node: Node, address: str, ether: str) -> None:
    """Send money like a faucet."""
    give(node, address, int(Decimal(ether) * 10**18))


def nonce(node: Node, address: str) -> int:
    return int(node.rpc("eth_getTransactionCount", address, "latest"), 16)
