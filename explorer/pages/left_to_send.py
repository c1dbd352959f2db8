"""What is left to be sent for a batch that pays itself, asked of the chains for a page."""

from dataclasses import dataclass

from chains.chains_file import UnknownChain
from chains.encoding import hex_data
from chains.rpc import NodeUnavailable, RpcRefused
from config import node_waits
from explorer.pages.chain_names import ChainName, chain_name
from proving.reconcile import unsigned
from proving.reconcile.unsigned import TooSlow
from queries.models import Batch

# Longer calldata is told by its length.
_MOST_SHOWN_BYTES = 10_000


@dataclass(frozen=True)
class ShownUnsigned:
    what: str
    to: str
    gas: int
    size: int  # of the calldata, in bytes
    data: str  # empty where it is too long


@dataclass(frozen=True)
class LeftToSend:
    """`problem` is a sentence instead of an answer."""

    problem: str = ""
    chain: ChainName | None = None
    transactions: tuple[ShownUnsigned, ...] = ()
    waits: tuple[str, ...] = ()

    @property
    def gas(self) -> int:
        return sum(tx.gas for tx in self.transactions)


def read(batch: Batch) -> LeftToSend:
    """If too many others are asking, the answer is to try again."""
    try:
        with node_waits.waiting_for(batch.destination_chain_id):
            left = unsigned.left_of(batch)
    except node_waits.Busy:
        return LeftToSend("Somebody else is asking the chains just now; try again in a moment.")
    except UnknownChain:
        return LeftToSend(f"Chain {batch.destination_chain_id} is no longer configured here.")
    except (NodeUnavailable, RpcRefused, TooSlow) as error:
        return LeftToSend(f"The chain could not be read. {error} Try again in a moment.")
    shown = [
        ShownUnsigned(
            tx.what, tx.to, tx.gas, len(tx.data), hex_data(tx.data) if len(tx.data) <= _MOST_SHOWN_BYTES else ""
        )
        for tx in left.transactions
    ]
    return LeftToSend("", chain_name(batch.destination_chain_id), tuple(shown), tuple(left.waits))
