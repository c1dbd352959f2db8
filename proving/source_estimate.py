"""Estimates of the cost to prove the facts that batches request, by asking the chains, and obstacles.

Both chains are asked, rows are read, and nothing is written. Admission decides by the answers, and estimates show them.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from statistics import median

from chains import questions, rollups
from chains.encoding import HISTORY_CONTRACT, HISTORY_WINDOW
from chains.header import Header
from chains.node_errors import (
    Cause,
    ChainError,
    NodeUnavailable,
    OtherAccounts,
    Reverted,
    RpcRefused,
    UnverifiedProof,
)
from chains.questions import Fees, ProofRequest, VerifiedAccountProof
from chains.rollups import DataCost
from chains.rpc import FEE_QUESTIONS, result
from database.statements import by_size, chunks
from proving import facts, gas, heads, kept, money, named_transactions, sources
from proving.block_selection import Inquiry, Requests, Selected, inquire, select, takes_proof
from proving.connections import OpenConnection
from proving.deployments import Deployment, Unusable
from proving.facts import Fact, HeaderFact, SlotFact, TimeFact, ViewRequest
from proving.gas import Amount, CostPart, GasEstimate, Missing, Route, Sample
from proving.models import SPENT_STATES, Transaction
from proving.named_transactions import BlockSize, NamedTransaction, Unprovable
from proving.paths import planning
from proving.paths.planning import StatesRefused, TooFar
from proving.sources import NotYet
from queries import waits
from queries.batch_request import Selector
from queries.waits import WaitReason, wait

_LACKS = "A node of chain {} lacks headers that it must have."
# Every node keeps this number of newest states. A refusal for one of these says little.
_KEPT_BY_ALL = 128
# Seconds after which a turn reads no receipts of further batches.
_SECONDS_OF_RECEIPTS = 10
# Headers, blocks or facts that are read at a time.
_PER_READ = 200
# Number of a connection's last confirmed transactions that correct the expected gas, and the largest correction.
_RECENT, _MOST_CORRECTED = 50, 1.25


@dataclass(frozen=True)
class BatchPart:
    """The requests of a batch about one source chain, and the batch's deadline."""

    batch: str
    """The batch's id. Empty if it isn't stored."""
    requests: Requests
    deadline: datetime
    """The time at which the batch is rejected."""


@dataclass(frozen=True)
class Cost:
    """The cost of the missing facts."""

    gas: Amount = field(default_factory=Amount)
    wei: Amount = field(default_factory=Amount)
    """The expected cost at the current gas price, and an upper bound with a base fee that is a quarter higher."""
    data_wei: int = 0
    """The part of the upper bound in wei that a rollup takes for data, beside gas."""
    path_gas: int = 0
    """The part of the upper bound in gas that paths to old blocks take."""

    def __add__(self, other: "Cost") -> "Cost":
        data_wei, path_gas = self.data_wei + other.data_wei, self.path_gas + other.path_gas
        return Cost(self.gas + other.gas, self.wei + other.wei, data_wei, path_gas)


@dataclass(frozen=True)
class PartEstimate:
    count: int
    in_registry: int  # number of these that the registry already has
    gas: Amount


@dataclass(frozen=True)
class SourceEstimate:
    """The estimate for one source chain, as far as its nodes answered."""

    source: int
    selected: Selected | None = None  # None if the chain hasn't answered
    lacking_properties: Sequence[WaitReason] = ()  # waits about headers that lack requested properties
    unprovable: Sequence[WaitReason] = ()  # waits about transactions, with codes of rejections
    no_proof: WaitReason | None = None  # why no node serves a proof
    no_path: TooFar | NotYet | StatesRefused | None = None  # why no path leads to a block by the deadline
    cost: Cost | None = None  # None if it isn't known
    parts: Mapping[CostPart, PartEstimate] = field(default_factory=dict)
    estimate: GasEstimate = field(default_factory=GasEstimate)
    jumps: int = 0  # number of blocks that the beacon chain reaches
    jump_origin: int | None = None  # number of the block where jumps begin, if they need one
    waits: Sequence[WaitReason] = ()
    fault: ChainError | None = None  # why nothing is known; it is also in the waits

    @property
    def blocks(self) -> Mapping[Selector, int]:
        """Return the numbers of the blocks that exist or are named, by their selectors."""
        return self.selected.blocks if self.selected else {}


Estimates = Mapping[str, Sequence[SourceEstimate]]
"""The estimates for the source chains of batches, by the batch's id."""


def ask_sources(
    destination: int, parts: Mapping[int, Sequence[BatchPart]], ends_at: float | None = None, *, with_costs: bool = True
) -> Estimates:
    """Ask each source chain once about all batches that name it. Without `with_costs`, only find the selected blocks.

    The keys of `parts` are ids of source chains. If `ends_at` is given, a client waits until then. Raises `OutOfTime`.
    """
    estimates: dict[str, list[SourceEstimate]] = defaultdict(list)
    for source, of_source in parts.items():
        answers = _ask_source(destination, source, of_source, ends_at, with_costs=with_costs)
        for part, answer in zip(of_source, answers, strict=True):
            estimates[part.batch].append(answer)
    return estimates


def _ask_source(
    destination: int, source: int, parts: Sequence[BatchPart], ends_at: float | None, *, with_costs: bool
) -> Sequence[SourceEstimate]:
    try:
        inquiry = inquire(destination, source, ends_at, [part.requests for part in parts])
        return estimate_all(inquiry, parts) if with_costs else [_blocks(inquiry, part) for part in parts]
    except Unusable as why:
        return [SourceEstimate(source, waits=[why.reason])] * len(parts)
    except ChainError as error:
        return [_unknown(source, error)] * len(parts)


def _blocks(inquiry: Inquiry, part: BatchPart) -> SourceEstimate:
    selected, source = select(inquiry, part.requests), inquiry.source.id
    return _unknown(source, selected.fault) if selected.fault else SourceEstimate(source, selected)


def _unknown(source: int, fault: ChainError) -> SourceEstimate:
    return SourceEstimate(source, waits=[waits.fault(fault)], fault=fault)


def estimate_all(inquiry: Inquiry, parts: Sequence[BatchPart]) -> list[SourceEstimate]:
    """Estimate the cost of each batch on the source chain. Questions that batches share are asked once.

    Raises `NodeUnavailable`, `RpcRefused` if the destination doesn't report the gas price.
    """
    selected = [select(inquiry, part.requests) for part in parts]
    contents = _all_contents(inquiry, selected)
    selected = [replace(each, existing=of_part.facts) for each, of_part in zip(selected, contents, strict=True)]
    read = _read(inquiry, selected)
    proofs = _proofs(inquiry, selected, read)
    estimates: list[SourceEstimate] = []
    for part, of_part, proofs_of_part, of_blocks in zip(parts, selected, proofs, contents, strict=True):
        try:
            estimates.append(_estimated(inquiry, of_part, of_blocks, part.deadline, (read, proofs_of_part)))
        except ChainError as error:
            estimates.append(_unknown(inquiry.source.id, error))
    inquiry.connection.check_time()
    sizes = [(known.estimate.size.bound, known.estimate.gas.bound) for known in estimates]
    data = rollups.data_costs(inquiry.connection.destination_rpc, sizes)
    return [
        replace(known, cost=_cost(known.estimate, read.fees, data_cost)) if known.cost else known
        for known, data_cost in zip(estimates, data, strict=True)
    ]


def _estimated(
    inquiry: Inquiry, selected: Selected, contents: "_Contents", deadline: datetime, answers: tuple["_Read", "_Proofs"]
) -> SourceEstimate:
    """Estimate one batch. Its cost is zero until the caller sets it. If it can't be known, it is None.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    if contents.is_unread:
        return SourceEstimate(inquiry.source.id, waits=[wait("check")])
    if fault := selected.fault or contents.fault:
        raise fault
    read, proofs = answers
    tries, missing = _tries(inquiry, selected, proofs), _missing(selected, read, contents)
    lacking, waits = _lacking_properties(inquiry, selected, read), [*selected.waits, *tries.waits]
    known = SourceEstimate(
        inquiry.source.id, selected, lacking, contents.unprovable, no_proof=tries.no_proof, waits=waits
    )
    if tries.no_proof and any(isinstance(answer, OtherAccounts) for _, answer in proofs):
        # No transaction can prove these accounts, so there is no cost.
        return known
    route = _route(inquiry, selected, missing, read, deadline)
    if not isinstance(route, Route):
        return replace(known, no_path=route)
    # Blocks in the future are estimated like the head.
    every = [*missing, *(Missing(0, list(group), is_known=False, header=inquiry.head) for group in selected.coming)]
    route = _with_starts(inquiry.connection, route, len(selected.coming))
    estimate = gas.estimate(every, tries.sample, route, read.correction)
    known = replace(known, jumps=len(route.jumps), jump_origin=route.jump_origin, waits=[*waits, *route.waits])
    return replace(known, cost=Cost(), parts=_parts(selected, every, route, estimate), estimate=estimate)


def _with_starts(connection: OpenConnection, route: Route, blocks: int) -> Route:
    """Return the route with a start for each of this number of future blocks, unless the chain vouches for itself."""
    if connection.is_own:
        return route
    config, source = connection.config, sources.of(connection.config)
    start_gas = source.gas(config)
    # A source that can't vouch for every block vouches for a block near it, from which a hop leads to it.
    hops = 0 if source.vouched(config, keeps_hashes=True) is None else blocks
    return replace(
        route,
        paths=route.paths + blocks,
        direct=route.direct + blocks,
        hops=route.hops + hops,
        headers=route.headers + hops,
        newest=max(route.newest, HISTORY_WINDOW if hops else 0),
        start_gas=route.start_gas + Amount(start_gas.expected * blocks, start_gas.bound * blocks),
    )


def _parts(
    selected: Selected, missing: Sequence[Missing], route: Route, estimate: GasEstimate
) -> dict[CostPart, PartEstimate]:
    requested = [Missing(0, list(group), is_known=False) for group in (*selected.existing.values(), *selected.coming)]
    every, lacking = (_count(blocks, route) for blocks in (requested, missing))
    return {
        part: PartEstimate(count, count - lacking[part], estimate.parts.get(part, Amount()))
        for part, count in every.items()
        if count
    }


def _count(blocks: Sequence[Missing], route: Route) -> dict[CostPart, int]:
    return {
        CostPart.HEADERS: sum(not block.is_known for block in blocks),
        CostPart.HEADER_FIELDS: sum(isinstance(fact, HeaderFact) for block in blocks for fact in block.facts),
        CostPart.ACCOUNTS: sum(len(block.words) for block in blocks),
        CostPart.SLOTS: sum(isinstance(fact, SlotFact) for block in blocks for fact in block.facts),
        CostPart.TRANSACTIONS: sum(block.transactions for block in blocks),
        CostPart.LOGS: sum(block.logs for block in blocks),
        CostPart.TIMES: sum(block.times for block in blocks),
        CostPart.PATHS: route.paths + len(route.jumps),
    }


def _cost(estimate: GasEstimate, fees: Fees, data: DataCost) -> Cost:
    likely = rollups.without_margin(data, estimate.size.expected, estimate.size.bound)
    needed = estimate.gas + Amount(likely.gas, data.gas)
    # The bound includes two blocks that raise the base fee, because a transaction is signed only if its fee is
    # sufficient for the next block too.
    most = needed.bound * (fees.base_fee * 5 // 4 + fees.priority_fee) + data.wei
    wei = Amount(needed.expected * (fees.base_fee + fees.priority_fee) + likely.wei, most)
    return Cost(needed, wei, data.wei, estimate.path_gas)


def _correction(registry: Deployment) -> float:
    """Return the median ratio of used to expected gas of a registry's last confirmed transactions, within limits."""
    sent = Transaction.objects.filter(to__in=registry.addresses, state__in=SPENT_STATES, expected_gas__gt=0)
    took = sent.order_by("-pk").values_list("gas_used", "expected_gas")[:_RECENT]
    ratios = [used / expected for used, expected in took]
    return min(_MOST_CORRECTED, max(1 / _MOST_CORRECTED, median(ratios))) if ratios else 1.0


# --- Transactions of existing blocks ----------------------------------------------------------------------------------


@dataclass
class _Contents:
    """The requested facts of existing blocks, with those of the transactions that were found there."""

    facts: dict[int, Collection[Fact]] = field(default_factory=dict)
    sizes: dict[int, BlockSize] = field(default_factory=dict)
    """The sizes of transactions by the numbers of their blocks."""
    unprovable: list[WaitReason] = field(default_factory=list)
    fault: ChainError | None = None
    is_unread: bool = False
    """True if other batches took too long before."""


def _all_contents(inquiry: Inquiry, selections: Sequence[Selected]) -> list[_Contents]:
    """Find the named transactions of each batch. The last batches must wait if that takes long."""
    ends_at, contents = time.monotonic() + _SECONDS_OF_RECEIPTS, list[_Contents]()
    for selected in selections:
        is_late = bool(contents) and time.monotonic() > ends_at and selected.names_transactions
        contents.append(_Contents(is_unread=True) if is_late else _contents(inquiry, selected))
    return contents


def _contents(inquiry: Inquiry, selected: Selected) -> _Contents:
    """Find the named transactions in their blocks. Raises `OutOfTime` between blocks."""
    contents, rpc, registry = _Contents(), inquiry.connection.source_rpc, inquiry.connection.registry
    for number, asked in selected.existing.items():
        named = [each for each in asked if isinstance(each, NamedTransaction)]
        contents.facts[number] = [each for each in asked if not isinstance(each, NamedTransaction)]
        if not named or contents.fault or (contents.unprovable and not registry.proves_transactions):
            continue
        if not registry.proves_transactions:
            ends = {"chain": inquiry.connection.destination_rpc.chain.id, "source": inquiry.source.id}
            contents.unprovable.append(wait("registry_lacks_logs", registry=registry.contract.address, **ends))
            continue
        inquiry.connection.check_time()
        (header,) = heads.headers(rpc, [number], inquiry.known)
        if not isinstance(header, Header):
            contents.fault = header or NodeUnavailable(_LACKS.format(inquiry.source.id))
            continue
        entries = named_transactions.find(rpc, header, named)
        match next(iter(entries.faults.values()), None):
            case Unprovable(reason=reason):
                contents.unprovable.append(reason)
            case ChainError() as error:
                contents.fault = error
            case None if entries.contents:
                there = entries.found.values()
                of_there = chain.from_iterable(entry.facts for entry in there)
                contents.facts[number] = list(dict.fromkeys(chain(contents.facts[number], of_there)))
                contents.sizes[number] = entries.contents.size({entry.index for entry in there})
    return contents


# --- The chains' answers about existing blocks ------------------------------------------------------------------------


@dataclass(frozen=True)
class _BlockAnswers:
    """The chains' answers about a block that exists."""

    header: Header
    is_known: bool  # True if the registry knows its state root
    is_vouched: bool  # True if the registry can take the header now


@dataclass(frozen=True)
class _Read:
    """The chains' answers about blocks."""

    blocks: Mapping[int, _BlockAnswers | ChainError]
    """The answers by block number, also about each block that follows one selected by a time."""
    held: Collection[tuple[int, Fact]]
    """The facts that the registry holds, with the numbers of their blocks, and roots of transactions' facts."""
    correction: float
    """The factor by which the expected gas is multiplied."""
    fees: Fees
    """The destination's fees."""

    def header(self, number: int) -> Header | None:
        block = self.blocks[number]
        return block.header if isinstance(block, _BlockAnswers) else None


def _read(inquiry: Inquiry, selections: Sequence[Selected]) -> _Read:
    contract = inquiry.connection.registry.contract
    source, destination = inquiry.connection.source_rpc, inquiry.connection.destination_rpc
    facts_by_block: dict[int, dict[Fact, None]] = defaultdict(dict)
    for selected in selections:
        for number, requested in selected.existing.items():
            facts_by_block[number].update((fact, None) for fact in requested if not isinstance(fact, NamedTransaction))
            if any(isinstance(fact, TimeFact) for fact in requested):
                facts_by_block.setdefault(number + 1, {})
    blocks: dict[int, _BlockAnswers | ChainError] = {}
    fees: Fees | None = None
    usual_tip = money.usual_tip(destination.chain)
    for numbers in chunks(sorted(facts_by_block), _PER_READ):
        headers: list[Header] = []
        for number, header in zip(numbers, heads.headers(source, numbers, inquiry.known), strict=True):
            if isinstance(header, Header):
                headers.append(header)
            else:
                blocks[number] = header or NodeUnavailable(_LACKS.format(inquiry.source.id))
        inquiry.connection.check_time()
        # A chain knows its head's hash only in the pending block.
        calls = [questions.call(*contract.state_root(header.number)) for header in headers]
        calls += [questions.call(*contract.vouches(header.number, header.hash), "pending") for header in headers]
        answers, of_fees = destination.ask(calls, () if fees else FEE_QUESTIONS)
        fees = fees or destination.fees_by(of_fees, usual_tip)
        for header, root, vouch in zip(headers, answers[: len(headers)], answers[len(headers) :], strict=True):
            try:
                is_known = any(b"" if isinstance(root, Reverted) else result(root))
                blocks[header.number] = _BlockAnswers(header, is_known, contract.decode_vouches(vouch))
            except ChainError as error:
                blocks[header.number] = error
        inquiry.connection.check_time()
    held = _held(inquiry, facts_by_block, blocks)
    return _Read(blocks, held, _correction(inquiry.connection.registry), fees or destination.fees(usual_tip))


def _held(
    inquiry: Inquiry, facts_by_block: Mapping[int, Collection[Fact]], blocks: dict[int, _BlockAnswers | ChainError]
) -> Collection[tuple[int, Fact]]:
    """Return the facts that the registry holds about blocks that it knows. Put its errors into `blocks`."""
    rpc, contract = inquiry.connection.destination_rpc, inquiry.connection.registry.contract
    asked = {
        number: [*(requested if block.is_known else facts.of_transactions(requested)), *facts.roots_of(requested)]
        for number, block in blocks.items()
        if isinstance(block, _BlockAnswers) and (requested := facts_by_block[number])
    }
    pieces = [(number, part) for number, each in asked.items() for part in chunks(list(dict.fromkeys(each)), _PER_READ)]
    held: set[tuple[int, Fact]] = set()
    for parcel in by_size(pieces, lambda piece: len(piece[1]), _PER_READ):
        views = facts.views(rpc, contract, [ViewRequest(number, part, "latest") for number, part in parcel])
        for (number, part), view in zip(parcel, views, strict=True):
            if isinstance(view, ChainError):
                blocks[number] = view
            else:
                held.update((number, fact) for fact in part if view.facts[fact] is not None)
        inquiry.connection.check_time()
    return held


def _lacking_properties(inquiry: Inquiry, selected: Selected, read: _Read) -> list[WaitReason]:
    """Return a wait for each block whose header lacks a requested property. Forks only add properties."""
    reasons: list[WaitReason] = []
    blocks = [(read.header(number), block_facts) for number, block_facts in selected.existing.items()]
    for header, block_facts in [*blocks, *((inquiry.head, block_facts) for block_facts in selected.coming)]:
        fields = [fact.field for fact in block_facts if isinstance(fact, HeaderFact)]
        if header is not None and (lacking := facts.lacking(header, fields)):
            reasons.append(facts.why_lacking(inquiry.source.id, header, lacking))
    return reasons


_Proofs = Sequence[tuple[ProofRequest, VerifiedAccountProof | ChainError]]
"""The requested proofs, with the answers."""


def _proofs(inquiry: Inquiry, selections: Sequence[Selected], read: _Read) -> list[_Proofs]:
    """Request one proof for each batch, at the newest of its blocks that needs one. It shows the shape of the tries.

    Also request one at the oldest block, because many nodes keep only the newest states.
    """
    requests = [_sampled(inquiry, selected, read) for selected in selections]
    all_requests = [request for of_batch in requests for request in of_batch]
    # The additional question shows that a node which serves no proof isn't down.
    beside = [questions.plain("eth_chainId")] if all_requests else ()
    served = inquiry.connection.source_rpc.proofs(all_requests, beside=beside)
    kept.keep_proofs(inquiry.connection.source_rpc, all_requests, served)
    answers = iter(served)
    inquiry.connection.check_time()
    return [[(request, next(answers)) for request in of_batch] for of_batch in requests]


def _sampled(inquiry: Inquiry, selected: Selected, read: _Read) -> list[ProofRequest]:
    """Return requests for proofs at the oldest and the newest block with requested accounts."""
    blocks = [
        (header, block_facts)
        for number, block_facts in selected.existing.items()
        if (header := read.header(number)) and takes_proof(block_facts)
    ]
    if blocks:
        of_all = gas.sampled(blocks[-1][0], (fact for _, block_facts in blocks for fact in block_facts))
        return [*(gas.sampled(*oldest) for oldest in blocks[: len(blocks) > 1]), of_all]
    views = (read.blocks[number] for number in selected.existing)
    if selected.coming or any(isinstance(view, _BlockAnswers) and not view.is_vouched for view in views):
        # The newest state shows the tries for future blocks, and for paths, which lead through this contract.
        head = inquiry.head
        return [ProofRequest(head.number, head.hash, head.state_root, HISTORY_CONTRACT)]
    return []


@dataclass(frozen=True)
class _Tries:
    """The shape of the source chain's tries, if a node served a proof."""

    sample: Sample = field(default_factory=Sample)
    waits: Sequence[WaitReason] = ()  # waits for proofs that no node serves now
    no_proof: WaitReason | None = None  # why no node will ever serve a proof


def _tries(inquiry: Inquiry, selected: Selected, proofs: _Proofs) -> _Tries:
    """Return the shape of the tries, or why no node serves a proof. Raises `NodeUnavailable`."""
    sample, unserved, source = Sample(), [], inquiry.source
    is_served = any(isinstance(answer, VerifiedAccountProof) for _, answer in proofs)
    for request, answer in proofs:
        sample = Sample() if isinstance(answer, ChainError) else Sample.of(answer)
        if isinstance(answer, OtherAccounts) and selected.asks_accounts:
            return _Tries(no_proof=wait("other_accounts", problem=str(answer)))
        if takes_proof(selected.existing.get(0, ())) and (reason := genesis_not_proven(source.id, request, answer)):
            return _Tries(no_proof=reason)
        if request.block_number > inquiry.head.number - _KEPT_BY_ALL:
            # Proofs of recent blocks are requested again when their queries are proven.
            continue
        if isinstance(answer, UnverifiedProof):
            # Proving, too, asks such nodes again for some minutes.
            unserved.append(waits.fault(answer))
        elif isinstance(answer, NodeUnavailable):
            raise answer
        elif isinstance(answer, RpcRefused) and not answer.may_pass:
            # The block's age is the cause only if the node says so, or serves the proof of a younger block.
            is_too_old = answer.cause == Cause.STATE or (answer.cause is None and is_served)
            code = "old_proofs_not_served" if is_too_old else "proofs_not_served"
            problem = answer.about(facts.proof_of(source, request))
            return _Tries(no_proof=wait(code, chain=source.id, block=request.block_number, problem=problem))
    return _Tries(sample, unserved)


def genesis_not_proven(
    source: int, request: ProofRequest, answer: VerifiedAccountProof | ChainError
) -> WaitReason | None:
    """Return why block 0 isn't proven if every node proves it by another root, as those of development chains do."""
    if request.block_number or not isinstance(answer, UnverifiedProof):
        return None
    return wait("genesis_not_proven", chain=source, problem=f"{'; '.join(answer.reasons)}.")


# --- Missing facts ----------------------------------------------------------------------------------------------------


def _missing(selected: Selected, read: _Read, contents: "_Contents") -> list[Missing]:
    """Return the blocks that exist, each with the facts that the registry lacks. Raises `ChainError`."""
    missing: list[Missing] = []
    for number, block_facts in selected.existing.items():
        block = result(read.blocks[number])
        lacking = [fact for fact in block_facts if (number, fact) not in read.held]
        size = contents.sizes.get(number, BlockSize())
        roots = [fact.field for held_at, fact in read.held if held_at == number and isinstance(fact, HeaderFact)]
        missing.append(Missing(number, lacking, is_known=block.is_known, header=block.header, size=size, roots=roots))
    return missing


def _route(
    inquiry: Inquiry, selected: Selected, missing: Sequence[Missing], read: _Read, deadline: datetime
) -> Route | TooFar | NotYet | StatesRefused:
    """Find the paths to the blocks whose hashes the registry can't take now. Raises `NodeUnavailable`, `RpcRefused`."""
    needed = sorted({number for block in missing if block.needs_header for number in block.hashes}, reverse=True)
    targets = [block.header for number in needed if not (block := result(read.blocks[number])).is_vouched]
    try:
        route = planning.route_to(inquiry.connection, targets, deadline=deadline)
        if selected.coming and isinstance(route, Route):
            # A future block is confirmed no sooner than the head, and by the same history.
            of_head = planning.route_to(inquiry.connection, [inquiry.head], deadline=deadline)
            route = route if isinstance(of_head, Route) else of_head
    except StatesRefused as refused:
        return refused
    if isinstance(route, NotYet):
        return replace(route, reason=wait("after_deadline", reason=route.reason, deadline=deadline.timestamp()))
    return route
