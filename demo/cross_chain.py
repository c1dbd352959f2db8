"""Runs the demo on two development chains: facts of both are proven on one of them, by attesters for the other.

State lives in `.demo-cross-chain/`, made anew at each start.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from eth_account import Account

from demo import balances, command
from demo.installation import CHAIN_ID, CHAINS_TOML, KEY_FILE, MANAGE, Installation, Service
from devnet.devchain import ACCOUNTS, DevChain

OTHER_ID = 31338
ATTESTERS, THRESHOLD = 3, 2
# Sent on the other chain, so that the account's balances differ; in wei.
TRANSFER = 1_234_567_890_123_456_789

# What the service and each attester say of the other chain: nobody signs there.
OTHER_CHAIN_TOML = f"""\
[[chains]]
id = {OTHER_ID}
name = "Other development chain"
rpc_urls = ["%s"]
test_network = true
block_seconds = 1
"""
CONNECTION_TOML = f"""\
[[connections]]
source = {OTHER_ID}
destination = {CHAIN_ID}
block_hash_source = "attested"
threshold = {THRESHOLD}
"""


class Attester(Installation):
    """An attester's process, with a key and a database of its own, on a free port."""

    def __init__(
        self, running: ExitStack, folder: Path, source: balances.Node, chain_toml: str = OTHER_CHAIN_TOML
    ) -> None:
        account = Account.create()
        self.address: str = account.address
        toml = chain_toml % source.url + f'[attester]\nkey_file = "{KEY_FILE}"\n'
        super().__init__(running, folder, toml, account.key.to_0x_hex())
        self.start("attester", *MANAGE, "run_attester", "--bind", "127.0.0.1:0")

    def url(self) -> str:
        """Wait until it listens, and return where."""
        self.wait_until(lambda: bool(self._listens()))
        return self._listens()[0]

    def _listens(self) -> list[str]:
        return re.findall(r"listens on (\S+)\n", self.log("attester").read_text())

    def toml(self) -> str:
        """Return the attester's lines in the connection of a service that believes it."""
        return f"[[connections.attesters]]\naddress = {json.dumps(self.address)}\nurl = {json.dumps(self.url())}\n"


def run(running: ExitStack, options: argparse.Namespace) -> tuple[bool, Sequence[Installation]]:
    """Start everything, prove a balance on each chain and read both."""
    print(f"Starting two development chains, {CHAIN_ID} and {OTHER_ID}, with a block every second ...", flush=True)
    chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, port=options.rpc_port))
    other = running.enter_context(DevChain(chain_id=OTHER_ID, block_seconds=1))
    transfer = {"from": balances.SIGNER_ADDRESS, "to": ACCOUNTS[2][0], "value": hex(TRANSFER)}
    other.rpc("eth_sendTransaction", transfer)

    print(f"Starting {ATTESTERS} attesters, who sign hashes of final blocks of chain {OTHER_ID} ...", flush=True)
    attesters = [Attester(running, options.state / f"attester-{number}", other) for number in range(1, ATTESTERS + 1)]
    toml = CHAINS_TOML % chain.url + OTHER_CHAIN_TOML % other.url + CONNECTION_TOML
    toml += "".join(attester.toml() for attester in attesters)

    print(f"Deploying two facts registries on chain {CHAIN_ID}, one for each chain's facts ...", flush=True)
    service = Service(running, options.state, toml, balances.SIGNER_KEY, options.port)
    own, across = (balances.Source(one, service.deploy_registry(CHAIN_ID, one.chain_id)) for one in (chain, other))

    print("Starting the web server and the worker ...", flush=True)
    service.serve()

    for number, attester in list(enumerate(attesters, 1))[ATTESTERS - options.down :]:
        attester.stop()
        print(f"Attester {number} is down from here on; {THRESHOLD} of {ATTESTERS} must agree.", flush=True)

    is_right = balances.prove(
        service,
        chain,
        [own, across],
        options.done_seconds,
        serves_on=not options.once,
        OTHER_RPC_URL=other.url,
        OTHER_CHAIN_ID=str(OTHER_ID),
        OTHER_FACTS_REGISTRY=across.registry,
    )
    return is_right, [service, *attesters]


if __name__ == "__main__":
    parser = command.parser("make demo-cross-chain", __doc__, ".demo-cross-chain")
    parser.add_argument("--down", type=int, choices=range(ATTESTERS + 1), default=1, help="attesters that are down (1)")
    sys.exit(command.main(parser, run))
