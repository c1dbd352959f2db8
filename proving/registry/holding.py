"""Which facts registries hold what batches asked for."""

from collections.abc import Collection

from proving.models import FactsRegistry
from queries.models import Batch, BatchStatus


def registries(destination: int, source_chains: Collection[int]) -> list[FactsRegistry]:
    """Return the registries of these connections, including those that were replaced."""
    rows = FactsRegistry.objects.filter(destination_chain_id=destination, source_chain_id__in=source_chains)
    return list(rows.order_by("source_chain_id", "pk"))


def of_batch(batch: Batch, rows: Collection[FactsRegistry]) -> dict[int, FactsRegistry]:
    """Return, by source chain, the one of the registries `rows` that holds the batch's facts, or will hold them.

    A batch that is DONE has its facts in the registry of that time. When one is replaced, open batches start again.
    """
    done_at = batch.finished_at if batch.status == BatchStatus.DONE else None
    found: dict[int, FactsRegistry] = {}
    for row in rows:
        if row.replaced_at is None or (done_at is not None and done_at <= row.replaced_at):
            found.setdefault(row.source_chain_id, row)
    return {source: row for source, row in found.items() if row.deployed_at}
