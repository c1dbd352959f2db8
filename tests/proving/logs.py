"""Blocks with logs on a development chain."""

from devnet.devchain import DevChain
from tests.users import ALICE

# Emits a log of two topics and a word of data, as many times as it says, and then fails if it says so.
LOG = "60aa5f5260bb60cc60205fa2"
RETURNS, FAILS = "5f5ff3", "5f5ffd"


def block_with_logs(chain: DevChain) -> int:
    """Return the number of a block whose transactions have one log, none since it fails, and two."""
    chain.rpc("evm_setAutomine", False)
    for code in (LOG + RETURNS, LOG + FAILS, LOG + LOG + RETURNS):
        chain.rpc("eth_sendTransaction", {"from": ALICE, "data": f"0x{code}", "gas": hex(200_000)})
    chain.mine()
    chain.rpc("evm_setAutomine", True)
    number: int = chain.head()
    chain.mine()
    return number
