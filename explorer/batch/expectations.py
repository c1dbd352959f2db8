"""When a batch's waits are over, where that follows from what is known: how fast a chain's blocks come.

Nothing is guessed from other batches. Where a node, an attester or a person is waited for, nobody knows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Max, Q

from config.chain_names import chain_name
from config.configured_chains import get_chains
from config.json_objects import JsonObject, Time
from database.compiled_queries import CompiledQuery, Given
from proving import batch_waits
from proving.models import ChainHead, TransactionState
from queries.models import Batch, Query, StepKind

_NEEDS_BLOCK = (StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
_NEEDS_CONFIRMATIONS = (StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED)


@dataclass(frozen=True)
class Expected(JsonObject):
    what: str  # the beginning of a sentence, to be followed by when
    at: Time


_HEADS = CompiledQuery(ChainHead.objects.all)
_WAITING = CompiledQuery(
    lambda: (
        Query.objects.filter(batch=Given("batch"), step__in=_NEEDS_BLOCK)
        .order_by("source_chain_id")
        .values_list("source_chain_id", "step")
        .annotate(highest=Max("block__number"), latest=Max("timestamp", filter=Q(block=None, is_admitted=True)))
    )
)
_UNCONFIRMED = CompiledQuery(
    lambda: (
        batch_waits.sent_for()
        .filter(state=TransactionState.MINED, block_number__isnull=False)
        .order_by("-block_number")
        .values_list("block_number")[:1]
    )
)


def of_batch(batch: Batch, at_step: Mapping[str | None, int]) -> tuple[Expected, ...]:
    """Return what an open batch expects.

    One statement is for what chains have, one for what is asked of source chains, and one for what is sent.
    """
    heads = {head.chain_id: head for head in _HEADS.every()}
    found: list[Expected] = []
    if any(at_step.get(kind) for kind in _NEEDS_BLOCK):
        found += _of_sources(batch, heads)
    if any(at_step.get(kind) for kind in _NEEDS_CONFIRMATIONS):
        found += _of_confirmations(batch, heads)
    return tuple(found)


def _of_sources(batch: Batch, heads: Mapping[int, ChainHead]) -> Iterator[Expected]:
    """Yield the highest block that is to come, the highest that is to be final, and the latest time not over yet."""
    for chain, step, number, time in _WAITING.every(batch=batch.pk):
        connection = get_chains().connection(chain, batch.destination_chain_id)
        if connection is None:
            continue
        name = chain_name(chain).name
        if time is not None:
            # Until the block after it, the chain may get one of this time. What is admitted is no further away than a
            # batch waits (`queries.rejection_codes`, timestamp_too_far_ahead), so it is a date.
            when = datetime.fromtimestamp(int(time) + float(get_chains().chain(chain).block_seconds), UTC)
            yield Expected(f"A block of {name} after the time {time} should be there", when)
        if number is None or chain not in heads:
            continue
        head, block = heads[chain], f"Block {number} of {name}"
        if step == StepKind.INITIAL_STATE and number > head.number:
            yield from _after(number - head.number, head, chain, f"{block} should be there")
        # Attesters vouch for final blocks alone.
        elif step == StepKind.BLOCKHASH_AVAILABLE and connection.attesters and number > head.final:
            yield from _after(number - head.final, head, chain, f"{block} should be final")


def _of_confirmations(batch: Batch, heads: Mapping[int, ChainHead]) -> Iterator[Expected]:
    """Yield when the newest transaction that isn't confirmed yet will be."""
    chain = batch.destination_chain_id
    row = _UNCONFIRMED.first(batch=batch.pk, destination=chain)
    head = heads.get(chain)
    if row is None or row[0] is None or head is None or not chain_name(chain).is_configured:
        return
    mined, needed = row[0], get_chains().chain(chain).confirmations
    missing = mined - head.final
    if needed != "finalized":  # What is final needs no more.
        missing = min(missing, needed - (head.number - mined + 1))
    if missing > 0:
        yield from _after(missing, head, chain, "The transactions should be confirmed")


def _after(blocks: int, head: ChainHead, chain: int, what: str) -> Iterator[Expected]:
    """Yield when the blocks have come. Nothing, where no batch waits so long."""
    seconds = blocks * float(get_chains().chain(chain).block_seconds)
    if seconds <= settings.BATCH_DEADLINE_SECONDS:
        yield Expected(what, head.seen_at + timedelta(seconds=seconds))
