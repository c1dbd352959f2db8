"""The transactions that a self-funded batch still needs, read from the chains for a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from chains import rollups
from chains.chains_file import UnknownChain
from chains.encoding import hex_data
from chains.nodes.node_errors import NodeUnavailable, RpcRefused
from chains.prices import WALLET_GAS
from config.chain_names import ChainName, chain_name
from config.configured_chains import get_page_rpc
from explorer.batch.read_from_chain import READING_SENTENCES
from explorer.formatting.amounts import cost
from explorer.formatting.wait_words import in_words
from proving.money import market_fees
from proving.reconcile import unsigned
from proving.reconcile.unsigned import Unsigned
from queries.models import Batch, BatchStatus


@dataclass(frozen=True)
class TransactionsToSend:
    """The transactions that a batch still needs, in order, or a `problem` (a sentence)."""

    MOST_SHOWN_BYTES: ClassVar = 10_000  # pages show only the length of calldata that is longer
    problem: str = ""
    chain: ChainName | None = None
    transactions: Sequence[Unsigned] = ()
    waits: tuple[str, ...] = ()
    is_complete: bool = True
    block: int | None = None  # the block at which the chain was read
    wei: int = 0  # maximum cost of all transactions at the current price

    @property
    def gas(self) -> int:
        return sum(tx.gas for tx in self.transactions)

    def as_json(self) -> Mapping[str, Any]:
        """Return the JSON for the script that sends the transactions. Wallets' numbers are encoded as in JSON-RPC."""
        chain = self.chain
        return {
            "chain": chain and {"id": hex(chain.id), "name": chain.name, "currency": chain.currency},
            "block": self.block,
            "isComplete": self.is_complete,
            "waits": self.waits,
            "transactions": [
                {"to": tx.to, "data": hex_data(tx.data), "value": "0x0", "gas": hex(tx.gas), "what": tx.what}
                for tx in self.transactions
            ],
            "gas": self.gas,
            "mostGas": WALLET_GAS,
            "cost": cost(self.wei),
        }


def read(batch: Batch) -> TransactionsToSend:
    """Read the transactions that a batch still needs. A batch that is DONE needs none."""
    chain = chain_name(batch.destination_chain_id)
    if batch.status == BatchStatus.DONE:
        return TransactionsToSend(chain=chain)
    try:
        missing = unsigned.left_of(batch)
        wei = _most_wei(chain.id, missing.transactions)
    except UnknownChain:
        return TransactionsToSend(READING_SENTENCES["unknown_chain"].format(chain=chain.id))
    except (NodeUnavailable, RpcRefused) as error:
        return TransactionsToSend(READING_SENTENCES["chain_unavailable"].format(reason=error))
    waits = tuple(map(in_words, missing.waits))
    return TransactionsToSend("", chain, missing.transactions, waits, missing.is_complete, missing.block, wei)


def _most_wei(chain_id: int, transactions: Sequence[Unsigned]) -> int:
    """Return the transactions' maximum cost in wei. Raises `UnknownChain`, `NodeUnavailable`, `RpcRefused`."""
    if not transactions:
        return 0
    rpc = get_page_rpc(chain_id)
    price = market_fees(rpc).base_and_tip
    beside = rollups.data_costs(rpc, [(len(tx.data), tx.gas) for tx in transactions])
    return sum(tx.gas * price + data.wei for tx, data in zip(transactions, beside, strict=True))
