"""When a batch's waits are over, where that follows from what is known: how fast a chain's blocks come.

Nothing is guessed from other batches. Where a node, an attester or a person is waited for, nobody knows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounts import statements
from config.configured_chains import get_chains
from explorer.pages.chain_names import chain_name
from explorer.pages.polling import last_mined
from queries.models import Batch, StepKind

_NEEDS_BLOCK = (StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
_NEEDS_CONFIRMATIONS = (StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED)


@dataclass(frozen=True)
class Expected:
    what: str  # the beginning of a sentence, to be followed by when
    at: datetime


@dataclass(frozen=True)
class _Head:
    number: int
    final: int
    seen_at: datetime


def of_batch(batch: Batch, at_step: Mapping[str | None, int]) -> tuple[Expected, ...]:
    """Of an open batch."""
    highest = _highest(batch) if any(at_step.get(kind) for kind in _NEEDS_BLOCK) else {}
    mined = last_mined(batch) if any(at_step.get(kind) for kind in _NEEDS_CONFIRMATIONS) else None
    chains = {chain for chain, _ in highest} | ({batch.destination_chain_id} if mined is not None else set())
    heads = _heads(chains)
    found = [*_of_sources(batch, highest, heads), *_of_confirmations(batch.destination_chain_id, mined, heads)]
    return tuple(found)


def _highest(batch: Batch) -> dict[tuple[int, str], int]:
    """By source chain and step: the highest block of the queries whose step it is."""
    rows = statements.every(
        "SELECT q.source_chain_id, q.step, MAX(k.number) "
        "FROM queries_query q JOIN queries_block k ON k.id = q.block_id "
        "WHERE q.batch_id = %s AND q.step IN (%s, %s) GROUP BY q.source_chain_id, q.step ORDER BY q.source_chain_id",
        (batch.pk, *_NEEDS_BLOCK),
    )
    return {(chain, step): number for chain, step, number in rows}


def _heads(chains: set[int]) -> dict[int, _Head]:
    """As workers last saw them."""
    if not chains:
        return {}
    places = ", ".join(["%s"] * len(chains))
    rows = statements.every(
        f"SELECT chain_id, number, final, seen_at FROM proving_chainhead WHERE chain_id IN ({places})",  # noqa: S608 (places)
        tuple(chains),
    )
    seen = ((chain, number, final, statements.read(seen_at)) for chain, number, final, seen_at in rows)
    return {chain: _Head(number, final, seen_at) for chain, number, final, seen_at in seen if seen_at}


def _of_sources(batch: Batch, highest: dict[tuple[int, str], int], heads: dict[int, _Head]) -> Iterator[Expected]:
    for (chain, step), number in highest.items():
        head, connection = heads.get(chain), get_chains().connection(chain, batch.destination_chain_id)
        if head is None or connection is None:
            continue
        if step == StepKind.INITIAL_STATE and number > head.number:
            yield _after(number - head.number, head, chain, f"Block {number} of {chain_name(chain).name} comes")
        # Attesters vouch for final blocks alone.
        elif step == StepKind.BLOCKHASH_AVAILABLE and connection.attesters and number > head.final:
            yield _after(number - head.final, head, chain, f"Block {number} of {chain_name(chain).name} is final")


def _of_confirmations(chain: int, mined: int | None, heads: dict[int, _Head]) -> Iterator[Expected]:
    """`mined` is the newest block with a transaction of the batch."""
    head = heads.get(chain)
    if mined is None or head is None or not chain_name(chain).is_configured:
        return
    needed = get_chains().chain(chain).confirmations
    missing = mined - head.final if needed == "finalized" else needed - (head.number - mined + 1)
    if missing > 0:
        yield _after(missing, head, chain, "The transactions are confirmed")


def _after(blocks: int, head: _Head, chain: int, what: str) -> Expected:
    return Expected(what, head.seen_at + timedelta(seconds=blocks * float(get_chains().chain(chain).block_seconds)))
