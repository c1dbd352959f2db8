"""Gas prices, and blocks at a price."""

from devnet.devchain import DevChain
from tests.proving.transactions import age
from tests.service import work

GWEI = 10**9
ETHER = 10**18
# Estimated gas for one account with its block.
ACCOUNT_GAS = 302_000


def price_of(chain: DevChain) -> int:
    """Return the gas price in wei, including the tip."""
    return int(chain.rpc("eth_gasPrice"), 16)


def mine_at(chain: DevChain, gwei: float) -> None:
    """Mine a block with this base fee, and keep the base fee afterwards."""
    chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(int(gwei * GWEI)))
    chain.mine()


def go_on(chain: DevChain, gwei: float, rounds: int, *, aged: bool = False) -> None:
    """Work and mine at this base fee. With `aged`, pending transactions look old in each round."""
    for _ in range(rounds):
        if aged:
            age()
        work()
        mine_at(chain, gwei)


def up_to_a_gwei(wei: int) -> int:
    """Return the amount rounded up to a gwei, as daily limits count it."""
    return -(-wei // GWEI) * GWEI
