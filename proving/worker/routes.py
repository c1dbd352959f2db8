"""Where work is: each kind of row of each connection, or of each destination, is a route of its own."""

from typing import Any, NamedTuple

from django.db.models import QuerySet

from config.configured_chains import get_chains
from proving.models import FactsRegistry, Signer
from queries.models import OPEN_STATUSES, Batch, Block


class Route(NamedTuple):
    kind: str
    """The kind of `proving.worker.due.Task`."""
    lane: tuple[int, ...]
    """The destination, and the source where there is always one."""

    def rows(self) -> "QuerySet[Any]":
        """Return the rows of the route, due or not."""
        destination = self.lane[0]
        if self.kind == "signer":
            return Signer.objects.filter(chain_id=destination)
        if self.kind == "batch":
            return Batch.objects.filter(destination_chain_id=destination, status__in=OPEN_STATUSES)
        model: Any = FactsRegistry.in_use if self.kind == "registry" else Block.objects
        rows: QuerySet[Any] = model.filter(source_chain_id=self.lane[1], destination_chain_id=destination)
        return rows


def every() -> list[Route]:
    """Return the routes of the configured chains: what is for all, which is signers and registries, first."""
    destinations = [(chain.id,) for chain in get_chains().destinations()]
    connections = [(each.destination_id, each.source_id) for each in get_chains().connections]
    return [
        *(Route("signer", lane) for lane in destinations),
        *(Route("registry", lane) for lane in connections),
        *(Route("batch", lane) for lane in destinations),
        *(Route("block", lane) for lane in connections),
    ]
