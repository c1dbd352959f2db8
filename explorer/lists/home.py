"""The home page, with an example batch that its reader may also see in a list."""

from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts.models import User
from config.chain_names import chain_name
from config.configured_chains import get_chains
from explorer.lists import batch_list, first_query
from explorer.lists.batch_rows import BatchRow
from proving import sources
from queries.models import BatchStatus

_MOST_CONNECTIONS = 12
# Newest batches among which an example is searched.
_BATCHES = 10


@never_cache
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    user = request.user if isinstance(request.user, User) else None
    connections = [
        (
            chain_name(connection.source_id),
            chain_name(connection.destination_id),
            sources.of(connection).trust(connection),
        )
        for connection in get_chains().connections
    ]
    context = {
        "command": first_query.command(),
        "connections": connections[:_MOST_CONNECTIONS],
        "more_connections": len(connections) - _MOST_CONNECTIONS,
        "example": _example(user),
    }
    return render(request, "explorer/home/page.html", context)


@dataclass(frozen=True)
class ExampleBatch:
    row: BatchRow
    trust: str
    """A sentence that says who must be trusted for its facts."""


def _example(user: User | None) -> ExampleBatch | None:
    """Return a finished batch.

    It is the user's own. If there is none, it is anybody's, but only if `PUBLIC_BATCH_LIST` is set.
    """
    rows = batch_list.newest(user, _BATCHES) if user else []
    rows += batch_list.newest(None, _BATCHES) if settings.PUBLIC_BATCH_LIST else []
    for row in rows:
        connection = get_chains().connection(row.sources[0].id, row.destination.id) if row.headline.answer else None
        if connection and row.batch.status == BatchStatus.DONE:
            return ExampleBatch(row, sources.of(connection).trust(connection))
    return None
