"""Carries out what was decided about a block. Nothing else in this package sends transactions, which cost money.

Killed between two actions, the next reconcile decides anew from what there is then.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from django.utils import timezone

from chains.encoding import hex_data
from chains.rpc import Reverted
from proving.facts import Missing
from proving.models import AccountProof, SlotProof
from proving.paths import building, checkpoints, rotation, wanted
from proving.paths.building import Leg
from proving.reconcile.context import Context
from proving.reconcile.decide import (
    Action,
    Complete,
    ExtendPath,
    Fail,
    GiveTurn,
    MoveToBlock,
    NoteChecked,
    NoteRefused,
    PreparePath,
    Prove,
    ProveTime,
    Reject,
    Reopen,
    Requeue,
    Sending,
    ShowPath,
    StoreProofs,
    TakeHeader,
)
from proving.registry import packing
from proving.registry.contract import in_one_call, revert_reason
from proving.transactions import pending_limits, sending, signing
from proving.transactions.intents import Intent, NotPaid, Refused, Sent, SignerBusy, UnderWay
from queries import progress, submission
from queries.chunks import chunks
from queries.models import BatchStatus, Block, Query, StepKind

# Rows written in one database transaction: other writers get their turn in between.
_QUERIES_PER_WRITE = 500
_SLOTS_PER_STATEMENT = 200
# Transactions sent in one go, under one lease of the signer.
_TRANSACTIONS_PER_LOOK = 16


def carry_out(context: Context, actions: Sequence[Action]) -> Requeue | Fail | None:
    """Do them in their order. Returns why the rest was not done, if something could not be sent."""
    for action in actions:
        if (why_not := _carry_out(context, action)) is not None:
            return why_not
    return None


def _carry_out(context: Context, action: Action) -> Requeue | Fail | None:
    match action:
        case Prove() | ProveTime() | PreparePath() | ExtendPath():
            return _send(context, action)
        case Complete() | Reopen() | MoveToBlock() | Reject():
            _change_queries(context, action)
        case GiveTurn():
            rotation.give(action.rotation, context.block)
        case _:
            _change_block(context, action)
    return None


# --- Rows -------------------------------------------------------------------------------------------------------------


def _change_queries(context: Context, action: Complete | Reopen | MoveToBlock | Reject) -> None:
    match action:
        case Complete():
            _complete(context, action)
        case Reopen():
            _reopen(context, action)
        case MoveToBlock():
            _move_to_block(context, action)
        case Reject():
            _reject(context, action)


def _change_block(context: Context, action: TakeHeader | StoreProofs | NoteRefused | NoteChecked | ShowPath) -> None:
    match action:
        case TakeHeader():
            _take_header(context, action)
        case StoreProofs():
            _store_proofs(context, action)
        case NoteRefused():
            with context.lease.writing() as block:
                block.refused_since = action.since
                block.save(update_fields=["refused_since"])
        case NoteChecked():
            with context.lease.writing() as block:
                _note_checked(context, block)
        case ShowPath():
            _show_path(context, action)


def _complete(context: Context, action: Complete) -> None:
    for chunk in chunks(sorted(action.queries), _QUERIES_PER_WRITE):
        at_step = Query.objects.filter(pk__in=chunk, step=action.step)
        if not at_step.exists():
            continue
        with context.lease.writing() as block:
            progress.complete(chunk, action.step, transaction_hash=action.transaction_hash)
            if action.step in {StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED}:
                # With what is completed, or never.
                _note_checked(context, block)


def _take_header(context: Context, action: TakeHeader) -> None:
    header, new_hash = action.header, hex_data(action.header.hash)
    with context.lease.writing() as block:
        if block.hash:
            AccountProof.objects.filter(block=block).delete()
            affected = block.queries.exclude(batch__status=BatchStatus.REJECTED).values_list("pk", flat=True)
            reason = f"The source chain was reorganised: block {block.number} was {block.hash} and is now {new_hash}."
            progress.reopen(list(affected), StepKind.INITIAL_STATE, reason=reason)
        block.hash = new_hash
        block.header_rlp = header.encode()
        block.state_root = hex_data(header.state_root)
        block.timestamp = header.timestamp
        block.save(update_fields=["hash", "header_rlp", "state_root", "timestamp"])


def _store_proofs(context: Context, action: StoreProofs) -> None:
    if not action.proofs:
        return
    with context.lease.writing() as block:
        AccountProof.objects.bulk_create([proof.account for proof in action.proofs], ignore_conflicts=True)
        addresses = [proof.account.address for proof in action.proofs if proof.slots]
        stored = AccountProof.objects.filter(block=block, address__in=addresses)
        ids = dict(stored.values_list("address", "pk"))
        slots: list[SlotProof] = []
        for proof in action.proofs:
            for slot in proof.slots:
                slot.account_id = ids[proof.account.address]
                slots.append(slot)
        SlotProof.objects.bulk_create(slots, ignore_conflicts=True, batch_size=_SLOTS_PER_STATEMENT)


def _note_checked(context: Context, block: Block) -> None:
    confirmed = context.heads.confirmed
    block.checked_number, block.checked_hash = confirmed.number, hex_data(confirmed.hash)
    block.save(update_fields=["checked_number", "checked_hash"])


def _reopen(context: Context, action: Reopen) -> None:
    for chunk in chunks(sorted(action.queries), _QUERIES_PER_WRITE):
        with context.lease.writing():
            progress.reopen(chunk, action.step, reason=action.reason)
    context.lease.extend()


def _move_to_block(context: Context, action: MoveToBlock) -> None:
    with context.lease.writing() as block:
        pair = (block.source_chain_id, action.number)
        found = submission.find_blocks(block.destination_chain_id, {pair})[pair]
        progress.move(action.queries, found, reason=action.reason)
        Block.objects.filter(pk=found).update(due_at=timezone.now())


def _reject(context: Context, action: Reject) -> None:
    batches: set[str] = set()
    for chunk in chunks(sorted(action.queries), _QUERIES_PER_WRITE):
        batches.update(Query.objects.filter(pk__in=chunk).values_list("batch", flat=True))
    with context.lease.writing():
        progress.reject(batches, code=action.code, reason=action.reason, retryable=action.retryable)


def _show_path(context: Context, action: ShowPath) -> None:
    """At its end the block itself is one that paths may begin at."""
    block = context.block
    length = max(block.path_length, action.left) if action.unit in {"", block.path_unit} else action.left
    arrived = block.is_checkpoint or not action.unit
    shown = (action.unit or block.path_unit, length, action.left, arrived)
    if shown != (block.path_unit, block.path_length, block.path_left, block.is_checkpoint):
        with context.lease.writing() as fresh:
            fresh.path_unit, fresh.path_length, fresh.path_left, fresh.is_checkpoint = shown
            fresh.save(update_fields=["path_unit", "path_length", "path_left", "is_checkpoint"])


# --- Transactions -----------------------------------------------------------------------------------------------------


_NotSent = Requeue | Fail | NotPaid


def _send(context: Context, action: Sending) -> Requeue | Fail | None:
    """Send it, for as many of the queries as can pay now: whoever can't holds up nobody who can."""
    match action:
        case Prove():
            why_not = _prove(context, action)
        case ProveTime():
            why_not = _prove_time(context, action)
        case PreparePath():
            why_not = _prepare_path(context, action)
        case ExtendPath():
            why_not = _extend_path(context, action)
    if isinstance(why_not, NotPaid):
        if isinstance(action, Prove) and action.is_optional:
            return None
        otherwise = action.otherwise if isinstance(action, ProveTime) else None
        return _postponed(context, why_not.sentence) if otherwise is None else _send(context, otherwise)
    return why_not


def _prove(context: Context, action: Prove) -> _NotSent | None:
    assert context.block.header_rlp is not None, "INITIAL_STATE is completed"
    while True:
        header = bytes(context.block.header_rlp) if action.with_header else None
        packed = packing.intents(context.block, context.registry.contract, action.missing, header=header)
        # Of those that carry the header only one: the others wait for it.
        intents = list(itertools.islice(packed, 1 if header is not None else _TRANSACTIONS_PER_LOOK))
        why_not = _submit(context, intents)
        if not isinstance(why_not, NotPaid):
            return why_not
        action = replace(action, missing=_without(context, action.missing, why_not.batches))
        if not action.missing:
            return why_not


def _prove_time(context: Context, action: ProveTime) -> _NotSent | None:
    assert context.block.header_rlp is not None, "INITIAL_STATE is completed"
    contract = context.registry.contract
    header = bytes(context.block.header_rlp)
    data = contract.prove_timestamp(header, action.following.encode(), action.timestamp)
    intent = Intent(contract.address, data, accumulates=context.block)
    return _submit_for_who_can_pay(context, intent, action.queries)


def _prepare_path(context: Context, action: PreparePath) -> _NotSent | None:
    to, data = in_one_call(context.registry.multicall, action.preparation.calls)
    intent = Intent(to, data, extends=context.registry.row_id)
    return _submit_for_who_can_pay(context, intent, action.queries)


def _submit_for_who_can_pay(context: Context, intent: Intent, queries: Collection[int]) -> _NotSent | None:
    able = set(queries)
    while True:
        why_not = _submit(context, [replace(intent, queries=able)])
        if not isinstance(why_not, NotPaid):
            return why_not
        left = _able(able, why_not.batches)
        if not left or left == able:
            return why_not
        able = left


def _extend_path(context: Context, action: ExtendPath) -> _NotSent | None:
    needing, others = action.needing, action.others
    while True:
        leg = building.next_leg(context.connection, action.plan, others=others)
        why_not = _send_leg(context, action, leg, needing)
        if not isinstance(why_not, NotPaid):
            return why_not
        able = _without(context, needing, why_not.batches)
        if not others and (not able or able == needing):
            return why_not
        # First without the blocks of others, who may be those that can't pay.
        needing, others = able or needing, ()


def _send_leg(context: Context, action: ExtendPath, leg: Leg, needing: Missing) -> _NotSent | None:
    """Send a part of a path, and behind it what can be proven at once because it ends at the block itself."""
    proof: Intent | None = None
    if leg.arrives and action.target.number == context.block.number:
        beside = sum(map(len, leg.data))
        packed = packing.intents(
            context.block, context.registry.contract, needing, header=action.target.encode(), beside=beside
        )
        proof = next(iter(packed), None)
    calls = [*leg.calls, *([(proof.to, proof.data)] if proof else [])]
    to, data = in_one_call(context.registry.multicall, calls)
    intent = Intent(
        to,
        data,
        {*(pk for pks in needing.values() for pk in pks), *wanted.by_queries(context.block, leg.riders)},
        accumulates=proof.accumulates if proof else None,
        extends=context.registry.row_id,
        leads_to=context.block,
    )
    return _submit(context, [intent], and_store=lambda _: checkpoints.note(context.connection, leg.checkpoints))


def _submit(
    context: Context, intents: Sequence[Intent], *, and_store: Callable[[int], None] | None = None
) -> _NotSent | None:
    """Sign, store and broadcast as many as there is room for; show on the queries what they wait for."""
    chain = context.destination_chain
    # As often as there are batches that can't pay, and simulations take long.
    context.lease.extend()
    most = pending_limits.left(context.block, signing.sender(chain))
    if not most:
        return Requeue("Waiting until transactions that were sent before are mined.", context.poll_seconds)
    try:
        outcome = sending.submit_all(chain, intents[:most], and_store=and_store)
    except Reverted as reverted:
        return _why_reverted(context, reverted)
    match outcome:
        case Sent(transactions):
            for tx in transactions:
                progress.note_transaction(list(tx.queries.values_list("pk", flat=True)), tx.latest_hash)
            return None
        case SignerBusy() | UnderWay():
            return Requeue("Waiting for the signer.", min(0.2, context.poll_seconds))
        case Refused(sentence):
            return _postponed(context, sentence)
        case NotPaid():
            return outcome


def _postponed(context: Context, sentence: str) -> Requeue:
    return Requeue(sentence, max(10, context.destination_chain.block_seconds))


def _why_reverted(context: Context, reverted: Reverted) -> Requeue | Fail:
    reason = revert_reason(reverted.data)
    if reason.name in {"UnknownBlock", "HeaderMismatch"}:
        # The chain moved between the observation and the simulation; the next reconcile says what that means.
        sentence = f"Chain {context.destination_chain.id} does not accept the header at this moment."
        return Requeue(sentence, context.poll_seconds)
    return Fail(f"The registry does not accept the proof: {reason}.")


def _without(context: Context, missing: Missing, batches: Collection[str]) -> Missing:
    """What others than these batches ask for."""
    # Whatever became of them meanwhile: what can't pay must not be asked for again and again.
    dropped = set(Query.objects.filter(block=context.block, batch__in=batches).values_list("pk", flat=True))
    left = {fact: [pk for pk in asking if pk not in dropped] for fact, asking in missing.items()}
    return {fact: asking for fact, asking in left.items() if asking}


def _able(queries: set[int], batches: Collection[str]) -> set[int]:
    """Those of the queries that are of other batches."""
    return queries.difference(Query.objects.filter(pk__in=queries, batch__in=batches).values_list("pk", flat=True))
