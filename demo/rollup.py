"""Runs the demo on a rollup as Arbitrum's: its facts are proven on the chain below it, and from there on a third.

The rollup confirms a block in its Outbox, and that is all that anybody must believe of it. An attester vouches for the
chain below, on the third one. State lives in `.demo-rollup/`, made anew at each start.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from eth_utils.crypto import keccak

from demo import balances, command
from demo.cross_chain import TRANSFER, Attester
from demo.installation import CHAIN_ID, CHAINS_TOML, KEY_FILE, Installation, Service
from devnet.arbitrum_outbox import ArbitrumOutbox, set_send_root
from devnet.devchain import ACCOUNTS, DevChain

ROLLUP_ID, THIRD_ID = 31338, 31339

L1_TOML = f"""\
[[chains]]
id = {CHAIN_ID}
name = "Development chain"
rpc_urls = ["%s"]
test_network = true
block_seconds = 1
"""
ROLLUP_TOML = f"""\
[[chains]]
id = {ROLLUP_ID}
name = "Development rollup"
rpc_urls = ["%s"]
test_network = true

[[connections]]
source = {ROLLUP_ID}
destination = {CHAIN_ID}
block_hash_source = "arbitrum"
outbox = "%s"
"""
THIRD_TOML = f"""\
[[chains]]
id = {THIRD_ID}
name = "Third development chain"
rpc_urls = ["%s"]
confirmations = 1
test_network = true
block_seconds = 1
[chains.signer]
key_file = "{KEY_FILE}"

[[connections]]
source = {ROLLUP_ID}
destination = {THIRD_ID}
block_hash_source = "arbitrum-slot"
parent = {CHAIN_ID}
outbox = "%s"

[[connections]]
source = {CHAIN_ID}
destination = {THIRD_ID}
block_hash_source = "attested"
threshold = 1
"""


def run(running: ExitStack, options: argparse.Namespace) -> tuple[bool, Sequence[Installation]]:
    """Start everything, prove a balance of the rollup on both other chains, and read each."""
    print(f"Starting chain {CHAIN_ID}, the rollup {ROLLUP_ID} on top of it, and chain {THIRD_ID} ...", flush=True)
    chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, port=options.rpc_port))
    rollup = running.enter_context(DevChain(chain_id=ROLLUP_ID))
    third = running.enter_context(DevChain(chain_id=THIRD_ID, block_seconds=1))
    transfer = {"from": balances.SIGNER_ADDRESS, "to": ACCOUNTS[2][0], "value": hex(TRANSFER)}
    rollup.rpc("eth_sendTransactionSync", transfer)

    outbox = ArbitrumOutbox(chain)
    send_root = keccak(text="messages")
    block_hash = set_send_root(rollup, send_root)
    print(f"The rollup confirms its block {rollup.head()} in its Outbox on chain {CHAIN_ID} ...", flush=True)
    outbox.confirm(send_root, block_hash)

    print(
        f"Starting an attester, who signs hashes of final blocks of chain {CHAIN_ID}; none of the rollup ...",
        flush=True,
    )
    attester = Attester(running, options.state / "attester", chain, L1_TOML)
    toml = CHAINS_TOML % chain.url + ROLLUP_TOML % (rollup.url, outbox.address)
    toml += THIRD_TOML % (third.url, outbox.address) + attester.toml()

    print("Deploying the facts registries ...", flush=True)
    service = Service(running, options.state, toml, balances.SIGNER_KEY, options.port)
    service.deploy_registry(CHAIN_ID, CHAIN_ID)
    on_l1 = balances.Source(rollup, service.deploy_registry(CHAIN_ID, ROLLUP_ID))
    service.deploy_registry(THIRD_ID, CHAIN_ID)
    on_third = balances.Source(rollup, service.deploy_registry(THIRD_ID, ROLLUP_ID))

    print("Starting the web server and the worker ...", flush=True)
    service.serve()
    are_right = []
    for destination, source in ((chain, on_l1), (third, on_third)):
        print(f"\nFrom the rollup to chain {destination.chain_id}:", flush=True)
        is_right = balances.prove(
            *(service, destination, [source], options.done_seconds),
            serves_on=not options.once,
            is_last=destination is third,
        )
        are_right.append(is_right)
    return all(are_right), [service, attester]


if __name__ == "__main__":
    sys.exit(command.main(command.parser("make demo-rollup", __doc__, ".demo-rollup"), run))
