"""Observations of a block, from which decisions are made.

Each stage of costly reads has its own type: an `Observation` has no `UnprovenFacts` if the registry lacks nothing, and
these have no `Trust` if nothing needs the header.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Self

from chains.tries.header import Header
from proving.facts import Fact, Missing, RegistryView, needs_header
from proving.failures import NO_TRIES, FailedFacts, Tries, counted
from queries.columns import HeaderField
from queries.models import Query, QueryKind, Sender, StepKind
from queries.waits import WaitReason


@dataclass(frozen=True)
class Checked:
    """The destination's block in which the completed facts were last read, and the current header at its height."""

    destination: int
    number: int
    hash: bytes
    header: Header | None
    confirmed: Header  # the newest confirmed block
    poll_seconds: float

    @property
    def is_behind(self) -> bool:
        """Return whether the node's confirmed head is below the block."""
        return self.confirmed.number < self.number


@dataclass(frozen=True)
class Gone:
    """The completed facts that the registry holds now or has lost."""

    lacking_header: Sequence[int] = ()
    """Queries (ids) that begin again at the header's step, also those whose state root the registry trusts no more."""
    lacking_facts: Sequence[int] = ()
    """Queries (ids) that begin again below a state root that the registry trusts."""
    contradiction: WaitReason | None = None


@dataclass(frozen=True)
class SourceBlock:
    """The block on the source chain now, and the stored block."""

    source: int
    number: int
    header: Header | None
    stored_hash: str  # empty if none is stored
    poll_seconds: float  # pause between polls of the source chain
    head: int = 0  # number of the source chain's newest block, if there is no header
    seconds: float = 0.0  # seconds until the block should exist


@dataclass(frozen=True)
class Unfetched:
    """The queries that stay at INITIAL_STATE because nodes don't serve their proofs."""

    source: int
    number: int
    faults: Mapping[int, WaitReason]  # by query id
    refused: Collection[int]  # ids of queries for which no node serves a usable proof, perhaps for ever
    withheld: Collection[int]  # those of them for which a node has lately proven blocks as old
    refused_since: datetime | None  # the stored value
    now: datetime


@dataclass(frozen=True)
class OpenQuery:
    """A query whose proofs are stored, at its open step."""

    id: int
    is_of_header: bool  # True if the query requests no account
    timestamp: int | None  # the time that selects its block, in unix seconds
    step: StepKind
    is_left_to_others: bool = False  # True if its batch is self-funded, so that others send its transactions

    @classmethod
    def of(cls, query: Query) -> Self:
        """Return a query that has the `sender` of its batch as an annotation."""
        assert query.step is not None, "it is open"
        # The next write completes INITIAL_STATE of such a query.
        step = StepKind.BLOCKHASH_AVAILABLE if query.step == StepKind.INITIAL_STATE else StepKind(query.step)
        is_left_to_others: bool = query.sender == Sender.SELF  # type: ignore[attr-defined]  # annotated
        return cls(query.pk, query.kind == QueryKind.HEADER, query.timestamp, step, is_left_to_others)


@dataclass(frozen=True)
class Trust:
    """The registry's trust in a header that missing facts need, whether this service or others send these facts."""

    header: Header
    """The block's own header, or the next one, which shows when the block ended."""
    is_vouched_for: bool
    """True if the registry can take that header now."""
    is_vouched_for_long: bool = True
    """True if that holds for some more blocks. Otherwise the transaction may revert, with all blocks that share it."""
    is_extending: bool = False
    """A transaction that extends the registry's trust is under way."""
    path_tries: Tries = NO_TRIES
    """How often transactions that extend the registry's trust failed, since one succeeded."""
    may_jump: bool = False
    """True if a jump may lead to the header, which needs no extension of the registry's trust."""


@dataclass(frozen=True)
class Attempt:
    """Facts to send together, and how often they were sent in vain."""

    missing: Missing
    tries: Tries = NO_TRIES


@dataclass(frozen=True)
class UnprovenFacts:
    """The facts that the registry lacks, and further observations about them."""

    missing: Missing
    root_is_known: bool
    """True if the registry knows the block's state root at the newest or the confirmed block of the destination."""
    roots: Collection[HeaderField] = ()
    """Roots of the block's receipts and transactions that are facts already."""
    left_to_others: Collection[int] = ()
    """Ids of the queries whose transactions others send."""
    sent_for: Collection[Fact] = ()
    """The facts that transactions under way may prove."""
    failed: Sequence[FailedFacts] = ()
    """The failed transactions for facts of the block."""
    batches: Mapping[int, str] = field(default_factory=dict)
    """The batches (ids) of the block's queries, by the queries' ids. Empty if no transaction failed."""
    is_accumulating: bool = False
    """A transaction that brings the header is under way."""
    trust: Trust | None = None
    """None if nothing needs a header, or if the needed header doesn't exist yet."""

    @property
    def hash_is_vouched_for(self) -> bool:
        """Return whether the registry can take the needed header now."""
        return self.trust is not None and self.trust.is_vouched_for

    @cached_property
    def attempts(self) -> Sequence[Attempt]:
        """Return the facts that may be sent, in the order of their tries. Those of a batch whose tries failed go alone.

        Facts in pending transactions are left out, because nothing may be paid for twice. Facts that only self-funded
        batches request are left out, too.
        """
        others = set(self.left_to_others)
        queries_by_fact = {
            fact: [pk for pk in queries if pk not in others]
            for fact, queries in self.missing.items()
            if fact not in self.sent_for
        }
        unsent = {fact: queries for fact, queries in queries_by_fact.items() if queries}
        alike: dict[tuple[str, tuple[int, ...]], dict[Fact, Collection[int]]] = defaultdict(dict)
        for fact, queries in unsent.items():
            about = {place: each.transaction for place, each in enumerate(self.failed) if each.is_about(fact)}
            failed = tuple(counted(about))
            alike[self.batches[min(queries)] if failed else "", failed][fact] = queries
        attempts = [
            Attempt(
                missing,
                Tries.of(
                    (each.transaction, each.is_alone_about(missing)) for each in map(self.failed.__getitem__, failed)
                ),
            )
            for (_, failed), missing in alike.items()
        ]
        return sorted(attempts, key=lambda attempt: attempt.tries.count)

    @property
    def given_up(self) -> Sequence[Attempt]:
        """Return the facts that aren't sent again."""
        return [attempt for attempt in self.attempts if attempt.tries.is_over]

    @cached_property
    def next_attempts(self) -> Sequence[Attempt]:
        """Return the facts to send. Later ones are for the case that nobody can pay for the first."""
        return [attempt for attempt in self.attempts if not attempt.tries.is_over]

    @property
    def to_send(self) -> Missing:
        """Return the facts to send first. All decisions that cost money depend on them."""
        return self.next_attempts[0].missing if self.next_attempts else {}

    @property
    def tries(self) -> Tries:
        """Return how often the facts to send first were sent in vain."""
        return self.next_attempts[0].tries if self.next_attempts else NO_TRIES

    @cached_property
    def to_send_with_header(self) -> Missing:
        """Return the facts to send that can't be proven without the block's header."""
        return self._with_header(self.to_send)

    @cached_property
    def missing_with_header(self) -> Missing:
        """Return the missing facts that can't be proven without the block's header, even if others send them."""
        return self._with_header(self.missing)

    def _with_header(self, missing: Missing) -> Missing:
        if not self.root_is_known:
            return missing
        return {fact: queries for fact, queries in missing.items() if needs_header(fact, self.roots)}


@dataclass(frozen=True)
class Observation:
    """A block with its stored header, its open queries, and the registry's facts about it."""

    # Fields about the block.
    number: int
    hash: bytes
    timestamp: int | None
    path_left: int

    # Fields about the chains.
    source: int
    poll_seconds: float
    source_poll_seconds: float

    awaiting_header: Sequence[OpenQuery]
    """The open queries at BLOCKHASH_AVAILABLE and HEADER_ACCUMULATED."""
    queries: Mapping[int, OpenQuery]
    """The observed queries by id: their proofs are stored, and nothing is under way for them."""

    view: RegistryView
    """The registry's facts at the newest confirmed block. Facts below an unknown root are not looked up."""
    root_is_confirmed: bool
    """True if the state root there is the block's."""
    accumulated_by: str
    """Hash of the transaction of ours that brought the header, if one did."""
    proven_by: Mapping[int, str]
    """Hashes of our transactions that proved queries of this block or others, by the query's id."""
    contradiction: WaitReason | None
    """Set if the registry holds another value than was proven here. Other missing facts are not compared."""
    unproven: UnprovenFacts | None
    """The facts that the registry lacks. None: it lacks nothing."""
    has_unread_queries: bool = False
    """True if further queries of the block weren't read."""

    @property
    def missing(self) -> Missing:
        return {} if self.unproven is None else self.unproven.missing

    @property
    def is_trusted(self) -> bool:
        """Return whether the registry is known to trust the block's state root, or the needed hash."""
        unproven = self.unproven
        return self.root_is_confirmed or (
            unproven is not None and (unproven.root_is_known or unproven.hash_is_vouched_for)
        )


@dataclass(frozen=True)
class BlockOfTime:
    has_later: bool  # True if the source chain has a block after that time
    number: int | None = None  # None if the first block is later


@dataclass(frozen=True)
class OpenRequests:
    """The senders and steps of a block's open queries."""

    senders: set[str]  # senders of the batches
    steps: set[str | None]  # steps of the queries


@dataclass(frozen=True)
class BlockState:
    """The state of a block at the end of a turn."""

    is_open: bool
    is_under_way: bool  # True if a sent transaction isn't confirmed yet
    waits_for: WaitReason | None  # None if all is well
    is_left_to_others: bool  # True if it only waits for transactions of others
    checked_number: int | None
    final: int
    poll_seconds: float
    block_seconds: float
