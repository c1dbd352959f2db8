"""The facts that the registry lacks, the paths to their blocks, and the cost of both: admission's second step.

Both chains are asked, rows are read, and nothing is written. Admission decides by the answers, and estimates show them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from chains import rollups
from chains.encoding import HISTORY_WINDOW
from chains.nodes.node_errors import ChainError
from chains.nodes.questions import Fees
from chains.rollups import DataCost
from proving import facts, sources
from proving.admission import answers
from proving.admission.answers import Requests, SelectedBlocks, SourceAnswers
from proving.connections import OpenConnection
from proving.facts import HeaderFact, SlotFact
from proving.packing import gas
from proving.packing.gas import Amount, CostPart, GasEstimate, Paths, StoredOrShown, UnprovenBlock
from proving.paths import planning
from proving.paths.planning import StatesRefused, TooFar
from proving.reading.block_contents import BlockSize
from proving.registries.deployments import Unusable
from proving.sources import NotYet
from proving.working import destination_prices
from queries import waits
from queries.batch_request import Selector
from queries.models import Batch, Query
from queries.waits import WaitReason, wait


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
    selected: SelectedBlocks | None = None  # None if the chain hasn't answered
    # waits about headers that lack requested properties, with the numbers of their blocks
    lacking_properties: Sequence[tuple[int, WaitReason]] = ()
    no_path: TooFar | NotYet | StatesRefused | None = None  # why no path leads to a block by the deadline
    cost: Cost | None = None  # None if it isn't known
    parts: Mapping[CostPart, PartEstimate] = field(default_factory=dict)
    estimate: GasEstimate | None = None  # None if the cost isn't known
    slot: StoredOrShown | None = None  # None if no slot is missing
    base_fee: int = 0  # the destination's, in wei per gas, which the cost depends on
    jumps: int = 0  # number of blocks that the beacon chain reaches
    jump_origin: int | None = None  # number of the block where jumps begin, if they need one
    waits: Sequence[WaitReason] = ()
    fault: ChainError | None = None  # why nothing is known; it is also in the waits
    is_unread: bool = False  # the next turn goes on reading its blocks

    @property
    def blocks(self) -> Mapping[Selector, int]:
        """Return the numbers of the blocks that exist or are named, by their selectors."""
        return self.selected.blocks if self.selected else {}

    @property
    def rejecting(self) -> Sequence[int]:
        """Return the blocks whose headers or contents would have the batch rejected, in the order of the checks."""
        if (selected := self.selected) is None:
            return ()
        unproven = [selected.unproven.block_number] if selected.unproven else []
        first = [0] if selected.too_early else []
        lacking = [number for number, _ in self.lacking_properties]
        return list(dict.fromkeys([*first, *lacking, *selected.unprovable, *unproven]))


def ask_sources(
    batches: Sequence[Batch], queries: Iterable[Query], ends_at: float | None = None, *, with_costs: bool = True
) -> Mapping[str, Sequence[SourceEstimate]]:
    """Ask each source chain once about all of these queries of batches, which have one destination and may be unsaved.

    Return the estimates for source chains by the batch's id, the first batches first. Without `with_costs`, only find
    the selected blocks. If `ends_at` is given, a client waits until then. Raises `OutOfTime`.
    """
    deadlines = {batch.pk: batch.deadline_at for batch in batches}
    estimates: dict[str, list[SourceEstimate]] = defaultdict(list)
    for source, of_batches in answers.requests_of(queries).items():
        requests = {batch: of_batches[batch] for batch in deadlines if batch in of_batches}
        try:
            told = answers.inquire(batches[0].destination_chain_id, source, ends_at, requests.values())
            of_source = _estimates(told, requests, deadlines) if with_costs else _blocks(told, requests)
        except Unusable as why:
            of_source = [SourceEstimate(source, waits=[why.reason])] * len(requests)
        except ChainError as error:
            of_source = [_unknown(source, error)] * len(requests)
        for batch, estimate in zip(requests, of_source, strict=True):
            estimates[batch].append(estimate)
    return estimates


def _blocks(told: SourceAnswers, requests: Mapping[str, Requests]) -> list[SourceEstimate]:
    """Only find the blocks that each batch selects."""
    source, selections = told.source.id, [answers.select(told, of_batch) for of_batch in requests.values()]
    return [
        _unknown(source, selected.fault) if selected.fault else SourceEstimate(source, selected)
        for selected in selections
    ]


def _unknown(source: int, fault: ChainError) -> SourceEstimate:
    return SourceEstimate(source, waits=[waits.fault(fault)], fault=fault)


def _estimates(
    told: SourceAnswers, requests: Mapping[str, Requests], deadlines: Mapping[str, datetime]
) -> list[SourceEstimate]:
    """Estimate the cost of each batch on the source chain, in the order of the requests.

    Raises `NodeUnavailable`, `RpcRefused` if the destination doesn't report the gas price.
    """
    selections = {batch: answers.select(told, of_batch) for batch, of_batch in requests.items()}
    answers.ask_all(told, list(selections.values()))
    destination_prices.find(told.connection.destination_rpc)
    estimates: list[SourceEstimate] = []
    for batch, selected in selections.items():
        try:
            estimates.append(_estimated(told, selected, deadlines[batch]))
        except ChainError as error:
            estimates.append(_unknown(told.source.id, error))
    _compare_rejecting(told, estimates)
    told.connection.check_time()
    known_gas = {place: known.estimate for place, known in enumerate(estimates) if known.estimate}
    sizes = [(of_batch.size.bound, of_batch.gas.bound) for of_batch in known_gas.values()]
    data = rollups.data_costs(told.connection.destination_rpc, sizes)
    assert told.fees
    for (place, of_batch), data_cost in zip(known_gas.items(), data, strict=True):
        cost = _cost(of_batch, told.fees, data_cost)
        estimates[place] = replace(estimates[place], cost=cost, base_fee=told.fees.base_fee)
    return estimates


def _compare_rejecting(told: SourceAnswers, estimates: Sequence[SourceEstimate]) -> None:
    """Ask every node again about the blocks that would have batches rejected."""
    if not (numbers := sorted({number for estimate in estimates for number in estimate.rejecting})):
        return
    agreed, final = told.connection.source_rpc.agreed(numbers)
    for estimate in estimates:
        if estimate.selected:
            estimate.selected.agreed, estimate.selected.final = agreed, final


def _estimated(told: SourceAnswers, selected: SelectedBlocks, deadline: datetime) -> SourceEstimate:
    """Estimate one batch. The caller adds the cost if it can be known. Raises `NodeUnavailable`, `RpcRefused`."""
    if selected.fault:
        raise selected.fault
    if selected.is_unread:
        return SourceEstimate(told.source.id, waits=[wait("check")], is_unread=True)
    lacking = _unproven_blocks(told, selected)
    properties = _lacking_properties(told, selected)
    known = SourceEstimate(told.source.id, selected, properties, waits=selected.waits)
    if selected.no_proof and selected.has_other_accounts:
        # No transaction can prove these accounts, so there is no cost.
        return known
    paths = _paths_to(told, selected, lacking, deadline)
    if not isinstance(paths, Paths):
        return replace(known, no_path=paths)
    # Blocks in the future are estimated like the head.
    lacking += (UnprovenBlock(0, list(group), is_known=False, header=told.head) for group in selected.coming)
    paths = _with_starts(told.connection, paths, len(selected.coming))
    prices = told.connection.prices_for_estimates
    estimate = gas.estimate(lacking, selected.sample, paths, prices).charged(prices)
    known = replace(known, jumps=len(paths.jumps), jump_origin=paths.jump_origin, waits=[*known.waits, *paths.waits])
    parts = _parts(selected, lacking, paths, estimate)
    slots = parts.get(CostPart.SLOTS)
    slot = None
    if slots and (missing := slots.count - slots.in_registry):
        slot = StoredOrShown.of(selected.sample.storage, slots.gas.expected / missing, prices)
    return replace(known, parts=parts, estimate=estimate, slot=slot)


def _with_starts(connection: OpenConnection, paths: Paths, blocks: int) -> Paths:
    """Return the paths with a start for each of this number of future blocks, unless the chain vouches for itself."""
    if connection.is_own:
        return paths
    config, source = connection.config, sources.of(connection.config)
    start_gas = source.gas(config)
    # A source that can't vouch for every block vouches for a block near it, from which a hop leads to it.
    hops = 0 if source.vouched(config, keeps_hashes=True) is None else blocks
    return replace(
        paths,
        count=paths.count + blocks,
        direct=paths.direct + blocks,
        hops=paths.hops + hops,
        headers=paths.headers + hops,
        newest=max(paths.newest, HISTORY_WINDOW if hops else 0),
        start_gas=paths.start_gas + Amount(start_gas.expected * blocks, start_gas.bound * blocks),
    )


def _parts(
    selected: SelectedBlocks, missing: Sequence[UnprovenBlock], paths: Paths, estimate: GasEstimate
) -> dict[CostPart, PartEstimate]:
    requested = [
        UnprovenBlock(0, list(group), is_known=False) for group in (*selected.existing.values(), *selected.coming)
    ]
    every, lacking = (_count(blocks, paths) for blocks in (requested, missing))
    return {
        part: PartEstimate(count, count - lacking[part], estimate.parts.get(part, Amount()))
        for part, count in every.items()
        if count
    }


def _count(blocks: Sequence[UnprovenBlock], paths: Paths) -> dict[CostPart, int]:
    return {
        CostPart.HEADERS: sum(not block.is_known for block in blocks),
        CostPart.HEADER_FIELDS: sum(isinstance(fact, HeaderFact) for block in blocks for fact in block.facts),
        CostPart.ACCOUNTS: sum(len(block.words) for block in blocks),
        CostPart.SLOTS: sum(isinstance(fact, SlotFact) for block in blocks for fact in block.facts),
        CostPart.TRANSACTIONS: sum(block.transactions for block in blocks),
        CostPart.LOGS: sum(block.logs for block in blocks),
        CostPart.TIMES: sum(block.times for block in blocks),
        CostPart.PATHS: paths.count + len(paths.jumps),
    }


def _cost(estimate: GasEstimate, fees: Fees, data: DataCost) -> Cost:
    likely = rollups.without_margin(data, _expected_part(estimate.size), _expected_part(estimate.gas))
    needed = estimate.gas + Amount(likely.gas, data.gas)
    # The bound includes two blocks that raise the base fee, because a transaction is signed only if its fee is
    # sufficient for the next block too.
    most = needed.bound * (fees.base_fee * 5 // 4 + fees.priority_fee) + data.wei
    wei = Amount(needed.expected * (fees.base_fee + fees.priority_fee) + likely.wei, most)
    return Cost(needed, wei, data.wei, estimate.path_gas)


def _expected_part(amount: Amount) -> float:
    return amount.expected / amount.bound if amount.bound else 0.0


# --- Missing facts, and the paths to their blocks ---------------------------------------------------------------------


def _unproven_blocks(told: SourceAnswers, selected: SelectedBlocks) -> list[UnprovenBlock]:
    """Return the blocks that exist, each with the facts that the registry lacks. Raises `ChainError`."""
    missing: list[UnprovenBlock] = []
    for number, of_block in selected.existing.items():
        if error := told.errors.get(number):
            raise error
        missing.append(
            UnprovenBlock(
                number,
                [fact for fact in of_block if (number, fact) not in told.held],
                is_known=number in told.accumulated,
                header=told.headers[number],
                size=selected.sizes.get(number, BlockSize()),
                roots=[fact.field for at, fact in told.held if at == number and isinstance(fact, HeaderFact)],
            )
        )
    return missing


def _lacking_properties(told: SourceAnswers, selected: SelectedBlocks) -> list[tuple[int, WaitReason]]:
    """Return a wait for each block whose header lacks a requested property.

    Forks only add properties. Therefore a block to come may have those that Ethereum's newest header lacks.
    """
    reasons: list[tuple[int, WaitReason]] = []
    blocks = [(told.complete(number), of_block) for number, of_block in selected.existing.items()]
    coming = [] if told.head.is_ethereums else [(told.head, of_block) for of_block in selected.coming]
    for header, of_block in [*blocks, *coming]:
        fields = [fact.field for fact in of_block if isinstance(fact, HeaderFact)]
        if header is not None and (lacking := facts.lacking(header, fields)):
            reasons.append((header.number, facts.why_lacking(told.source.id, header, lacking)))
    return reasons


def _paths_to(
    told: SourceAnswers, selected: SelectedBlocks, missing: Sequence[UnprovenBlock], deadline: datetime
) -> Paths | TooFar | NotYet | StatesRefused:
    """Find the paths to the blocks whose hashes the registry can't take now. Raises `NodeUnavailable`, `RpcRefused`."""
    needed = sorted({number for block in missing if block.needs_header for number in block.hashes}, reverse=True)
    if error := next((told.errors[number] for number in needed if number in told.errors), None):
        raise error
    targets = [told.headers[number] for number in needed if number not in told.vouched]
    try:
        paths = planning.paths_to(told.connection, targets, deadline=deadline)
        if selected.coming and isinstance(paths, Paths):
            # A future block is confirmed no sooner than the head, and by the same history.
            of_head = planning.paths_to(told.connection, [told.head], deadline=deadline)
            paths = paths if isinstance(of_head, Paths) else of_head
    except StatesRefused as refused:
        return refused
    if isinstance(paths, NotYet):
        return replace(paths, reason=wait("after_deadline", reason=paths.reason, deadline=deadline.timestamp()))
    return paths
