"""The endpoints of a user's own batches: list them, read one, cancel one. Any of the user's API keys works."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db.models import CharField, Exists, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, NullIf
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query as Parameter
from ninja import Router, Schema
from ninja.params import functions
from pydantic import Field

from accounts.models import ApiKey
from api import fact_schema
from api.fact_schema import Fact, ShownTransaction
from config.database.statements import by_size
from config.json_objects import iso
from proving import facts
from proving.models import FactsRegistry, SignedTransaction, Transaction, TransactionState
from proving.reading import batch_waits, query_values
from proving.reading.query_values import QueryValues, RequestedEntry
from proving.registries import deployments
from queries import batch_json, batch_states, columns, query_rows
from queries.api_endpoint import CONDITIONAL, KEY, READING_KEY, ApiError, conditional, errors
from queries.batch_json import BatchQuery, BatchState
from queries.batch_request import Label
from queries.columns import RejectionCode
from queries.models import (
    CANCELLED,
    OPEN_STATUSES,
    Batch,
    BatchStatus,
    Block,
    Query,
    QueryKind,
    Step,
    StepKind,
    StepStatus,
)
from queries.query_parameters import CURSOR, LIMIT, Address, Number, Time, Ulid
from queries.status import QueryStatus, poll_seconds

router = Router(tags=["Batch queries"])

# Maximum transactions in an answer. The largest batches have a few hundred.
_MOST_TRANSACTIONS = 1000
# Maximum bytes of an answer's facts, beyond which the last may reach. A receipt, which takes long to read, counts too.
_MOST_BYTES, _BYTES_OF_RECEIPT = 1024 * 1024, 20_000
# Facts that are read at once, and the number of facts or other items that take as long as a receipt.
_FACTS_AT_ONCE, ITEMS_OF_RECEIPT = 500, 50
# An answer has about as many facts at most.
MOST_ITEMS = 3000
_CANCELLED_SENTENCES = {
    "key": "The user who submitted the batch has cancelled it with an API key.",
    "page": "The user who submitted the batch has cancelled it on its page.",
}


class BatchQueryList(Schema):
    batchQueries: list[BatchQuery] = Field(description="The newest comes first.")
    next: str | None = Field(description="The `cursor` of the next page. null: there is none.")


class Cancelled(Schema):
    internalId: str
    queryStatus: QueryStatus


class BatchStatusFilter(StrEnum):
    """The statuses of batches, and `CANCELLED`: those REJECTED that their user has cancelled."""

    RECEIVED = BatchStatus.RECEIVED.value
    ACCEPTED = BatchStatus.ACCEPTED.value
    IN_PROGRESS = BatchStatus.IN_PROGRESS.value
    DONE = BatchStatus.DONE.value
    REJECTED = BatchStatus.REJECTED.value
    CANCELLED = CANCELLED


class BatchFilters(Schema):
    """The filters of a list of batches.

    A single query of the batch must match `sourceChainId`, `account` and `block`.
    """

    status: BatchStatusFilter | None = None
    label: Label = None
    destinationChainId: Number | None = None
    sourceChainId: Number | None = None
    account: Address | None = None
    block: Number | None = None
    createdAfter: Time | None = None
    createdBefore: Time | None = None
    cursor: Ulid | None = Field(None, description=CURSOR)

    def apply(self, batches: QuerySet[Batch]) -> QuerySet[Batch]:
        of_batch = {
            "label": self.label,
            "destination_chain_id": self.destinationChainId,
            "created_at__gt": self.createdAfter,
            "created_at__lt": self.createdBefore,
            "pk__lt": self.cursor,
        }
        batches = batches.filter(**_named(of_batch))
        if self.status == CANCELLED:
            batches = batches.filter(status=BatchStatus.REJECTED, rejection_code=RejectionCode.CANCELLED_BY_USER)
        elif self.status is not None:
            batches = batches.filter(status=self.status)
        queries = Query.objects.filter(**_named({"source_chain_id": self.sourceChainId}))
        conditions = _named({"address": self.account})
        if self.block is not None:
            # The ids tell PostgreSQL how many queries match, so that it chooses the right index.
            conditions["block__in"] = list(Block.objects.filter(number=self.block).values_list("pk", flat=True))
        if conditions:
            # A subquery is evaluated once by an index. SQLite would evaluate an EXISTS again for each batch.
            return batches.filter(pk__in=queries.filter(**conditions).values("batch"))
        if self.sourceChainId is not None:
            return batches.filter(Exists(queries.filter(batch=OuterRef("pk"))))
        return batches


def _named(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@router.get(
    "/batch-queries",
    operation_id="list_batch_queries",
    auth=READING_KEY,
    response={200: BatchQueryList, **errors(400, 401, 503)},
)
def list_batch_queries(request: HttpRequest, filters: Parameter[BatchFilters], limit: int = LIMIT) -> dict[str, Any]:
    """List your batch queries, made with any of your keys, in pages.

    A page stays the same while new batches are submitted.
    """
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    rows = query_rows.first(filters.apply(Batch.objects.filter(user=key.user_id)), limit + 1)
    batches = rows[:limit]
    counts = batch_json.count([batch.pk for batch in batches])
    return {
        "batchQueries": [batch_json.batch_query(batch, counts[batch.pk]) for batch in batches],
        "next": batches[-1].pk if len(rows) > limit else None,
    }


@router.post(
    "/batch-queries/{internalId}/cancel",
    operation_id="cancel_batch_query",
    auth=KEY,
    response={200: Cancelled, **errors(401, 403, 404, 409, 503)},
)
def cancel_batch_query(request: HttpRequest, internalId: str) -> dict[str, str]:
    """Cancel one of your batch queries for good: it becomes REJECTED with the code `cancelled_by_user`.

    Transactions that were sent stay paid, and the facts that they prove stay proven. Cancelling again changes nothing.
    """
    batch = own_batch(request, internalId)
    withdraw(batch, by="key")
    return {"internalId": batch.pk, "queryStatus": QueryStatus.REJECTED.value}


def withdraw(batch: Batch, *, by: str) -> None:
    """Cancel a batch for its user. `by` is a key of `_CANCELLED_SENTENCES`. Raises `ApiError`: already_finished."""
    code = RejectionCode.CANCELLED_BY_USER
    if batch.rejection_code != code and not batch_states.withdraw(
        [batch.pk], code=code, reason=_CANCELLED_SENTENCES[by]
    ):
        batch.refresh_from_db(fields=["status", "rejection_code"])
        if batch.rejection_code != code:
            raise ApiError(409, "already_finished", f"The batch is {batch.status}, so there is nothing to cancel.")


def own_batch(request: HttpRequest, internal_id: str) -> Batch:
    """Return a batch of the API key's user, without its request. Raises `ApiError`: not_found."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    own = Batch.objects.defer("request").filter(user=key.user_id)
    batch = own.filter(pk=columns.batch_id(internal_id)).first()
    if not batch:
        raise ApiError(404, "not_found", "No query found")
    return batch


# --- One batch --------------------------------------------------------------------------------------------------------


class SentTransaction(Schema):
    hash: str
    chainId: str
    nonce: int
    status: TransactionState
    gasUsed: int | None = Field(description="The whole transaction's, once it is mined.")
    blockNumber: str | None


class QueryStep(Schema):
    kind: StepKind
    status: StepStatus
    startedAt: str
    completedAt: str | None
    transactionHash: str | None


class AskedQuery(Schema):
    number: int = Field(description="From 1, in the order of the request.")
    sourceChainId: str
    selector: str = Field(description="How the request named the block.")
    blockNumber: str | None = Field(description="null: not found yet.")
    blockHash: str | None
    blockTimestamp: str | None = Field(description="Unix seconds.")
    account: str | None = Field(description="null: the query is about a transaction, or else the header.")
    transaction: ShownTransaction | None = Field(description="null: the query is about no transaction.")
    name: str = Field(description="The ENS name that the request gave. Empty: it gave none.")
    isCompleted: bool
    step: StepKind | None = Field(description="The open step. null: all steps are completed.")
    steps: list[QueryStep] = Field(description="Those that have begun.")
    facts: list[Fact] = Field(
        description="If there are many, the answer from `next` on continues, under the same number."
    )


FROM_NUMBER = functions.Query("1", pattern=r"^[1-9][0-9]{0,8}(\.[0-9]{1,9})?$", description=CURSOR)


class BatchDetail(BatchState):
    batchQuery: BatchQuery = Field(description="The same again, for clients of older versions of this path.")
    transactions: list[SentTransaction] = Field(description="At most 1,000, the newest first.")
    queryList: list[AskedQuery]
    next: str | None = Field(description="The `cursor` of the next page of `queryList`. null: there is none.")


@router.get(
    "/batch-queries/{internalId}",
    operation_id="get_batch_query",
    auth=READING_KEY,
    response={200: BatchDetail, **errors(400, 401, 404, 503)},
    by_alias=True,
    openapi_extra=CONDITIONAL,
)
def get_batch_query(
    request: HttpRequest,
    internalId: str,
    limit: int = LIMIT,
    cursor: str = FROM_NUMBER,
) -> HttpResponse:
    """Return all details of one of your batch queries: steps, costs, waits, transactions, and facts.

    The facts of a query have words as soon as that query is completed, even if other queries are not.
    """
    batch = own_batch(request, internalId)
    return detail(request, batch, parts_from(batch, cursor, limit))


@dataclass(frozen=True)
class QueryPart:
    """A query with some of its facts, of which the first has the place `start` among all."""

    query: Query
    start: int
    facts: Sequence[facts.Fact]

    @property
    def size(self) -> int:
        """Return the number of facts. A receipt takes as long to read as `ITEMS_OF_RECEIPT`."""
        return len(self.facts) + (ITEMS_OF_RECEIPT if self.query.kind == QueryKind.ENTRY else 0)


def parts_from(batch: Batch, cursor: str, limit: int) -> list[QueryPart]:
    """Return up to `limit` queries of the batch in parts, from a query's number on, or from a fact of it on."""
    number, _, place = cursor.partition(".")
    first, parts = int(place or 0), list[QueryPart]()
    for query in query_rows.from_number(batch, int(number), limit):
        asked = facts.of(query)
        starts = range(first, max(len(asked), 1), _FACTS_AT_ONCE)
        parts += [QueryPart(query, start, asked[start : start + _FACTS_AT_ONCE]) for start in starts]
        first = 0
    return parts


def detail(request: HttpRequest, batch: Batch, parts: Sequence[QueryPart]) -> HttpResponse:
    """Return the `BatchDetail` of a batch as an HTTP response, with as many of the parts as fit."""
    # The answer isn't validated, because validating thousands of our own facts takes longer than reading them.
    body = json.dumps(_detail(batch, parts)).encode()
    is_open = batch.status in OPEN_STATUSES
    return conditional(request, body, retry_after=poll_seconds(timezone.now() - batch.created_at) if is_open else None)


def _detail(batch: Batch, parts: Sequence[QueryPart]) -> dict[str, Any]:
    """Return the batch as a `BatchDetail`."""
    counts = batch_waits.count(batch)
    registries = deployments.all_of(batch.destination_chain_id, counts.source_chains)
    return batch_json.state(batch, counts, batch_waits.waits(batch, counts)) | {
        "batchQuery": batch_json.batch_query(batch, counts),
        "transactions": _transactions(batch),
        **_query_list(batch, parts, counts.queries, deployments.of_batch(batch, registries)),
    }


def _query_list(
    batch: Batch, parts: Sequence[QueryPart], count: int, held_by: Mapping[int, FactsRegistry]
) -> dict[str, Any]:
    """Return `queryList`, with as many of the parts as fit, and `next` of a batch with `count` queries."""
    shown: list[dict[str, Any]] = []
    size = 0
    for several in by_size(parts, lambda part: part.size, _FACTS_AT_ONCE):
        told = {part.query: part.facts for part in several if facts.may_be_told(batch, part.query)}
        values, steps = query_values.read(told), query_rows.steps_of(part.query for part in several)
        for part in several:
            query, registry = part.query, held_by.get(part.query.source_chain_id)
            known = values.get(query.pk) or QueryValues.untold(query)
            address = registry.address if registry else None
            if not shown or not part.start:
                shown.append(_query(query, steps[query.pk], known.entry))
            for place, fact in enumerate(part.facts, part.start):
                if size > _MOST_BYTES:
                    if not shown[-1]["facts"]:
                        shown.pop()
                    return {"queryList": shown, "next": f"{query.number}.{place}"}
                as_json = fact_schema.fact_json(fact, known.words.get(fact), address, query.block, known.entry)
                size += len(json.dumps(as_json))
                shown[-1]["facts"].append(as_json)
            size += _BYTES_OF_RECEIPT if query.kind == QueryKind.ENTRY else 0
    following = parts[-1].query.number + 1 if parts else count + 1
    return {"queryList": shown, "next": str(following) if following <= count else None}


def _query(query: Query, steps: Sequence[Step], transaction: RequestedEntry | None) -> dict[str, Any]:
    """Return the query as an `AskedQuery` without its facts."""
    block = query.block
    return {
        "number": query.number,
        "sourceChainId": str(query.source_chain_id),
        "selector": query.selector,
        "blockNumber": str(block.number) if block else None,
        "blockHash": (block and block.hash) or None,
        "blockTimestamp": str(block.timestamp) if block and block.timestamp is not None else None,
        "account": query.address or None,
        "transaction": fact_schema.transaction_json(transaction),
        "name": query.name,
        "isCompleted": query.step is None,
        "step": query.step,
        "steps": [_step(step) for step in steps],
        "facts": [],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "status": step.status,
        "startedAt": iso(step.started_at),
        "completedAt": iso(step.completed_at),
        "transactionHash": step.transaction_hash or None,
    }


def _transactions(batch: Batch) -> list[dict[str, Any]]:
    signed = SignedTransaction.objects.filter(transaction=OuterRef("pk")).exclude(hash=None)
    newest = Subquery(signed.order_by("-pk").values("hash")[:1])
    latest = Coalesce(NullIf("hash", Value("")), newest, output_field=CharField())
    sent = Transaction.objects.filter(shares__batch=batch).alias(latest=latest).exclude(latest=None).order_by("-pk")
    rows = sent.values_list(latest, "signer__chain_id", "nonce", "state", "gas_used", "block_number")
    return [
        {
            "hash": tx_hash,
            "chainId": str(chain_id),
            "nonce": nonce,
            "status": state,
            "gasUsed": gas_used or None,
            "blockNumber": None if block_number is None else str(block_number),
        }
        for tx_hash, chain_id, nonce, state, gas_used, block_number in rows[:_MOST_TRANSACTIONS]
    ]
