"""The endpoints of a batch's files: its page as JSON, its request, and its proofs.

Anybody who has the link may read them.
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from django.db.models import QuerySet, Sum
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.cache import never_cache
from ninja import Router
from ninja.decorators import decorate_view
from pydantic import BaseModel, WithJsonSchema

from accounts import read_rate
from api import batches, missing, submitted_request
from api.batches import FROM_NUMBER, BatchDetail
from api.bundles import writing
from api.bundles.bundle_schemas import ProofBundle
from proving import facts
from proving.models import BlockTrie
from queries.api_endpoint import CONDITIONAL, ApiError, errors
from queries.batch_request import BatchRequest
from queries.models import Batch, Query, QueryKind
from queries.query_parameters import LIMIT

router = Router(tags=["Explorer"])

# Text that may be the number of a query. No query has a longer number.
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)

# Values of a block's tries that take as long to read as another item of a bundle.
_VALUES_PER_ITEM = 4

# Any other text gets the same answer as the number of a missing query.
NumberFrom1 = Annotated[str, WithJsonSchema({"type": "integer", "minimum": 1})]


def _file(
    path: str, url_name: str, answer: type[BaseModel], *statuses: int, summary: str, extra: dict[str, Any] | None = None
) -> Callable[[Callable[..., HttpResponseBase]], Callable[..., HttpResponseBase]]:
    """Register the endpoint of a file. If the file doesn't exist, browsers get a page and programs get JSON."""

    def register(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def negotiated(request: HttpRequest, internalId: str, **given: Any) -> HttpResponseBase:
            try:
                return view(request, internalId, **given)
            except ApiError as error:
                return missing.not_here(request, internalId, error, as_json=missing.prefers_json(request))

        return router.get(
            f"/explorer/query/{{internalId}}{path}",
            operation_id=view.__name__,
            summary=summary,
            response={200: answer, **errors(404, *statuses)},
            by_alias=True,
            url_name=url_name,
            openapi_extra=extra,
        )(decorate_view(never_cache)(negotiated))

    return register


@_file(".json", "batch_json", BatchDetail, 400, 429, summary="Batch page", extra=CONDITIONAL)
def get_batch_page(
    request: HttpRequest, internalId: str, limit: int = LIMIT, cursor: str = FROM_NUMBER
) -> HttpResponse:
    """Return all details of a batch query, as `/batch-queries/{internalId}` does for its owner."""
    batch = missing.find_batch(internalId)
    parts = batches.parts_from(batch, cursor, limit)
    items = min(sum(part.size for part in parts), batches.MOST_ITEMS)
    return read_rate.refusal_of_items(request, items) or batches.detail(request, batch, parts)


@_file("/request.json", "request_json", BatchRequest, 429, summary="Submitted request")
@read_rate.counted
def get_submitted_request(request: HttpRequest, internalId: str) -> HttpResponse:
    """Return the submitted request, without the parts that only its sender may see."""
    batch = missing.find_batch(internalId)
    return HttpResponse(
        submitted_request.as_text(submitted_request.public_request(batch)),
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="batch-{batch.pk}.json"'},
    )


@_file(
    "/{number}/bundle.json",
    "bundle",
    ProofBundle,
    410,
    429,
    summary="Proof of a query",
)
@read_rate.counted
def get_proof_bundle(request: HttpRequest, internalId: str, number: NumberFrom1) -> HttpResponseBase:
    """Return the proof of a query's facts. It can be checked without this service."""
    row = missing.completed_query(internalId, int(number) if _NUMBER.fullmatch(number) else 0)
    name = f"proof-{row.batch.pk}-{number}.json"
    return _bundle(request, row.batch, row.batch.queries.filter(pk=row.pk), len(facts.of(row)), name)


@_file(
    "/bundle.json",
    "batch_bundle",
    ProofBundle,
    410,
    429,
    summary="Proof of a batch",
)
@read_rate.counted
def get_batch_proof_bundle(request: HttpRequest, internalId: str) -> HttpResponseBase:
    """Return the proofs of all facts of a batch that is DONE. They can be checked without this service."""
    batch = missing.finished_batch(internalId)
    return _bundle(request, batch, batch.queries.all(), batch.size, f"proof-{batch.pk}.json")


def refusal_of_size(request: HttpRequest, queries: QuerySet[Query], items: int) -> HttpResponse | None:
    """Count the reads of a file about these queries. Return 429 if the client has to wait.

    `items` is the number of accounts, slots, headers, transactions and logs.
    """
    about = queries.filter(kind=QueryKind.ENTRY)
    tries = BlockTrie.objects.filter(block__in=about.values("block")).aggregate(values=Sum("count", default=0))
    receipts = batches.ITEMS_OF_RECEIPT * about.count()
    return read_rate.refusal_of_items(request, items + receipts + tries["values"] // _VALUES_PER_ITEM)


def _bundle(
    request: HttpRequest, batch: Batch, queries: QuerySet[Query], items: int, name: str
) -> HttpResponse | StreamingHttpResponse:
    if batch.proofs_pruned_at:
        raise ApiError(410, "proofs_pruned", batch.why_no_proofs)
    if not writing.is_there(queries):
        raise ApiError(404, "no_proof", "This service keeps no such proof.")
    if refusal := refusal_of_size(request, queries, items):
        return refusal
    # The bundle is sent in parts, because it may have tens of megabytes.
    return StreamingHttpResponse(
        writing.parts(batch, queries),
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
