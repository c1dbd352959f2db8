"""What observing blocks of a connection, and acting on them, needs at hand."""

from dataclasses import dataclass

from chains.chains_file import Chain
from chains.rpc import RpcClient
from proving.connections import OpenConnection
from proving.heads import Heads, poll_seconds
from proving.lanes import HeldLane
from proving.registry.deployments import Deployment


@dataclass(frozen=True)
class Context:
    """A connection, and how far its destination was when this began."""

    connection: OpenConnection
    heads: Heads  # of the destination

    @property
    def source_rpc(self) -> RpcClient:
        return self.connection.source_rpc

    @property
    def destination_rpc(self) -> RpcClient:
        return self.connection.destination_rpc

    @property
    def destination_chain(self) -> Chain:
        return self.destination_rpc.chain

    @property
    def registry(self) -> Deployment:
        return self.connection.registry

    @property
    def poll_seconds(self) -> float:
        """Return how often to observe the destination."""
        return poll_seconds(self.destination_chain)


@dataclass(frozen=True)
class WorkContext(Context):
    """A connection that a worker works on, in its lane."""

    lane: HeldLane
