"""Sending of the decided transactions for batches that can pay. Nothing else in reconcile costs money.

After a kill, the next turn decides again from the state at that time.
"""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from chains.nodes.node_errors import ChainError, Reverted
from proving import stops
from proving.connections import WorkContext
from proving.facts import Missing
from proving.models import AccountProof
from proving.packing import packs
from proving.paths import building, checkpoints
from proving.paths.building import Leg
from proving.paths.checkpoints import Jump
from proving.paths.planning import Path
from proving.reconcile.decide import ExtendPath, Fail, PreparePath, Prove, ProveTime, Requeue, Sending
from proving.registries.deployments import revert_reason
from proving.sending import orders
from proving.sending.signers import Unsent
from queries import waits
from queries.models import Block, Query
from queries.waits import WaitReason, wait

# Maximum transactions of one block that are sent in one turn.
_TRANSACTIONS_PER_TURN = 16


def send_all(context: WorkContext, actions: Mapping[int, tuple[Block, Sending]]) -> dict[int, Requeue | Fail]:
    """Carry out actions that send, for queries whose batches can pay now. Other batches don't delay them.

    Return, by block id, why something wasn't sent.
    """
    if not actions:
        return {}
    # A stop only prevents sending. Blocks are still observed, because earlier transactions may be mined or rolled back.
    if stopped := stops.why_stopped(context.destination_rpc.chain.id, source=context.connection.config.source_id):
        return dict.fromkeys(actions, _postponed(context, stopped))
    why_not: dict[int, Requeue | Fail] = {}
    sendings = list(actions.values())
    while sendings:
        proofs = packs.proofs_of({block.pk: action.missing for block, action in sendings if isinstance(action, Prove)})
        sent: list[tuple[Block, Sending, orders.Order]] = []
        for block, action in sendings:
            try:
                sent.append((block, action, _order(context, block, action, proofs)))
            except ChainError as error:
                why_not[block.pk] = Fail(waits.fault(error), for_operators=error.for_operators)
        outcomes = orders.submit_all(context.destination_rpc.chain, context.lane, [order for *_, order in sent])
        sendings = []
        for (block, action, _), outcome in zip(sent, outcomes, strict=True):
            if isinstance(outcome, Unsent) and outcome.batches and (other := _instead(block, action, outcome.batches)):
                sendings.append((block, other))
            elif not isinstance(outcome, orders.Sent) and not (isinstance(action, Prove) and action.is_optional):
                why_not[block.pk] = _why_not(context, outcome)
    return why_not


def _instead(block: Block, action: Sending, poor: frozenset[str]) -> Sending | None:
    """Return the action without queries of batches that can't pay, or the next best action. None if there is none."""
    asking = _asking(action)
    # Queries of these batches are left out in any state. Otherwise the same query would be tried again and again.
    able = asking.difference(Query.objects.filter(block=block, batch__in=poor).values_list("pk", flat=True))
    if able and able != asking:
        return _for_these(action, able)
    if isinstance(action, ProveTime):
        return action.otherwise
    if isinstance(action, ExtendPath):
        # Without this, all blocks of these batches would have their turn before other batches' blocks.
        building.give_way(block, poor)
    return None


def _asking(action: Sending) -> frozenset[int]:
    match action:
        case Prove(missing) | ExtendPath(missing=missing):
            return frozenset(pk for asking in missing.values() for pk in asking)
        case ProveTime() | PreparePath():
            return frozenset(action.queries)


def _for_these(action: Sending, able: Collection[int]) -> Sending:
    """Return the action restricted to these queries (ids)."""

    def only(missing: Missing) -> Missing:
        return {fact: asking for fact, every in missing.items() if (asking := [pk for pk in every if pk in able])}

    match action:
        case Prove():
            return replace(action, missing=only(action.missing))
        case ExtendPath():
            return replace(action, missing=only(action.missing))
        case ProveTime() | PreparePath():
            return replace(action, queries=able)


def _order(
    context: WorkContext, block: Block, action: Sending, proofs: Mapping[tuple[int, str], AccountProof]
) -> orders.Order:
    """Return the transactions to send. Raises `NodeUnavailable`, `RpcRefused`."""
    connection, registry = context.connection, context.registry
    match action:
        case Prove():
            # Only one transaction may carry the header, and the others wait for it.
            most = 1 if action.with_header else _TRANSACTIONS_PER_TURN
            intents = packs.intents(
                block,
                registry,
                action.missing,
                with_header=action.with_header,
                stores_root=not action.root_is_known,
                jump=action.jump,
                calls=action.calls,
                proofs=proofs,
            )
            return orders.Order(
                list(itertools.islice(intents, most)), multicall="" if action.is_alone else registry.multicall
            )
        case ProveTime(timestamp, following, queries):
            return orders.Order([packs.proof_of_time(block, registry, following, timestamp, queries)])
        case PreparePath(preparation, queries):
            return orders.Order([building.intent_before(connection, preparation, queries)])
        case ExtendPath(path, target, missing, jump):
            extension = building.next_transactions(connection, block, path, target=target, missing=missing, jump=jump)
            return orders.Order([extension.first], partial(_note_path, context, path, extension.leg))


def _note_path(context: WorkContext, path: Path, leg: Leg) -> None:
    checkpoints.note(context.connection, leg.checkpoints)
    if isinstance(path, Jump) and path.origin:
        checkpoints.note_origin(context.registry.row_id, path.origin)


def _why_not(context: WorkContext, outcome: Unsent | ChainError) -> Requeue | Fail:
    match outcome:
        case Unsent(why):
            return Requeue(why, context.poll_seconds) if outcome.is_brief else _postponed(context, why)
        case Reverted():
            reason = revert_reason(outcome.data)
            if reason.name not in {"UnknownBlock", "HeaderMismatch"}:
                return Fail(wait("proof_not_accepted", revert=str(reason)))
            # The chain has changed since it was observed, so the next turn decides again.
            refused = wait("header_not_accepted", chain=context.destination_rpc.chain.id)
            return Requeue(refused, context.poll_seconds)
        case ChainError():
            return Fail(waits.fault(outcome), for_operators=outcome.for_operators)


def _postponed(context: WorkContext, reason: WaitReason) -> Requeue:
    return Requeue(reason, max(10, context.destination_rpc.chain.block_seconds))
