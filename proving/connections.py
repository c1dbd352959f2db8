"""Opens configured connections: each with its registry, and with clients of both chains."""

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chains.chains_file import Connection
from chains.encoding import history_slot
from chains.rpc import RpcClient
from config.configured_chains import get_chains, get_page_rpc, get_rpc
from contracts import NO_CONTRACT
from proving import deployments, stops
from proving.deployments import Deployment, Unusable
from proving.heads import Heads, poll_seconds
from proving.lanes import HeldLane
from queries.waits import wait

if TYPE_CHECKING:
    from chains.beacon.jumps import BeaconChain


class OutOfTime(Exception):
    """The time for asking the chains of a connection is over."""


@dataclass(frozen=True)
class OpenConnection:
    config: Connection
    registry: Deployment
    source_rpc: RpcClient
    destination_rpc: RpcClient
    ends_at: float = math.inf  # by `time.monotonic`: its user waits no longer

    def check_time(self) -> None:
        """Check, between two exchanges, that its chains may still be asked. Raises `OutOfTime`."""
        if time.monotonic() > self.ends_at:
            raise OutOfTime

    @property
    def is_own(self) -> bool:
        """Return whether a chain vouches for its own blocks, which it does only for a while."""
        return self.config.source_id == self.config.destination_id

    @property
    def beacon_chain(self) -> "BeaconChain | None":
        """Return the source's beacon chain if the registry proves old blocks by it."""
        return self.source_rpc.chain.beacon_chain if self.registry.beacon_history else None

    def history_slot(self, number: int) -> int:
        """Return the slot in which the source's history contract (EIP-2935) keeps the hash of a block."""
        return history_slot(number, self.source_rpc.chain.history_window)


def open_connection(destination: int, source: int, ends_at: float | None = None) -> OpenConnection:
    """Open a connection. With `ends_at` it is for a caller who waits until then, and nothing is written.

    Raises as `deployments.find`, and `Unusable` if the connection isn't configured any more.
    """
    config = get_chains().connection(source, destination)
    if config is None:
        raise Unusable(wait("not_configured", chain=destination, source=source))
    if ends_at is None:
        return OpenConnection(config, deployments.find(destination, source), get_rpc(source), get_rpc(destination))
    registry = deployments.noted(destination, source)
    return OpenConnection(config, registry, get_page_rpc(source), get_page_rpc(destination), ends_at)


def without_registry(destination: int, source: int) -> OpenConnection | None:
    """Return a connection of which only its chains may be used; None if it isn't configured any more."""
    if (config := get_chains().connection(source, destination)) is None:
        return None
    none = Deployment(0, deployments.Registry(NO_CONTRACT), NO_CONTRACT, NO_CONTRACT)
    return OpenConnection(config, none, get_rpc(source), get_rpc(destination))


def open_unless_stopped(destination: int, source: int, ends_at: float | None = None) -> OpenConnection:
    """Open a connection as `open_connection` does. Raises `Unusable` also if the operator has stopped it."""
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
        """Return how often to observe the destination."""
        return poll_seconds(self.destination_rpc.chain)


@dataclass(frozen=True)
class WorkContext(Context):
    """A connection that a worker works on, in its lane."""

    lane: HeldLane
