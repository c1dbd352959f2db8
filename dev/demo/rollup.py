"""Run the demo of an Arbitrum rollup: its facts are proven on its parent chain, and from there on a third chain.

The rollup's Outbox confirms a block, and no other trust in the rollup is needed. An attester on the third chain vouches
for the parent chain. State is in `.demo-rollup/`, which is emptied at each start.
"""

import sys

from eth_utils.crypto import keccak

from demo import command
from demo.command import Demo
from demo.installation import CHAIN_ID, CHAINS_TOML, PAYER_ADDRESS, chain_toml
from devnet.arbitrum_outbox import ArbitrumOutbox, set_send_root
from devnet.devchain import DevChain

ROLLUP_ID, THIRD_ID = 31338, 31339
# A contract's creation that emits a log of a topic and a word: PUSH1, PUSH0, MSTORE, PUSH1, PUSH1, PUSH0, LOG1.
_EMITS_A_LOG = "0x602a5f52601160205fa1"

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
{chain_toml(THIRD_ID, "Third development chain")}[[connections]]
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


def run(demo: Demo) -> bool:
    """Start all processes, prove a balance and a log of the rollup on both other chains, and read each value."""
    command.say(f"Starting chain {CHAIN_ID}, the rollup {ROLLUP_ID} on top of it, and chain {THIRD_ID}")
    chain, third = demo.chain(), demo.chain(THIRD_ID)
    # The rollup makes a block for each transaction.
    rollup = demo.running.enter_context(DevChain(chain_id=ROLLUP_ID))
    rollup.rpc("eth_sendTransactionSync", {"from": PAYER_ADDRESS, "data": _EMITS_A_LOG, "value": hex(10**17)})

    outbox = ArbitrumOutbox(chain)
    send_root = keccak(text="messages")
    block_hash = set_send_root(rollup, send_root)
    command.say(f"The rollup confirms its block {rollup.head()} in its Outbox on chain {CHAIN_ID}")
    outbox.confirm(send_root, block_hash)

    command.say(f"Starting an attester, which signs hashes of final blocks of chain {CHAIN_ID}; none of the rollup")
    chain_toml = CHAINS_TOML % chain.url
    attester = demo.attester("attester", chain_toml.partition("[[connections]]")[0])
    toml = chain_toml + ROLLUP_TOML % (rollup.url, outbox.address)
    toml += THIRD_TOML % (third.url, outbox.address) + attester.toml()
    connections = (CHAIN_ID, CHAIN_ID), (CHAIN_ID, ROLLUP_ID), (THIRD_ID, CHAIN_ID), (THIRD_ID, ROLLUP_ID)
    _, below, _, across = demo.serve(toml, *connections)
    by_destination = {below: chain, across: third}
    are_right = [demo.prove(each, {at: (rollup, None)}, with_log=True) for at, each in by_destination.items()]
    return all(are_right)


if __name__ == "__main__":
    sys.exit(command.main(command.parser("make demo-rollup", __doc__, ".demo-rollup"), run))
