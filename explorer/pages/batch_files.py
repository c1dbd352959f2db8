"""The endpoints of a batch's files, for everybody who has its link: its page as JSON, its request, and its proofs."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.cache import never_cache
from ninja import Router
from ninja.decorators import decorate_view
from ninja.params import functions
from pydantic import WithJsonSchema

from accounts.client_address import client_address
from explorer.bundles import batch_writing, writing
from explorer.bundles.bundle_schemas import BatchProofBundle, ProofBundle
from explorer.pages import batch_page, batch_page_json, missing, submitted_request
from explorer.pages.query_paging import Wanted
from proving import batch_waits
from queries import heavy_reads
from queries.api_endpoint import READ, errors
from queries.api_errors import ApiError
from queries.batch_request import BatchRequest
from queries.models import Batch

router = Router(tags=["Explorer"])

# Of a query. Longer than any that there is.
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)

# What is no number is told like a number that no query has.
NumberFrom1 = Annotated[str, WithJsonSchema({"type": "integer", "minimum": 1})]

_FROM = functions.Query(
    None, alias="from", description="The number of the first query to show: `following` of the answer before."
)


def _negotiated(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Answer what isn't there: a page to people, JSON to programs."""

    @wraps(view)
    def negotiated(request: HttpRequest, internalId: str, **given: Any) -> HttpResponseBase:
        try:
            return view(request, internalId, **given)
        except ApiError as error:
            return missing.not_here(request, internalId, error, as_json=missing.prefers_json(request))

    return negotiated


@router.api_operation(
    READ,
    "/explorer/query/{internalId}.json",
    operation_id="get_batch_page",
    summary="A batch's page, with all details of 50 queries.",
    response={200: batch_page_json.BatchPage, **errors(404, 429)},
    by_alias=True,
    url_name="batch_json",
)
@decorate_view(never_cache)
@_negotiated
def get_batch_page(
    request: HttpRequest,
    internalId: str,
    first: NumberFrom1 | None = _FROM,
) -> HttpResponse:
    found = missing.batch(internalId)
    heavy_reads.count_page(client_address(request), found)
    counts = batch_waits.count(found)
    page = batch_page.of(found, counts, Wanted(first=first or "", always_whole=True))
    return JsonResponse(batch_page_json.told(found, counts, page))


@router.api_operation(
    READ,
    "/explorer/query/{internalId}/request.json",
    operation_id="get_submitted_request",
    summary="What was submitted, without what only its sender may see.",
    response={200: BatchRequest, **errors(404, 429)},
    url_name="request_json",
)
@decorate_view(never_cache)
@_negotiated
def get_submitted_request(request: HttpRequest, internalId: str) -> HttpResponse:
    found = missing.batch(internalId)
    heavy_reads.count_request(client_address(request), found)
    return _download(submitted_request.as_text(submitted_request.public_request(found)), f"batch-{found.pk}.json")


@router.api_operation(
    READ,
    "/explorer/query/{internalId}/{number}/bundle.json",
    operation_id="get_proof_bundle",
    summary="The proof of a query's facts, to be checked without this service.",
    response={200: ProofBundle, **errors(404, 410, 429)},
    url_name="bundle",
)
@decorate_view(never_cache)
@_negotiated
def get_proof_bundle(request: HttpRequest, internalId: str, number: NumberFrom1) -> HttpResponse:
    found, row = missing.completed_query(internalId, int(number) if _NUMBER.fullmatch(number) else 0)
    heavy_reads.count_bundle(client_address(request), row)
    content = writing.build(found, row)
    # The mark comes before anything is removed, so it is looked at last.
    found.proofs_pruned_at = Batch.objects.filter(pk=found.pk).values_list("proofs_pruned_at", flat=True).first()
    if found.proofs_pruned_at:
        raise ApiError(410, "proofs_pruned", found.why_no_proofs)
    if content is None:
        raise ApiError(404, "no_proof", "The proof of this query is not kept here.")
    return _download(submitted_request.as_text(content), f"proof-{found.pk}-{number}.json")


@router.api_operation(
    READ,
    "/explorer/query/{internalId}/bundle.json",
    operation_id="get_batch_proof_bundle",
    summary="The proof of all facts of a batch that is done, to be checked without this service.",
    response={200: BatchProofBundle, **errors(404, 410, 429)},
    url_name="batch_bundle",
)
@decorate_view(never_cache)
@_negotiated
def get_batch_proof_bundle(request: HttpRequest, internalId: str) -> HttpResponseBase:
    # It comes in parts: it may have tens of megabytes.
    found = missing.finished_batch(internalId)
    if found.proofs_pruned_at:
        raise ApiError(410, "proofs_pruned", found.why_no_proofs)
    heavy_reads.count_batch_bundle(client_address(request), found)
    if not batch_writing.is_there(found):
        raise ApiError(404, "no_proof", "The proofs of this batch are not kept here.")
    return StreamingHttpResponse(
        batch_writing.parts(found),
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="proof-{found.pk}.json"'},
    )


def _download(text: str, name: str) -> HttpResponse:
    return HttpResponse(
        text + "\n",
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
