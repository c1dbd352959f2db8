"""What each look at a block begins with, and how it ends."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from django.db.models import QuerySet

from chains.chains_file import Chain
from chains.rpc import Reverted, RpcClient
from config.configured_chains import get_chains
from proving import connections
from proving.connections import OpenConnection
from proving.facts import Fact
from proving.heads import Heads, poll_seconds
from proving.registry import deployments
from proving.registry.contract import revert_reason
from proving.transactions import pending_limits, sending
from proving.transactions.sending import CannotSend, Intent, SignerBusy, UnderWay
from queries import progress
from queries.leases import Lease
from queries.models import Block, Query
from queries.rejection_codes import RejectionCode

Missing = Mapping[Fact, Collection[int]]
"""Facts that the registry doesn't hold, with the ids of the queries that ask for them."""

# Queries looked at in one go: bounds memory and the length of a look.
QUERIES_PER_LOOK = 1000


class ProofNotAccepted(Exception):
    """The registry refuses a proof that was verified here: a defect, not a matter of waiting. A sentence."""


class Wait(Exception):
    """Nothing more can be done now: a sentence that says for what, and when to look again (seconds)."""

    def __init__(self, sentence: str, seconds: float) -> None:
        super().__init__(sentence)
        self.seconds = seconds


class TooDear(Wait):
    """The fees of these batches, or the limits of their users, don't allow it at the present gas price."""

    def __init__(self, sentence: str, seconds: float, batches: frozenset[str]) -> None:
        super().__init__(sentence, seconds)
        self.batches = batches


@dataclass
class Look:
    """One look at one block: the chains as they are now, and what can be done about it."""

    lease: Lease[Block]
    connection: OpenConnection
    destination: Chain
    heads: Heads  # of the destination

    @classmethod
    def at(cls, lease: Lease[Block]) -> Self:
        block = lease.row
        try:
            connection = connections.open_connection(block.destination_chain_id, block.source_chain_id)
        except deployments.Unusable as why:
            raise Wait(str(why), 10) from None
        destination = get_chains().chain(block.destination_chain_id)
        return cls(lease, connection, destination, Heads.read(destination, connection.destination))

    @property
    def block(self) -> Block:
        return self.lease.row

    @property
    def source(self) -> RpcClient:
        return self.connection.source

    @property
    def rpc(self) -> RpcClient:
        """Of the destination."""
        return self.connection.destination

    @property
    def registry(self) -> deployments.Deployed:
        return self.connection.registry

    def open(self) -> QuerySet[Query]:
        return self.block.open_queries()

    def without(self, missing: Missing, batches: Collection[str]) -> Missing:
        """What others than these batches ask for."""
        dropped = set(self.open().filter(batch__in=batches).values_list("pk", flat=True))
        left = {fact: [pk for pk in asking if pk not in dropped] for fact, asking in missing.items()}
        return {fact: asking for fact, asking in left.items() if asking}

    def submit(self, intents: Sequence[Intent], *, and_store: Callable[[int], None] | None = None) -> None:
        """Store and broadcast as many as there is room for; show on the queries what they wait for.

        Raises `Wait` where nothing can be sent.
        """
        poll = poll_seconds(self.destination)
        most = pending_limits.left(self.block, sending.sender(self.destination))
        if not most:
            raise Wait("Waiting until transactions that were sent before are mined.", poll)
        try:
            sent = sending.submit_all(self.destination, intents[:most], and_store=and_store)
        except (SignerBusy, UnderWay):
            raise Wait("Waiting for the signer.", min(0.2, poll)) from None
        except sending.TooDear as dear:
            raise TooDear(str(dear), max(10, self.destination.block_seconds), dear.batches) from None
        except CannotSend as notice:
            raise Wait(str(notice), max(10, self.destination.block_seconds)) from None
        except Reverted as reverted:
            reason = revert_reason(reverted.data)
            if reason.name in {"UnknownBlock", "HeaderMismatch"}:
                # The chain moved between our look and the simulation; the next look says what that means.
                raise Wait(f"Chain {self.destination.id} does not accept the header at this moment.", poll) from None
            raise ProofNotAccepted(f"The registry does not accept the proof: {reason}.") from None
        for tx in sent:
            ids = list(tx.queries.values_list("pk", flat=True))
            progress.note_transaction(ids, sending.latest_hash(tx))

    def reject(self, queries: QuerySet[Query], code: RejectionCode, reason: str, *, retryable: bool = False) -> None:
        batches = list(queries.order_by().values_list("batch", flat=True).distinct())
        with self.lease.writing():
            progress.reject(batches, code=code, reason=reason, retryable=retryable)
