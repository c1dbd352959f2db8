"""The transactions that a self-funded batch lacks: unsigned, for anyone to send.

What is missing is observed and decided by the same functions as what the operator pays for. Nothing is sent here and
nothing is written: only the chain tells whether a transaction that was given out was sent.

They are in an order that works. Each that can be simulated is. One that rests on another before it, which nobody has
sent yet, gets an upper bound of its gas. A path that takes several transactions is given one by one: where the next one
begins is known when the last is on the chain.
"""

import itertools
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from chains import questions, rollups
from chains.node_errors import ChainError, NodeUnavailable, Reverted
from chains.rpc import RpcClient, result
from database.statements import chunks
from proving import connections, packing
from proving.connections import Context, OutOfTime
from proving.deployments import Unusable, revert_reason
from proving.facts import AccountFact, HeaderFact, Missing, SlotFact
from proving.heads import Heads
from proving.packing import GAS_MARGIN, MAX_GAS, Intent
from proving.paths import building, checkpoints
from proving.reconcile import decide, observe
from proving.reconcile.decide import (
    Action,
    Continue,
    Decision,
    ExtendPath,
    Fail,
    FindPath,
    FindTime,
    PreparePath,
    Prove,
    ProveTime,
    Requeue,
)
from proving.reconcile.observation import Observation
from queries import waits
from queries.models import PROVABLE_STEPS, Batch, BatchStatus, Block, StepKind
from queries.waits import WaitReason, wait

# In one answer, which is some megabytes then.
_MOST = 16
# How long it may take to find them, in seconds; looked at between exchanges with nodes.
_SECONDS = 20
_BLOCKS_TOGETHER = 64
# Who sends them makes no difference.
_ANYBODY = "0x0000000000000000000000000000000000000000"

_MORE = wait("more_transactions")


@dataclass(frozen=True)
class Unsigned:
    """One transaction, which carries no money."""

    to: str
    data: bytes
    gas: int
    """A limit that suffices."""
    what: str
    """A sentence about what it does."""
    queries: Collection[int]
    """Ids of the queries that it is for."""


@dataclass
class MissingTransactions:
    """The transactions that are left to send for a batch, as far as they were found."""

    transactions: list[Unsigned] = field(default_factory=list)
    """To be sent in this order."""
    waits: list[WaitReason] = field(default_factory=list)
    """What else is waited for."""
    is_complete: bool = True
    """True if nothing is missing once these are on the chain."""
    block: int | None = None
    """The block of the destination that was looked at, the oldest of several. None: nothing was looked for there."""
    fault: ChainError | None = None
    """Why a chain couldn't tell something."""

    def wait(self, reason: WaitReason) -> None:
        """Note that something is missing beside the transactions, and why."""
        if reason not in self.waits:
            self.waits.append(reason)
        self.is_complete = False

    def fail(self, error: ChainError) -> None:
        self.fault = self.fault or error
        self.wait(waits.fault(error))


def left_of(batch: Batch) -> MissingTransactions:
    """Find what is left to be sent for a batch that is open.

    Raises `NodeUnavailable`, `RpcRefused` where nothing can be told.
    """
    left, ends_at = MissingTransactions(), time.monotonic() + _SECONDS
    _note_what_is_not_prepared(left, batch)
    provable = batch.queries.filter(step__in=PROVABLE_STEPS).order_by("source_chain_id")
    try:
        for source in provable.values_list("source_chain_id", flat=True).distinct():
            _find(left, batch, source, ends_at)
    except _Enough:
        left.wait(_MORE)
    if left.fault is not None and not left.transactions:
        raise left.fault
    if left.is_complete and not left.transactions:
        left.waits.append(wait("all_on_chain"))
    return left


class _Enough(Exception):
    """One answer holds no more."""


def _note_what_is_not_prepared(left: MissingTransactions, batch: Batch) -> None:
    if batch.status == BatchStatus.RECEIVED or batch.queries.filter(block=None).exists():
        left.wait(batch.waits_for or wait("check"))
    fetching = batch.queries.filter(step=StepKind.INITIAL_STATE).exclude(block=None)
    if batch.status != BatchStatus.RECEIVED and fetching.exists():
        left.wait(wait("proofs"))


# --- Of one source chain ----------------------------------------------------------------------------------------------


@dataclass
class _Source:
    """One source chain of the batch, and what was given out of a path to its blocks."""

    left: MissingTransactions
    context: Context
    trusted: Collection[int] | None = None
    """Blocks whose hashes are known when the path is on the chain; None while there is no path."""


def _find(left: MissingTransactions, batch: Batch, source_id: int, ends_at: float) -> None:
    """Add what is missing of the blocks of one source chain, the oldest first: a path to it passes the others.

    Raises `_Enough`.
    """
    try:
        connection = replace(connections.open_unless_stopped(batch.destination_chain_id, source_id), ends_at=ends_at)
        head = connection.destination_rpc.head()
        left.block = min(head.number, left.block or head.number)
        # A transaction that was just sent counts at once: it waits for confirmations, and is not to be sent again.
        source = _Source(left, Context(connection, Heads(head, head, 0)))
        waiting = batch.queries.filter(source_chain_id=source_id, step__in=PROVABLE_STEPS)
        blocks = Block.objects.filter(pk__in=waiting.values("block")).order_by("number")
        for chunk in chunks(list(blocks.values_list("pk", flat=True)), _BLOCKS_TOGETHER):
            some = list(Block.objects.filter(pk__in=chunk).order_by("number"))
            seen = observe.of_batch(source.context, some, batch.pk)
            for block in some:
                connection.check_time()
                _add(source, block, seen[block.pk])
    except Unusable as why:
        left.wait(why.reason)
    except OutOfTime:
        left.fail(NodeUnavailable("The nodes are too slow to tell all that is missing."))
    except ChainError as error:
        left.fail(error)


def _add(source: _Source, block: Block, answer: tuple[Observation, bool] | ChainError) -> None:
    """Add what is missing of one block. Raises `_Enough`."""
    try:
        seen, is_part = result(answer)
        proposed = list(itertools.islice(_of_block(source, block, seen), _MOST + 1))
        if is_part:
            source.left.wait(_MORE)
        room = _MOST - len(source.left.transactions)
        transactions = _with_gas(source.context.destination_rpc, proposed)
        source.left.transactions += transactions[:room]
        if len(transactions) > room:
            raise _Enough
    except ChainError as error:
        # What would rest on a path that isn't given out.
        source.trusted = ()
        if isinstance(error, Reverted):
            # The chain moved since it was observed.
            source.left.wait(wait("proof_not_accepted_now", revert=str(revert_reason(error.data))))
        else:
            source.left.fail(error)


# --- Of one block -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Proposed:
    intent: Intent
    what: str
    rests: bool = False
    """On one before it, so that it can't be simulated yet."""


def _of_block(source: _Source, block: Block, seen: Observation) -> Iterator[_Proposed]:
    decision = decide.prove(seen)
    asked, rests = decision.then, False
    if isinstance(asked, FindPath):
        if source.trusted is None:
            decision = _with_path(source, block, seen, decision, asked)
        elif asked.target.number in source.trusted:
            rests = True
            decision = decide.prove(_vouched_for(seen))
    _note_waits(source.left, decision)
    for action in decision.actions:
        yield from _of_action(source, block, seen, action, rests=rests)


def _vouched_for(seen: Observation) -> Observation:
    """Return it as it will be when a path leads to the header that is needed."""
    assert seen.lacking is not None, "a path is only sought for what is missing"
    assert seen.lacking.trust is not None, "and that needs this header"
    return replace(seen, lacking=replace(seen.lacking, trust=replace(seen.lacking.trust, is_vouched_for=True)))


def _with_path(source: _Source, block: Block, seen: Observation, decision: Decision, asked: FindPath) -> Decision:
    context = source.context
    hints = checkpoints.newest(context.connection, context.heads.latest.number)
    found = building.find(context.connection, asked.target, hints, awaits_branch=True, is_self_funded=True)
    further = decide.path(seen, asked, found)
    return Decision(further.then, [*decision.actions, *further.actions])


def _note_waits(left: MissingTransactions, decision: Decision) -> None:
    if any(isinstance(action, ExtendPath) for action in decision.actions):
        return  # What is waited for is what is given out.
    match decision.then:
        case Continue():
            pass
        case Requeue(reason) | Fail(reason):
            left.is_complete = False
            if reason:
                left.wait(reason)
        case FindTime():
            left.wait(wait("time_sought"))
        case _:
            left.wait(_MORE)


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
            yield from _of_leg(source, block, seen, action, where)


def _of_proofs(source: _Source, block: Block, action: Prove, where: str, *, rests: bool) -> Iterator[_Proposed]:
    context, with_header = source.context, action.with_header
    for intent in packing.intents(
        block, context.registry, action.missing, with_header=with_header, jump=action.jump, calls=action.calls
    ):
        header = f"Accumulates the header of {where}, and proves facts of it."
        yield _Proposed(intent, header if intent.accumulates else f"Proves facts of {where}.", rests)
        rests = rests or with_header


def _of_times(
    source: _Source, block: Block, seen: Observation, action: ProveTime, where: str, *, rests: bool
) -> Iterator[_Proposed]:
    each: ProveTime | Prove | None = action
    while isinstance(each, ProveTime):
        what = f"Proves that {where} was the latest at the time {each.timestamp}, and accumulates its header."
        registry = source.context.registry
        intent = packing.proof_of_time(block, registry, each.following, each.timestamp, each.queries)
        yield _Proposed(intent, what, rests)
        each = each.otherwise
    # A query for a time also asks for accounts of its block. Each of these transactions brings the header.
    assert seen.lacking is not None, "the time is missing"
    missing = seen.lacking.missing_now
    facts: Missing = {fact: asking for fact, asking in missing.items() if isinstance(fact, AccountFact | SlotFact)}
    below = Prove(facts, root_is_known=True)
    yield from _of_proofs(source, block, below, where, rests=rests or not seen.lacking.root_is_known)
    if any(isinstance(fact, HeaderFact) for fact in missing):
        source.left.wait(_MORE)


def _of_leg(source: _Source, block: Block, seen: Observation, action: ExtendPath, where: str) -> Iterator[_Proposed]:
    connection, jump = source.context.connection, action.jump
    leg, intents = building.intents_of_leg(
        connection, block, action.path, target=action.target, needing=action.needing, jump=jump
    )
    source.trusted = {header.number for header in leg.checkpoints}
    path, *proofs = itertools.islice(intents, _MOST + 1)
    yield _Proposed(path, f"Leads to {where}{', and proves facts there' if path.accumulates else ''}.")
    yield from (_Proposed(proof, f"Proves facts of {where}.", rests=True) for proof in proofs)
    if not leg.arrives:
        source.left.wait(_MORE)
    elif not path.accumulates:
        # It leads to the block after it, which tells when it ended.
        for further in decide.prove(_vouched_for(seen)).actions:
            yield from _of_action(source, block, seen, further, rests=True)


# --- Gas --------------------------------------------------------------------------------------------------------------


def _with_gas(rpc: RpcClient, proposed: Sequence[_Proposed]) -> list[Unsigned]:
    """Ask for each transaction's gas limit. Raises `Reverted`, `NodeUnavailable`, `RpcRefused`."""
    bounds = [one.intent.gas_bound() if one.rests else None for one in proposed]
    simulated = [one.intent for one, bound in zip(proposed, bounds, strict=True) if bound is None]
    asked = [questions.gas_estimate(_ANYBODY, intent.to, intent.data) for intent in simulated]
    estimates = iter(rpc.answers(asked))
    data = rollups.data_costs(
        rpc, [(len(one.intent.data), bound or 0) for one, bound in zip(proposed, bounds, strict=True)]
    )
    limits = [
        next(estimates) * GAS_MARGIN if bound is None else bound + cost.gas
        for bound, cost in zip(bounds, data, strict=True)
    ]
    return [
        Unsigned(one.intent.to, one.intent.data, min(MAX_GAS, int(limit)), one.what, one.intent.queries)
        for one, limit in zip(proposed, limits, strict=True)
    ]
