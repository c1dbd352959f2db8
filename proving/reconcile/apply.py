"""Sends what was decided about blocks. Nothing else in this package sends transactions, which cost money.

Killed between two of them, the next turn decides anew from what there is then. What an action consists of is told to
who sends it himself as well (`unsigned`).
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from django.db.models import Q, QuerySet

from chains.node_errors import ChainError, Reverted
from chains.packed import encode_block_hash
from database import statements
from proving import packing, stops
from proving.connections import Context, WorkContext
from proving.deployments import in_one_call, revert_reason
from proving.facts import Missing
from proving.packing import Intent
from proving.paths import building, checkpoints
from proving.paths.building import Leg
from proving.paths.checkpoints import Jump
from proving.reconcile.decide import ExtendPath, Fail, PreparePath, Prove, ProveTime, Requeue, Sending
from proving.transactions import sending
from proving.transactions.signers import Unsent
from queries import waits
from queries.models import ADMITTED_STATUSES, Block, Query, Sender, StepKind
from queries.waits import WaitReason, wait

# Transactions of one block that are sent in one go.
_TRANSACTIONS_PER_LOOK = 16
# Queries that a path may stop for beside those that it is sent for.
_MOST_BESIDE = 1000


def send_all(context: WorkContext, wanted: Mapping[int, tuple[Block, Sending]]) -> dict[int, Requeue | Fail]:
    """Send it, for as many of the queries as can pay now: the others hold up nobody.

    Return, by the ids of blocks, why something could not be sent.
    """
    if not wanted:
        return {}
    # Observed it is all the same: what was sent before may be mined, or taken back.
    if stopped := stops.why_stopped(context.destination_rpc.chain.id, source=context.connection.config.source_id):
        return dict.fromkeys(wanted, _postponed(context, stopped))
    why_not: dict[int, Requeue | Fail] = {}
    left = list(wanted.values())
    while left:
        left = _send_each(context, left, why_not)
    return why_not


def _send_each(
    context: WorkContext, wanted: Sequence[tuple[Block, Sending]], why_not: dict[int, Requeue | Fail]
) -> list[tuple[Block, Sending]]:
    """Send for all of the queries of each. Return what is to be tried instead where batches can't pay."""
    orders: list[tuple[Block, Sending, sending.Order]] = []
    for block, action in wanted:
        try:
            orders.append((block, action, _order(context, block, action)))
        except ChainError as error:
            why_not[block.pk] = Fail(waits.fault(error), for_operators=error.for_operators)
    outcomes = sending.submit_all(context.destination_rpc.chain, context.lane, [order for *_, order in orders])
    instead: list[tuple[Block, Sending]] = []
    for (block, action, _), outcome in zip(orders, outcomes, strict=True):
        if isinstance(outcome, Unsent) and outcome.batches and (other := _instead(block, action, outcome.batches)):
            instead.append((block, other))
        elif not isinstance(outcome, sending.Sent) and not (isinstance(action, Prove) and action.is_optional):
            why_not[block.pk] = _why_not(context, outcome)
    return instead


def _instead(block: Block, action: Sending, poor: frozenset[str]) -> Sending | None:
    """Leave out the queries of batches that can't pay, as long as that leaves fewer; or do what is next best."""
    asking = _asking(action)
    # In whatever state they are: what can't pay must not be asked for again and again.
    left_out = Query.objects.filter(block=block, batch__in=poor).values_list("pk", flat=True)
    able = asking.difference(left_out)
    if able and able != asking:
        return _for_these(action, able)
    if isinstance(action, ProveTime):
        return action.otherwise
    if isinstance(action, ExtendPath):
        # The other blocks of who can't pay would go before those of others, one after the other.
        _give_way(block, poor)
    return None


def _asking(action: Sending) -> frozenset[int]:
    match action:
        case Prove(missing) | ExtendPath(needing=missing):
            return frozenset(pk for asking in missing.values() for pk in asking)
        case ProveTime() | PreparePath():
            return frozenset(action.queries)


def _for_these(action: Sending, able: Collection[int]) -> Sending:
    """Return the action for no more than these queries (ids)."""

    def only(missing: Missing) -> Missing:
        return {fact: asking for fact, every in missing.items() if (asking := [pk for pk in every if pk in able])}

    match action:
        case Prove():
            return replace(action, missing=only(action.missing))
        case ExtendPath():
            return replace(action, needing=only(action.needing))
        case ProveTime() | PreparePath():
            return replace(action, queries=able)


def _order(context: WorkContext, block: Block, action: Sending) -> sending.Order:
    """Return the transactions to send. Raises `NodeUnavailable`, `RpcRefused`."""
    match action:
        case Prove():
            # Of those that carry the header only one: the others wait for it.
            most = 1 if action.with_header else _TRANSACTIONS_PER_LOOK
            intents = list(itertools.islice(proofs(context, block, action), most))
            return sending.Order(intents, multicall="" if action.is_alone else context.registry.multicall)
        case ProveTime():
            return sending.Order([proof_of_time(context, block, action)])
        case PreparePath():
            return sending.Order([preparation(context, action)])
        case ExtendPath():
            leg, intents_of_leg = leg_of_path(context, block, action)
            return sending.Order([next(intents_of_leg)], partial(_note_path, context, action, leg))


def _note_path(context: WorkContext, action: ExtendPath, leg: Leg, _: str, __: int) -> None:
    checkpoints.note(context.connection, leg.checkpoints)
    if isinstance(action.path, Jump) and action.path.origin:
        checkpoints.note_origin(context.registry.row_id, action.path.origin)


def _why_not(context: WorkContext, outcome: Unsent | ChainError) -> Requeue | Fail:
    match outcome:
        case Unsent(why):
            return Requeue(why, context.poll_seconds) if outcome.is_brief else _postponed(context, why)
        case Reverted():
            reason = revert_reason(outcome.data)
            if reason.name not in {"UnknownBlock", "HeaderMismatch"}:
                return Fail(wait("proof_not_accepted", revert=str(reason)))
            # The chain moved between the observation and the simulation; the next turn says what that means.
            refused = wait("header_not_accepted", chain=context.destination_rpc.chain.id)
            return Requeue(refused, context.poll_seconds)
        case ChainError():
            return Fail(waits.fault(outcome), for_operators=outcome.for_operators)


def _postponed(context: WorkContext, reason: WaitReason) -> Requeue:
    return Requeue(reason, max(10, context.destination_rpc.chain.block_seconds))


# --- What waits for a path --------------------------------------------------------------------------------------------


def _waiting_beside(block: Block, queries: Collection[int]) -> Mapping[int, Collection[int]]:
    """Return other queries (ids) of the batch of these that wait for blocks' hashes, by the blocks' numbers.

    None where these are of several batches: each would pay for the stops of the others.
    """
    batches = set(Query.objects.filter(pk__in=queries).order_by().values_list("batch", flat=True).distinct()[:2])
    if len(batches) > 1:
        return {}
    waiting = _waiting(block).exclude(block=block).filter(batch__in=batches).order_by("pk")
    found: dict[int, list[int]] = defaultdict(list)
    for pk, number, timestamp in waiting.values_list("pk", "block__number", "timestamp")[:_MOST_BESIDE]:
        # Only the next block's header says when a block ended.
        found[number if timestamp is None else number + 1].append(pk)
    return found


def _give_way(block: Block, batches: Collection[str]) -> None:
    """Let no block of these batches go first for a path on the block's connection, until it asks for one again."""
    waiting = _waiting(block).filter(batch__in=batches).order_by().values("block")
    rows = Block.objects.filter(pk__in=waiting, waits_for_path=True)
    statements.retried(partial(rows.update, waits_for_path=False))


def first_for_path(blocks: Sequence[Block]) -> int | None:
    """Return which block is to have the next path: of these and those that wait for one on their connection, that of
    the oldest batch, and of this the lowest.

    Others lack what a path takes.
    """
    others = Q(block__waits_for_path=True, block__attempts=0, block__due_at__isnull=False)
    waiting = _waiting(blocks[0]).filter(Q(block__in=blocks) | others, batch__sender=Sender.OPERATOR)
    return waiting.order_by("batch", "block__number").values_list("block", flat=True).first()


def _waiting(block: Block) -> QuerySet[Query]:
    """Return the queries of the block's connection that may need a header."""
    return Query.objects.filter(
        step__in=[StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED],
        block__destination_chain_id=block.destination_chain_id,
        block__source_chain_id=block.source_chain_id,
        batch__status__in=ADMITTED_STATUSES,
    )


# --- What it consists of: intents, from stored proofs and what nodes tell ---------------------------------------------

# At the most, without calldata.
_TIME_GAS = 120_000


def proofs(context: Context, block: Block, action: Prove) -> Iterator[Intent]:
    """Yield as many transactions as it takes. Where the first carries the header, the others rest on it."""
    header = _header(block) if action.with_header else None
    jump = action.jump if action.with_header else ()
    calls = action.start.calls if action.start and action.with_header else ()
    packed = packing.intents(
        block,
        context.registry.contract,
        action.missing,
        header=header,
        jump=jump,
        beside=sum(len(data) for _, data in calls),
    )
    for first in itertools.islice(packed, 1):
        to, data = in_one_call(context.registry.multicall, [*calls, (first.to, first.data)])
        yield replace(first, to=to, data=data, most_gas=None) if calls else first
    yield from packed


def proof_of_time(context: Context, block: Block, action: ProveTime) -> Intent:
    contract = context.registry.contract
    data = contract.prove_timestamp(_header(block), action.following.encode(), action.timestamp)
    return Intent(contract.address, data, action.queries, accumulates=[block], most_gas=_TIME_GAS)


def preparation(context: Context, action: PreparePath) -> Intent:
    to, data = in_one_call(context.registry.multicall, action.preparation.calls)
    return Intent(to, data, action.queries, extends=context.registry.row_id)


def leg_of_path(context: Context, block: Block, action: ExtendPath) -> tuple[Leg, Iterator[Intent]]:
    """Return the next part of a path, and its transaction.

    If it ends at the block itself, what can be proven at once goes with it, and the rest of what needs it follows,
    resting on it. Raises `NodeUnavailable`, `RpcRefused`.
    """
    beside = _waiting_beside(block, _asking(action))
    leg = building.next_leg(context.connection, action.path, beside=beside)
    registry = context.registry.contract
    calls = list(leg.calls)
    rest: Iterator[Intent] = iter(())
    if leg.arrives and action.target.number == block.number:
        header = action.target.encode()
        rest = packing.intents(block, registry, action.needing, header=header, jump=action.jump, beside=leg.size)
    elif action.jump:
        calls.append((registry.address, encode_block_hash(action.jump)))
    proof = next(rest, None)
    calls += [(proof.to, proof.data)] if proof else []
    to, data = in_one_call(context.registry.multicall, calls)
    passed = [beside.get(header.number, ()) for header in leg.checkpoints[1:]]
    queries = _asking(action).union(*passed)
    accumulates = proof.accumulates if proof else ()
    path = Intent(to, data, queries, accumulates=accumulates, extends=context.registry.row_id)
    return leg, itertools.chain([path], rest)


def _header(block: Block) -> bytes:
    assert block.header_rlp is not None, "INITIAL_STATE is completed"
    return bytes(block.header_rlp)
