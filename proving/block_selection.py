"""The blocks of a source chain that a batch selects by number, time or name, according to the chain's current state."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from chains import questions
from chains.chains_file import Chain
from chains.encoding import read_object, read_quantity
from chains.header import Header
from chains.node_errors import ChainError, InvalidReply, RpcRefused, UnreadableHeader
from chains.nodes import Question
from chains.rpc import RpcClient
from proving import connections, heads
from proving.connections import OpenConnection
from proving.facts import AccountFact, SlotFact
from proving.named_transactions import Asked, NamedTransaction
from queries.batch_request import Selector
from queries.models import BlockTag
from queries.waits import WaitReason, wait

Answer = TypeVar("Answer")

Requests = Mapping[Selector, Collection[Asked]]
"""The facts and transactions that a batch asks of one source chain, by the selector of their block."""


@dataclass(frozen=True)
class Inquiry:
    """A connection whose chains are asked for an estimate, and the source chain's head."""

    connection: OpenConnection
    head: Header
    """The source chain's newest block, read at most a moment ago."""
    known: Mapping[int, Header] = field(default_factory=dict)
    """Headers that were read with it, by number."""

    @property
    def source(self) -> Chain:
        return self.connection.source_rpc.chain


def inquire(destination: int, source: int, ends_at: float | None = None, beside: Iterable[Requests] = ()) -> Inquiry:
    """Open a connection, and read its source chain's head. If `ends_at` is given, a client waits until then.

    The headers of blocks in the requests `beside` may be read in the same exchange.

    Raises `Unusable`, `NodeUnavailable`, `RpcRefused`.
    """
    connection = connections.open_unless_stopped(destination, source, ends_at)
    rpc = connection.source_rpc
    if ends_at is not None:
        return Inquiry(connection, rpc.head())
    numbers = {selector.number for requests in beside for selector in requests if selector.number is not None}
    seen = heads.recent(rpc.chain, rpc, numbers)
    return Inquiry(connection, seen.latest, seen.known)


@dataclass(frozen=True)
class Selected:
    """The blocks that a batch selects, and the facts that it requests there."""

    source: Chain
    head: Header
    """The source chain's newest block."""
    blocks: Mapping[Selector, int] = field(default_factory=dict)
    existing: Mapping[int, Collection[Asked]] = field(default_factory=dict)
    """The facts at blocks that exist, by block number, in ascending order."""
    later: Mapping[int, Collection[Asked]] = field(default_factory=dict)
    """The facts at blocks that are still to come, by block number."""
    times: Mapping[int, Collection[Asked]] = field(default_factory=dict)
    """The facts at times that may still get a later block, by time (unix seconds)."""
    unknown: Sequence[str] = ()
    """The transactions (hashes) that select a block, and that no node knows in one."""
    too_early: Sequence[int] = ()
    """The times (unix seconds) before the first block whose header can be read."""
    no_final: str | None = None
    """Why the final block isn't known, if it is selected: a sentence, empty if the node says nothing."""
    fault: ChainError | None = None
    """The error because of which the selected blocks aren't known."""

    @property
    def coming(self) -> list[Collection[Asked]]:
        return [*self.later.values(), *self.times.values()]

    @property
    def names_transactions(self) -> bool:
        return any(isinstance(asked, NamedTransaction) for group in self.existing.values() for asked in group)

    @property
    def asks_accounts(self) -> bool:
        """Return whether any requested fact needs a proof of an account."""
        return any(takes_proof(facts) for facts in (*self.existing.values(), *self.coming))

    @property
    def seconds(self) -> float:
        """Return the seconds until all selected blocks exist."""
        blocks, seconds = max(self.later, default=0) - self.head.number, max(self.times, default=0)
        return max(0.0, blocks * self.source.block_seconds, seconds - self.head.timestamp)

    @property
    def waits(self) -> list[WaitReason]:
        """Return the waits for selected blocks that don't exist yet."""
        source, last = self.source.id, max(self.later) if len(self.later) > 1 else None
        blocks = [heads.not_there_yet(source, min(self.later), self.head.number, last)] if self.later else []
        return [*blocks, *([time_to_come(source, self.times)] if self.times else [])]


def time_to_come(source: int, times: Collection[int]) -> WaitReason:
    """Return the wait for the blocks of these times (unix seconds)."""
    return wait("time_to_come", chain=source, time=min(times), last=max(times) if len(times) > 1 else None)


def select(inquiry: Inquiry, requests: Requests) -> Selected:
    """Find the selected blocks, or the reason why they can't be found now or ever.

    Raises `OutOfTime` between exchanges.
    """
    head = inquiry.head
    blocks: dict[Selector, int] = {}
    at: dict[int, dict[Asked, None]] = defaultdict(dict)
    times: dict[int, Collection[Asked]] = {}
    unknown: list[str] = []
    too_early: list[int] = []
    no_final: str | None = None
    for selector, facts in requests.items():
        inquiry.connection.check_time()
        try:
            number: int | str | None = selector.number
            if selector.tag:
                number = head.number if selector.tag == BlockTag.LATEST else _finalized(inquiry.connection.source_rpc)
            elif selector.transaction:
                number = _block_of(inquiry.connection.source_rpc, selector.transaction)
                # A node that is ahead of the others may know a block above the head.
                number = None if number is None or number > head.number else number
            elif selector.timestamp is not None:
                if selector.timestamp >= head.timestamp:
                    times[selector.timestamp] = facts
                    continue
                number = block_at(inquiry.connection, selector.timestamp, head)
        except ChainError as error:
            return Selected(inquiry.source, head, fault=error)
        if isinstance(number, str):
            no_final = number
        elif number is None and selector.transaction:
            unknown.append(selector.transaction)
        elif number is None:
            too_early.append(selector.timestamp or 0)
        else:
            blocks[selector] = number
            # The block's transactions show whether it holds the one that selects it.
            selecting = [NamedTransaction(selector.transaction)] if selector.transaction else []
            at[number].update(dict.fromkeys([*selecting, *facts]))
    existing = {number: at[number] for number in sorted(at) if number <= head.number}
    later = {number: facts for number, facts in at.items() if number > head.number}
    return Selected(inquiry.source, head, blocks, existing, later, times, unknown, too_early, no_final)


def _block_of(rpc: RpcClient, transaction: str) -> int | None:
    """Return the number of the block that holds a transaction (hash). None if no node knows one.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    return _known_to_any(rpc, Question(("eth_getTransactionByHash", [transaction]), _number_in))


def _known_to_any(rpc: RpcClient, question: Question[Answer | None]) -> Answer | None:
    """Return the answer of the first node that knows one. None is an answer too, so that no other node is asked."""
    known = rpc.answer(question)
    return known if known is not None else next(filter(None, rpc.answers_of_each(question).values()), None)


def _number_in(transaction: object) -> int | None:
    number = None if transaction is None else read_object(transaction).get("blockNumber")
    return None if number is None else read_quantity(number)


def _finalized(rpc: RpcClient) -> int | str:
    """Return the number of the newest final block, or a sentence about why it isn't known.

    The sentence is a node's refusal. It is empty if the node reports no final block.

    Raises `NodeUnavailable`, and `RpcRefused` if another node may have an answer.
    """
    try:
        header = _known_to_any(rpc, questions.header("finalized"))
    except RpcRefused as refused:
        if refused.may_pass:
            raise
        return str(refused)
    return "" if header is None else header.number


def block_at(connection: OpenConnection, timestamp: int, head: Header) -> int | None:
    """Return the number of the block N with time(N) <= timestamp < time(N+1).

    Return None if all blocks with readable headers are later. `head` must be later than the timestamp. Block times
    mostly grow evenly, so interpolation between known blocks needs few headers. After a bad guess the range is halved,
    for chains with uneven times. Raises `NodeUnavailable`, and `OutOfTime` before a header is read.
    """
    assert head.timestamp > timestamp
    rpc = connection.source_rpc
    # If `low_time` is None, the block `low` and all blocks below it can't be read, or `low` is -1.
    low, high = -1, head
    low_time: int | None = None
    halve, reach = False, 1 / rpc.chain.block_seconds
    while high.number - low > 1:
        middle = (low + high.number) // 2
        if low_time is None:
            # Nodes may serve only recent headers. So steps down from the head double until a block before the time is
            # found.
            middle = max(middle, high.number - 1 - int(reach * (high.timestamp - timestamp)))
            reach *= 2
        elif not halve:
            share = (timestamp - low_time) / (high.timestamp - low_time)
            middle = low + round(share * (high.number - low))
        number = min(max(middle, low + 1), high.number - 1)
        connection.check_time()
        try:
            guess = rpc.known_header(number)
        except UnreadableHeader:
            if low_time is not None:
                raise
            # Examples are Celo's headers from before it became an L2, and the first headers of some development chains.
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


def takes_proof(facts: Collection[Asked]) -> bool:
    """Return whether any of these facts needs a proof of an account."""
    return any(isinstance(fact, AccountFact | SlotFact) for fact in facts)
