"""Decisions carried out: rows are written, and transactions sent for batches that can pay.

Rows of all blocks of a turn are written in one database transaction. A small transaction takes as long to become
durable as a large one, and most changes of many blocks are the same. Nothing else in reconcile than sending costs
money. After a kill, the next turn decides again from the state at that time.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from django.db.models import Q
from django.db.models.functions import Now

from chains.encoding import hex_data
from chains.nodes.node_errors import ChainError, Reverted
from chains.tries.header import Header
from config.database import statements
from config.database.statements import by_size, chunks
from proving import stops
from proving.connections import WorkContext
from proving.facts import Missing
from proving.models import AccountProof, BlockTrie, FactsRegistry, ProvenTransaction, SlotProof
from proving.packing import packs
from proving.paths import building, checkpoints
from proving.paths.building import PathPart
from proving.paths.checkpoints import Jump
from proving.paths.planning import Path
from proving.reconcile.decide import (
    Change,
    ExtendPath,
    MoveToBlock,
    Note,
    PreparePath,
    Prove,
    ProveTime,
    Reject,
    Reopen,
    Sending,
    StoreProofs,
    TakeHeader,
    note_checked,
)
from proving.reconcile.proofs import Fetched
from proving.registries import deployments
from proving.registries.deployments import OUTDATED, revert_reason
from proving.sending import orders
from proving.sending.signers import Unsent
from proving.working import counters
from proving.working.counters import ChainEvent
from proving.working.ends import Fails, Waits
from queries import batch_states, submission, waits
from queries.batch_states import Complete
from queries.models import HEADER_COLUMNS, Batch, BatchStatus, Block, Query, QueryKind, StepKind
from queries.waits import WaitReason, wait

# Maximum transactions of one block that are sent in one turn.
_TRANSACTIONS_PER_TURN = 16
# The codes of waits that are about some facts, and not about the chain, the signer or money.
_OF_FACTS = {"transaction_too_large", "gas_doubted"}
# Maximum queries whose rows a database transaction writes, so that other writers don't wait for long.
_QUERIES_PER_WRITE = 500
_SLOTS_PER_STATEMENT = 200

# --- Rows -------------------------------------------------------------------------------------------------------------

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


@dataclass(frozen=True)
class _Piece:
    """A part of a change with a limited number of queries."""

    block: int
    """The block's id."""
    change: Change
    size: int = 0
    """The number of queries or proofs."""
    may_reopen: bool = False


def write(context: WorkContext, blocks: dict[int, Block], changes: Sequence[tuple[int, Change]]) -> None:
    """Write the changes, and update `blocks` (by id) with the new rows. Raises `LaneLost`.

    The changes have the ids of their blocks. Those of a block are in their order.
    """
    pieces = [piece for pk, change in changes for piece in _pieces(blocks[pk], change)]
    may_reopen = any(piece.may_reopen for piece in pieces)
    for part in by_size(pieces, lambda piece: piece.size, _QUERIES_PER_WRITE):
        of_part = [(piece.block, piece.change) for piece in part]
        blocks |= context.lane.write(partial(_write_part, context, of_part, may_reopen=may_reopen))


def _pieces(block: Block, change: Change) -> Iterator[_Piece]:
    """Divide a change. Yield nothing if it changes nothing."""
    match change:
        case Complete() | Reopen():
            for chunk in chunks(sorted(change.queries), _QUERIES_PER_WRITE):
                yield _Piece(block.pk, replace(change, queries=chunk), len(chunk), isinstance(change, Reopen))
        case StoreProofs(fetched):
            accounts = fetched.accounts.values()
            if size := len(fetched.places) + sum(1 + len(account.slots) for account in accounts):
                yield _Piece(block.pk, change, size)
        case Note() if all(getattr(block, column) == value for column, value in _noted(block, change).items()):
            pass
        case TakeHeader(header):
            yield _Piece(block.pk, change, may_reopen=block.hash != hex_data(header.hash))
        case _:
            yield _Piece(block.pk, change, may_reopen=isinstance(change, MoveToBlock | Reject))


def _write_part(context: WorkContext, changes: Sequence[tuple[int, Change]], *, may_reopen: bool) -> dict[int, Block]:
    """Write the changes in the caller's database transaction. Return the rows of their blocks."""
    changed = {pk for pk, _ in changes}
    held = _held_by_replaced(context, changed) if may_reopen else []
    if held:
        of_same_batches = Query.objects.filter(batch__in={batch for batch, _ in held})
        statements.lock(Block.objects.filter(Q(pk__in=changed) | Q(pk__in=of_same_batches.values("block"))))
    rows = Block.objects.filter(pk__in=changed).order_by("pk")
    blocks = {block.pk: block for block in rows.select_for_update(no_key=True)}
    fetched = [change.fetched for _, change in changes if isinstance(change, StoreProofs)]
    if may_reopen or any(of_block.places for of_block in fetched):
        # All batches are locked at once, because single changes would lock them in another order, or after queries.
        statements.lock(Batch.objects.filter(pk__in=Query.objects.filter(block__in=blocks).values("batch")))
    for pk, change in changes:
        _change(context, blocks[pk], change)
    if held:
        _reopen_held(held)
    _store(fetched)
    completed = batch_states.complete_all([change for _, change in changes if isinstance(change, Complete)])
    # The check is stored together with the steps that it completes.
    checked = completed[StepKind.HEADER_ACCUMULATED] | completed[StepKind.FACTS_PROVEN]
    for pk in checked & blocks.keys():
        _change(context, blocks[pk], note_checked(context.heads.confirmed))
    taken = {pk for pk, change in changes if isinstance(change, TakeHeader)}
    statements.update_each([blocks[pk] for pk in taken], HEADER_COLUMNS)
    noted = checked | {pk for pk, change in changes if isinstance(change, Note)}
    statements.update_each([blocks[pk] for pk in noted & blocks.keys()], _NOTED)
    return blocks


def _change(context: WorkContext, block: Block, change: Change) -> None:
    """Make a change, or set columns of the block's row, which is saved later."""
    match change:
        case Note():
            for column, value in _noted(block, change).items():
                setattr(block, column, value)
        case Reopen():
            batch_states.reopen(change.queries, change.step, reason=change.reason)
            if change.queries:
                counters.count(block.destination_chain_id, ChainEvent.REORGANISED)
        case MoveToBlock():
            pair = (block.source_chain_id, change.number)
            new_block = submission.ensure_blocks(block.destination_chain_id, {pair})[pair]
            batch_states.move(change.queries, new_block, reason=change.reason)
            Block.objects.filter(pk=new_block).update(due_at=Now())
        case Reject():
            _reject(change)
        case TakeHeader(header):
            _take_header(block, header)


def _held_by_replaced(context: WorkContext, blocks: Collection[int]) -> list[tuple[str, FactsRegistry]]:
    """Return the batches (ids) of these blocks that are DONE, each with the replaced registries that hold its facts."""
    connection = context.connection.config
    rows = list(FactsRegistry.objects.filter(destination_chain_id=connection.destination_id).order_by("pk"))
    if all(row.replaced_at is None for row in rows):
        return []
    of_blocks = Query.objects.filter(block__in=blocks)
    done = Batch.objects.filter(pk__in=of_blocks.values("batch"), status=BatchStatus.DONE)
    holders = {batch.pk: deployments.of_batch(batch, rows) for batch in done.only("status", "finished_at")}
    return [(batch, row) for batch, by_source in holders.items() for row in by_source.values() if row.replaced_at]


def _reopen_held(held: Sequence[tuple[str, FactsRegistry]]) -> None:
    """Reopen all that replaced registries hold of the batches that aren't DONE any more, also on other blocks.

    When a batch is DONE again, the registries of that time hold all its facts (`deployments.of_batch`).
    """
    for batch, row in held:
        proven = Query.objects.filter(batch=batch, batch__status=BatchStatus.IN_PROGRESS, step=None)
        queries = list(proven.filter(block__source_chain_id=row.source_chain_id).values_list("pk", flat=True))
        reason = (
            f"A reorganisation removed other facts of this batch, and the facts registry at {row.address} was "
            f"replaced. The service proves this batch's facts again to the new registry."
        )
        batch_states.reopen(queries, StepKind.BLOCKHASH_AVAILABLE, reason=reason)
        for chunk in chunks(queries, _QUERIES_PER_WRITE):
            Block.objects.filter(pk__in=Query.objects.filter(pk__in=chunk).values("block")).update(due_at=Now())


def _take_header(block: Block, header: Header) -> None:
    now = hex_data(header.hash)
    if block.hash not in {"", now}:
        for model in (AccountProof, BlockTrie, ProvenTransaction):
            model.objects.filter(block=block).delete()
        affected = block.queries.exclude(batch__status=BatchStatus.REJECTED).values_list("pk", flat=True)
        # The transaction that a hash names may be elsewhere now.
        block.queries.filter(transaction_name__startswith="0x").update(transaction_index=None)
        block.queries.filter(kind=QueryKind.ENTRY).update(first_log=None)
        reason = f"The source chain was reorganised: block {block.number} was {block.hash} and is now {now}."
        batch_states.reopen(list(affected), StepKind.INITIAL_STATE, reason=reason)
        counters.count(block.source_chain_id, ChainEvent.REORGANISED)
    block.take(header)


def _store(fetched: Sequence[Fetched]) -> None:
    """Store proofs of several blocks. Their rows replace pruned ones."""
    accounts = [account for of_block in fetched for account in of_block.accounts.values()]
    tries = [trie for of_block in fetched for trie in of_block.tries]
    entries = [entry for of_block in fetched for entry in of_block.entries]
    for row in (*(proven.account for proven in accounts), *tries, *entries):
        # If the database transaction is repeated, the row may get another key.
        row.pk = None
    AccountProof.objects.bulk_create(
        [proven.account for proven in accounts],
        update_conflicts=True,
        unique_fields=["block", "address"],
        update_fields=["nodes"],
    )
    for proven in accounts:
        for slot in proven.slots:
            slot.account = proven.account
    SlotProof.objects.bulk_create(
        [slot for proven in accounts for slot in proven.slots],
        update_conflicts=True,
        unique_fields=["account", "slot"],
        update_fields=["nodes"],
        batch_size=_SLOTS_PER_STATEMENT,
    )
    BlockTrie.objects.bulk_create(
        tries,
        update_conflicts=True,
        unique_fields=["block", "root"],
        update_fields=["compressed", "count"],
    )
    # A row with a hash replaces one without, and not the reverse.
    ProvenTransaction.objects.bulk_create(
        [entry for entry in entries if entry.hash],
        update_conflicts=True,
        unique_fields=["block", "index"],
        update_fields=["hash", "transaction_size"],
    )
    ProvenTransaction.objects.bulk_create([entry for entry in entries if not entry.hash], ignore_conflicts=True)
    places = [query for of_block in fetched for query in of_block.places]
    Query.objects.bulk_update(places, ["transaction_index", "first_log"], batch_size=_SLOTS_PER_STATEMENT)


def _reject(change: Reject) -> None:
    batches: set[str] = set()
    for chunk in chunks(sorted(change.queries), _QUERIES_PER_WRITE):
        batches.update(Query.objects.filter(pk__in=chunk).values_list("batch", flat=True))
    batch_states.reject(batches, code=change.code, reason=change.reason, retryable=change.retryable)


def _noted(block: Block, change: Note) -> dict[str, object]:
    """Return the values for columns. The length of a path is the longest that was left in its unit."""
    values = dict(change.columns)
    if isinstance(left := values.get("path_left"), int):
        is_same_unit = values.get("path_unit", block.path_unit) == block.path_unit
        values["path_length"] = max(block.path_length, left) if is_same_unit else left
    return values


# --- Sending ----------------------------------------------------------------------------------------------------------


def send_all(context: WorkContext, actions: Mapping[int, tuple[Block, Sending]]) -> dict[int, Waits | Fails]:
    """Carry out actions that send, for queries whose batches can pay now. Other batches don't delay them.

    Return, by block id, why something wasn't sent.
    """
    if not actions:
        return {}
    # A stop only prevents sending. Blocks are still observed, because earlier transactions may be mined or rolled back.
    if stopped := stops.why_stopped(context.destination_rpc.chain.id, source=context.connection.config.source_id):
        return dict.fromkeys(actions, _postponed(context, stopped))
    why_not: dict[int, Waits | Fails] = {}
    # Nodes may take long again to simulate what has failed before. That must not delay the others.
    for has_failed in (False, True):
        sendings = [(block, action) for block, action in actions.values() if (block.attempts > 0) is has_failed]
        _send(context, sendings, why_not)
    return why_not


def _send(context: WorkContext, sendings: list[tuple[Block, Sending]], why_not: dict[int, Waits | Fails]) -> None:
    """Carry out actions. Add to `why_not`, by block id, why something wasn't sent."""
    while sendings:
        proofs = packs.proofs_of({block.pk: action.missing for block, action in sendings if isinstance(action, Prove)})
        sent: list[tuple[Block, Sending, orders.Order]] = []
        for block, action in sendings:
            try:
                sent.append((block, action, _order(context, block, action, proofs)))
            except ChainError as error:
                why_not[block.pk] = Fails(waits.fault(error))
        outcomes = orders.submit_all(context.destination_rpc.chain, context.lane, [order for *_, order in sent])
        sendings = []
        for (block, action, _), outcome in zip(sent, outcomes, strict=True):
            poor = outcome.batches if isinstance(outcome, Unsent) else frozenset()
            if poor and (other := _instead(block, action, poor)):
                sendings.append((block, other))
            elif not isinstance(outcome, orders.Sent) and not (isinstance(action, Prove) and action.is_optional):
                why_not[block.pk] = _why_not(context, outcome)
                if isinstance(action, Prove) and action.otherwise and _is_about_facts(outcome):
                    sendings.append((block, action.otherwise))


def _is_about_facts(outcome: Unsent | ChainError) -> bool:
    """Return whether facts can't be sent for a reason that other facts needn't have."""
    return isinstance(outcome, Reverted) or (isinstance(outcome, Unsent) and outcome.reason.code in _OF_FACTS)


def _instead(block: Block, action: Sending, poor: frozenset[str]) -> Sending | None:
    """Return the action without queries of batches that can't pay, or the next best action. None if there is none."""
    asking = _asking(action)
    # Queries of these batches are left out in any state. Otherwise the same query would be tried again and again.
    able = asking.difference(Query.objects.filter(block=block, batch__in=poor).values_list("pk", flat=True))
    if able and able != asking:
        return _for_these(action, able)
    if isinstance(action, ProveTime | Prove):
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
            part = building.next_part(connection, action.path) if action.path else PathPart()
            intents = packs.intents(
                block,
                registry,
                action.missing,
                connection.prices,
                with_header=action.with_header,
                stores_root=not action.root_is_known,
                jump=part.jump,
                calls=part.calls,
                path_gas=building.path_gas(connection, part),
                proofs=proofs,
            )
            return orders.Order(
                list(itertools.islice(intents, most)),
                multicall="" if action.is_alone else registry.multicall,
                least_limit=action.least_limit,
            )
        case ProveTime(timestamp, following, queries):
            intent = packs.proof_of_time(block, registry, following, timestamp, queries)
            return orders.Order([intent], least_limit=action.least_limit)
        case PreparePath(preparation, queries):
            intent = building.intent_before(connection, preparation, queries)
            return orders.Order([intent], least_limit=action.least_limit)
        case ExtendPath(path, target, missing):
            part, intents = building.next_transactions(connection, block, path, target=target, missing=missing)
            note = partial(_note_path, context, path, part)
            return orders.Order([next(intents)], note, least_limit=action.least_limit)


def _note_path(context: WorkContext, path: Path, part: PathPart) -> None:
    checkpoints.note(context.connection, part.checkpoints)
    if isinstance(path, Jump) and path.origin:
        checkpoints.note_origin(context.registry.row_id, path.origin)


def _why_not(context: WorkContext, outcome: Unsent | ChainError) -> Waits | Fails:
    match outcome:
        case Unsent(why):
            return Waits(why, context.poll_seconds) if outcome.is_brief else _postponed(context, why)
        case Reverted():
            reason = revert_reason(outcome.data)
            if reason.name not in OUTDATED:
                return Fails(wait("proof_not_accepted", revert=str(reason)))
            # The next turn decides again.
            refused = wait("header_not_accepted", chain=context.destination_rpc.chain.id)
            return Waits(refused, context.poll_seconds)
        case ChainError():
            return Fails(waits.fault(outcome))


def _postponed(context: WorkContext, reason: WaitReason) -> Waits:
    return Waits(reason, max(10, context.destination_rpc.chain.block_seconds))
