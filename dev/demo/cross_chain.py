"""Run the demo on two development chains: facts of both are proven on one, with attesters for the other.

State is in `.demo-cross-chain/`, which is emptied at each start.
"""

import sys

from demo import command
from demo.command import Demo
from demo.installation import CHAIN_ID, CHAINS_TOML, PAYER_ADDRESS, DemoError
from devnet.devchain import ACCOUNTS

OTHER_ID = 31338
ATTESTERS, THRESHOLD = 3, 2
# Wei sent on the other chain, so that the account has different balances on the two chains.
TRANSFER = 1_234_567_890_123_456_789

# The other chain, for the service and each attester. It has no signer, because nothing is sent there.
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


def run(demo: Demo) -> bool:
    """Start everything, prove a balance on each chain and read both."""
    command.say(f"Starting two development chains, {CHAIN_ID} and {OTHER_ID}, with a block every second")
    chain, other = demo.chain(), demo.chain(OTHER_ID)
    other.rpc("eth_sendTransaction", {"from": PAYER_ADDRESS, "to": ACCOUNTS[2][0], "value": hex(TRANSFER)})

    command.say(f"Starting {ATTESTERS} attesters, who sign hashes of final blocks of chain {OTHER_ID}")
    names = [f"attester-{number}" for number in range(1, ATTESTERS + 1)]
    attesters = [demo.attester(name, OTHER_CHAIN_TOML % other.url) for name in names]
    toml = CHAINS_TOML % chain.url + OTHER_CHAIN_TOML % other.url + CONNECTION_TOML
    toml += "".join(attester.toml() for attester in attesters)
    own, across = demo.serve(toml, (CHAIN_ID, CHAIN_ID), (CHAIN_ID, OTHER_ID))

    left = ATTESTERS - demo.options.down
    for number, attester in enumerate(attesters[left:], left + 1):
        attester.stop()
        print(f"Attester {number}, {attester.url}, is down from here on.", flush=True)
    end = ", so the batch will wait; its page names the attesters that can't be reached" if left < THRESHOLD else ""
    print(f"{THRESHOLD} of {ATTESTERS} attesters must agree{end}.", flush=True)
    variables = {"OTHER_RPC_URL": other.url, "OTHER_CHAIN_ID": str(OTHER_ID), "OTHER_FACTS_REGISTRY": across}
    sources = {own: (chain, None), across: (other, None)}
    return demo.prove(chain, sources, variables, until_wait="attesters_missing" if left < THRESHOLD else "")


def _number_of_attesters(text: str) -> int:
    """Return the number that `DOWN` gives. Raises `DemoError`."""
    if text not in map(str, range(ATTESTERS + 1)):
        raise DemoError(f"DOWN is {text!r}, and must be 0 to {ATTESTERS}: the number of attesters that are down.")
    return int(text)


if __name__ == "__main__":
    parser = command.parser("make demo-cross-chain", __doc__, ".demo-cross-chain")
    parser.add_argument("--down", type=_number_of_attesters, default=1, help="attesters that are down (1)")
    sys.exit(command.main(parser, run))
