"""When a batch's waits are over, where that follows from what is known: how fast a chain's blocks come.

Nothing is guessed from other batches. Where a node, an attester or a person is waited for, nobody knows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from accounts import statements
from config.chain_names import chain_name
from config.configured_chains import get_chains
from config.json_objects import JsonObject, Time
from proving.models import TransactionState
from queries.models import Batch, StepKind

_NEEDS_BLOCK = (StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
_NEEDS_CONFIRMATIONS = (StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED)


@dataclass(frozen=True)
class Expected(JsonObject):
    what: str  # the beginning of a sentence, to be followed by when
    at: Time


@dataclass(frozen=True)
class _Head:
    number: int
    final: int
    seen_at: datetime


def of_batch(batch: Batch, at_step: Mapping[str | None, int]) -> tuple[Expected, ...]:
    """Return what an open batch expects.

    One statement is for what is asked of source chains, and one for what is sent.
    """
    found: list[Expected] = []
    if any(at_step.get(kind) for kind in _NEEDS_BLOCK):
        found += _of_sources(batch)
    if any(at_step.get(kind) for kind in _NEEDS_CONFIRMATIONS):
        found += _of_confirmations(batch)
    return tuple(found)


def _of_sources(batch: Batch) -> Iterator[Expected]:
    """Yield the highest block that is to come, the highest that is to be final, and the latest time not over yet."""
    rows = statements.every(
        "SELECT q.source_chain_id, q.step, MAX(k.number), "
        "MAX(CASE WHEN q.block_id IS NULL AND q.is_admitted = %s THEN q.timestamp END), h.number, h.final, h.seen_at "
        "FROM queries_query q LEFT JOIN queries_block k ON k.id = q.block_id "
        "LEFT JOIN proving_chainhead h ON h.chain_id = q.source_chain_id "
        "WHERE q.batch_id = %s AND q.step IN (%s, %s) "
        "GROUP BY q.source_chain_id, q.step, h.number, h.final, h.seen_at ORDER BY q.source_chain_id",
        (True, batch.pk, *_NEEDS_BLOCK),
    )
    for chain, step, number, time, *seen in rows:
        connection = get_chains().connection(chain, batch.destination_chain_id)
        if connection is None:
            continue
        name = chain_name(chain).name
        if time is not None:
            # Until the block after it, the chain may get one of this time. What is admitted is no further away than a
            # batch waits (`queries.rejection_codes`, timestamp_too_far_ahead), so it is a date.
            when = datetime.fromtimestamp(int(time) + float(get_chains().chain(chain).block_seconds), UTC)
            yield Expected(f"A block of {name} after the time {time} comes", when)
        if number is None or seen[0] is None:
            continue
        head, block = _head(*seen), f"Block {number} of {name}"
        if step == StepKind.INITIAL_STATE and number > head.number:
            yield from _after(number - head.number, head, chain, f"{block} comes")
        # Attesters vouch for final blocks alone.
        elif step == StepKind.BLOCKHASH_AVAILABLE and connection.attesters and number > head.final:
            yield from _after(number - head.final, head, chain, f"{block} is final")


def _of_confirmations(batch: Batch) -> Iterator[Expected]:
    """Yield the newest transaction that isn't confirmed yet, found as `proving.batch_waits.transactions` are."""
    chain = batch.destination_chain_id
    row = statements.first(
        "SELECT MAX(t.block_number), h.number, h.final, h.seen_at "
        "FROM proving_transaction t JOIN proving_signer s ON s.id = t.signer_id "
        "JOIN proving_chainhead h ON h.chain_id = s.chain_id WHERE s.chain_id = %s AND t.state = %s AND EXISTS ("
        "SELECT 1 FROM proving_transaction_queries l JOIN queries_query q ON q.id = l.query_id "
        "WHERE l.transaction_id = t.id AND q.batch_id = %s) GROUP BY h.number, h.final, h.seen_at",
        (chain, TransactionState.MINED, batch.pk),
    )
    if row is None or not chain_name(chain).is_configured:
        return
    mined, head, needed = row[0], _head(*row[1:]), get_chains().chain(chain).confirmations
    missing = mined - head.final if needed == "finalized" else needed - (head.number - mined + 1)
    if missing > 0:
        yield from _after(missing, head, chain, "The transactions are confirmed")


def _head(number: int, final: int, seen_at: Any) -> _Head:
    when = statements.read(seen_at)
    assert when is not None, "The column is never empty."
    return _Head(number, final, when)


def _after(blocks: int, head: _Head, chain: int, what: str) -> Iterator[Expected]:
    """Yield when the blocks have come. Nothing, where no batch waits so long."""
    seconds = blocks * float(get_chains().chain(chain).block_seconds)
    if seconds <= settings.BATCH_DEADLINE_SECONDS:
        yield Expected(what, head.seen_at + timedelta(seconds=seconds))
