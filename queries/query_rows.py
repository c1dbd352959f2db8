"""A batch's queries with their blocks and steps, in a statement each."""

from collections.abc import Collection, Iterable

from database.compiled_queries import CompiledQuery, Given, GivenList
from queries.models import Batch, Block, Query, Step

_QUERIES = CompiledQuery(
    lambda: Query.objects.filter(batch=Given("batch"), position__in=GivenList("positions")).order_by("position")
)
_BLOCKS = CompiledQuery(lambda: Block.objects.filter(pk__in=GivenList("blocks")))
_STEPS = CompiledQuery(lambda: Step.objects.filter(query__in=GivenList("queries")).order_by("pk"))


def from_number(batch: Batch, first: int, most: int) -> list[Query]:
    """Return `most` of the batch's queries, from the one with the number `first` on, with their blocks."""
    return at(batch, range(first - 1, first - 1 + most))


def at(batch: Batch, positions: Collection[int]) -> list[Query]:
    """Return the queries at these positions, with their blocks."""
    queries = _QUERIES.every(batch=batch.pk, positions=positions) if positions else []
    ids = {query.block_id for query in queries if query.block_id is not None}
    blocks = {block.pk: block for block in _BLOCKS.every(blocks=ids)} if ids else {}
    for query in queries:
        if query.block_id is not None:
            query.block = blocks[query.block_id]
    return queries


def steps_of(queries: Iterable[Query]) -> dict[int, list[Step]]:
    """Return the steps, by the id of the query."""
    found: dict[int, list[Step]] = {query.pk: [] for query in queries}
    for step in _STEPS.every(queries=found) if found else ():
        found[step.query_id].append(step)
    return found
