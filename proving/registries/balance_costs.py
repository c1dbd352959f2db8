"""The gas to prove one account's balance at a new block, for a connection."""

from chains.chains_file import Connection
from config.configured_chains import get_rpc
from proving import sources
from proving.facts import AccountFact
from proving.packing import gas
from proving.packing.gas import Paths, Sample, UnprovenBlock
from proving.working import destination_prices
from queries.columns import AccountField

_ANY_ACCOUNT = "0x" + "0" * 40


def expected_gas(connection: Connection) -> int:
    """Return the expected gas on a source chain as large as Ethereum, without a rollup's gas for data."""
    source = sources.of(connection)
    needs_start = source.vouched(connection, keeps_hashes=True) in {None, 1}
    paths = Paths(count=1, start_gas=source.gas(connection)) if needs_start else Paths()
    missing = UnprovenBlock(0, [AccountFact(_ANY_ACCOUNT, AccountField.BALANCE)], is_known=False, header=None)
    prices = destination_prices.for_estimates(get_rpc(connection.destination_id))
    return gas.estimate([missing], Sample(), paths, prices).charged(prices).gas.expected
