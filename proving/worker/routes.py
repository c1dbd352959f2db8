"""Where work is: each kind of row of each connection, or of each destination, is a route of its own.

With a broker each route has a queue there, so that machines can be given to some of them.
"""

from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from config.configured_chains import get_chains
from database.leases import Leased
from proving.models import FactsRegistry, Signer
from queries.models import OPEN_STATUSES, Batch, Block, Webhook

_QUEUES = {
    "signer": "signers",
    "registry": "registries",
    "batch": "batches",
    "block": "blocks",
    "webhook": "webhooks",
}


class Route(NamedTuple):
    kind: str
    """The kind of `proving.worker.due.Task`."""
    lane: tuple[int, ...]
    """The destination, and the source where there is always one. Webhooks have to do with no chain."""

    @property
    def queue(self) -> str:
        """Return its name in the broker, such as `blocks.10.1`."""
        return ".".join([_QUEUES[self.kind], *map(str, self.lane)])

    def rows(self) -> "QuerySet[Any]":
        """Return the rows of the route, due or not."""
        if self.kind == "webhook":
            return Webhook.objects.all()
        destination = self.lane[0]
        if self.kind == "signer":
            return Signer.objects.filter(chain_id=destination)
        if self.kind == "batch":
            return Batch.objects.filter(destination_chain_id=destination, status__in=OPEN_STATUSES)
        model: Any = FactsRegistry.in_use if self.kind == "registry" else Block.objects
        rows: QuerySet[Any] = model.filter(source_chain_id=self.lane[1], destination_chain_id=destination)
        return rows

    def due_in(self) -> float | None:
        """Return in how many seconds the first of its free rows is due, 0 if it is; None if none will be."""
        rows: QuerySet[Leased] = self.rows()
        free = rows.filter(Q(leased_until=None) | Q(leased_until__lt=Now()), due_at__isnull=False)
        first = free.order_by("due_at").values_list("due_at", Now()).first()
        return max(0.0, (first[0] - first[1]).total_seconds()) if first else None

    def affected(self) -> "list[Route]":
        """Return the routes where its work may have made rows due: itself, what the destination sends, webhooks."""
        others = [one for one in every() if one.lane[:1] in {self.lane[:1], ()} and one.kind != "registry"]
        return list(dict.fromkeys([self, *others]))


WEBHOOKS = Route("webhook", ())


def every() -> list[Route]:
    """Return the routes of the configured chains: what is for all, which is signers and registries, first."""
    destinations = [(chain.id,) for chain in get_chains().destinations()]
    connections = [(each.destination_id, each.source_id) for each in get_chains().connections]
    return [
        *(Route("signer", lane) for lane in destinations),
        *(Route("registry", lane) for lane in connections),
        *(Route("batch", lane) for lane in destinations),
        *(Route("block", lane) for lane in connections),
        WEBHOOKS,
    ]
