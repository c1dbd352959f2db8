"""What was observed of a block, by which is decided what is to be done about it.

Each stage of what is costly to know has a type of its own: an `Observation` has no `Lacking` where the registry lacks
nothing, and that has no `Trust` where nothing needs the header.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from chains.header import ExecutionHeader
from proving.facts import Fact, HeaderFact, Missing, RegistryView, TimeFact
from queries.models import StepKind


@dataclass(frozen=True)
class Checked:
    """The block of the destination in which the completed facts were read last, and what is at its height now."""

    destination: int
    number: int
    hash: bytes
    header: ExecutionHeader | None
    is_behind: bool  # the node's head is
    poll_seconds: float


@dataclass(frozen=True)
class Gone:
    """The completed facts, as the registry has them now."""

    root_is_confirmed: bool  # the registry trusts the block's state root
    proven: Sequence[int] = ()  # queries of which facts below the state root are proven, or to be
    lacking_of_header: Sequence[int] = ()
    lacking_of_accounts: Sequence[int] = ()
    contradiction: str = ""


@dataclass(frozen=True)
class SourceBlock:
    """The block as the source chain has it now, and as it is stored."""

    source: int
    number: int
    header: ExecutionHeader | None
    stored_hash: str  # empty: none is stored
    poll_seconds: float  # of the source chain
    head: int = 0  # the number of its newest block, where there is no header
    seconds: float = 0.0  # until the block should be there


@dataclass(frozen=True)
class Unfetched:
    """The queries that stay at INITIAL_STATE when all is fetched that nodes serve."""

    source: int
    number: int
    faults: Mapping[int, str]  # by the ids of queries: a sentence
    refused: Collection[int]  # those for which no node serves a proof that can be used: more asking may not change it
    refused_since: datetime | None  # as it is stored
    now: datetime


@dataclass(frozen=True)
class OpenQuery:
    id: int
    is_of_header: bool  # it asks for no account
    timestamp: int | None  # by which it names its block, unix seconds
    step: StepKind
    is_left_to_others: bool = False  # its batch is self-funded: others send its transactions


@dataclass(frozen=True)
class Trust:
    """The registry's trust in the header, read if something that is missing needs it, whoever sends it."""

    header: ExecutionHeader
    """Its hash must be vouched for: the block's own, or the next one, which alone says when the block ended."""
    is_vouched_for: bool
    """True if the registry can take that header now."""
    is_vouched_for_long: bool = True
    """True if that also holds for some blocks: otherwise its transaction may revert, with all that shares it."""
    is_extending: bool = False
    """A transaction that extends the registry's trust is under way."""
    pause_after_failures: float = 0
    """Seconds until the next of those may be sent."""
    may_jump: bool = False
    """True if the beacon chain may lead there, for which the registry's trust isn't extended."""


@dataclass(frozen=True)
class Lacking:
    """The further reads if the registry lacks something."""

    missing: Missing
    root_is_known: bool
    """True if the state root is the block's at the newest block of the destination, or at the confirmed one."""
    left_to_others: Collection[int] = ()
    """Ids of the queries whose transactions others send."""
    sent_for: Collection[Fact] = ()
    """The facts that transactions under way may prove."""
    failures: int = 0
    """Transactions for what is missing that reverted."""
    is_accumulating: bool = False
    """A transaction that brings the header is under way."""
    trust: Trust | None = None
    """None where nothing needs the header, or the one that it needs isn't there yet."""

    @property
    def hash_is_vouched_for(self) -> bool:
        """Return whether the registry can take now the header that is needed."""
        return self.trust is not None and self.trust.is_vouched_for

    @cached_property
    def missing_now(self) -> Missing:
        """Return what is to be sent. All that costs money is decided by this.

        What is under way is left out, because nothing is paid twice. So is what is asked for only by batches that pay
        themselves.
        """
        others = set(self.left_to_others)
        wanted = {
            fact: [pk for pk in asking if pk not in others]
            for fact, asking in self.missing.items()
            if fact not in self.sent_for
        }
        return {fact: asking for fact, asking in wanted.items() if asking}

    @cached_property
    def needing(self) -> Missing:
        """Return which of these can't be proven without the block's header."""
        return self._needing(self.missing_now)

    @cached_property
    def all_needing(self) -> Missing:
        """Return the missing facts that can't be proven without the block's header, whoever sends them."""
        return self._needing(self.missing)

    def _needing(self, missing: Missing) -> Missing:
        if not self.root_is_known:
            return missing
        return {fact: asking for fact, asking in missing.items() if isinstance(fact, HeaderFact | TimeFact)}


@dataclass(frozen=True)
class Observation:
    """A block whose header and proofs are stored, as far as they are; its open queries; and the registry."""

    # The block.
    number: int
    hash: bytes
    timestamp: int | None
    attempts: int  # that failed in a row
    path_left: int

    # The chains.
    source: int
    poll_seconds: float
    source_poll_seconds: float

    now: datetime
    gather_seconds: float
    waits_since: datetime | None  # since when its queries could be sent for; None where none gathers

    awaiting_header: Sequence[OpenQuery]
    """The open queries at BLOCKHASH_AVAILABLE and HEADER_ACCUMULATED."""
    asked: Mapping[int, OpenQuery]
    """By id: those that are observed, whose proofs are stored and for which nothing is under way."""

    view: RegistryView
    """The registry's facts at the newest confirmed block. Facts below an unknown root are not looked up."""
    root_is_confirmed: bool
    """True if the state root there is the block's."""
    accumulated_by: str
    """Hash of the transaction of ours that brought the header, if one did."""
    proven_by: Mapping[int, str]
    """By id of a query, of this block or another: hash of the transaction of ours that proved it."""
    contradiction: str
    """A sentence, if the registry holds another value than was proven here. Other missing facts are not compared."""
    lacking: Lacking | None
    """None: it lacks nothing."""

    @property
    def missing(self) -> Missing:
        return {} if self.lacking is None else self.lacking.missing

    @property
    def is_trusted(self) -> bool:
        """Return whether the registry was found to know the block's state root, or the hash that is needed."""
        lacking = self.lacking
        return self.root_is_confirmed or (
            lacking is not None and (lacking.root_is_known or lacking.hash_is_vouched_for)
        )


@dataclass(frozen=True)
class BlockOfTime:
    has_later: bool  # the source chain has a block after that time
    number: int | None = None  # None: the first block is later


@dataclass(frozen=True)
class OpenRequests:
    """Tells what is open about a block."""

    senders: Collection[str]  # of the batches
    steps: set[str | None]  # at which the queries are


@dataclass(frozen=True)
class Rest:
    """The state after all is done that can be now."""

    is_open: bool
    is_under_way: bool  # a transaction is sent, and not confirmed yet
    waits_for: str  # a sentence about it; empty where all goes well
    is_left_to_others: bool  # it only waits for what others send
    checked_number: int | None
    final: int
    poll_seconds: float
    block_seconds: float
