"""Endpoints for a user's own batches: their list, and to cancel one. Any API key of the user will do."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, OuterRef, QuerySet
from django.http import HttpRequest
from ninja import Query as Parameter
from ninja import Router, Schema
from pydantic import Field

from accounts.compiled_queries import CompiledQuery, Given
from accounts.models import ApiKey
from queries import progress
from queries.api_endpoint import KEY, errors
from queries.api_errors import ApiError
from queries.models import Batch, BatchStatus, Query, Sender
from queries.query_parameters import CURSOR, LIMIT, Address, Number, Time, Ulid
from queries.rejection_codes import RejectionCode
from queries.status import QueryStatus, query_status

router = Router(tags=["Batch queries"])


class Rejection(Schema):
    code: str = Field(description="A stable word.")
    error: str = Field(description="A sentence.")
    retryable: bool = Field(description="Whether sending the batch again can help.")


class BatchQuery(Schema):
    internalId: str = Field(description="A ULID.")
    status: BatchStatus
    queryStatus: QueryStatus = Field(description="As /batch-query-status tells it.")
    destinationChainId: str
    sourceChainIds: list[str]
    fee: str = Field(description="The most that it may cost, in wei, decimal.")
    sender: str | None = Field(description="Who sends its transactions. null: the operator.")
    createdAt: str = Field(description="ISO 8601, UTC, as all times.")
    finishedAt: str | None
    queries: int = Field(description="How many it has: each account at a block is one, and each header.")
    queriesCompleted: int
    gasUsed: int = Field(description="Its share of the gas of its transactions.")
    spent: str = Field(description="The same in wei, decimal.")
    rejection: Rejection | None


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
    counts = count([batch.pk for batch in batches])
    return {
        "batchQueries": [told(batch, counts[batch.pk]) for batch in batches],
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


_OWN = CompiledQuery(lambda: Batch.objects.defer("request").filter(pk=Given("batch"), user=Given("user")))


def own_batch(request: HttpRequest, internal_id: str) -> Batch:
    """Return a batch of the user whose key was presented, without its request. Raises `ApiError`: not_found."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    # Some texts are none that a database can be asked for.
    asked = internal_id if internal_id.isalnum() else ""
    found = _OWN.first(batch=asked, user=key.user_id)
    if not found:
        raise ApiError(404, "not_found", "No query found")
    return found


# --- How it is told ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Of a batch's queries."""

    source_chains: tuple[int, ...]
    queries: int
    completed: int


def count(batches: Collection[str]) -> dict[str, Counts]:
    """Count the queries of each batch, in one statement."""
    found: dict[str, list[tuple[int, int, int]]] = {pk: [] for pk in batches}
    by_chain = Query.objects.filter(batch__in=batches).values_list("batch", "source_chain_id")
    counted = by_chain.annotate(Count("pk"), Count("step")).order_by("source_chain_id")
    for batch, chain, queries, still_open in counted:
        found[batch].append((chain, queries, queries - still_open))
    return {
        pk: Counts(tuple(chain for chain, *_ in rows), sum(row[1] for row in rows), sum(row[2] for row in rows))
        for pk, rows in found.items()
    }


def told(batch: Batch, counts: Counts) -> dict[str, Any]:
    """Return the batch as a `BatchQuery`."""
    return {
        "internalId": batch.pk,
        "status": batch.status,
        "queryStatus": query_status(batch.status),
        "destinationChainId": str(batch.destination_chain_id),
        "sourceChainIds": list(map(str, counts.source_chains)),
        "fee": str(batch.fee),
        "sender": Sender.SELF.value if batch.pays_itself else None,
        "createdAt": batch.created_at.isoformat(),
        "finishedAt": batch.finished_at and batch.finished_at.isoformat(),
        "queries": counts.queries,
        "queriesCompleted": counts.completed,
        "gasUsed": batch.gas_used,
        "spent": str(batch.spent),
        "rejection": {
            "code": batch.rejection_code,
            "error": batch.rejection_reason,
            "retryable": batch.rejection_retryable,
        }
        if batch.status == BatchStatus.REJECTED
        else None,
    }
