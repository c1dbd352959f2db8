"""Storage of decisions about blocks, for all blocks of a turn in one database transaction.

A small transaction takes as long to become durable as a large one, and most changes of many blocks are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from django.db.models.functions import Now

from chains.encoding import hex_data
from database import statements
from database.statements import by_size, chunks
from proving import lanes
from proving.connections import WorkContext
from proving.lanes import ChainEvent
from proving.models import AccountProof, SlotProof
from proving.reconcile.decide import (
    Change,
    MoveToBlock,
    NoteChecked,
    NoteRefused,
    Reject,
    Reopen,
    ShowPath,
    StoreProofs,
    TakeHeader,
)
from proving.reconcile.proofs import Proven
from queries import progress, submission
from queries.models import HEADER_COLUMNS, Batch, BatchStatus, Block, Query, StepKind
from queries.progress import Complete

# Maximum queries whose rows a database transaction writes, so that other writers don't wait for long.
_QUERIES_PER_WRITE = 500
_SLOTS_PER_STATEMENT = 200


_NOTED = (
    "path_unit",
    "path_length",
    "path_left",
    "path_origin",
    "is_checkpoint",
    "checked_number",
    "checked_hash",
    "refused_since",
)

Changes = Sequence[tuple[int, Change]]
"""Changes with the ids of their blocks. The changes of a block are in their order."""


def write(context: WorkContext, blocks: dict[int, Block], changes: Changes) -> None:
    """Write the changes, and update `blocks` (by id) with the new rows. Raises `LaneLost`."""
    pieces = [(pk, piece) for pk, change in changes for piece in _pieces(blocks[pk], change)]
    for part in by_size(pieces, lambda piece: _size(piece[1]), _QUERIES_PER_WRITE):
        blocks |= context.lane.write(partial(_write, context, part))


def _size(change: Change) -> int:
    match change:
        case Complete() | Reopen():
            return len(change.queries)
        case StoreProofs():
            return sum(1 + len(proof.slots) for proof in change.proofs)
        case _:
            return 0


def _pieces(block: Block, change: Change) -> Iterator[Change]:
    """Divide a change into parts with a limited number of queries. Yield nothing if it changes nothing."""
    match change:
        case Complete() | Reopen():
            for chunk in chunks(sorted(change.queries), _QUERIES_PER_WRITE):
                yield replace(change, queries=chunk)
        case StoreProofs() if not change.proofs:
            pass
        case ShowPath() if all(getattr(block, column) == value for column, value in _to_show(block, change).items()):
            pass
        case _:
            yield change


def _write(context: WorkContext, changes: Changes) -> dict[int, Block]:
    """Write the changes in the caller's database transaction. Return the rows of their blocks."""
    rows = Block.objects.filter(pk__in={pk for pk, _ in changes}).order_by("pk")
    blocks = {block.pk: block for block in rows.select_for_update(no_key=True)}
    if any(isinstance(change, Reopen | MoveToBlock | Reject | TakeHeader) for _, change in changes):
        # All batches are locked at once, because single changes would lock them in another order.
        statements.lock(Batch.objects.filter(pk__in=Query.objects.filter(block__in=blocks).values("batch")))
    for pk, change in changes:
        _change(context, blocks[pk], change)
    _store_proofs([proof for _, change in changes if isinstance(change, StoreProofs) for proof in change.proofs])
    completed = progress.complete_all([change for _, change in changes if isinstance(change, Complete)])
    # The check is stored together with the steps that it completes.
    checked = completed[StepKind.HEADER_ACCUMULATED] | completed[StepKind.ACCOUNT_ACCUMULATED]
    for pk in checked & blocks.keys():
        _note_checked(context, blocks[pk])
    taken = {pk for pk, change in changes if isinstance(change, TakeHeader)}
    statements.update_each([blocks[pk] for pk in taken], HEADER_COLUMNS)
    noted = checked | {pk for pk, change in changes if isinstance(change, ShowPath | NoteChecked | NoteRefused)}
    statements.update_each([blocks[pk] for pk in noted & blocks.keys()], _NOTED)
    return blocks


def _change(context: WorkContext, block: Block, change: Change) -> None:
    """Make a change, or set columns of the block's row, which is saved later."""
    match change:
        case ShowPath():
            for column, value in _to_show(block, change).items():
                setattr(block, column, value)
        case NoteChecked():
            _note_checked(context, block)
        case NoteRefused():
            block.refused_since = change.since
        case Reopen():
            progress.reopen(change.queries, change.step, reason=change.reason)
            if change.queries:
                lanes.count(block.destination_chain_id, ChainEvent.REORGANISED)
        case MoveToBlock():
            _move_to_block(block, change)
        case Reject():
            _reject(change)
        case TakeHeader():
            _take_header(block, change)


def _note_checked(context: WorkContext, block: Block) -> None:
    """Set the destination's block in which completed facts were read. The row is saved later."""
    confirmed = context.heads.confirmed
    block.checked_number, block.checked_hash = confirmed.number, hex_data(confirmed.hash)


def _take_header(block: Block, change: TakeHeader) -> None:
    now = hex_data(change.header.hash)
    if block.hash not in {"", now}:
        AccountProof.objects.filter(block=block).delete()
        affected = block.queries.exclude(batch__status=BatchStatus.REJECTED).values_list("pk", flat=True)
        reason = f"The source chain was reorganised: block {block.number} was {block.hash} and is now {now}."
        progress.reopen(list(affected), StepKind.INITIAL_STATE, reason=reason)
        lanes.count(block.source_chain_id, ChainEvent.REORGANISED)
    block.take(change.header)


def _store_proofs(proven: Sequence[Proven]) -> None:
    for proof in proven:
        # If the database transaction is repeated, the row may get another key.
        proof.account.pk = None
    # These rows replace pruned rows.
    AccountProof.objects.bulk_create(
        [proof.account for proof in proven],
        update_conflicts=True,
        unique_fields=["block", "address"],
        update_fields=["nodes"],
    )
    for proof in proven:
        for slot in proof.slots:
            slot.account = proof.account
    SlotProof.objects.bulk_create(
        [slot for proof in proven for slot in proof.slots],
        update_conflicts=True,
        unique_fields=["account", "slot"],
        update_fields=["nodes"],
        batch_size=_SLOTS_PER_STATEMENT,
    )


def _move_to_block(block: Block, change: MoveToBlock) -> None:
    pair = (block.source_chain_id, change.number)
    new_block = submission.ensure_blocks(block.destination_chain_id, {pair})[pair]
    progress.move(change.queries, new_block, reason=change.reason)
    Block.objects.filter(pk=new_block).update(due_at=Now())


def _reject(change: Reject) -> None:
    batches: set[str] = set()
    for chunk in chunks(sorted(change.queries), _QUERIES_PER_WRITE):
        batches.update(Query.objects.filter(pk__in=chunk).values_list("batch", flat=True))
    progress.reject(batches, code=change.code, reason=change.reason, retryable=change.retryable)


def _to_show(block: Block, change: ShowPath) -> dict[str, object]:
    """Return the values for a path's columns. A block whose path is complete becomes a checkpoint."""
    is_same_unit = change.unit in {"", block.path_unit}
    return {
        "path_unit": change.unit or block.path_unit,
        "path_length": max(block.path_length, change.remaining) if is_same_unit else change.remaining,
        "path_left": change.remaining,
        "path_origin": change.origin if change.unit else block.path_origin,
        "is_checkpoint": block.is_checkpoint or not change.unit,
    }
