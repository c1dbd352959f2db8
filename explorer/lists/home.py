"""The home page, with an example batch that its reader may also see in a list."""

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts.models import User
from config.chain_names import chain_name
from config.configured_chains import get_chains
from explorer.batch import code_snippets
from explorer.lists import batch_list, first_query
from explorer.lists.batch_rows import BatchRow
from proving import facts, sources
from proving.facts import AccountFact, TimeFact
from queries.columns import AccountField
from queries.models import BatchStatus, Query

_MOST_CONNECTIONS = 12
# A balance on Ethereum, which is shown to readers who may see no batch.
_EXAMPLE_BLOCK = 21_925_176
_EXAMPLE_FACT = AccountFact("0x00000000219ab540356cBB839Cbe05303d7705Fa", AccountField.BALANCE)
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
        "documented": code_snippets.solidity_line(_EXAMPLE_BLOCK, _EXAMPLE_FACT),
    }
    return render(request, "explorer/home/page.html", context)


@dataclass(frozen=True)
class ExampleBatch:
    row: BatchRow
    trust: str
    """A sentence that says who must be trusted for its facts."""
    solidity: str
    """The statement that reads its fact."""


def _example(user: User | None) -> ExampleBatch | None:
    """Return a finished batch with one answer that took neither long nor short.

    It is the user's own. If there is none, it is anybody's, but only if `PUBLIC_BATCH_LIST` is set.
    """
    lists = [*([user] if user else []), *([None] if settings.PUBLIC_BATCH_LIST else [])]
    for owner in lists:
        rows = [row for row in batch_list.newest(owner, _BATCHES) if row.headline.answer and row.took]
        done = [row for row in rows if row.batch.status == BatchStatus.DONE]
        for row in sorted(done, key=lambda row: row.took or timedelta())[len(done) // 2 :]:
            if connection := get_chains().connection(row.sources[0].id, row.destination.id):
                return ExampleBatch(row, sources.of(connection).trust(connection), _solidity(row))
    return None


def _solidity(row: BatchRow) -> str:
    query = Query.objects.select_related("block").get(batch=row.batch, position=0)
    [fact] = [fact for fact in facts.of(query) if not isinstance(fact, TimeFact)]
    return code_snippets.solidity_line(query.block.number if query.block else 0, fact)
