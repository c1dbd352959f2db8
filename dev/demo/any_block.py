"""Run the demo of old blocks: facts of two old blocks are proven by jumps through the beacon chain's history.

The source chain is EthereumJS, driven by a beacon chain of the executable consensus specifications (minimal preset). Of
the blocks, one is from before the beacon chain's fork Gloas, and one from after it. An attester on a development chain
vouches for the source chain's newest final block. State is in `.demo-any-block/`, which is emptied at each start.
"""

import sys
import time

from eth_account import Account

from demo import command
from demo.command import Demo
from demo.installation import CHAIN_ID, CHAINS_TOML, PAYER_KEY, DemoError
from devnet.consensus_client import SLOTS_PER_EPOCH, SLOTS_PER_PERIOD, ConsensusClient
from devnet.devchain import ACCOUNTS
from devnet.ethereumjs import EthereumJs

SOURCE_ID = 31338
SLOT_SECONDS = 2
# First epochs. Gloas begins in the middle of a period. EthereumJS keeps Prague's rules, which are those of Electra.
FORKS = {"electra": 3, "fulu": 4, "gloas": 5}
ELECTRA, GLOAS = (FORKS[fork] * SLOTS_PER_EPOCH for fork in ("electra", "gloas"))
# Slots without a block (S), as on mainnet, and since Gloas with a block whose payload is not revealed (E), or too late
# (L). They include the first slots of forks and of a period.
NOT_FULL = {10: "S", ELECTRA: "S", GLOAS: "E", 44: "L", 51: "E", SLOTS_PER_PERIOD: "S"}
# Slots until a block is final whose state has the summary of the first period.
SLOTS = SLOTS_PER_PERIOD + 5 * SLOTS_PER_EPOCH
# The queried blocks. The first one lies after the first transfer and before the second. The second one is that of a
# slot of Gloas, before an empty one.
OLD_BLOCK = 12
GLOAS_BLOCK = 50 - sum(slot < 50 for slot in NOT_FULL)
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
electra = {ELECTRA}
gloas = {GLOAS}

[[connections]]
source = {SOURCE_ID}
destination = {CHAIN_ID}
block_hash_source = "attested"
threshold = 1
"""


def run(demo: Demo) -> bool:
    """Start everything, prove old balances by jumps and read them."""
    command.say(f"Starting EthereumJS as chain {SOURCE_ID}, and a beacon chain that drives it")
    genesis_time = int(time.time()) - SLOTS * SLOT_SECONDS
    prague_time = genesis_time + ELECTRA * SLOT_SECONDS
    node = demo.running.enter_context(EthereumJs(SOURCE_ID, genesis_time=genesis_time, prague_time=prague_time))
    _transfer(node, 0)
    consensus = ConsensusClient(
        node, genesis_time=genesis_time, slot_seconds=SLOT_SECONDS, forks=FORKS, slots=NOT_FULL, live=True
    )
    demo.running.enter_context(consensus)
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
    _wait_until_past(node, SLOTS - len(NOT_FULL))
    return demo.prove(chain, {registry: (node, OLD_BLOCK, GLOAS_BLOCK)})


def _transfer(node: EthereumJs, number: int) -> None:
    """Change the queried balance."""
    fees = {"gas": 21_000, "maxFeePerGas": 10**10, "maxPriorityFeePerGas": 10**9}
    transaction = {"chainId": SOURCE_ID, "nonce": number, "to": ACCOUNTS[2][0], "value": 10**17 + number, **fees}
    signed = Account.sign_transaction(transaction, PAYER_KEY)
    node.rpc("eth_sendRawTransaction", signed.raw_transaction.to_0x_hex())


def _wait_until_past(node: EthereumJs, block: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while node.head() <= block:
        if time.monotonic() > deadline:
            raise DemoError(f"Chain {SOURCE_ID} did not come to block {block} within {START_SECONDS} s.")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(command.main(command.parser("make demo-any-block", __doc__, ".demo-any-block"), run))
