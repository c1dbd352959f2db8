"""Chains of nodes that others made, as sources: what they say differently costs no fact."""

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from eth_account import Account

from campaigns.attacks.table import Seen
from demo import client
from demo.installation import CHAIN_ID, CHAINS_TOML, MANAGE, Installation, Service
from devnet.devchain import ACCOUNTS, DevChain
from devnet.ports import free_port
from devnet.real_node import RealNode
from tests.real_nodes.facts import facts_of, wrong
from tests.real_nodes.simulators import Ganache, Hardhat

SOURCE_ID = 424242
_DONE_SECONDS = 120
_FEWEST_BLOCKS = 12


def run(seed: int) -> Iterator[Seen]:
    choice = random.Random(seed)
    for kind in (Hardhat, Ganache):
        with kind(SOURCE_ID) as node:
            yield _prove(node, choice)


def _prove(node: RealNode, choice: random.Random) -> Seen:
    while node.head() < _FEWEST_BLOCKS:
        time.sleep(0.2)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1))
        connected = CHAINS_TOML % chain.url + _connection(running, folder, node)
        service = Service(running, folder / "state", connected, ACCOUNTS[3][1], free_port())
        registry = service.deploy_registry(CHAIN_ID, SOURCE_ID)
        service.deploy_registry(CHAIN_ID, CHAIN_ID)
        service.serve()
        number = choice.randrange(1, node.head() - 2)
        facts = facts_of(node, number)
        key = client.take_api_key(service.base_url, *ACCOUNTS[0], CHAIN_ID)
        began = time.monotonic()
        body = {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": {str(SOURCE_ID): facts.asked}}
        batch = client.submit(service.base_url, key, body)
        client.follow(service.base_url, key, batch, lambda _: None, _DONE_SECONDS)
        seconds = time.monotonic() - began
        false = wrong(chain, registry, facts)
    version = node.rpc("web3_clientVersion")
    return Seen(
        f"{version}: {len(facts.expected)} facts of block {number}, asked of its chain by an attester and the service",
        "each is DONE, and what the node itself says",
        f"DONE after {seconds:.0f} s, {len(false)} false" + "".join(f"; {one}" for one in false),
        kept=not false,
    )


def _connection(running: ExitStack, folder: Path, node: RealNode) -> str:
    """An attester of the node's chain, and what connects that to the service's: lines of the service's chains file."""
    chain = f"""
[[chains]]
id = {SOURCE_ID}
name = "Source"
rpc_urls = ["{node.url}"]
confirmations = 1
test_network = true
block_seconds = 1
"""
    account = Account.create()
    own = f'[attester]\nkey_file = "signer.key"\n{chain}'
    attester = Installation(running, folder / "attester", own, account.key.to_0x_hex())
    attester.start("attester", *MANAGE, "run_attester", "--bind", "127.0.0.1:0")
    said = attester.log("attester")
    attester.wait_until(lambda: " listens on " in said.read_text())
    url = said.read_text().partition(" listens on ")[2].split()[0]
    return f"""
{chain}
[[connections]]
source = {SOURCE_ID}
destination = {CHAIN_ID}
block_hash_source = "attested"
threshold = 1
[[connections.attesters]]
address = "{account.address}"
url = "{url}"
"""
