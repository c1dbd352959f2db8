"""What observing one block, and acting on it, needs at hand."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from chains.chains_file import Chain
from chains.rpc import RpcClient
from proving.connections import OpenConnection
from proving.facts import RegistryView
from proving.heads import Heads, poll_seconds
from proving.lanes import HeldLane
from proving.models import Transaction
from proving.registry.deployments import Deployment
from queries.models import Block, Query


@dataclass(frozen=True)
class OpenRequests:
    """Tells what is open about a block."""

    senders: Collection[str]  # of the batches
    steps: Collection[tuple[str, bool]]
    """At which the queries are, each with whether it asks for an account, and not for the header."""
    names_times: bool
    """True if some name it by a time."""


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

    asking: OpenRequests | None = None
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


@dataclass
class Context:
    """A block, its connection, and how far the destination was when this began."""

    block: Block
    """The row as it was last read."""
    connection: OpenConnection
    destination_chain: Chain
    heads: Heads  # of the destination
    ahead: AskedAhead = field(default_factory=AskedAhead)
    known: Known = field(default_factory=Known)

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


@dataclass(kw_only=True)
class WorkContext(Context):
    """A block that a worker works on, in the lane of its connection."""

    lane: HeldLane
