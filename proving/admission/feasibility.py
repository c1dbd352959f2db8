"""What it takes to prove what is asked of one source chain, and what stands in the way.

It asks both chains and reads rows. It writes nothing: `admit` does, which decides by it. `batch_estimate` shows it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Self

from django.conf import settings

from chains import history, questions, rollups
from chains.chains_file import Chain
from chains.header import Header
from chains.rollups import DataCost
from chains.rpc import (
    AccountProof,
    ChainError,
    Fees,
    NodeUnavailable,
    ProofRequest,
    Reverted,
    RpcClient,
    RpcRefused,
    result,
)
from database.statements import by_size, chunks
from proving import facts, heads
from proving.budget.money import Reservation
from proving.connections import OpenConnection
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact, ViewRequest
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
    """A connection whose chains are asked what it takes to prove what several batches ask for."""

    connection: OpenConnection
    head: Header
    """The source chain's newest block, of a moment ago at most."""
    go_on: Callable[[], None] = lambda: None
    """Called between exchanges. What it raises ends the inquiry."""

    @property
    def source(self) -> Chain:
        return self.connection.source_rpc.chain


@dataclass(frozen=True)
class BatchPart:
    """A batch's requests of the source chain, at blocks that exist, which rise."""

    asked: Sequence[Asked]
    deadline: datetime
    """The time at which the batch is rejected."""


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


def block_of_time(rpc: RpcClient, time: int, head: Header) -> int | Rejection:
    """Return the number of the latest block that is not after a time (unix seconds), which is before `head`."""
    number = facts.block_at(rpc, time, head)
    if number is not None:
        return number
    return Rejection(
        RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK,
        f"The time {time} is before the first block of chain {rpc.chain.id}.",
        retryable=False,
    )


def block_of_tag(rpc: RpcClient, tag: str, head: Header, finalized: Header | None) -> int | Rejection:
    """Return the number of the block that has this tag, by the headers that were seen.

    Raises `NodeUnavailable`, and `RpcRefused` where another node may know better.
    """
    header, said = (head if tag == BlockTag.LATEST else finalized), ""
    if header is None:
        try:
            header = rpc.header("finalized")
        except RpcRefused as refused:
            if refused.may_pass:
                raise
            said = f" {refused}"
    if header is not None:
        return header.number
    return Rejection(
        RejectionCode.FINALIZED_UNKNOWN,
        f"No node of chain {rpc.chain.id} says which of its blocks is the newest final one.{said}",
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

    obstacles: Sequence[Rejection | ChainError]
    """The obstacles, or why something could not be asked."""
    tries: Tries
    required: Required | None
    """None where an obstacle keeps it from being known."""


def check(inquiry: Inquiry, parts: Sequence[BatchPart]) -> list[Feasibility]:
    """Ask all questions about the blocks of these parts, and estimate what each takes.

    Raises `NodeUnavailable`, `RpcRefused` where the destination doesn't tell what gas costs.
    """
    read = _read(inquiry, [one for part in parts for one in part.asked])
    tries = _sample(inquiry, parts, read)
    counted = _count(inquiry, parts, read)
    found: list[Feasibility] = []
    for part, of_tries, of_count in zip(parts, tries, counted, strict=True):
        said = [*_lacking_properties(inquiry, part, read), of_tries, of_count]
        known, required = of_tries if isinstance(of_tries, Tries) else Tries(), None
        if isinstance(of_count, Counted):
            if of_count.route.hops and known.state is None:
                oldest = min(one.number for one in of_count.missing)
                known = sample_of_history(inquiry, of_count.headers[oldest])
            estimate = proof_gas.estimate(of_count.missing, known, of_count.route)
            required = Required(of_count, estimate, read.fees)
        obstacles = [one for one in said if isinstance(one, Rejection | ChainError)]
        found.append(Feasibility(obstacles, known, required))
    return found


@dataclass(frozen=True)
class _Read:
    """The chains' answers about blocks, by their numbers."""

    headers: Mapping[int, Header]
    """Headers of these blocks, and of those that follow a block of a time, as the source chain has them now."""
    faults: Mapping[int, ChainError]
    """The reasons why there is no header of others."""
    roots: Mapping[int, bool | ChainError]
    """True if the registry knows the block's state root."""
    vouched: Mapping[int, bool | ChainError]
    """True if the registry can take the header now."""
    fees: Fees
    """The destination's fees."""

    def header(self, number: int) -> Header | ChainError:
        """Return the header of a block that exists, or why there is none."""
        return self.headers.get(number) or self.faults[number]


def _read(inquiry: Inquiry, asked: Sequence[Asked]) -> _Read:
    contract = inquiry.connection.registry.contract
    source, destination = inquiry.connection.source_rpc, inquiry.connection.destination_rpc
    existing = {one.number for one in asked}
    following = {one.number + 1 for one in asked if any(isinstance(fact, TimeFact) for fact in one.facts)}
    headers: dict[int, Header] = {}
    faults: dict[int, ChainError] = {}
    for numbers in chunks(sorted(existing | following), _PER_READ):
        for number, header in zip(numbers, source.ask([questions.header(number) for number in numbers]), strict=True):
            if isinstance(header, ChainError):
                faults[number] = header
            elif header is not None:
                headers[number] = header
            elif number in existing:
                faults[number] = NodeUnavailable(
                    f"A node of chain {inquiry.source.id} lacks headers that it must have."
                )
        inquiry.go_on()
    roots: dict[int, bool | ChainError] = {}
    vouched: dict[int, bool | ChainError] = {}
    fees: list[Fees] = []
    for some in chunks(list(headers.values()), _PER_READ) if headers else [()]:
        # A chain knows its head's hash only in the pending block.
        calls = [questions.call(*contract.state_root(header.number)) for header in some]
        calls += [questions.call(*contract.vouches(header.number, header.hash), "pending") for header in some]
        answers, heads, suggested = destination.ask(
            calls,
            () if fees else [questions.header("latest")],
            () if fees else [questions.priority_fee()],
        )
        fees = fees or [destination.fees_by(heads[0], suggested[0])]
        for header, root, vouch in zip(some, answers[: len(some)], answers[len(some) :], strict=True):
            try:
                roots[header.number] = any(b"" if isinstance(root, Reverted) else result(root))
                vouched[header.number] = contract.decode_vouches(vouch)
            except ChainError as error:
                roots[header.number] = vouched[header.number] = error
        inquiry.go_on()
    return _Read(headers, faults, roots, vouched, fees[0])


def _lacking_properties(inquiry: Inquiry, part: BatchPart, read: _Read) -> list[Rejection]:
    """Return a rejection for each block whose header lacks a property that is asked for."""
    found: list[Rejection] = []
    for one in part.asked:
        fields = [fact.field for fact in one.facts if isinstance(fact, HeaderFact)]
        header = read.headers.get(one.number)
        if header is not None and (lacking := facts.lacking(header, fields)):
            sentence = facts.why_lacking(inquiry.source.id, header, lacking)
            found.append(Rejection(RejectionCode.HEADER_PROPERTY_MISSING, sentence, retryable=False))
    return found


def _sample(inquiry: Inquiry, parts: Sequence[BatchPart], read: _Read) -> list[Tries | Rejection | ChainError]:
    """Return what the tries are like, by proofs at the oldest block of each part that needs some.

    It is also asked whether some node still serves proofs there: many keep only the newest states.
    """
    oldest = [
        next((one for one in part.asked if any(isinstance(fact, AccountFact | SlotFact) for fact in one.facts)), None)
        for part in parts
    ]
    wanted = [
        trie_shapes.samples(header, one.facts, (fact for every in part.asked for fact in every.facts))
        if one is not None and (header := read.headers.get(one.number)) is not None
        else []
        for part, one in zip(parts, oldest, strict=True)
    ]
    sampled = [request for each in wanted for request in each]
    # A node that answers none of these alone is seen to answer something else: it isn't down.
    beside = [questions.plain("eth_chainId")] if sampled else ()
    answers = iter(inquiry.connection.source_rpc.proofs(sampled, beside=beside))
    inquiry.go_on()
    found: list[Tries | Rejection | ChainError] = []
    for one, requests in zip(oldest, wanted, strict=True):
        proofs = [next(answers) for _ in requests]
        if one is None:
            found.append(Tries())
        elif one.number in read.faults:
            found.append(read.faults[one.number])
        else:
            found.append(_tries(inquiry, one.number, proofs))
    return found


def _tries(
    inquiry: Inquiry, number: int, answers: Sequence[AccountProof | ChainError]
) -> Tries | Rejection | ChainError:
    is_old = number <= inquiry.head.number - _KEPT_BY_ALL
    lacking = next((answer for answer in answers if isinstance(answer, NodeUnavailable)), None)
    # Young blocks are asked for again when their queries are proven.
    if lacking and is_old:
        return lacking
    refused = [answer for answer in answers if isinstance(answer, RpcRefused)]
    if is_old and len(refused) == len(answers) and not refused[0].may_pass:
        return Rejection(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {inquiry.source.id} serves proofs at block {number}. {refused[0]} Accounts and "
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


def _count(inquiry: Inquiry, parts: Sequence[BatchPart], read: _Read) -> list[Counted | Rejection | ChainError]:
    """Count what the registry does not hold yet; refuses blocks that are too far from those that it can trust."""
    known = [one for part in parts for one in part.asked if read.roots.get(one.number) is True]
    lacking = _lacking(inquiry, known)
    missing = [_missing(part, read, lacking) for part in parts]
    return [
        each if isinstance(each, ChainError) else _routed(inquiry, part, each, read)
        for part, each in zip(parts, missing, strict=True)
    ]


def _lacking(inquiry: Inquiry, asked: Sequence[Asked]) -> Mapping[tuple[int, Fact], bool | ChainError]:
    """Return whether the registry lacks these facts, or why it doesn't tell."""
    rpc, contract = inquiry.connection.destination_rpc, inquiry.connection.registry.contract
    wanted: dict[int, dict[Fact, None]] = defaultdict(dict)
    for one in asked:
        wanted[one.number] |= dict.fromkeys(one.facts)
    pieces = [(number, part) for number, every in wanted.items() for part in chunks(list(every), _PER_READ)]
    found: dict[tuple[int, Fact], bool | ChainError] = {}
    for parcel in by_size(pieces, lambda piece: len(piece[1]), _PER_READ):
        views = facts.views(rpc, contract, [ViewRequest(number, part, "latest") for number, part in parcel])
        for (number, part), view in zip(parcel, views, strict=True):
            for fact in part:
                found[number, fact] = view if isinstance(view, ChainError) else view.facts[fact] is None
        inquiry.go_on()
    return found


def _missing(
    part: BatchPart, read: _Read, lacking: Mapping[tuple[int, Fact], bool | ChainError]
) -> list[Missing] | ChainError:
    """Return the blocks of a part, with those facts that the registry doesn't hold already."""
    try:
        return [
            Missing(
                one.number,
                [fact for fact in one.facts if result(lacking.get((one.number, fact), True))],
                header=result(read.header(one.number)),
                is_known=result(read.roots[one.number]),
            )
            for one in part.asked
        ]
    except ChainError as error:
        return error


def _routed(
    inquiry: Inquiry, part: BatchPart, missing: Sequence[Missing], read: _Read
) -> Counted | Rejection | ChainError:
    """Find the paths to the blocks of a part whose hashes the registry can't take now."""
    needed = sorted({number for one in missing if one.needs_header for number in one.hashes}, reverse=True)
    targets = [read.headers[number] for number in needed if read.vouched.get(number) is False]
    try:
        route = planning.route_to(inquiry.connection, targets, deadline=part.deadline)
    except planning.StatesRefused as refused:
        return Rejection(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {inquiry.source.id} serves the states that lead to so old a block. {refused}",
            retryable=True,
        )
    except ChainError as error:
        return error
    if isinstance(route, TooFar):
        return Rejection(RejectionCode.BLOCK_TOO_OLD, route.sentence, retryable=False)
    if isinstance(route, NotYet):
        deadline = f"{part.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return Rejection(
            RejectionCode.BLOCK_TOO_NEW,
            f"{route.sentence} That is after the batch's deadline, {deadline}.",
            retryable=True,
        )
    return Counted([replace(one, jump=route.jumps.get(one.hashed, 0)) for one in missing], route, read.headers)


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


def costs(destination_rpc: RpcClient, wanted: Sequence[tuple[Estimate, Fees]]) -> list[Cost]:
    """Return what each estimate costs at these fees, with a rollup's data. Raises `NodeUnavailable`, `RpcRefused`."""
    data = rollups.data_costs(destination_rpc, [(one.size.bound, one.gas.bound) for one, _ in wanted])
    return [_cost(estimate, fees, of_data) for (estimate, fees), of_data in zip(wanted, data, strict=True)]


def _cost(estimate: Estimate, fees: Fees, data: DataCost) -> Cost:
    likely = rollups.without_margin(data, estimate.size.expected, estimate.size.bound)
    gas = estimate.gas + Likely(likely.gas, data.gas)
    # Room for two blocks that raise the base fee: it is signed only where the fee suffices for the next one.
    most = gas.bound * (fees.base_fee * 5 // 4 + fees.priority_fee) + data.wei
    return Cost(gas, Likely(gas.expected * (fees.base_fee + fees.priority_fee) + likely.wei, most), data)
