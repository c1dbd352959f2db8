"""The gas prices of destinations, as stored beside their heads (`proving.working.heads`)."""

import time
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from chains.nodes.rpc import RpcClient
from chains.prices import OSAKA, RECORDS, GasPrices
from chains.tries.header import Header
from proving.models import ChainHead

# Seconds after which this process reads a chain's prices again.
_KEPT_SECONDS = 4


@dataclass(frozen=True)
class _Reading:
    prices: GasPrices
    read_at: float
    """The time by `time.monotonic`."""


_read: WeakKeyDictionary[RpcClient, _Reading] = WeakKeyDictionary()


def of(rpc: RpcClient, head: Header | None = None) -> GasPrices:
    """Return the prices of the client's chain, whose newest block may be known. They are today's until it is seen."""
    known = _read.get(rpc)
    if known is None or time.monotonic() - known.read_at > _KEPT_SECONDS:
        row = ChainHead.objects.filter(pk=rpc.chain.id).first()
        prices = OSAKA
        if row:
            record = RECORDS.get(row.gas_prices, OSAKA)
            prices = replace(record, block_gas=row.gas_limit, scale=row.gas_scale)
        known = _read[rpc] = _Reading(prices, time.monotonic())
    return known.prices if head is None else replace(known.prices, block_gas=head.gas_limit or 0)
