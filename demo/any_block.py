"""Runs the demo of old blocks: facts of one are proven by a jump, through what the beacon chain keeps of its own past.

The source chain is EthereumJS, driven by a beacon chain of the executable consensus specifications (minimal preset). So
nothing of either was written here. An attester vouches for its newest final block, on a development chain. Afterwards
recorded blocks of Ethereum mainnet are proven, where they are there. State lives in `.demo-any-block/`, made anew at
each start.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from eth_account import Account

from demo import balances, command, recorded_mainnet
from demo.cross_chain import Attester
from demo.installation import CHAIN_ID, CHAINS_TOML, DemoError, Service
from devnet.consensus_client import SLOTS_PER_EPOCH, SLOTS_PER_PERIOD, ConsensusClient
from devnet.devchain import ACCOUNTS, DevChain
from devnet.ethereumjs import EthereumJs

SOURCE_ID = 31338
SLOT_SECONDS = 2
ELECTRA_EPOCH = 3
# Slots without a block, as there are on mainnet; also the first one of Electra, and of a period.
MISSED = (10, ELECTRA_EPOCH * SLOTS_PER_EPOCH, SLOTS_PER_PERIOD)
# So many until a block is final whose state summarises the first period.
SLOTS = SLOTS_PER_PERIOD + 5 * SLOTS_PER_EPOCH
# The block that is asked for: after the first transfer, before the second.
OLD_BLOCK = 12
START_SECONDS = 240
TRANSFERS = (1_234_567_890_123_456_789, 10**17)

# Its own facts are not asked for.
DESTINATION_TOML = CHAINS_TOML.partition("[[connections]]")[0]
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
always_jump = true
"""


def run(running: ExitStack, options: argparse.Namespace) -> tuple[bool, Sequence[command.Running]]:
    """Start everything, prove an old balance by a jump and read it; then recorded blocks of mainnet."""
    print(f"Starting EthereumJS as chain {SOURCE_ID}, and a beacon chain that drives it ...", flush=True)
    genesis_time = int(time.time()) - SLOTS * SLOT_SECONDS
    prague_time = genesis_time + ELECTRA_EPOCH * SLOTS_PER_EPOCH * SLOT_SECONDS
    node = running.enter_context(EthereumJs(SOURCE_ID, genesis_time=genesis_time, prague_time=prague_time))
    _transfer(node, 0)
    consensus = ConsensusClient(
        node,
        genesis_time=genesis_time,
        slot_seconds=SLOT_SECONDS,
        electra_epoch=ELECTRA_EPOCH,
        missed=MISSED,
        live=True,
    )
    running.enter_context(consensus)
    chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, port=options.rpc_port))

    print(f"Starting an attester, who signs hashes of final blocks of chain {SOURCE_ID} ...", flush=True)
    attester = Attester(running, options.state / "attester", node, SOURCE_TOML)
    toml = DESTINATION_TOML % chain.url + SOURCE_TOML % node.url + BEACON_TOML % (consensus.url, genesis_time)
    toml += attester.toml()

    print("Deploying the facts registry, with a beacon history ...", flush=True)
    service = Service(running, options.state, toml, balances.SIGNER_KEY, options.port)
    registry = service.deploy_registry(CHAIN_ID, SOURCE_ID)

    print("Starting the web server and the worker ...", flush=True)
    service.serve()
    _wait_until_past(node, OLD_BLOCK + 1)
    _transfer(node, 1)
    print(f"Waiting until the beacon chain has made {SLOTS} slots; a period has {SLOTS_PER_PERIOD} ...", flush=True)
    _wait_until_past(node, SLOTS - len(MISSED))
    source = balances.Source(node, registry, OLD_BLOCK)

    def more() -> bool:
        _show_transactions(chain, registry)
        return _prove_recorded()

    is_right = balances.prove(service, chain, [source], options.done_seconds, serves_on=not options.once, then=more)
    return is_right, [service, attester, node, consensus]


def _prove_recorded() -> bool:
    if not recorded_mainnet.is_there():
        print("\nRecorded blocks of Ethereum mainnet are left out: ../shared/fixtures/beacon is not there.", flush=True)
        return True
    print("\nRecorded blocks of Ethereum mainnet, by a registry with mainnet's values on another development chain.")
    print("The newer block that later ones begin at is made up, around a recorded state:", flush=True)
    with DevChain() as chain:
        is_right = recorded_mainnet.prove(chain)
    print("  equal to what their headers say" if is_right else "  WRONG", flush=True)
    return is_right


def _transfer(node: EthereumJs, number: int) -> None:
    """Change the balance that is asked for."""
    transaction = {
        "chainId": SOURCE_ID,
        "nonce": number,
        "to": ACCOUNTS[2][0],
        "value": TRANSFERS[number],
        "gas": 21_000,
        "maxFeePerGas": 10**10,
        "maxPriorityFeePerGas": 10**9,
    }
    signed = Account.sign_transaction(transaction, balances.SIGNER_KEY)
    node.rpc("eth_sendRawTransaction", signed.raw_transaction.to_0x_hex())


def _wait_until_past(node: EthereumJs, block: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while node.head() <= block:
        if time.monotonic() > deadline:
            raise DemoError(f"Chain {SOURCE_ID} did not come to block {block} within {START_SECONDS} s.")
        time.sleep(0.2)


def _show_transactions(chain: DevChain, registry: str) -> None:
    """Print what the jump took."""
    logs = chain.rpc("eth_getLogs", {"address": registry, "fromBlock": "0x0"})
    print()
    for sent in dict.fromkeys(log["transactionHash"] for log in logs):
        size = len(chain.rpc("eth_getTransactionByHash", sent)["input"]) // 2 - 1
        gas = int(chain.rpc("eth_getTransactionReceipt", sent)["gasUsed"], 16)
        print(f"The jump, the header and the account took {size:,} bytes and {gas:,} gas: {sent}", flush=True)


if __name__ == "__main__":
    sys.exit(command.main(command.parser("make demo-any-block", __doc__, ".demo-any-block"), run))
