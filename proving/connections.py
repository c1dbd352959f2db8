"""Opening of configured connections. An open connection has its registry, and clients of both chains."""

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chains.chains_file import Connection
from chains.encoding import history_slot
from chains.nodes.node_errors import InvalidReply, UnreadableHeader
from chains.nodes.rpc import RpcClient
from chains.prices import GasPrices
from chains.tries.header import Header
from config.configured_chains import get_chains, get_page_rpc, get_rpc
from proving import stops
from proving.registries import deployments
from proving.registries.deployments import Deployment, Unusable
from proving.working import destination_prices
from proving.working.heads import Heads, poll_seconds
from proving.working.lanes import HeldLane
from queries.waits import wait

if TYPE_CHECKING:
    from chains.beacon.jumps import BeaconChain


class OutOfTime(Exception):
    """The time limit for asking a connection's chains is exceeded."""


@dataclass(frozen=True)
class OpenConnection:
    config: Connection
    registry: Deployment
    source_rpc: RpcClient
    destination_rpc: RpcClient
    ends_at: float = math.inf  # by `time.monotonic`; the client doesn't wait longer
    is_self_funded: bool = False  # transactions are sent by users' wallets

    def check_time(self) -> None:
        """Raise `OutOfTime` if the client doesn't wait any longer. Call it between exchanges."""
        if time.monotonic() > self.ends_at:
            raise OutOfTime

    @property
    def has_client(self) -> bool:
        """Return whether a client waits, and not a worker's lane."""
        return self.ends_at != math.inf

    @property
    def is_own(self) -> bool:
        """Return whether source and destination are the same chain, which vouches for a block only for a while."""
        return self.config.source_id == self.config.destination_id

    @property
    def prices(self) -> GasPrices:
        """Return the destination's gas prices, and its limits for those who send."""
        return self._limited(destination_prices.of(self.destination_rpc))

    @property
    def prices_for_estimates(self) -> GasPrices:
        """Return the same for estimates, which count until a fork that begins soon."""
        return self._limited(destination_prices.for_estimates(self.destination_rpc))

    def _limited(self, prices: GasPrices) -> GasPrices:
        return prices.of_wallets if self.is_self_funded else prices

    @property
    def beacon_chain(self) -> "BeaconChain | None":
        """Return the source's beacon chain as far as the registry's history knows it. None: it has no history."""
        chain, end = self.source_rpc.chain.beacon_chain, self.registry.history_end
        if chain is None or not self.registry.beacon_history:
            return None
        return chain if end is None else replace(chain, end=min(chain.end, end))

    def history_slot(self, number: int) -> int:
        """Return the slot of the source's history contract (EIP-2935) that keeps a block's hash."""
        return history_slot(number, self.source_rpc.chain.history_window)

    def block_at(self, timestamp: int, head: Header) -> int | None:
        """Return the number of the block N with time(N) <= timestamp < time(N+1).

        Return None if all blocks with readable headers are later. `head` must be later than the timestamp. Block times
        mostly grow evenly, so interpolation between known blocks needs few headers. After a bad guess the range is
        halved, for chains with uneven times. Raises `NodeUnavailable`, and `OutOfTime` before a header is read.
        """
        assert head.timestamp > timestamp
        rpc = self.source_rpc
        # If `low_time` is None, the block `low` and all blocks below it can't be read, or `low` is -1.
        low, high = -1, head
        low_time: int | None = None
        halve, reach = False, 1 / rpc.chain.block_seconds
        while high.number - low > 1:
            middle = (low + high.number) // 2
            if low_time is None:
                # Nodes may serve only recent headers. So steps down from the head double until a block before the time
                # is found.
                middle = max(middle, high.number - 1 - int(reach * (high.timestamp - timestamp)))
                reach *= 2
            elif not halve:
                share = (timestamp - low_time) / (high.timestamp - low_time)
                middle = low + round(share * (high.number - low))
            number = min(max(middle, low + 1), high.number - 1)
            self.check_time()
            try:
                guess = rpc.known_header(number)
            except UnreadableHeader:
                if low_time is not None:
                    raise
                # Examples are Celo's headers from before it became an L2, and the first ones of development chains.
                low = number
                continue
            if not (low_time or 0) <= guess.timestamp <= high.timestamp:
                raise InvalidReply(f"The times of blocks {low} to {high.number} do not rise.")
            # A guess is bad if it excludes only a small part of the range.
            before = high.number - low
            if guess.timestamp <= timestamp:
                low, low_time = guess.number, guess.timestamp
            else:
                high = guess
            halve = (high.number - low) * 2 > before
        return None if low_time is None else low


def open_connection(destination: int, source: int, ends_at: float | None = None) -> OpenConnection:
    """Open a connection. If `ends_at` is given, the caller waits until then, and nothing is written.

    Raises the errors of `deployments.find`, and `Unusable` if the connection isn't configured any more.
    """
    config = get_chains().connection(source, destination)
    if config is None:
        raise Unusable(wait("not_configured", chain=destination, source=source))
    if ends_at is None:
        return OpenConnection(config, deployments.find(destination, source), get_rpc(source), get_rpc(destination))
    registry = deployments.noted(destination, source)
    return OpenConnection(config, registry, get_page_rpc(source), get_page_rpc(destination), ends_at)


def open_unless_stopped(destination: int, source: int, ends_at: float | None = None) -> OpenConnection:
    """Open a connection like `open_connection`. Also raises `Unusable` if the operator has stopped it."""
    if stopped := stops.why_connection_is_stopped(source, destination):
        raise Unusable(stopped)
    return open_connection(destination, source, ends_at)


@dataclass(frozen=True)
class Context:
    """A connection, and the heads of its destination when the work began."""

    connection: OpenConnection
    heads: Heads  # of the destination

    @property
    def source_rpc(self) -> RpcClient:
        return self.connection.source_rpc

    @property
    def destination_rpc(self) -> RpcClient:
        return self.connection.destination_rpc

    @property
    def registry(self) -> Deployment:
        return self.connection.registry

    @property
    def poll_seconds(self) -> float:
        """Return the seconds between two observations of the destination."""
        return poll_seconds(self.destination_rpc.chain)


@dataclass(frozen=True)
class WorkContext(Context):
    """A connection on which a worker works, and the lane that the worker holds."""

    lane: HeldLane
