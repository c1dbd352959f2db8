"""What it takes to prove what is asked of one source chain, and what stands in the way.

It asks both chains and reads rows. It writes nothing, and stores nothing: acceptance does, which decides by it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.utils import timezone

from chains import rollups, together
from chains.chains_file import Chain
from chains.header import Header
from chains.rollups import DataCost
from chains.rpc import Fees, ProofRequest, RpcClient, RpcRefused
from chains.together import Raised
from proving import facts, timestamps
from proving.connections import OpenConnection
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact
from proving.heads import poll_seconds
from proving.paths import planning
from proving.paths.planning import TooFar
from proving.spending import estimates
from proving.spending.promised import Promise
from queries.chunks import by_size, chunks
from queries.rejection_codes import Rejection, RejectionCode

# So many of the newest states every node keeps, archive or not. A refusal of one of these tells little.
_KEPT_BY_ALL = 128
# Headers, blocks or facts that are read between two calls of `go_on`.
_PER_READ = 200
_OF_HEADER = (HeaderFact, TimeFact)


@dataclass(frozen=True)
class Wait:
    """Why it can't be decided yet, a sentence, and when to ask again; None: ever later, because it fails."""

    sentence: str
    until: datetime | None


@dataclass(frozen=True)
class Asked:
    """What is asked for at one block of the source chain, each fact once."""

    number: int
    facts: Sequence[Fact]


@dataclass(frozen=True)
class Inquiry:
    """A connection, and how long its chains may be asked."""

    connection: OpenConnection
    go_on: Callable[[], None]
    """Called between steps that take long. What it raises ends the inquiry."""
    head: Callable[[], Header]
    """The source chain's newest block, of a moment ago at most."""

    @property
    def source(self) -> Chain:
        return self.connection.source_rpc.chain


# --- Blocks that don't exist yet --------------------------------------------------------------------------------------


def too_early(highest: int | None, latest: int | None, source: Chain, head: Header) -> Wait | Rejection | None:
    """Whether the chain has no such block yet: of this number, or after this time (unix seconds)."""
    return _above(highest, source, head) or _later_than(latest, source, head)


def _above(highest: int | None, source: Chain, head: Header) -> Wait | Rejection | None:
    ahead = 0 if highest is None else highest - head.number
    if ahead > settings.MAX_BLOCKS_AHEAD:
        return Rejection(
            RejectionCode.BLOCK_TOO_FAR_AHEAD,
            f"Block {highest} of chain {source.id} is {ahead} blocks above the head {head.number}; a batch waits for "
            f"at most {settings.MAX_BLOCKS_AHEAD}. Send it again when the block is nearer.",
            retryable=True,
        )
    if ahead > 0:
        return Wait(
            f"Block {highest} of chain {source.id} does not exist yet; the head is {head.number}.",
            timezone.now() + timedelta(seconds=max(poll_seconds(source), (ahead - 1) * source.block_seconds)),
        )
    return None


def _later_than(latest: int | None, source: Chain, head: Header) -> Wait | Rejection | None:
    ahead = -1 if latest is None else latest - head.timestamp
    if ahead > settings.MAX_BLOCKS_AHEAD * source.block_seconds:
        return Rejection(
            RejectionCode.TIMESTAMP_TOO_FAR_AHEAD,
            f"The time {latest} is {ahead} s after the newest block of chain {source.id}. Try again when it is near.",
            retryable=True,
        )
    if ahead >= 0:
        return Wait(
            f"No block of chain {source.id} is later than the time {latest} yet, so it may still get a later block.",
            timezone.now() + timedelta(seconds=max(poll_seconds(source), ahead)),
        )
    return None


def block_of_time(inquiry: Inquiry, time: int, head: Header) -> int | Rejection:
    """The number of the latest block that is not after a time (unix seconds), which the head is."""
    number = timestamps.block_at(inquiry.connection.source_rpc, time, head, extend_lease=inquiry.go_on)
    if number is not None:
        return number
    return Rejection(
        RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK,
        f"The time {time} is before the first block of chain {inquiry.source.id}.",
        retryable=False,
    )


# --- Blocks that do ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assessment:
    """Of blocks that exist."""

    obstacles: Sequence[Rejection | Wait | Raised]
    """What stands in the way, or what could not be asked. What is wrong with a block that doesn't exist is told first:
    the rest failed on that."""
    counted: "Counted | None"
    fees: Fees | None
    """Of the destination. Where nothing stands in the way, there are both."""


def assess(
    inquiry: Inquiry,
    asked: Sequence[Asked],
    *,
    heights: Callable[[], Wait | Rejection | None],
    beside: Callable[[], object] = lambda: None,
) -> Assessment:
    """All questions about these blocks side by side: `heights`, whether they exist, too, and those `beside`."""
    found = together.run(
        (
            heights,
            lambda: _lacking_properties(inquiry, asked),
            lambda: _check_proofs(inquiry, asked),
            lambda: _count(inquiry, asked),
            inquiry.connection.destination_rpc.fees,
            beside,
        )
    )
    too_early, lacking, unavailable, counted, fees, _ = found
    said = (too_early, *(lacking if isinstance(lacking, list) else [lacking]), unavailable, counted, fees)
    return Assessment(
        [one for one in said if isinstance(one, Rejection | Wait | Raised)],
        counted if isinstance(counted, Counted) else None,
        fees if isinstance(fees, Fees) else None,
    )


def _lacking_properties(inquiry: Inquiry, asked: Sequence[Asked]) -> list[Rejection]:
    """Of each block whose header has not what is asked of it."""
    fields = {one.number: [fact.field for fact in one.facts if isinstance(fact, HeaderFact)] for one in asked}
    found: list[Rejection] = []
    for numbers in chunks([number for number, wanted in fields.items() if wanted], _PER_READ):
        for header in inquiry.connection.source_rpc.known_headers(numbers):
            if lacking := facts.lacking(header, fields[header.number]):
                sentence = facts.why_lacking(inquiry.source.id, header, lacking)
                found.append(Rejection(RejectionCode.HEADER_PROPERTY_MISSING, sentence, retryable=False))
        inquiry.go_on()
    return found


def _check_proofs(inquiry: Inquiry, asked: Sequence[Asked]) -> Rejection | None:
    """Whether some node still serves proofs at the oldest block that needs them: many keep only the newest states."""
    oldest = min((one for one in asked if _addresses(one.facts)), key=lambda one: one.number, default=None)
    if oldest is None or oldest.number > inquiry.head().number - _KEPT_BY_ALL:
        return None
    rpc = inquiry.connection.source_rpc
    header = rpc.known_header(oldest.number)
    (answer,) = rpc.proofs([ProofRequest(oldest.number, header.hash, _addresses(oldest.facts)[0])])
    inquiry.go_on()
    if not isinstance(answer, RpcRefused) or answer.may_pass:
        return None
    return Rejection(
        RejectionCode.PROOF_UNAVAILABLE,
        f"No node of chain {inquiry.source.id} serves proofs at block {oldest.number}. {answer}",
        retryable=True,
    )


def _addresses(wanted: Iterable[Fact]) -> list[str]:
    return sorted({fact.address for fact in wanted if isinstance(fact, AccountFact | SlotFact)})


# --- What is missing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """What the registry does not hold yet."""

    work: estimates.Workload
    headers: Mapping[int, Header]
    """Of the blocks that exist, and of some that follow, by number: as the source chain has them now."""


@dataclass(frozen=True)
class _Missing:
    """What of it the registry lacks; or what is asked for, as long as that isn't looked up."""

    number: int
    facts: Sequence[Fact]
    is_known: bool
    """Whether the registry knows its state root."""

    @property
    def needs_header(self) -> bool:
        """Without a state root no fact is stored; and fields of a header need the header again, and its hash."""
        return bool(self.facts) and (not self.is_known or any(isinstance(fact, _OF_HEADER) for fact in self.facts))

    @property
    def hashed(self) -> int:
        """The block whose hash is needed: it is the header after it that binds when a block ended."""
        return self.number + any(isinstance(fact, TimeFact) for fact in self.facts)


def _count(inquiry: Inquiry, asked: Sequence[Asked]) -> Counted | Rejection:
    """Count what the registry does not hold yet; refuses blocks that are too far from those that it can trust."""
    looked_up: list[_Missing] = []
    headers: dict[int, Header] = {}
    for part in chunks(asked, _PER_READ):
        found, read = _look_up(inquiry, part)
        looked_up += found
        headers |= read
    unknown = [one for one in looked_up if not one.is_known]
    held = partial(_without_held, inquiry, [one for one in looked_up if one.is_known])

    def path_gas_to(wanting: Iterable[_Missing]) -> int | TooFar:
        numbers = sorted({one.hashed for one in wanting if one.needs_header}, reverse=True)
        targets = [headers[number] for number in numbers if number in headers]
        return planning.estimate(inquiry.connection, targets, extend_lease=inquiry.go_on)

    try:
        if any(one.is_known and one.needs_header for one in looked_up):
            # Only what is not held tells for which of these blocks a path is needed.
            missing = held()
            path_gas = path_gas_to([*unknown, *missing])
        else:
            path_gas, missing = together.together(lambda: path_gas_to(unknown), held)
    except planning.StatesRefused as refused:
        return Rejection(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {inquiry.source.id} serves the states that lead to so old a block. {refused}",
            retryable=True,
        )
    if isinstance(path_gas, TooFar):
        return Rejection(RejectionCode.BLOCK_TOO_OLD, path_gas.sentence, retryable=False)
    work = estimates.Workload(path_gas=path_gas)
    for one in [*unknown, *missing]:
        work.add(one.facts, header=one.needs_header)
    return Counted(work, headers)


def _look_up(inquiry: Inquiry, asked: Sequence[Asked]) -> tuple[list[_Missing], dict[int, Header]]:
    """Which of the blocks the registry knows; and the headers of them, and of those that follow, by number."""
    contract = inquiry.connection.registry.contract
    following = {one.number + 1 for one in asked if any(isinstance(fact, TimeFact) for fact in one.facts)}
    numbers = sorted({one.number for one in asked} | following)
    roots, read = together.together(
        lambda: inquiry.connection.destination_rpc.eth_calls([contract.state_root(one.number) for one in asked]),
        lambda: inquiry.connection.source_rpc.headers(numbers),
    )
    inquiry.go_on()
    found = [
        _Missing(one.number, one.facts, isinstance(root, bytes) and any(root))
        for one, root in zip(asked, roots, strict=True)
    ]
    return found, {header.number: header for header in read if header is not None}


def _without_held(inquiry: Inquiry, known: Sequence[_Missing]) -> list[_Missing]:
    """Without the facts that the registry holds already."""
    rpc, contract = inquiry.connection.destination_rpc, inquiry.connection.registry.contract
    pieces = [(one, part) for one in known for part in chunks(one.facts, _PER_READ)]
    missing: dict[int, list[Fact]] = defaultdict(list)
    for parcel in by_size(pieces, lambda piece: len(piece[1]), _PER_READ):
        views = together.each(partial(facts.read, rpc, contract, one.number, part, at="latest") for one, part in parcel)
        for (one, _), view in zip(parcel, views, strict=True):
            missing[one.number] += [fact for fact, word in view.facts.items() if word is None]
        inquiry.go_on()
    return [replace(one, facts=missing[one.number]) for one in known]


# --- What it costs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Of what is missing, on the high side."""

    total: Promise
    data: DataCost
    """Of it, what a rollup takes for data."""


def cost(destination_rpc: RpcClient, work: estimates.Workload, fees: Fees) -> Cost:
    """At a gas price a quarter above the present one. Raises `NodeUnavailable`, `RpcRefused`."""
    data = rollups.data_cost(destination_rpc, work.data_bytes, work.gas)
    gas = work.gas + data.gas
    # Room for two blocks that raise the base fee: it is signed only where the fee suffices for the next one.
    return Cost(Promise(gas, gas * (fees.base_fee * 5 // 4 + fees.priority_fee) + data.wei), data)
