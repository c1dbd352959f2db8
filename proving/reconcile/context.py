"""What observing one block, and acting on it, needs at hand."""

from dataclasses import dataclass

from chains.chains_file import Chain
from chains.rpc import RpcClient
from proving.connections import OpenConnection
from proving.heads import Heads, poll_seconds
from proving.registry.deployments import Deployment
from queries.leases import Lease
from queries.models import Block


@dataclass(frozen=True)
class Context:
    """A leased block, its connection, and how far the destination was when this began."""

    lease: Lease[Block]
    connection: OpenConnection
    destination_chain: Chain
    heads: Heads  # of the destination

    @property
    def block(self) -> Block:
        """The row as it was last read under the lease."""
        return self.lease.row

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
        """How often to observe the destination."""
        return poll_seconds(self.destination_chain)
