"""Writes what was decided about blocks into rows: of all blocks that are worked on side by side in one transaction.

Of many blocks most changes are alike, and a database transaction takes long to become durable, however little it is.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from django.db.models import Q
from django.db.models.functions import Now

from chains import together
from chains.encoding import hex_data
from chains.together import Raised
from database import row_locks
from database.chunks import by_size, chunks
from proving import lanes
from proving.models import AccountProof, SlotProof
from proving.reconcile.context import WorkContext
from proving.reconcile.decide import (
    Change,
    MoveToBlock,
    NoteChecked,
    NoteGathering,
    NoteRefused,
    Reject,
    Reopen,
    ShowPath,
    StoreProofs,
    TakeHeader,
)
from queries import progress, submission
from queries.models import HEADER_COLUMNS, Batch, BatchStatus, Block, Query, StepKind
from queries.progress import Complete

# Queries whose rows are written in one database transaction: other writers get their turn in between.
_QUERIES_PER_WRITE = 500
_SLOTS_PER_STATEMENT = 200


@dataclass(frozen=True)
class _Changes:
    """The changes of one block, in this order."""

    context: WorkContext
    changes: Sequence[Change]


def write(context: WorkContext, changes: Sequence[Change]) -> None:
    """Write them in their order, with those of the blocks beside. Raises `LaneLost`."""
    for part in _parts(context, changes):
        # Before: it may be written though it seems to fail.
        context.known.forget(who_asks=not all(_goes_on(change) for change in part))
        together.share_work("write", _Changes(context, part), _write_all)


def _goes_on(change: Change) -> bool:
    """Return whether all queries that are open stay so, at a step as late or later."""
    if isinstance(change, Complete):
        return change.step in {StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE}
    return isinstance(change, StoreProofs | ShowPath | NoteChecked | NoteGathering | NoteRefused)


def _parts(context: WorkContext, changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Divide what changes anything into parts of a limited number of queries."""
    pieces = (piece for change in changes for piece in _pieces(context, change))
    return by_size(pieces, _size, _QUERIES_PER_WRITE)


def _size(change: Change) -> int:
    match change:
        case Complete() | Reopen():
            return len(change.queries)
        case StoreProofs():
            return sum(1 + len(proof.slots) for proof in change.proofs)
        case _:
            return 0


def _pieces(context: WorkContext, change: Change) -> Iterator[Change]:
    match change:
        case Complete() | Reopen():
            for chunk in chunks(sorted(change.queries), _QUERIES_PER_WRITE):
                yield replace(change, queries=chunk)
        case StoreProofs() if not change.proofs:
            pass
        case ShowPath() if _shown(context.block) == _to_show(context.block, change):
            pass
        case _:
            yield change


def _write_all(several: Sequence[_Changes]) -> Sequence[Raised | None]:
    outcomes: list[Raised | None] = []
    for parcel in by_size(several, lambda one: sum(map(_size, one.changes)), _QUERIES_PER_WRITE):
        outcomes += lanes.write_together(parcel[0].context.lane, parcel, _write)
    return outcomes


def _write(several: Sequence[_Changes]) -> Sequence[None]:
    """Write the changes inside the caller's database transaction."""
    # As they are stored: a transaction that was rolled back has changed the objects of before.
    rows = Block.objects.filter(pk__in=[one.context.block.pk for one in several]).order_by("pk")
    stored = {block.pk: block for block in rows.select_for_update(no_key=True)}
    _lock_batches(several)
    for one in several:
        one.context.block = stored[one.context.block.pk]
    completing: list[tuple[WorkContext, Complete]] = []
    noted: dict[int, Block] = {}
    for turn in itertools.zip_longest(*(one.changes for one in several)):
        storing: list[tuple[Block, StoreProofs]] = []
        for one, change in zip(several, turn, strict=True):
            match change:
                case Complete():
                    completing.append((one.context, change))
                case StoreProofs():
                    storing.append((one.context.block, change))
                case ShowPath():
                    _show_path(one.context.block, change)
                    noted[one.context.block.pk] = one.context.block
                case NoteChecked():
                    _note_checked(one.context)
                    noted[one.context.block.pk] = one.context.block
                case None:
                    pass
                case _:
                    _change(one.context, change)
        _store_proofs(storing)
    noted |= _complete(completing)
    _save_noted(noted.values())
    return [None] * len(several)


def _lock_batches(several: Sequence[_Changes]) -> None:
    """Lock all batches that are changed, at once: each change would lock them in the order of the changes."""
    queries: set[int] = set()
    taking: set[int] = set()
    for one in several:
        for change in one.changes:
            match change:
                case Reopen() | MoveToBlock() | Reject():
                    queries.update(change.queries)
                case TakeHeader() if one.context.block.hash:
                    taking.add(one.context.block.pk)
                case _:
                    pass
    if not queries and not taking:
        return
    for one in several:
        queries.update(pk for change in one.changes if isinstance(change, Complete) for pk in change.queries)
    changed = Query.objects.filter(Q(pk__in=queries) | Q(block__in=taking))
    row_locks.lock(Batch.objects.filter(pk__in=changed.values("batch")))


def _change(context: WorkContext, change: Change) -> None:
    match change:
        case Reopen():
            progress.reopen(change.queries, change.step, reason=change.reason)
        case MoveToBlock():
            _move_to_block(context.block, change)
        case Reject():
            _reject(change)
        case TakeHeader():
            _take_header(context.block, change)
        case NoteRefused():
            context.block.refused_since = change.since
            context.block.save(update_fields=["refused_since"])
        case NoteGathering():
            context.block.gathers_until = change.until
            context.block.save(update_fields=["gathers_until"])


def _complete(asked: Sequence[tuple[WorkContext, Complete]]) -> dict[int, Block]:
    """Complete steps. Return the blocks for which it is noted, by their ids, in which block that was seen."""
    blocks = progress.complete_all([change for _, change in asked])
    # With what is completed, or never.
    checked = blocks[StepKind.HEADER_ACCUMULATED] | blocks[StepKind.ACCOUNT_ACCUMULATED]
    noted = {context.block.pk: context for context, _ in asked if context.block.pk in checked}
    for context in noted.values():
        _note_checked(context)
    return {pk: context.block for pk, context in noted.items()}


def _note_checked(context: WorkContext) -> None:
    """Note up to which block of the destination what is completed was checked. It is saved later."""
    confirmed = context.heads.confirmed
    context.block.checked_number, context.block.checked_hash = confirmed.number, hex_data(confirmed.hash)


def _take_header(block: Block, change: TakeHeader) -> None:
    now = hex_data(change.header.hash)
    if block.hash not in {"", now}:
        AccountProof.objects.filter(block=block).delete()
        affected = block.queries.exclude(batch__status=BatchStatus.REJECTED).values_list("pk", flat=True)
        reason = f"The source chain was reorganised: block {block.number} was {block.hash} and is now {now}."
        progress.reopen(list(affected), StepKind.INITIAL_STATE, reason=reason)
    block.take(change.header)
    block.save(update_fields=HEADER_COLUMNS)


def _store_proofs(several: Sequence[tuple[Block, StoreProofs]]) -> None:
    proven = [(block, proof) for block, change in several for proof in change.proofs]
    # In the place of those that were pruned.
    AccountProof.objects.bulk_create(
        [proof.account for _, proof in proven],
        update_conflicts=True,
        unique_fields=["block", "address"],
        update_fields=["nodes"],
    )
    with_slots = [(block, proof) for block, proof in proven if proof.slots]
    if not with_slots:
        return
    stored = AccountProof.objects.filter(
        block__in={block.pk for block, _ in with_slots}, address__in={proof.account.address for _, proof in with_slots}
    )
    ids = {(block, address): pk for block, address, pk in stored.values_list("block", "address", "pk")}
    slots: list[SlotProof] = []
    for block, proof in with_slots:
        for slot in proof.slots:
            slot.account_id = ids[block.pk, proof.account.address]
            slots.append(slot)
    SlotProof.objects.bulk_create(
        slots,
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


def _save_noted(blocks: Collection[Block]) -> None:
    """Save what was noted of blocks: of many it is mostly alike."""
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for block in blocks:
        alike[tuple(getattr(block, column) for column in _NOTED)].append(block.pk)
    for values, pks in alike.items():
        Block.objects.filter(pk__in=pks).update(**dict(zip(_NOTED, values, strict=True)))
