"""Writes what was decided about blocks into rows: of all blocks of a turn in one transaction.

Of many blocks most changes are alike, and a database transaction takes long to become durable, however little it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from django.db.models.functions import Now

from chains.encoding import hex_data
from database import row_locks
from database.statements import by_size, chunks
from proving.connections import WorkContext
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

# Queries whose rows are written in one database transaction: other writers get their turn in between.
_QUERIES_PER_WRITE = 500
_SLOTS_PER_STATEMENT = 200


Changes = Sequence[tuple[int, Change]]
"""Changes with the ids of their blocks. Those of a block are in their order."""


def write(context: WorkContext, blocks: dict[int, Block], changes: Changes) -> None:
    """Write the changes, and replace the `blocks`, by their ids, with their rows of then. Raises `LaneLost`."""
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
    """Divide a change into parts of a limited number of queries; none if it changes nothing."""
    match change:
        case Complete() | Reopen():
            for chunk in chunks(sorted(change.queries), _QUERIES_PER_WRITE):
                yield replace(change, queries=chunk)
        case StoreProofs() if not change.proofs:
            pass
        case ShowPath() if _shown(block) == _to_show(block, change):
            pass
        case _:
            yield change


def _write(context: WorkContext, changes: Changes) -> dict[int, Block]:
    """Write the changes inside the caller's database transaction. Return the rows of their blocks."""
    rows = Block.objects.filter(pk__in={pk for pk, _ in changes}).order_by("pk")
    blocks = {block.pk: block for block in rows.select_for_update(no_key=True)}
    if any(isinstance(change, Reopen | MoveToBlock | Reject | TakeHeader) for _, change in changes):
        # At once: each change would lock them in the order of the changes.
        row_locks.lock(Batch.objects.filter(pk__in=Query.objects.filter(block__in=blocks).values("batch")))
    completing: list[tuple[Block, Complete]] = []
    storing: list[Proven] = []
    noted: dict[int, Block] = {}
    for pk, change in changes:
        block = blocks[pk]
        match change:
            case Complete():
                completing.append((block, change))
            case StoreProofs():
                storing += change.proofs
            case ShowPath():
                _show_path(block, change)
                noted[pk] = block
            case NoteChecked():
                _note_checked(context, block)
                noted[pk] = block
            case _:
                _change(block, change)
    _store_proofs(storing)
    noted |= _complete(context, completing)
    Block.objects.bulk_update(noted.values(), _NOTED)
    return blocks


def _change(block: Block, change: Change) -> None:
    match change:
        case Reopen():
            progress.reopen(change.queries, change.step, reason=change.reason)
        case MoveToBlock():
            _move_to_block(block, change)
        case Reject():
            _reject(change)
        case TakeHeader():
            _take_header(block, change)
        case NoteRefused():
            block.refused_since = change.since
            block.save(update_fields=["refused_since"])


def _complete(context: WorkContext, completing: Sequence[tuple[Block, Complete]]) -> dict[int, Block]:
    """Complete steps. Return the blocks for which it is noted, by their ids, in which block that was seen."""
    found = progress.complete_all([change for _, change in completing])
    # With what is completed, or never.
    checked = found[StepKind.HEADER_ACCUMULATED] | found[StepKind.ACCOUNT_ACCUMULATED]
    noted = {block.pk: block for block, _ in completing if block.pk in checked}
    for block in noted.values():
        _note_checked(context, block)
    return noted


def _note_checked(context: WorkContext, block: Block) -> None:
    """Note up to which block of the destination what is completed was checked. It is saved later."""
    confirmed = context.heads.confirmed
    block.checked_number, block.checked_hash = confirmed.number, hex_data(confirmed.hash)


def _take_header(block: Block, change: TakeHeader) -> None:
    now = hex_data(change.header.hash)
    if block.hash not in {"", now}:
        AccountProof.objects.filter(block=block).delete()
        affected = block.queries.exclude(batch__status=BatchStatus.REJECTED).values_list("pk", flat=True)
        reason = f"The source chain was reorganised: block {block.number} was {block.hash} and is now {now}."
        progress.reopen(list(affected), StepKind.INITIAL_STATE, reason=reason)
    block.take(change.header)
    block.save(update_fields=HEADER_COLUMNS)


def _store_proofs(proven: Sequence[Proven]) -> None:
    for proof in proven:
        # What is written again, because the database has ended it, may get another one.
        proof.account.pk = None
    # In the place of those that were pruned.
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
    found = submission.find_blocks(block.destination_chain_id, {pair})[pair]
    progress.move(change.queries, found, reason=change.reason)
    Block.objects.filter(pk=found).update(due_at=Now())


def _reject(change: Reject) -> None:
    batches: set[str] = set()
    for chunk in chunks(sorted(change.queries), _QUERIES_PER_WRITE):
        batches.update(Query.objects.filter(pk__in=chunk).values_list("batch", flat=True))
    progress.reject(batches, code=change.code, reason=change.reason, retryable=change.retryable)


_Shown = tuple[str, int, int, int | None, bool]


def _shown(block: Block) -> _Shown:
    return block.path_unit, block.path_length, block.path_left, block.path_origin, block.is_checkpoint


def _to_show(block: Block, change: ShowPath) -> _Shown:
    """Return what to show of a path. At its end the block itself is one that paths may begin at."""
    length = max(block.path_length, change.left) if change.unit in {"", block.path_unit} else change.left
    origin = change.origin if change.unit else block.path_origin
    return change.unit or block.path_unit, length, change.left, origin, block.is_checkpoint or not change.unit


def _show_path(block: Block, change: ShowPath) -> None:
    """Note what to show of a path. It is saved later."""
    shown = _to_show(block, change)
    block.path_unit, block.path_length, block.path_left, block.path_origin, block.is_checkpoint = shown


_NOTED = ("path_unit", "path_length", "path_left", "path_origin", "is_checkpoint", "checked_number", "checked_hash")
