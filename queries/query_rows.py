"""Reading of a batch, its queries with their blocks, and their steps, in one statement each."""

from collections.abc import Iterable

from django.db.models import QuerySet

from queries import columns
from queries.models import Batch, Query, Step


def find_batch(internal_id: str) -> Batch | None:
    """Return the batch with this identifier, without its request."""
    return Batch.objects.defer("request").filter(pk=columns.batch_id(internal_id)).first()


def first(batches: "QuerySet[Batch]", most: int, *, order: str = "-pk") -> list[Batch]:
    """Return the first batches in an order of creation, without their requests. By default the newest come first.

    Databases sort only identifiers several times as fast as whole rows.
    """
    chosen = batches.order_by(order).values("pk")[:most]
    return list(Batch.objects.filter(pk__in=chosen).defer("request").order_by(order))


def from_number(batch: Batch, number: int, most: int) -> list[Query]:
    """Return up to `most` queries of the batch from this number on, with their blocks."""
    positions = range(number - 1, number - 1 + most)
    return list(batch.queries.filter(position__in=positions).order_by("position").prefetch_related("block"))


def steps_of(queries: Iterable[Query]) -> dict[int, list[Step]]:
    """Return the steps by query id."""
    steps: dict[int, list[Step]] = {query.pk: [] for query in queries}
    for step in Step.objects.filter(query__in=steps).order_by("pk"):
        steps[step.query_id].append(step)
    return steps
