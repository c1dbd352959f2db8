"""What it takes to prove what is asked of one source chain, and what stands in the way.

It asks both chains and reads rows. It writes nothing: `admit` does, which decides by it. `batch_estimate` shows it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self

from django.conf import settings

from chains import history, rollups, together
from chains.chains_file import Chain
from chains.header import Header
from chains.rollups import DataCost
from chains.rpc import AccountProof, ChainError, Fees, NodeUnavailable, ProofRequest, RpcClient, RpcRefused
from chains.together import Raised
from database.statements import by_size, chunks
from proving import facts, heads
from proving.budget.reservations import Reservation
from proving.connections import OpenConnection
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact
from proving.gas_model import proof_gas, trie_shapes
from proving.gas_model.proof_gas import Estimate, Likely, Missing, Route
from proving.gas_model.trie_shapes import Tries
from proving.heads import poll_seconds
from proving.paths import planning
from proving.paths.planning import TooFar
from proving.sources import NotYet
from queries.columns import Rejection, RejectionCode
from queries.models import BlockTag

# Every node keeps this number of newest states, archive or not. A refusal of one of these tells little.
_KEPT_BY_ALL = 128
_LONGEST_PAUSE_SECONDS = 60
# Of the year 5138. A later time is one in milliseconds.
_LATEST_IN_SECONDS = 10**11
# Headers, blocks or facts that are read between two calls of `go_on`.
_PER_READ = 200


@dataclass(frozen=True)
class Wait:
    """A sentence that says why it can't be decided yet, and the pause before asking again.

    None: ever later, because it fails.
    """

    sentence: str
    pause: timedelta | None


@dataclass(frozen=True)
class Asked:
    """The facts that are asked for at one block of the source chain, each once."""

    number: int
    facts: Sequence[Fact]

    @classmethod
    def once(cls, number: int, several: Iterable[Iterable[Fact]]) -> Self:
        """Return what several queries ask for at a block, each fact once."""
        return cls(number, list(dict.fromkeys(fact for wanted in several for fact in wanted)))


@dataclass(frozen=True)
class Inquiry:
    """A connection, and how long its chains may be asked."""

    connection: OpenConnection
    deadline: datetime
    """The time at which a batch that asks for it is rejected."""
    go_on: Callable[[], None]
    """Called between steps that take long. What it raises ends the inquiry."""
    head: Callable[[], Header]
    """The source chain's newest block, of a moment ago at most."""

    @property
    def source(self) -> Chain:
        return self.connection.source_rpc.chain


# --- What does not exist yet ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ahead:
    """Some of what is named does not exist yet."""

    head: int
    """Blocks so high exist."""
    wait: Wait
    """For the others."""


def ahead(
    numbers: Collection[int], times: Collection[int], source: Chain, head: Header, *, is_awaited: bool = False
) -> Ahead | Rejection | None:
    """Return which of these blocks, and of these times (unix seconds) whose blocks were not found, are still to come.

    What `is_awaited` was near enough before: a node whose head is far below is stale, or of another chain.
    """
    coming = [number for number in numbers if number > head.number]
    if not coming and not times:
        return None
    too_far = None if is_awaited else _too_far_ahead(max(coming, default=0), max(times, default=0), source, head)
    return too_far or Ahead(head.number, _until_they_exist(coming, times, source, head))


def _too_far_ahead(highest: int, latest: int, source: Chain, head: Header) -> Rejection | None:
    # The node that told of `head` may be behind.
    newest = max(head.number, heads.highest_lately(source.id))
    blocks = highest - newest
    if blocks > settings.MAX_BLOCKS_AHEAD:
        return Rejection(
            RejectionCode.BLOCK_TOO_FAR_AHEAD,
            f"Block {highest} of chain {source.id} is {blocks:,} blocks above the newest one, {newest}. A batch "
            f"waits for at most {settings.MAX_BLOCKS_AHEAD:,} blocks. Send it again when the block is nearer.",
            retryable=True,
        )
    seconds = latest - head.timestamp - (newest - head.number) * source.block_seconds
    if seconds > settings.MAX_BLOCKS_AHEAD * source.block_seconds:
        if latest > _LATEST_IN_SECONDS:
            reason = f"The time {latest} is in the far future. It seems to be in milliseconds; name it in seconds."
            return Rejection(RejectionCode.TIMESTAMP_TOO_FAR_AHEAD, reason, retryable=False)
        return Rejection(
            RejectionCode.TIMESTAMP_TOO_FAR_AHEAD,
            f"The time {latest} is {seconds:,.0f} s after the newest block of chain {source.id}. Send the batch again "
            "when the time is nearer.",
            retryable=True,
        )
    return None


def _until_they_exist(numbers: Collection[int], times: Collection[int], source: Chain, head: Header) -> Wait:
    """Return how long to wait for the next of these blocks and times."""
    sentences: list[str] = []
    seconds: list[float] = []
    if numbers:
        block = min(numbers)
        sentences.append(
            f"Block {block} of chain {source.id} does not exist yet; the head is {head.number}.{_last_of(numbers)}"
        )
        seconds.append((block - head.number - 1) * source.block_seconds)
    if times:
        time = min(times)
        sentences.append(
            f"No block of chain {source.id} is later than the time {time} yet, so it may still get a later block."
            f"{_last_of(times)}"
        )
        seconds.append(time - head.timestamp)
    # A stale node may catch up at any moment.
    pause = timedelta(seconds=max(poll_seconds(source), min(*seconds, _LONGEST_PAUSE_SECONDS)))
    return Wait(" ".join(sentences), pause)


def _last_of(coming: Collection[int]) -> str:
    return f" The last one that is waited for is {max(coming)}." if max(coming) != min(coming) else ""


# --- What times and tags select ---------------------------------------------------------------------------------------


def block_of_time(inquiry: Inquiry, time: int, head: Header) -> int | Rejection:
    """Return the number of the latest block that is not after a time (unix seconds), which is before `head`."""
    number = facts.block_at(inquiry.connection.source_rpc, time, head)
    if number is not None:
        return number
    return Rejection(
        RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK,
        f"The time {time} is before the first block of chain {inquiry.source.id}.",
        retryable=False,
    )


def block_of_tag(inquiry: Inquiry, tag: str, head: Header, finalized: Header | None) -> int | Rejection:
    """Return the number of the block that has this tag, by the headers that were seen.

    Raises `NodeUnavailable`, and `RpcRefused` where another node may know better.
    """
    header, said = (head if tag == BlockTag.LATEST else finalized), ""
    if header is None:
        try:
            header = inquiry.connection.source_rpc.header("finalized")
        except RpcRefused as refused:
            if refused.may_pass:
                raise
            said = f" {refused}"
    if header is not None:
        return header.number
    return Rejection(
        RejectionCode.FINALIZED_UNKNOWN,
        f"No node of chain {inquiry.source.id} says which of its blocks is the newest final one.{said}",
        retryable=True,
    )


# --- What exists ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Required:
    """The path, the gas and the money that are required."""

    counted: "Counted"
    estimate: Estimate
    fees: Fees
    """The destination's fees."""


@dataclass(frozen=True)
class Feasibility:
    """The feasibility of proving blocks that exist."""

    obstacles: Sequence[Rejection | Ahead | Raised]
    """The obstacles, or what could not be asked. A block that doesn't exist comes first: the rest failed on that."""
    tries: Tries
    required: Required | None
    """None where an obstacle keeps it from being known."""


def check(
    inquiry: Inquiry,
    asked: Sequence[Asked],
    *,
    heights: Callable[[], Ahead | Rejection | None],
    beside: Callable[[], object] = lambda: None,
) -> Feasibility:
    """Ask all questions about these blocks side by side, and estimate what they take.

    The blocks rise. `heights` tells whether they exist. `beside` is run too.
    """
    found = together.run(
        (
            heights,
            lambda: _lacking_properties(inquiry, asked),
            lambda: _sample(inquiry, asked),
            lambda: _count(inquiry, asked),
            inquiry.connection.destination_rpc.fees,
            beside,
        )
    )
    coming, lacking, sampled, counted, fees, _ = found
    if coming is None and isinstance(counted, Counted):
        counted = _with_all_headers(inquiry, asked, counted)
    said = (coming, *(lacking if isinstance(lacking, list) else [lacking]), sampled, counted, fees)
    tries, required = sampled if isinstance(sampled, Tries) else Tries(), None
    if isinstance(counted, Counted):
        if counted.route.hops and tries.state is None:
            tries = sample_of_history(inquiry, counted.headers[counted.missing[0].number])
        if isinstance(fees, Fees):
            required = Required(counted, proof_gas.estimate(counted.missing, tries, counted.route), fees)
    return Feasibility([one for one in said if isinstance(one, Rejection | Ahead | Raised)], tries, required)


def _with_all_headers(inquiry: Inquiry, asked: Sequence[Asked], counted: "Counted") -> "Counted | Raised":
    """Return `counted` if it has the header of every block. A block without a header was not counted."""
    if all(one.number in counted.headers for one in asked):
        return counted
    return Raised(NodeUnavailable(f"A node of chain {inquiry.source.id} lacks headers that it must have."))


def _lacking_properties(inquiry: Inquiry, asked: Sequence[Asked]) -> list[Rejection]:
    """Return a rejection for each block whose header lacks a property that is asked for."""
    fields = {one.number: [fact.field for fact in one.facts if isinstance(fact, HeaderFact)] for one in asked}
    found: list[Rejection] = []
    for numbers in chunks([number for number, wanted in fields.items() if wanted], _PER_READ):
        for header in inquiry.connection.source_rpc.known_headers(numbers):
            if lacking := facts.lacking(header, fields[header.number]):
                sentence = facts.why_lacking(inquiry.source.id, header, lacking)
                found.append(Rejection(RejectionCode.HEADER_PROPERTY_MISSING, sentence, retryable=False))
        inquiry.go_on()
    return found


def _sample(inquiry: Inquiry, asked: Sequence[Asked]) -> Tries | Rejection:
    """Return what the tries are like, by proofs at the oldest block that needs some.

    It is also asked whether some node still serves proofs there: many keep only the newest states.
    """
    oldest = next((one for one in asked if any(isinstance(fact, AccountFact | SlotFact) for fact in one.facts)), None)
    if oldest is None:
        return Tries()
    rpc = inquiry.connection.source_rpc
    header, head = together.together(lambda: rpc.known_header(oldest.number), inquiry.head)
    wanted = trie_shapes.samples(header, oldest.facts, (fact for one in asked for fact in one.facts))
    is_old = oldest.number <= head.number - _KEPT_BY_ALL
    answers = rpc.proofs(wanted)
    lacking = next((answer for answer in answers if isinstance(answer, NodeUnavailable)), None)
    # Young blocks are asked for again when their queries are proven.
    if lacking and is_old:
        raise lacking
    inquiry.go_on()
    refused = [answer for answer in answers if isinstance(answer, RpcRefused)]
    if is_old and len(refused) == len(answers) and not refused[0].may_pass:
        return Rejection(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {inquiry.source.id} serves proofs at block {oldest.number}. {refused[0]} Accounts and "
            "slots at old blocks take an archive node. Fields of the header take none.",
            retryable=True,
        )
    return _told_by(answers)


def sample_of_history(inquiry: Inquiry, header: Header) -> Tries:
    """Return what the state trie is like by the account that a path leads through, if no other account is asked for."""
    wanted = ProofRequest(header.number, header.hash, header.state_root, history.CONTRACT)
    return _told_by(inquiry.connection.source_rpc.proofs([wanted]))


def _told_by(answers: Sequence[AccountProof | ChainError]) -> Tries:
    proofs = [answer for answer in answers if isinstance(answer, AccountProof)]
    return trie_shapes.of_samples(proofs) if proofs else Tries()


# --- What is missing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """The facts that the registry does not hold yet, and the paths to their blocks."""

    missing: Sequence[Missing]
    """The missing facts of each block that exists; may be none."""
    route: Route
    headers: Mapping[int, Header]
    """Headers of these blocks, and of some that follow, by number: as the source chain has them now."""


def _count(inquiry: Inquiry, asked: Sequence[Asked]) -> Counted | Rejection:
    """Count what the registry does not hold yet; refuses blocks that are too far from those that it can trust."""
    looked_up: list[Missing] = []
    headers: dict[int, Header] = {}
    for part in chunks(asked, _PER_READ):
        found, read = _look_up(inquiry, part)
        looked_up += found
        headers |= read
    unknown = [one for one in looked_up if not one.is_known]
    held = partial(_without_held, inquiry, [one for one in looked_up if one.is_known])

    def route_to(wanting: Iterable[Missing]) -> Route | TooFar | NotYet:
        numbers = sorted({number for one in wanting if one.needs_header for number in one.hashes}, reverse=True)
        targets = [headers[number] for number in numbers if number in headers]
        return planning.route_to(inquiry.connection, targets, deadline=inquiry.deadline)

    try:
        if any(one.is_known and one.needs_header for one in looked_up):
            # Only what is not held tells for which of these blocks a path is needed.
            missing = held()
            route = route_to([*unknown, *missing])
        else:
            route, missing = together.together(lambda: route_to(unknown), held)
    except planning.StatesRefused as refused:
        return Rejection(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {inquiry.source.id} serves the states that lead to so old a block. {refused}",
            retryable=True,
        )
    if isinstance(route, TooFar):
        return Rejection(RejectionCode.BLOCK_TOO_OLD, route.sentence, retryable=False)
    if isinstance(route, NotYet):
        deadline = f"{inquiry.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return Rejection(
            RejectionCode.BLOCK_TOO_NEW,
            f"{route.sentence} That is after the batch's deadline, {deadline}.",
            retryable=True,
        )
    counted = [replace(one, jump=route.jumps.get(one.hashed, 0)) for one in (*unknown, *missing)]
    return Counted(counted, route, headers)


def _look_up(inquiry: Inquiry, asked: Sequence[Asked]) -> tuple[list[Missing], dict[int, Header]]:
    """Return which of the blocks the registry knows; and by number the headers of them, and of those that follow."""
    contract = inquiry.connection.registry.contract
    following = {one.number + 1 for one in asked if any(isinstance(fact, TimeFact) for fact in one.facts)}
    numbers = sorted({one.number for one in asked} | following)
    roots, read = together.together(
        lambda: inquiry.connection.destination_rpc.eth_calls([contract.state_root(one.number) for one in asked]),
        lambda: inquiry.connection.source_rpc.headers(numbers),
    )
    inquiry.go_on()
    headers = {header.number: header for header in read if header is not None}
    found = [
        Missing(one.number, one.facts, isinstance(root, bytes) and any(root), headers[one.number])
        for one, root in zip(asked, roots, strict=True)
        if one.number in headers
    ]
    return found, headers


def _without_held(inquiry: Inquiry, known: Sequence[Missing]) -> list[Missing]:
    """Return the blocks without the facts that the registry holds already."""
    rpc, contract = inquiry.connection.destination_rpc, inquiry.connection.registry.contract
    pieces = [(one, part) for one in known for part in chunks(one.facts, _PER_READ)]
    missing: dict[int, list[Fact]] = defaultdict(list)
    for parcel in by_size(pieces, lambda piece: len(piece[1]), _PER_READ):
        views = together.each(partial(facts.read, rpc, contract, one.number, part, at="latest") for one, part in parcel)
        for (one, _), view in zip(parcel, views, strict=True):
            missing[one.number] += [fact for fact, word in view.facts.items() if word is None]
        inquiry.go_on()
    return [replace(one, facts=missing[one.number]) for one in known]


def to_come(blocks: Sequence[Mapping[int, Iterable[Fact]]], tries: Tries) -> Estimate:
    """Estimate blocks that don't exist yet: all that each asks for, and no path. Each is numbered by its place."""
    missing = [
        Missing(place, Asked.once(place, asking.values()).facts, is_known=False) for place, asking in enumerate(blocks)
    ]
    return proof_gas.estimate(missing, tries, Route())


# --- What it costs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """The cost of what is missing."""

    gas: Likely
    wei: Likely
    """The expected cost at the present gas price, and the maximum at one a quarter above it."""
    data: DataCost
    """The part of the maximum that a rollup takes for data."""

    @property
    def bound(self) -> Reservation:
        return Reservation(self.gas.bound, self.wei.bound)

    def __add__(self, other: "Cost") -> "Cost":
        data = DataCost(self.data.gas + other.data.gas, self.data.wei + other.data.wei)
        return Cost(self.gas + other.gas, self.wei + other.wei, data)


def cost(destination_rpc: RpcClient, estimate: Estimate, fees: Fees) -> Cost:
    """Return what the estimate costs at these fees, with a rollup's data. Raises `NodeUnavailable`, `RpcRefused`."""
    data = rollups.data_cost(destination_rpc, estimate.size.bound, estimate.gas.bound)
    likely = rollups.without_margin(data, estimate.size.expected, estimate.size.bound)
    gas = estimate.gas + Likely(likely.gas, data.gas)
    # Room for two blocks that raise the base fee: it is signed only where the fee suffices for the next one.
    most = gas.bound * (fees.base_fee * 5 // 4 + fees.priority_fee) + data.wei
    return Cost(gas, Likely(gas.expected * (fees.base_fee + fees.priority_fee) + likely.wei, most), data)
