"""What observing one block, and acting on it, needs at hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from chains.chains_file import Chain
from chains.rpc import RpcClient
from database.leases import Lease
from proving.connections import OpenConnection
from proving.facts import RegistryView
from proving.heads import Heads, poll_seconds
from proving.models import Transaction
from proving.registry.deployments import Deployment
from queries.models import Block, Query
from queries.turns import Asking


@dataclass
class AskedAhead:
    """The destination's answers to questions that may turn out needless: one exchange for all costs less."""

    confirmed: RegistryView | None = None
    """At the newest confirmed block, with facts that may be asked for."""
    latest: RegistryView | None = None
    """At the newest block, without facts."""
    vouched: dict[bytes, bool] = field(default_factory=dict)
    """By a header's hash: whether the registry can take that header in the pending block."""

    def forget_newest(self) -> None:
        """Forget what was newest: that is long ago."""
        self.latest = None
        self.vouched.clear()


@dataclass
class Known:
    """Rows that a reconcile has read, and need not read again while it has written nothing that changes them."""

    asking: Asking | None = None
    idle: Sequence[Query] | None = None
    accumulated_by: str | None = None
    is_extending: bool | None = None
    sent: Transaction | None = None
    """The newest that it has sent itself."""

    def forget(self, *, who_asks: bool) -> None:
        """Forget what queries are at, and with `who_asks` who has open ones."""
        self.idle = None
        if who_asks:
            self.asking = None


@dataclass(frozen=True)
class Context:
    """A leased block, its connection, and how far the destination was when this began."""

    lease: Lease[Block]
    connection: OpenConnection
    destination_chain: Chain
    heads: Heads  # of the destination
    ahead: AskedAhead = field(default_factory=AskedAhead)
    known: Known = field(default_factory=Known)

    @property
    def block(self) -> Block:
        """Return the row as it was last read under the lease."""
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
        """Return how often to observe the destination."""
        return poll_seconds(self.destination_chain)
