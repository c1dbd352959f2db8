"""The blocks of a source chain that a batch selects, by number, time or name, as the chain says now."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from django.conf import settings

from chains.chains_file import Chain
from chains.header import ExecutionHeader
from chains.node_errors import ChainError, RpcRefused
from chains.rpc import RpcClient
from proving import facts, heads
from proving.connections import OpenConnection
from proving.facts import AccountFact, Fact, SlotFact
from queries.batch_request import Selector
from queries.columns import Rejection, RejectionCode
from queries.models import BlockTag

# Of the year 5138. A later time is one in milliseconds.
_LATEST_IN_SECONDS = 10**11

Requests = Mapping[Selector, Collection[Fact]]
"""What a batch asks of one source chain, by what selects a block there."""


@dataclass(frozen=True)
class Inquiry:
    """A connection whose chains are asked what it takes to prove something."""

    connection: OpenConnection
    head: ExecutionHeader
    """The source chain's newest block, of a moment ago at most."""
    go_on: Callable[[], None] = lambda: None
    """Called between exchanges. What it raises ends the inquiry."""

    @property
    def source(self) -> Chain:
        return self.connection.source_rpc.chain


@dataclass(frozen=True)
class Selected:
    """The blocks that a batch selects, and what it asks for there."""

    blocks: Mapping[Selector, int] = field(default_factory=dict)
    existing: Mapping[int, Collection[Fact]] = field(default_factory=dict)
    """By the numbers of blocks that exist, which rise."""
    later: Mapping[int, Collection[Fact]] = field(default_factory=dict)
    """By the numbers of blocks that are still to come."""
    times: Mapping[int, Collection[Fact]] = field(default_factory=dict)
    """By the times (unix seconds) that may still get a later block."""
    rejections: Sequence[Rejection] = ()
    fault: ChainError | None = None
    """Why the source chain doesn't tell which blocks these are."""

    @property
    def coming(self) -> list[Collection[Fact]]:
        return [*self.later.values(), *self.times.values()]

    @property
    def asks_accounts(self) -> bool:
        """Return whether any of it takes a proof of an account."""
        return any(takes_proof(wanted) for wanted in (*self.existing.values(), *self.coming))

    def seconds(self, inquiry: Inquiry) -> float:
        """Return the seconds until all of it exists."""
        blocks, head = max(self.later, default=0) - inquiry.head.number, inquiry.head
        return max(0.0, blocks * inquiry.source.block_seconds, max(self.times, default=0) - head.timestamp)

    def waits(self, inquiry: Inquiry) -> list[str]:
        """Return what is waited for until it exists, sentences."""
        said = [heads.not_there_yet(inquiry.source.id, min(self.later), inquiry.head.number)] if self.later else []
        if len(self.later) > 1:
            said[0] += f" The last one that is waited for is {max(self.later)}."
        return said + ([time_to_come(inquiry.source.id, self.times)] if self.times else [])


def time_to_come(source: int, times: Collection[int]) -> str:
    """Say that blocks of these times (unix seconds) are waited for."""
    last = f" The last one that is waited for is {max(times)}." if len(times) > 1 else ""
    return (
        f"No block of chain {source} is later than the time {min(times)} yet, so it may still get a later block.{last}"
    )


def select(inquiry: Inquiry, requests: Requests) -> Selected:
    """Find the blocks that are selected, or say why they can't be known now, or never will be."""
    head = inquiry.head
    blocks: dict[Selector, int] = {}
    at: dict[int, dict[Fact, None]] = defaultdict(dict)
    times: dict[int, Collection[Fact]] = {}
    rejections: list[Rejection] = []
    for selector, wanted in requests.items():
        inquiry.go_on()
        try:
            number = _number_of(inquiry, selector)
        except ChainError as error:
            return Selected(fault=error)
        if isinstance(number, Rejection):
            rejections.append(number)
        elif number is not None:
            blocks[selector] = number
            at[number].update(dict.fromkeys(wanted))
        else:
            times[selector.timestamp or 0] = wanted
    existing = {number: at[number] for number in sorted(at) if number <= head.number}
    later = {number: wanted for number, wanted in at.items() if number > head.number}
    too_far = _too_far_ahead(inquiry, max(later, default=0), max(times, default=0))
    return Selected(blocks, existing, later, times, [*rejections, *too_far])


def _number_of(inquiry: Inquiry, selector: Selector) -> int | Rejection | None:
    """Return the number of the block that is selected; None where a time may still get a later one.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    rpc, head = inquiry.connection.source_rpc, inquiry.head
    if selector.tag:
        return head.number if selector.tag == BlockTag.LATEST else _finalized(rpc)
    if (time := selector.timestamp) is None:
        return selector.number
    if time >= head.timestamp:
        return None
    if (number := facts.block_at(rpc, time, head, inquiry.go_on)) is not None:
        return number
    reason = f"The time {time} is before the first block of chain {rpc.chain.id} whose header can be read."
    return Rejection(RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK, reason, retryable=False)


def _finalized(rpc: RpcClient) -> int | Rejection:
    """Return the number of the newest final block.

    Raises `NodeUnavailable`, and `RpcRefused` where another node may know better.
    """
    said = ""
    try:
        if (header := rpc.header("finalized")) is not None:
            return header.number
    except RpcRefused as refused:
        if refused.may_pass:
            raise
        said = f" {refused}"
    return Rejection(
        RejectionCode.FINALIZED_UNKNOWN,
        f"No node of chain {rpc.chain.id} says which of its blocks is the newest final one.{said}",
        retryable=True,
    )


def _too_far_ahead(inquiry: Inquiry, highest: int, latest: int) -> list[Rejection]:
    """Return a rejection if the highest block to come, or the latest time, is further ahead than is waited for."""
    source, head = inquiry.source, inquiry.head
    if (blocks := highest - head.number) > settings.MAX_BLOCKS_AHEAD:
        reason = (
            f"Block {highest} of chain {source.id} is {blocks:,} blocks above the newest one, {head.number}. A batch "
            f"waits for at most {settings.MAX_BLOCKS_AHEAD:,} blocks. Send it again when the block is nearer."
        )
        return [Rejection(RejectionCode.BLOCK_TOO_FAR_AHEAD, reason, retryable=True)]
    if (seconds := latest - head.timestamp) > settings.MAX_BLOCKS_AHEAD * source.block_seconds:
        is_wrong = latest > _LATEST_IN_SECONDS
        reason = (
            f"The time {latest} is in the far future. It seems to be in milliseconds; name it in seconds."
            if is_wrong
            else f"The time {latest} is {seconds:,.0f} s after the newest block of chain {source.id}. Send the batch "
            "again when the time is nearer."
        )
        return [Rejection(RejectionCode.TIMESTAMP_TOO_FAR_AHEAD, reason, retryable=not is_wrong)]
    return []


def takes_proof(wanted: Collection[Fact]) -> bool:
    """Return whether any of these facts takes a proof of an account."""
    return any(isinstance(fact, AccountFact | SlotFact) for fact in wanted)
