"""Carries out what was decided about a block. Nothing else in this package sends transactions, which cost money.
Rows are written by `rows`.

Killed between two actions, the next reconcile decides anew from what there is then.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from chains.rpc import Reverted
from proving import stops
from proving.facts import Missing
from proving.paths import building, checkpoints
from proving.paths.checkpoints import Jump
from proving.reconcile import calldata, rows, sent
from proving.reconcile.context import WorkContext
from proving.reconcile.decide import (
    Action,
    Change,
    ExtendPath,
    Fail,
    PreparePath,
    Prove,
    ProveTime,
    Requeue,
    Sending,
)
from proving.registry.deployments import revert_reason
from proving.transactions import sending, signers
from proving.transactions.intents import Intent, NoRoom, NotPaid, Order, Refused, Sent, UnderWay, Unsent
from queries.models import Query

# Transactions sent in one go.
_TRANSACTIONS_PER_LOOK = 16


def carry_out(context: WorkContext, actions: Sequence[Action]) -> Requeue | Fail | None:
    """Do them in their order. Returns why the rest was not done, if something could not be sent."""
    for of_rows, several in itertools.groupby(actions, lambda action: isinstance(action, Change)):
        if of_rows:
            rows.write(context, [action for action in several if isinstance(action, Change)])
            continue
        for action in several:
            if not isinstance(action, Change) and (why_not := _send(context, action)) is not None:
                return why_not
    return None


# --- Transactions -----------------------------------------------------------------------------------------------------


_NotSent = Requeue | Fail | NotPaid


def _send(context: WorkContext, action: Sending) -> Requeue | Fail | None:
    """Send it, for as many of the queries as can pay now: the others hold up nobody."""
    match action:
        case Prove():
            why_not = _prove(context, action)
        case ProveTime():
            why_not = _submit_one(context, calldata.of_time(context, action))
        case PreparePath():
            why_not = _submit_one(context, calldata.of_preparation(context, action))
        case ExtendPath():
            why_not = _extend_path(context, action)
    if isinstance(why_not, NotPaid):
        if isinstance(action, Prove) and action.is_optional:
            return None
        otherwise = action.otherwise if isinstance(action, ProveTime) else None
        return _postponed(context, why_not.sentence) if otherwise is None else _send(context, otherwise)
    return why_not


def _prove(context: WorkContext, action: Prove) -> _NotSent | None:
    def prove(able: set[int]) -> _NotSent | None:
        affordable = replace(action, missing=_only(action.missing, able))
        # Of those that carry the header only one: the others wait for it.
        most = 1 if affordable.with_header else _TRANSACTIONS_PER_LOOK
        intents = list(itertools.islice(calldata.of_proofs(context, affordable), most))
        return _submit(context, intents, multicall="" if action.is_alone else context.registry.multicall)

    return _for_who_can_pay(context, _asking(action.missing), prove)


def _submit_one(context: WorkContext, intent: Intent) -> _NotSent | None:
    return _for_who_can_pay(
        context, set(intent.queries), lambda able: _submit(context, [replace(intent, queries=able)])
    )


def _extend_path(context: WorkContext, action: ExtendPath) -> _NotSent | None:
    why_not = _for_who_can_pay(context, _asking(action.needing), lambda able: _send_leg(context, action, able))
    if isinstance(why_not, NotPaid):
        # The other blocks of who can't pay would go before those of others, one after the other.
        sent.give_way(context.block, why_not.batches)
    return why_not


def _send_leg(context: WorkContext, action: ExtendPath, able: set[int]) -> _NotSent | None:
    beside = sent.waiting_beside(context.block, able)
    leg = building.next_leg(context.connection, action.path, beside=beside)
    intent = next(calldata.of_leg(context, action, leg, _only(action.needing, able), beside))

    def store(_: int) -> None:
        checkpoints.note(context.connection, leg.checkpoints)
        if isinstance(action.path, Jump) and action.path.origin:
            checkpoints.note_origin(context.registry.row_id, action.path.origin)

    return _submit(context, [intent], and_store=store)


def _for_who_can_pay(
    context: WorkContext, queries: set[int], send: Callable[[set[int]], _NotSent | None]
) -> _NotSent | None:
    """Send for all of the queries, then without those of batches that can't pay, as long as that leaves fewer."""
    while True:
        why_not = send(queries)
        if not isinstance(why_not, NotPaid):
            return why_not
        able = _able(context, queries, why_not.batches)
        if not able or able == queries:
            return why_not
        queries = able


def _able(context: WorkContext, queries: set[int], batches: Collection[str]) -> set[int]:
    """Return the queries that are of other batches."""
    # In whatever state they are: what can't pay must not be asked for again and again.
    return queries.difference(Query.objects.filter(block=context.block, batch__in=batches).values_list("pk", flat=True))


def _asking(missing: Missing) -> set[int]:
    return {pk for asking in missing.values() for pk in asking}


def _only(missing: Missing, able: set[int]) -> Missing:
    """Return what of this these queries ask for."""
    return {fact: asking for fact, every in missing.items() if (asking := [pk for pk in every if pk in able])}


def _submit(
    context: WorkContext,
    intents: Sequence[Intent],
    *,
    and_store: Callable[[int], None] | None = None,
    multicall: str = "",
) -> _NotSent | None:
    """Sign, store and broadcast as many as there is room for; with a `multicall`, together with those of others."""
    # Observed it is all the same: what was sent before may be mined, or taken back.
    chain = context.destination_chain
    stopped = stops.why_stopped(chain.id, source=context.connection.config.source_id)
    if refused := stopped or signers.why_none(chain):
        return _postponed(context, refused)
    try:
        outcome = sending.submit_all(chain, Order(context.lane, intents, and_store, context.block, multicall))
    except Reverted as reverted:
        return _why_reverted(context, reverted)
    return _why_not(context, outcome)


def _why_not(context: WorkContext, outcome: Sent | Unsent) -> _NotSent | None:
    match outcome:
        case Sent(transactions):
            context.known.sent = transactions[-1]
            return None
        case NoRoom():
            return _no_room(context)
        case UnderWay():
            return Requeue("Waiting for a transaction that does the same.", min(0.2, context.poll_seconds))
        case Refused(sentence):
            return _postponed(context, sentence)
        case NotPaid():
            return outcome


def _no_room(context: WorkContext) -> Requeue:
    return Requeue("Waiting until transactions that were sent before are mined.", context.poll_seconds)


def _postponed(context: WorkContext, sentence: str) -> Requeue:
    return Requeue(sentence, max(10, context.destination_chain.block_seconds))


def _why_reverted(context: WorkContext, reverted: Reverted) -> Requeue | Fail:
    reason = revert_reason(reverted.data)
    if reason.name in {"UnknownBlock", "HeaderMismatch"}:
        # The chain moved between the observation and the simulation; the next reconcile says what that means.
        sentence = f"Chain {context.destination_chain.id} does not accept the header at this moment."
        return Requeue(sentence, context.poll_seconds)
    return Fail(f"The registry does not accept the proof: {reason}.")
