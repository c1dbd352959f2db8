"""Endpoints for a user's own batches: their list, and to cancel one. Any API key of the user will do."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from ninja import Query as Parameter
from ninja import Router, Schema
from pydantic import Field

from accounts import statements
from accounts.models import ApiKey
from queries import batch_json, progress
from queries.api_endpoint import KEY, errors
from queries.api_errors import ApiError
from queries.batch_json import BatchQuery
from queries.models import Batch, BatchStatus, Query
from queries.query_parameters import CURSOR, LIMIT, Address, Number, Time, Ulid
from queries.rejection_codes import RejectionCode
from queries.status import QueryStatus

router = Router(tags=["Batch queries"])


class BatchQueryList(Schema):
    batchQueries: list[BatchQuery] = Field(description="The newest comes first.")
    next: str | None = Field(description="The `cursor` of the next page. null: there is none.")


class Cancelled(Schema):
    internalId: str
    queryStatus: QueryStatus


class Filters(Schema):
    """Of a list of batches. `sourceChainId`, `account` and `block` are those of one of its queries."""

    status: BatchStatus | None = None
    destinationChainId: Number | None = None
    sourceChainId: Number | None = None
    account: Address | None = None
    block: Number | None = None
    createdAfter: Time | None = None
    createdBefore: Time | None = None
    cursor: Ulid | None = Field(None, description=CURSOR)

    def apply(self, batches: QuerySet[Batch]) -> QuerySet[Batch]:
        of_batch = {
            "status": self.status,
            "destination_chain_id": self.destinationChainId,
            "created_at__gt": self.createdAfter,
            "created_at__lt": self.createdBefore,
            "pk__lt": self.cursor,
        }
        of_query = {
            "source_chain_id": self.sourceChainId,
            "address": self.account,
            "block__number": self.block,
        }
        batches = batches.filter(**_given(of_batch))
        if asked := _given(of_query):
            batches = batches.filter(Exists(Query.objects.filter(batch=OuterRef("pk"), **asked)))
        return batches


def _given(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@router.get(
    "/batch-queries",
    operation_id="list_batch_queries",
    auth=KEY,
    response={200: BatchQueryList, **errors(400, 401, 503)},
)
def list_batch_queries(request: HttpRequest, filters: Parameter[Filters], limit: int = LIMIT) -> dict[str, Any]:
    """List your batch queries, by any of your keys, in pages. A page stays the same however many come meanwhile."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    own = filters.apply(Batch.objects.filter(user=key.user_id)).defer("request").order_by("-pk")
    found = list(own[: limit + 1])
    batches = found[:limit]
    counts = batch_json.count([batch.pk for batch in batches])
    return {
        "batchQueries": [batch_json.told(batch, counts[batch.pk]) for batch in batches],
        "next": batches[-1].pk if len(found) > limit else None,
    }


@router.post(
    "/batch-queries/{internal_id}/cancel",
    operation_id="cancel_batch_query",
    auth=KEY,
    response={200: Cancelled, **errors(401, 404, 409, 503)},
)
def cancel_batch_query(request: HttpRequest, internal_id: str) -> dict[str, str]:
    """Cancel one of your batch queries, for good: it becomes REJECTED with the code `cancelled_by_user`.

    What was sent for it stays paid, and what that proves stays proven. To cancel it once more changes nothing.
    """
    batch = own_batch(request, internal_id)
    code = RejectionCode.CANCELLED_BY_USER
    if batch.rejection_code != code and not progress.cancel(
        batch.pk, code=code, reason="The batch was cancelled with an API key of the user who submitted it."
    ):
        batch.refresh_from_db(fields=["status", "rejection_code"])
        if batch.rejection_code != code:
            raise ApiError(409, "already_finished", f"The batch is {batch.status}, so there is nothing to cancel.")
    return {"internalId": batch.pk, "queryStatus": QueryStatus.REJECTED.value}


def own_batch(request: HttpRequest, internal_id: str) -> Batch:
    """Return a batch of the user whose key was presented, without its request. Raises `ApiError`: not_found."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    # Some texts are none that a database can be asked for.
    asked = internal_id if internal_id.isalnum() else ""
    found = statements.objects(Batch, "WHERE id = %s AND user_id = %s", (asked, key.user_id), without=("request",))
    if not found:
        raise ApiError(404, "not_found", "No query found")
    return found[0]
