"""The endpoint that tells all about one of a user's own batches, a page of its queries at a time."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import CharField, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce, NullIf
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router, Schema
from ninja.params import functions
from pydantic import Field

from explorer.endpoints import told_facts
from explorer.endpoints.told_facts import Fact
from explorer.pages import batch_progress, heavy_reads, query_paging, shown_facts, trusted_sources
from proving import facts
from proving.models import FactsRegistry, SignedTransaction, Transaction, TransactionState
from queries import batch_json, own_batches
from queries.api_endpoint import CONDITIONAL, KEY, conditional, errors
from queries.batch_json import BatchState
from queries.models import OPEN_STATUSES, Batch, Query, Step, StepKind, StepStatus
from queries.poll_interval import poll_seconds
from queries.query_parameters import CURSOR, LIMIT

router = Router(tags=["Batch queries"])

# The largest batches have some hundred.
_MOST_TRANSACTIONS = 1000


class SentTransaction(Schema):
    hash: str
    chainId: str
    nonce: int
    status: TransactionState
    gasUsed: int | None = Field(description="Of the whole transaction, once it is mined.")
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
    selector: str = Field(description="As the request named the block.")
    blockNumber: str | None = Field(description="null: not found yet.")
    blockHash: str | None
    blockTimestamp: str | None = Field(description="Unix seconds.")
    account: str | None = Field(description="null: the query is about the header.")
    name: str = Field(description="The ENS name that the request gave. Empty: it gave none.")
    isCompleted: bool
    step: StepKind | None = Field(description="The open one. null: all are completed.")
    steps: list[QueryStep] = Field(description="Those that have begun.")
    facts: list[Fact]


class BatchDetail(BatchState):
    transactions: list[SentTransaction] = Field(description="The newest comes first, of at most 1,000.")
    queryList: list[AskedQuery]
    next: str | None = Field(description="The `cursor` of the next page of `queryList`. null: there is none.")


@router.get(
    "/batch-queries/{internal_id}",
    operation_id="get_batch_query",
    auth=KEY,
    response={200: BatchDetail, **errors(400, 401, 404, 429, 503)},
    by_alias=True,
    openapi_extra=CONDITIONAL,
)
def get_batch_query(
    request: HttpRequest,
    internal_id: str,
    limit: int = LIMIT,
    cursor: str = functions.Query("1", pattern=r"^[1-9][0-9]{0,8}$", description=CURSOR),
) -> HttpResponse:
    """Tell all about one of your batch queries: steps, costs, waits, transactions, and the facts.

    A query's facts have their words as soon as the query is completed, whatever the others still wait for.
    """
    batch = own_batches.own_batch(request, internal_id)
    heavy_reads.count_page(f"user {batch.user_id}", batch)
    # Written as it is: to validate thousands of facts of our own would take longer than to read them.
    body = json.dumps(_told(batch, int(cursor), limit)).encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    is_open = batch.status in OPEN_STATUSES
    return conditional(request, body, etag, poll_seconds(timezone.now() - batch.created_at) if is_open else None)


def _told(batch: Batch, first: int, limit: int) -> dict[str, Any]:
    """Return the batch as a `BatchDetail`."""
    counts = batch_progress.count(batch)
    registries = trusted_sources.registries(batch.destination_chain_id, counts.source_chains)
    queries = query_paging.from_number(batch, first, limit)
    following = first + limit
    return batch_json.state(batch, counts, batch_progress.waits(batch, counts)) | {
        "transactions": _transactions(batch),
        "queryList": _queries(batch, queries, trusted_sources.holding(batch, registries)),
        "next": str(following) if following <= counts.queries else None,
    }


def _queries(batch: Batch, queries: Sequence[Query], held_by: Mapping[int, FactsRegistry]) -> list[dict[str, Any]]:
    steps = query_paging.steps_of(queries)
    words = shown_facts.proven([query for query in queries if shown_facts.may_be_told(batch, query)], None)
    told = []
    for query in queries:
        block, registry = query.block, held_by.get(query.source_chain_id)
        known = words.get(query.pk, {})
        told.append(
            {
                "number": query.position + 1,
                "sourceChainId": str(query.source_chain_id),
                "selector": query.selector,
                "blockNumber": str(block.number) if block else None,
                "blockHash": (block and block.hash) or None,
                "blockTimestamp": str(block.timestamp) if block and block.timestamp is not None else None,
                "account": query.address or None,
                "name": query.name,
                "isCompleted": query.step is None,
                "step": query.step,
                "steps": [_step(step) for step in steps[query.pk]],
                "facts": [
                    told_facts.told(fact, known.get(fact), registry.address if registry else None, block)
                    for fact in facts.of(query)
                ],
            }
        )
    return told


def _step(step: Step) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "status": step.status,
        "startedAt": _time(step.started_at),
        "completedAt": _time(step.completed_at),
        "transactionHash": step.transaction_hash or None,
    }


def _transactions(batch: Batch) -> list[dict[str, Any]]:
    newest = SignedTransaction.objects.filter(transaction=OuterRef("pk")).order_by("-pk").values("hash")[:1]
    sent = Transaction.objects.filter(shares__batch=batch).order_by("-pk")
    latest = Coalesce(NullIf("hash", Value("")), Subquery(newest), output_field=CharField())
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


def _time(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
