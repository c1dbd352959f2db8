"""What it takes to prove what is asked of one source chain, and what stands in the way.

It asks both chains and reads rows. It writes nothing: `admit` does, which decides by it. `batch_estimate` shows it.
"""

import time
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
    Question,
    Reverted,
    RpcClient,
    RpcRefused,
    result,
)
from database.statements import chunks
from proving import facts, heads
from proving.budget.reservations import Reservation
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
# Blocks or facts that are asked for in one exchange.
_PER_READ = 200


@dataclass(frozen=True)
class Wait:
    """A sentence that says why it can't be decided yet, and the pause before asking again.

    None: ever later, because it fails.
    """

    sentence: str
    pause: timedelta | None


@dataclass(frozen=True)
class BlockFacts:
    """The facts that are asked for at one block of the source chain, each once."""

    number: int
    facts: Sequence[Fact]

    @classmethod
    def once(cls, number: int, several: Iterable[Iterable[Fact]]) -> Self:
        """Return what several queries ask for at a block, each fact once."""
        return cls(number, list(dict.fromkeys(fact for wanted in several for fact in wanted)))

    @property
    def headers(self) -> set[int]:
        """Return the blocks whose headers are needed: for times that of the next block too."""
        return {self.number, self.number + any(isinstance(fact, TimeFact) for fact in self.facts)}


@dataclass(frozen=True)
class Inquiry:
    """The facts that a batch asks for at blocks of one source chain that exist. Their numbers rise."""

    asked: Sequence[BlockFacts]
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
        earliest = min(times)
        sentences.append(
            f"No block of chain {source.id} is later than the time {earliest} yet, so it may still get a later block."
            f"{_last_of(times)}"
        )
        seconds.append(earliest - head.timestamp)
    # A stale node may catch up at any moment.
    pause = timedelta(seconds=max(poll_seconds(source), min(*seconds, _LONGEST_PAUSE_SECONDS)))
    return Wait(" ".join(sentences), pause)


def _last_of(coming: Collection[int]) -> str:
    return f" The last one that is waited for is {max(coming)}." if max(coming) != min(coming) else ""


# --- What times and tags select ---------------------------------------------------------------------------------------


def blocks_of_times(rpc: RpcClient, times: Sequence[int], head: Header) -> list[int | Rejection | ChainError]:
    """Return the number of the latest block that is not after each of these times (unix seconds), all before `head`."""
    found: list[int | Rejection | ChainError] = []
    for moment, number in zip(times, facts.blocks_at(rpc, times, head), strict=True):
        before_first = f"The time {moment} is before the first block of chain {rpc.chain.id}."
        code = RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK
        found.append(Rejection(code, before_first, retryable=False) if number is None else number)
    return found


def block_of_tag(rpc: RpcClient, tag: str, head: Header, finalized: Header | None) -> int | Rejection | ChainError:
    """Return the number of the block that has this tag, by the headers that were seen."""
    header, said = (head if tag == BlockTag.LATEST else finalized), ""
    if header is None:
        try:
            header = rpc.header("finalized")
        except ChainError as error:
            if not isinstance(error, RpcRefused) or error.may_pass:
                return error
            said = f" {error}"
    if header is not None:
        return header.number
    return Rejection(
        RejectionCode.FINALIZED_UNKNOWN,
        f"No node of chain {rpc.chain.id} says which of its blocks is the newest final one.{said}",
        retryable=True,
    )


# --- What exists ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """The facts that the registry does not hold yet, and the paths to their blocks."""

    missing: Sequence[Missing]
    """The missing facts of each block; may be none."""
    route: Route
    headers: Mapping[int, Header]
    """Headers of these blocks by number, as the source chain has them now."""


@dataclass(frozen=True)
class Required:
    """The path, the gas and the money that are required."""

    counted: Counted
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


@dataclass(frozen=True)
class Blocks:
    """What both chains tell of blocks by their numbers alone."""

    source: RpcClient
    head: Header
    """The source's newest block."""
    headers: Mapping[int, Header | ChainError | None]
    roots: Mapping[int, bytes | ChainError]
    """The state roots that the registry knows."""
    fees: Fees | ChainError
    """The destination's fees."""

    def header(self, number: int) -> Header:
        """Return the header of a block that exists. Raises `ChainError`."""
        return self.source.must_have(number, result(self.headers[number]))


def look_up(
    connection: OpenConnection,
    several: Iterable[BlockFacts],
    head: Header | None,
    go_on: Callable[[], None] = lambda: None,
) -> Blocks:
    """Ask about blocks by their numbers, in one exchange with each chain where they are not hundreds.

    Without a `head` that is asked for too, and noted. `go_on` is called between exchanges; what it raises ends it.
    Raises `ChainError` where no head is told.
    """
    source, destination, contract = connection.source_rpc, connection.destination_rpc, connection.registry.contract
    wanted = {number for one in several for number in one.headers}
    began, headers, roots = time.monotonic(), dict[int, Header | ChainError | None](), dict[int, bytes | ChainError]()
    fees: Fees | ChainError | None = None
    for part in list(chunks(sorted(wanted), _PER_READ)) or [()]:
        newest = () if head else heads.QUESTIONS
        of_source = [*newest, *map(questions.header, part)]
        of_registry = [questions.call(*contract.state_root(number)) for number in part]
        of_fees = [] if fees else [questions.priority_fee()]
        if connection.is_own:
            told, words, suggested = source.ask(of_source, of_registry, of_fees)
        else:
            told = source.ask(of_source)
        if head is None:
            head = heads.note(source.chain, source, told[: len(newest)], began).latest
        latest: list[Header | ChainError | None] = [head]
        if not connection.is_own:
            of_head = [questions.header("latest") for _ in of_fees]
            words, suggested, latest = destination.ask(of_registry, of_fees, of_head)
        if fees is None:
            fees = _fees(destination, latest[0], suggested[0])
        headers |= zip(part, told[len(newest) :], strict=True)
        roots |= zip(part, words, strict=True)
        go_on()
    assert head is not None, "it was asked for"
    assert fees is not None, "they were asked for"
    return Blocks(source, head, headers, roots, fees)


def _fees(rpc: RpcClient, head: Header | ChainError | None, suggested: int | ChainError) -> Fees | ChainError:
    try:
        return rpc.fees_by(head, suggested)
    except ChainError as error:
        return error


@dataclass
class _Inspection:
    """An inquiry, and what it asks of the chains."""

    inquiry: Inquiry
    blocks: Sequence[Missing]
    """All that is asked for, as if nothing of it was held."""
    lacking: Sequence[Rejection]
    samples: Sequence[ProofRequest]
    views: Sequence[ViewRequest]
    """Facts that the registry may hold."""


def check(
    connection: OpenConnection,
    inquiries: Sequence[Inquiry],
    blocks: Blocks,
    go_on: Callable[[], None] = lambda: None,
) -> list[Feasibility]:
    """Ask the questions of all inquiries together, by blocks that were looked up, and estimate what each takes.

    What could not be asked for one is no obstacle to the others. `go_on` is as that of `look_up`.
    """
    contract = connection.registry.contract
    inspections = [_inspect(connection, inquiry, blocks) for inquiry in inquiries]
    good = [one for one in inspections if isinstance(one, _Inspection)]
    hashed = {number: blocks.header(number) for one in good for number in _hashes(one.blocks)}
    words = [questions.call(*contract.vouches(number, header.hash), "pending") for number, header in hashed.items()]
    words += [question for one in good for view in one.views for question in view.questions(contract)]
    samples, told = _ask(connection, [sample for one in good for sample in one.samples], words, go_on)
    sampled, answers = iter(samples), iter(told)
    vouched = {number: next(answers) for number in hashed}
    found: list[Feasibility] = []
    for one in inspections:
        if isinstance(one, ChainError):
            found.append(Feasibility([one], Tries(), None))
            continue
        held = [[next(answers) for _ in view.questions(contract)] for view in one.views]
        tries = _sampled(connection, one, [next(sampled) for _ in one.samples], blocks.head)
        try:
            counted: Counted | Rejection | ChainError = _count(connection, one, blocks, vouched, held)
        except ChainError as error:
            counted = error
        found.append(_feasibility(connection, one, blocks, tries, counted))
        go_on()
    return found


def _inspect(connection: OpenConnection, inquiry: Inquiry, blocks: Blocks) -> _Inspection | ChainError:
    asked, missing, lacking = inquiry.asked, list[Missing](), list[Rejection]()
    try:
        for one in asked:
            header, root = blocks.header(one.number), blocks.roots[one.number]
            known = b"" if isinstance(root, Reverted) else result(root)
            missing.append(Missing(one.number, one.facts, any(known), header))
            fields = [fact.field for fact in one.facts if isinstance(fact, HeaderFact)]
            if without := facts.lacking(header, fields):
                sentence = facts.why_lacking(connection.config.source_id, header, without)
                lacking.append(Rejection(RejectionCode.HEADER_PROPERTY_MISSING, sentence, retryable=False))
        for number in _hashes(missing):
            blocks.header(number)
    except ChainError as error:
        return error
    # At the oldest block that needs some: many nodes keep only the newest states.
    oldest = next((one for one in missing if any(isinstance(fact, AccountFact | SlotFact) for fact in one.facts)), None)
    samples: Sequence[ProofRequest] = ()
    if oldest is not None and oldest.header is not None:
        samples = trie_shapes.samples(oldest.header, oldest.facts, (fact for one in asked for fact in one.facts))
    views = [
        ViewRequest(one.number, part, "latest")
        for one in missing
        if one.is_known
        for part in chunks(one.facts, _PER_READ)
    ]
    return _Inspection(inquiry, missing, lacking, samples, views)


def _hashes(blocks: Iterable[Missing]) -> list[int]:
    """Return the blocks whose hashes are needed, which fall."""
    return sorted({number for one in blocks if one.needs_header for number in one.hashes}, reverse=True)


def _ask(
    connection: OpenConnection,
    samples: Sequence[ProofRequest],
    words: Sequence[Question[bytes]],
    go_on: Callable[[], None],
) -> tuple[list[AccountProof | ChainError], list[bytes | ChainError]]:
    """Ask the source for proofs and the registry for words: in one exchange where both are on one chain."""
    proofs: list[AccountProof | ChainError] = []
    answers: list[bytes | ChainError] = []
    if samples and not (connection.is_own and words):
        proofs, samples = connection.source_rpc.proofs(samples), ()
    for part in chunks(words, _PER_READ):
        sampled, some = connection.destination_rpc.ask([questions.proof(one) for one in samples], part)
        proofs, answers, samples = [*proofs, *sampled], [*answers, *some], ()
        go_on()
    return proofs, answers


def _sampled(
    connection: OpenConnection, one: _Inspection, answers: Sequence[AccountProof | ChainError], head: Header
) -> Tries | Rejection | ChainError:
    """Return what the tries are like, or why it can't be known: where it matters, some node must serve old proofs."""
    if not one.samples:
        return Tries()
    number = one.samples[0].block_number
    is_old = number <= head.number - _KEPT_BY_ALL
    lacking = next((answer for answer in answers if isinstance(answer, NodeUnavailable)), None)
    # Young blocks are asked for again when their queries are proven.
    if lacking and is_old:
        return lacking
    refused = [answer for answer in answers if isinstance(answer, RpcRefused)]
    if is_old and len(refused) == len(answers) and not refused[0].may_pass:
        return Rejection(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {connection.config.source_id} serves proofs at block {number}. {refused[0]} Accounts "
            "and slots at old blocks take an archive node. Fields of the header take none.",
            retryable=True,
        )
    return _told_by(answers)


def sample_of_history(rpc: RpcClient, header: Header) -> Tries:
    """Return what the state trie is like by the account that a path leads through, if no other account is asked for."""
    wanted = ProofRequest(header.number, header.hash, header.state_root, history.CONTRACT)
    return _told_by(rpc.proofs([wanted]))


def _told_by(answers: Sequence[AccountProof | ChainError]) -> Tries:
    proofs = [answer for answer in answers if isinstance(answer, AccountProof)]
    return trie_shapes.of_samples(proofs) if proofs else Tries()


def _count(
    connection: OpenConnection,
    one: _Inspection,
    blocks: Blocks,
    vouched: Mapping[int, bytes | ChainError],
    held: Sequence[Sequence[bytes | ChainError]],
) -> Counted | Rejection:
    """Count what the registry does not hold yet; refuses blocks that are too far from those that it can trust.

    Raises `ChainError`.
    """
    contract, source = connection.registry.contract, connection.config.source_id
    lacking: dict[int, list[Fact]] = defaultdict(list)
    for view, answers in zip(one.views, held, strict=True):
        words = result(view.view(contract, answers)).facts
        lacking[view.block_number] += [fact for fact, word in words.items() if word is None]
    # What is not held tells for which blocks a path is needed.
    missing = [replace(each, facts=lacking[each.number]) if each.is_known else each for each in one.blocks]
    targets = [blocks.header(number) for number in _hashes(missing) if not contract.decode_vouches(vouched[number])]
    try:
        route = planning.route_to(connection, targets, deadline=one.inquiry.deadline)
    except planning.StatesRefused as refused:
        return Rejection(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {source} serves the states that lead to so old a block. {refused}",
            retryable=True,
        )
    if isinstance(route, TooFar):
        return Rejection(RejectionCode.BLOCK_TOO_OLD, route.sentence, retryable=False)
    if isinstance(route, NotYet):
        deadline = f"{one.inquiry.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return Rejection(
            RejectionCode.BLOCK_TOO_NEW,
            f"{route.sentence} That is after the batch's deadline, {deadline}.",
            retryable=True,
        )
    counted = [replace(each, jump=route.jumps.get(each.hashed, 0)) for each in missing]
    return Counted(counted, route, {each.number: each.header for each in missing if each.header})


def _feasibility(
    connection: OpenConnection,
    one: _Inspection,
    blocks: Blocks,
    sampled: Tries | Rejection | ChainError,
    counted: Counted | Rejection | ChainError,
) -> Feasibility:
    tries, required = sampled if isinstance(sampled, Tries) else Tries(), None
    if isinstance(counted, Counted):
        if counted.route.hops and tries.state is None:
            tries = sample_of_history(connection.source_rpc, blocks.header(counted.missing[0].number))
        if isinstance(blocks.fees, Fees):
            required = Required(counted, proof_gas.estimate(counted.missing, tries, counted.route), blocks.fees)
    said = (*one.lacking, sampled, counted, blocks.fees)
    return Feasibility([each for each in said if isinstance(each, Rejection | ChainError)], tries, required)


def to_come(blocks: Sequence[Mapping[int, Iterable[Fact]]], tries: Tries) -> Estimate:
    """Estimate blocks that don't exist yet: all that each asks for, and no path. Each is numbered by its place."""
    missing = [
        Missing(place, BlockFacts.once(place, asking.values()).facts, is_known=False)
        for place, asking in enumerate(blocks)
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


def costs(rpc: RpcClient, wanted: Sequence[tuple[Estimate, Fees]]) -> list[Cost | ChainError]:
    """Return what each estimate costs at these fees, with a rollup's data, by one exchange with the destination."""
    data = rollups.data_costs(rpc, [(estimate.size.bound, estimate.gas.bound) for estimate, _ in wanted])
    return [
        one if isinstance(one, ChainError) else _cost(estimate, fees, one)
        for (estimate, fees), one in zip(wanted, data, strict=True)
    ]


def _cost(estimate: Estimate, fees: Fees, data: DataCost) -> Cost:
    likely = rollups.without_margin(data, estimate.size.expected, estimate.size.bound)
    gas = estimate.gas + Likely(likely.gas, data.gas)
    # Room for two blocks that raise the base fee: it is signed only where the fee suffices for the next one.
    most = gas.bound * (fees.base_fee * 5 // 4 + fees.priority_fee) + data.wei
    return Cost(gas, Likely(gas.expected * (fees.base_fee + fees.priority_fee) + likely.wei, most), data)
