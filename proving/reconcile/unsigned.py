"""The unsigned transactions that a self-funded batch still needs, for anyone to send.

The same functions observe and decide as for transactions that the operator pays for. Nothing is sent or stored here,
and only the chain shows whether a transaction was sent.

The transactions must be sent in order. Simulations give their gas limits. A transaction that depends on an earlier one
can't be simulated, so it gets an upper bound. The transactions of a path are returned one at a time, because the next
one depends on the chain's state after the previous one.
"""

import itertools
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from chains import rollups
from chains.nodes.node_errors import ChainError, ImplausibleGas, NodeUnavailable, Reverted
from chains.nodes.rpc import result
from config.database.statements import chunks
from proving import connections
from proving.connections import Context, OpenConnection, OutOfTime
from proving.facts import AccountFact, HeaderFact, Missing, SlotFact
from proving.packing import packs
from proving.packing.packs import Intent
from proving.paths import building, checkpoints
from proving.paths.building import PathPart
from proving.reconcile import decide, observe
from proving.reconcile.decide import (
    Action,
    Continue,
    Decision,
    ExtendPath,
    FindPath,
    FindTime,
    PreparePath,
    Prove,
    ProveTime,
)
from proving.reconcile.observation import Observation
from proving.registries.deployments import Unusable, revert_reason
from proving.sending import gas_caps, gas_limits
from proving.sending.gas_limits import GasLimit
from proving.working import destination_prices, lanes
from proving.working.ends import Fails, Waits
from proving.working.heads import Heads
from queries import waits
from queries.models import PROVABLE_STEPS, Batch, BatchStatus, Block, StepKind
from queries.waits import WaitReason, wait

# Maximum transactions in one answer, which then has some megabytes.
_MOST = 16
# Maximum seconds for an answer, checked between requests to nodes.
_SECONDS = 20
_BLOCKS_TOGETHER = 64
# The sender in simulations. Any address gives the same result.
_ANYBODY = "0x0000000000000000000000000000000000000000"

_MORE = wait("more_transactions")


@dataclass(frozen=True)
class Unsigned:
    """An unsigned transaction. It sends no money."""

    to: str
    data: bytes
    gas: int
    """The gas limit."""
    what: str
    """A sentence about what it does."""
    queries: Collection[int]
    """Ids of the queries that it is for."""


@dataclass
class MissingTransactions:
    """The transactions that a batch still needs, and why the answer may be incomplete."""

    transactions: list[Unsigned] = field(default_factory=list)
    """The transactions in the order in which they must be sent."""
    waits: list[WaitReason] = field(default_factory=list)
    """Reasons why more transactions are missing."""
    is_complete: bool = True
    """True if nothing is missing once these are on the chain."""
    block: int | None = None
    """The observed block of the destination, the oldest of several. None: none was observed."""
    fault: ChainError | None = None
    """The first error of a chain."""

    def wait(self, reason: WaitReason) -> None:
        """Store why the answer is incomplete."""
        if reason not in self.waits:
            self.waits.append(reason)
        self.is_complete = False

    def fail(self, error: ChainError) -> None:
        self.fault = self.fault or error
        self.wait(waits.fault(error))


def left_of(batch: Batch) -> MissingTransactions:
    """Find the transactions that an open batch still needs.

    Raises `NodeUnavailable`, `RpcRefused` if none can be found because of an error.
    """
    missing, ends_at = MissingTransactions(), time.monotonic() + _SECONDS
    _note_what_is_not_prepared(missing, batch)
    provable = batch.queries.filter(step__in=PROVABLE_STEPS).order_by("source_chain_id")
    try:
        sources = list(provable.values_list("source_chain_id", flat=True).distinct())
        replacing = lanes.replacing(batch.destination_chain_id, sources)
        for source in sources:
            if source in replacing:
                missing.wait(replacing[source])
                continue
            _find(missing, batch, source, ends_at)
    except _Enough:
        missing.wait(_MORE)
    if missing.fault is not None and not missing.transactions:
        raise missing.fault
    if missing.is_complete and not missing.transactions:
        missing.waits.append(wait("all_on_chain"))
    return missing


class _Enough(Exception):
    """The answer has the maximum number of transactions."""


def _note_what_is_not_prepared(missing: MissingTransactions, batch: Batch) -> None:
    if batch.status == BatchStatus.RECEIVED or batch.queries.filter(block=None).exists():
        missing.wait(batch.wait or wait("check"))
    fetching = batch.queries.filter(step=StepKind.INITIAL_STATE).exclude(block=None)
    if batch.status != BatchStatus.RECEIVED and fetching.exists():
        missing.wait(wait("proofs"))


# --- One source chain -------------------------------------------------------------------------------------------------


@dataclass
class _Source:
    """A source chain of the batch, and the blocks that become trusted by the path in the answer."""

    missing: MissingTransactions
    context: Context
    trusted: Collection[int] | None = None
    """Blocks whose hashes are known when the path is on the chain; None while there is no path."""


def _find(missing: MissingTransactions, batch: Batch, source_id: int, ends_at: float) -> None:
    """Add the missing transactions for blocks of one source chain, oldest first.

    A path to the oldest block passes the other blocks.

    Raises `_Enough`.
    """
    try:
        opened = connections.open_unless_stopped(batch.destination_chain_id, source_id)
        connection = replace(opened, ends_at=ends_at, is_self_funded=True)
        head = connection.destination_rpc.head()
        missing.block = min(head.number, missing.block or head.number)
        # The head counts as confirmed. A mined transaction only waits for confirmations, and must not be sent again.
        source = _Source(missing, Context(connection, Heads(head, head, 0)))
        waiting = batch.queries.filter(source_chain_id=source_id, step__in=PROVABLE_STEPS)
        blocks = Block.objects.filter(pk__in=waiting.values("block")).order_by("number")
        for chunk in chunks(list(blocks.values_list("pk", flat=True)), _BLOCKS_TOGETHER):
            some = list(Block.objects.filter(pk__in=chunk).order_by("number"))
            observations = observe.of_batch(source.context, some, batch.pk)
            for block in some:
                connection.check_time()
                _add(source, block, observations[block.pk])
    except Unusable as why:
        missing.wait(why.reason)
    except OutOfTime:
        missing.fail(NodeUnavailable("The nodes are too slow to find all missing transactions."))
    except ChainError as error:
        missing.fail(error)


def _add(source: _Source, block: Block, answer: Observation | ChainError) -> None:
    """Add the missing transactions for one block. Raises `_Enough`."""
    try:
        seen = result(answer)
        proposed = list(itertools.islice(_of_block(source, block, seen), _MOST + 1))
        if seen.has_unread_queries:
            source.missing.wait(_MORE)
        room = _MOST - len(source.missing.transactions)
        transactions = _with_gas(source.missing, source.context.connection, proposed)
        source.missing.transactions += transactions[:room]
        if len(transactions) > room:
            raise _Enough
    except ChainError as error:
        # The answer contains no path, so no transaction for another block can depend on one.
        source.trusted = ()
        if isinstance(error, Reverted):
            # The chain has changed since it was observed.
            source.missing.wait(wait("proof_not_accepted_now", revert=str(revert_reason(error.data))))
        else:
            source.missing.fail(error)


# --- One block --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Proposed:
    intent: Intent
    what: str
    rests: bool = False
    """True if it depends on an earlier one, and so can't be simulated yet."""


def _of_block(source: _Source, block: Block, seen: Observation) -> Iterator[_Proposed]:
    decision = decide.prove(seen)
    step, rests = decision.then, False
    if isinstance(step, FindPath):
        if source.trusted is None:
            decision = _with_path(source, block, seen, decision, step)
        elif step.target.number in source.trusted:
            rests = True
            decision = decide.prove(_vouched_for(seen))
    _note_waits(source.missing, decision)
    for action in decision.actions:
        yield from _of_action(source, block, seen, action, rests=rests)


def _vouched_for(seen: Observation) -> Observation:
    """Return the observation for the time when the path has reached the needed header."""
    assert seen.unproven is not None, "a path is only sought for missing facts"
    assert seen.unproven.trust is not None, "they need this header"
    return replace(seen, unproven=replace(seen.unproven, trust=replace(seen.unproven.trust, is_vouched_for=True)))


def _with_path(source: _Source, block: Block, seen: Observation, decision: Decision, step: FindPath) -> Decision:
    context = source.context
    hints = checkpoints.newest(context.connection, context.heads.latest.number)
    plan = building.find(context.connection, step.target, hints, awaits_branch=True)
    further = decide.path(seen, step, plan)
    return Decision(further.then, [*decision.actions, *further.actions])


def _note_waits(missing: MissingTransactions, decision: Decision) -> None:
    if any(isinstance(action, ExtendPath) for action in decision.actions):
        return  # the block waits for the transaction that the answer contains
    match decision.then:
        case Continue():
            pass
        case Waits(reason) | Fails(reason):
            missing.is_complete = False
            if reason:
                missing.wait(reason)
        case FindTime():
            missing.wait(wait("time_sought"))
        case _:
            missing.wait(_MORE)


def _of_action(source: _Source, block: Block, seen: Observation, action: Action, *, rests: bool) -> Iterator[_Proposed]:
    where = f"block {block.number} of chain {block.source_chain_id}"
    match action:
        case Prove():
            yield from _of_proofs(source, block, action, where, rests=rests)
        case ProveTime():
            yield from _of_times(source, block, seen, action, where, rests=rests)
        case PreparePath(preparation, queries):
            source.trusted = ()
            intent = building.intent_before(source.context.connection, preparation, queries)
            yield _Proposed(intent, f"Records a hash that leads to {where}.")
        case ExtendPath():
            yield from _of_path(source, block, seen, action, where)


def _of_proofs(source: _Source, block: Block, action: Prove, where: str, *, rests: bool) -> Iterator[_Proposed]:
    context, with_header = source.context, action.with_header
    part = building.next_part(context.connection, action.path) if action.path else PathPart()
    prices = context.connection.prices
    for intent in packs.intents(
        block, context.registry, action.missing, prices, with_header=with_header, jump=part.jump, calls=part.calls
    ):
        header = f"Accumulates the header of {where}, and proves facts about it."
        yield _Proposed(intent, header if intent.accumulates else f"Proves facts of {where}.", rests)
        rests = rests or with_header


def _of_times(
    source: _Source, block: Block, seen: Observation, action: ProveTime, where: str, *, rests: bool
) -> Iterator[_Proposed]:
    each: ProveTime | Prove | None = action
    while isinstance(each, ProveTime):
        what = f"Proves that {where} was the latest at the time {each.timestamp}, and accumulates its header."
        registry = source.context.registry
        intent = packs.proof_of_time(block, registry, each.following, each.timestamp, each.queries)
        yield _Proposed(intent, what, rests)
        each = each.otherwise
    # A query with a time also requests accounts at its block. Each of these transactions contains the header.
    assert seen.unproven is not None, "the time is missing"
    missing = seen.unproven.to_send
    facts: Missing = {fact: asking for fact, asking in missing.items() if isinstance(fact, AccountFact | SlotFact)}
    below = Prove(facts, root_is_known=True)
    yield from _of_proofs(source, block, below, where, rests=rests or not seen.unproven.root_is_known)
    if any(isinstance(fact, HeaderFact) for fact in missing):
        source.missing.wait(_MORE)


def _of_path(source: _Source, block: Block, seen: Observation, action: ExtendPath, where: str) -> Iterator[_Proposed]:
    part, intents = building.next_transactions(
        source.context.connection, block, action.path, target=action.target, missing=action.missing
    )
    source.trusted = {header.number for header in part.checkpoints}
    first = next(intents)
    proves = first.accumulates
    yield _Proposed(first, f"Leads to {where}{', and proves facts there' if proves else ''}.")
    for proof in itertools.islice(intents, _MOST):
        yield _Proposed(proof, f"Proves facts of {where}.", rests=True)
    if not part.arrives:
        source.missing.wait(_MORE)
    elif not proves:
        # The path ends at the next block, whose header shows when this block ended. Further transactions prove this
        # block's facts.
        for further in decide.prove(_vouched_for(seen)).actions:
            yield from _of_action(source, block, seen, further, rests=True)


# --- Gas --------------------------------------------------------------------------------------------------------------


def _with_gas(
    missing: MissingTransactions, connection: OpenConnection, proposed: Sequence[_Proposed]
) -> list[Unsigned]:
    """Return the first transactions, those for which there are gas limits. Note why others have none.

    Raises `Reverted`, `NodeUnavailable`, `RpcRefused`.
    """
    rpc = connection.destination_rpc
    destination_prices.find(rpc)
    prices = connection.prices
    bounds = [proposal.intent.gas_bound(prices) if proposal.rests else None for proposal in proposed]
    needs = [
        gas_limits.need_of(
            rpc, proposal.intent, _ANYBODY, ["pending"], prices, own_limit=partial(proposal.intent.gas_bound, prices)
        )
        for proposal, bound in zip(proposed, bounds, strict=True)
        if bound is None
    ]
    answers = rpc.ask([question for need in needs for question in need.questions])
    estimates: list[int | ChainError] = []
    for estimate in gas_caps.explained(rpc, answers, [need.bound or need.least for need in needs]):
        if isinstance(estimate, WaitReason):
            missing.wait(estimate)
            return []
        if isinstance(estimate, ChainError) and not isinstance(estimate, ImplausibleGas):
            raise estimate
        estimates.append(estimate)
    decided = iter(gas_limits.decide(rpc, prices, needs, [[estimate] for estimate in estimates]))
    data = rollups.data_costs(
        rpc, [(len(each.intent.data), bound or 0) for each, bound in zip(proposed, bounds, strict=True)]
    )
    transactions: list[Unsigned] = []
    for proposal, bound, cost in zip(proposed, bounds, data, strict=True):
        limit = next(decided) if bound is None else GasLimit(min(prices.max_gas, bound + cost.gas), bound)
        if bound is not None and not prices.are_charged:
            # Once the earlier ones are on the chain, nodes estimate this one.
            limit = _MORE
        if isinstance(limit, ChainError):
            raise limit
        if isinstance(limit, WaitReason):
            missing.wait(limit)
            break
        intent = proposal.intent
        transactions.append(Unsigned(intent.to, intent.data, limit.gas, proposal.what, intent.queries))
    return transactions
