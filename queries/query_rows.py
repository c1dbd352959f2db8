"""A batch's queries with their blocks and steps, in a statement each."""

from collections.abc import Collection, Iterable

from accounts import statements
from accounts.statements import M
from queries.models import Batch, Block, Query, Step


def from_number(batch: Batch, first: int, most: int) -> list[Query]:
    """Return `most` of the batch's queries, from the one with the number `first` on, with their blocks."""
    return where(batch, "position >= %s AND position < %s", (first - 1, first - 1 + most))


def where(batch: Batch, condition: str, values: tuple[int, ...]) -> list[Query]:
    """Return queries of the batch with their blocks."""
    queries = statements.objects(Query, f"WHERE batch_id = %s AND {condition} ORDER BY position", (batch.pk, *values))
    ids = {query.block_id for query in queries if query.block_id is not None}
    blocks = {block.pk: block for block in _having(Block, "id", ids)}
    for query in queries:
        if query.block_id is not None:
            query.block = blocks[query.block_id]
    return queries


def steps_of(queries: Iterable[Query]) -> dict[int, list[Step]]:
    """Return the steps, by the id of the query."""
    found: dict[int, list[Step]] = {query.pk: [] for query in queries}
    for step in _having(Step, "query_id", found):
        found[step.query_id].append(step)
    return found


def _having(model: type[M], column: str, ids: Collection[int]) -> list[M]:
    if not ids:
        return []
    places = ", ".join(["%s"] * len(ids))
    return statements.objects(model, f"WHERE {column} IN ({places}) ORDER BY id", tuple(ids))
