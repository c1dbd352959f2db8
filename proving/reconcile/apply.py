"""Sends what was decided about blocks. Nothing else in this package sends transactions, which cost money.

Killed between two of them, the next turn decides anew from what there is then.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from chains.rpc import ChainError, Reverted
from proving import stops
from proving.connections import WorkContext
from proving.facts import Missing
from proving.paths import building, checkpoints
from proving.paths.building import Leg
from proving.paths.checkpoints import Jump
from proving.reconcile import calldata, sent
from proving.reconcile.decide import ExtendPath, Fail, PreparePath, Prove, ProveTime, Requeue, Sending
from proving.registry.deployments import revert_reason
from proving.transactions import sending, signers
from proving.transactions.signers import Unsent
from queries.models import Block, Query

# Transactions of one block that are sent in one go.
_TRANSACTIONS_PER_LOOK = 16


@dataclass(frozen=True)
class _Purpose:
    """What is to be sent for a block, and for which of the queries (ids) that ask for it."""

    block: Block
    action: Sending
    queries: frozenset[int]


def send_all(context: WorkContext, wanted: Mapping[int, tuple[Block, Sending]]) -> dict[int, Requeue | Fail]:
    """Send it, for as many of the queries as can pay now: the others hold up nobody.

    Return, by the ids of blocks, why something could not be sent.
    """
    if not wanted:
        return {}
    # Observed it is all the same: what was sent before may be mined, or taken back.
    chain = context.destination_rpc.chain
    stopped = stops.why_stopped(chain.id, source=context.connection.config.source_id)
    if refused := stopped or signers.why_none(chain):
        return dict.fromkeys(wanted, _postponed(context, refused))
    why_not: dict[int, Requeue | Fail] = {}
    purposes = [_Purpose(block, action, _asking(action)) for block, action in wanted.values()]
    while purposes:
        purposes = _send_each(context, purposes, why_not)
    return why_not


def _send_each(
    context: WorkContext, purposes: Sequence[_Purpose], why_not: dict[int, Requeue | Fail]
) -> list[_Purpose]:
    """Send for all of the queries of each. Return what is to be tried instead where batches can't pay."""
    orders: list[tuple[_Purpose, sending.Order]] = []
    for purpose in purposes:
        try:
            orders.append((purpose, _order(context, purpose)))
        except ChainError as error:
            why_not[purpose.block.pk] = Fail(str(error), for_operators=error.for_operators)
    outcomes = sending.submit_all(context.destination_rpc.chain, context.lane, [order for _, order in orders])
    instead: list[_Purpose] = []
    for (purpose, _), outcome in zip(orders, outcomes, strict=True):
        if isinstance(outcome, Unsent) and outcome.batches and (other := _instead(purpose, outcome.batches)):
            instead.append(other)
        elif not isinstance(outcome, sending.Sent) and not (
            isinstance(purpose.action, Prove) and purpose.action.is_optional
        ):
            why_not[purpose.block.pk] = _why_not(context, outcome)
    return instead


def _instead(purpose: _Purpose, poor: frozenset[str]) -> _Purpose | None:
    """Leave out the queries of batches that can't pay, as long as that leaves fewer; or do what is next best."""
    # In whatever state they are: what can't pay must not be asked for again and again.
    left_out = Query.objects.filter(block=purpose.block, batch__in=poor).values_list("pk", flat=True)
    able = purpose.queries.difference(left_out)
    if able and able != purpose.queries:
        return replace(purpose, queries=able)
    if isinstance(purpose.action, ProveTime) and purpose.action.otherwise is not None:
        return _Purpose(purpose.block, purpose.action.otherwise, _asking(purpose.action.otherwise))
    if isinstance(purpose.action, ExtendPath):
        # The other blocks of who can't pay would go before those of others, one after the other.
        sent.give_way(purpose.block, poor)
    return None


def _asking(action: Sending) -> frozenset[int]:
    match action:
        case Prove(missing) | ExtendPath(needing=missing):
            return frozenset(pk for asking in missing.values() for pk in asking)
        case ProveTime() | PreparePath():
            return frozenset(action.queries)


def _only(missing: Missing, able: frozenset[int]) -> Missing:
    """Return what of this these queries ask for."""
    return {fact: asking for fact, every in missing.items() if (asking := [pk for pk in every if pk in able])}


def _order(context: WorkContext, purpose: _Purpose) -> sending.Order:
    """Return the transactions to send. Raises `NodeUnavailable`, `RpcRefused`."""
    block, action = purpose.block, purpose.action
    match action:
        case Prove():
            affordable = replace(action, missing=_only(action.missing, purpose.queries))
            # Of those that carry the header only one: the others wait for it.
            most = 1 if affordable.with_header else _TRANSACTIONS_PER_LOOK
            intents = list(itertools.islice(calldata.of_proofs(context, block, affordable), most))
            return sending.Order(intents, multicall="" if action.is_alone else context.registry.multicall)
        case ProveTime():
            return sending.Order([replace(calldata.of_time(context, block, action), queries=purpose.queries)])
        case PreparePath():
            return sending.Order([replace(calldata.of_preparation(context, action), queries=purpose.queries)])
        case ExtendPath():
            beside = sent.waiting_beside(block, purpose.queries)
            leg = building.next_leg(context.connection, action.path, beside=beside)
            needing = _only(action.needing, purpose.queries)
            intent = next(calldata.of_leg(context, block, action, leg, needing, beside=beside))
            return sending.Order([intent], partial(_note_path, context, action, leg))


def _note_path(context: WorkContext, action: ExtendPath, leg: Leg, _: str, __: int) -> None:
    checkpoints.note(context.connection, leg.checkpoints)
    if isinstance(action.path, Jump) and action.path.origin:
        checkpoints.note_origin(context.registry.row_id, action.path.origin)


def _why_not(context: WorkContext, outcome: Unsent | ChainError) -> Requeue | Fail:
    match outcome:
        case Unsent(sentence):
            return Requeue(sentence, context.poll_seconds) if outcome.is_brief else _postponed(context, sentence)
        case Reverted():
            return _why_reverted(context, outcome)
        case ChainError():
            return Fail(str(outcome), for_operators=outcome.for_operators)


def _postponed(context: WorkContext, sentence: str) -> Requeue:
    return Requeue(sentence, max(10, context.destination_rpc.chain.block_seconds))


def _why_reverted(context: WorkContext, reverted: Reverted) -> Requeue | Fail:
    reason = revert_reason(reverted.data)
    if reason.name in {"UnknownBlock", "HeaderMismatch"}:
        # The chain moved between the observation and the simulation; the next turn says what that means.
        sentence = f"Chain {context.destination_rpc.chain.id} does not accept the header at this moment."
        return Requeue(sentence, context.poll_seconds)
    return Fail(f"The registry does not accept the proof: {reason}.")
