"""Blocks with logs on a development chain."""

import random
from collections.abc import Sequence

from devnet.devchain import DevChain
from tests.users import ALICE

# Emits a log of two topics and a word of data, as many times as it says, and then fails if it says so.
LOG = "60aa5f5260bb60cc60205fa2"
RETURNS, FAILS = "5f5ff3", "5f5ffd"
TOPICS = 3


def block_with_logs(chain: DevChain) -> int:
    """Return the number of a block whose transactions have one log, none since it fails, and two."""
    return block_of(chain, [LOG + RETURNS, LOG + FAILS, LOG + LOG + RETURNS])


def block_of(chain: DevChain, codes: Sequence[str]) -> int:
    """Return the number of a block whose transactions run these codes. Another block follows it."""
    chain.rpc("evm_setAutomine", False)
    for code in codes:
        chain.rpc("eth_sendTransaction", {"from": ALICE, "data": f"0x{code}", "gas": hex(1_000_000)})
    chain.mine()
    chain.rpc("evm_setAutomine", True)
    number: int = chain.head()
    chain.mine()
    return number


def emitting(*sizes: int) -> str:
    """Return code that emits a log of random data of each size in bytes, with random topics, as tokens do."""
    chance = random.Random(str(sizes))
    size = max(sizes, default=0)
    logs = "".join(
        f"{''.join(f'7f{chance.randbytes(32).hex()}' for _ in range(TOPICS))}61{each:04x}5fa3" for each in sizes
    )
    # PUSH2 size, PUSH2 offset, PUSH0, CODECOPY; the data follows the code.
    length = 8 + len(logs) // 2 + 3
    return f"61{size:04x}61{length:04x}5f39{logs}{RETURNS}{chance.randbytes(size).hex()}"
