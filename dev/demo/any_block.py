"""Run the demo of old blocks: a fact of an old block is proven by a jump through the beacon chain's history.

The source chain is EthereumJS, driven by a beacon chain of the executable consensus specifications (minimal preset). An
attester on a development chain vouches for its newest final block. State is in `.demo-any-block/`, which is emptied at
each start.
"""

import sys
import time

from eth_account import Account

from demo import command
from demo.command import Demo
from demo.installation import CHAIN_ID, CHAINS_TOML, SIGNER_KEY, DemoError
from devnet.consensus_client import SLOTS_PER_EPOCH, SLOTS_PER_PERIOD, ConsensusClient
from devnet.devchain import ACCOUNTS
from devnet.ethereumjs import EthereumJs

SOURCE_ID = 31338
SLOT_SECONDS = 2
ELECTRA_EPOCH = 3
# Slots without a block, as on mainnet. They include the first slot of Electra and the first slot of a period.
MISSED = (10, ELECTRA_EPOCH * SLOTS_PER_EPOCH, SLOTS_PER_PERIOD)
# Slots until a block is final whose state has the summary of the first period.
SLOTS = SLOTS_PER_PERIOD + 5 * SLOTS_PER_EPOCH
# The queried block. It lies after the first transfer and before the second.
OLD_BLOCK = 12
START_SECONDS = 600

SOURCE_TOML = f"""\
[[chains]]
id = {SOURCE_ID}
name = "EthereumJS"
rpc_urls = ["%s"]
test_network = true
block_seconds = {SLOT_SECONDS}
"""
BEACON_TOML = f"""\
beacon_urls = ["%s"]
[chains.beacon_chain]
preset = "minimal"
genesis_time = %d
slot_seconds = {SLOT_SECONDS}
bellatrix = 0
capella = 0
deneb = 0
electra = {ELECTRA_EPOCH * SLOTS_PER_EPOCH}

[[connections]]
source = {SOURCE_ID}
destination = {CHAIN_ID}
block_hash_source = "attested"
threshold = 1
"""


def run(demo: Demo) -> bool:
    """Start everything, prove an old balance by a jump and read it."""
    command.say(f"Starting EthereumJS as chain {SOURCE_ID}, and a beacon chain that drives it")
    genesis_time = int(time.time()) - SLOTS * SLOT_SECONDS
    prague_time = genesis_time + ELECTRA_EPOCH * SLOTS_PER_EPOCH * SLOT_SECONDS
    node = demo.running.enter_context(EthereumJs(SOURCE_ID, genesis_time=genesis_time, prague_time=prague_time))
    _transfer(node, 0)
    times = {"genesis_time": genesis_time, "slot_seconds": SLOT_SECONDS, "electra_epoch": ELECTRA_EPOCH}
    consensus = demo.running.enter_context(ConsensusClient(node, **times, missed=MISSED, live=True))
    demo.processes += [node, consensus]
    chain = demo.chain()

    command.say(f"Starting an attester, which signs hashes of final blocks of chain {SOURCE_ID}")
    attester = demo.attester("attester", SOURCE_TOML % node.url)
    # The development chain's own facts are not queried.
    toml = (CHAINS_TOML % chain.url).partition("[[connections]]")[0]
    toml += SOURCE_TOML % node.url + BEACON_TOML % (consensus.url, genesis_time) + attester.toml()
    (registry,) = demo.serve(toml, (CHAIN_ID, SOURCE_ID))
    _wait_until_past(node, OLD_BLOCK + 1)
    _transfer(node, 1)
    command.say(f"Waiting until the beacon chain has made {SLOTS} slots; a period has {SLOTS_PER_PERIOD}")
    _wait_until_past(node, SLOTS - len(MISSED))
    return demo.prove(chain, {registry: (node, OLD_BLOCK)})


def _transfer(node: EthereumJs, number: int) -> None:
    """Change the queried balance."""
    fees = {"gas": 21_000, "maxFeePerGas": 10**10, "maxPriorityFeePerGas": 10**9}
    transaction = {"chainId": SOURCE_ID, "nonce": number, "to": ACCOUNTS[2][0], "value": 10**17 + number, **fees}
    signed = Account.sign_transaction(transaction, SIGNER_KEY)
    node.rpc("eth_sendRawTransaction", signed.raw_transaction.to_0x_hex())


def _wait_until_past(node: EthereumJs, block: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while node.head() <= block:
        if time.monotonic() > deadline:
            raise DemoError(f"Chain {SOURCE_ID} did not come to block {block} within {START_SECONDS} s.")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(command.main(command.parser("make demo-any-block", __doc__, ".demo-any-block"), run))
