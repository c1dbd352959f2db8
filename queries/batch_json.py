"""A batch as JSON, for the API's list, its details and the explorer's page."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, OuterRef, Subquery
from ninja import Schema
from pydantic import Field, TypeAdapter

from config.chain_names import ChainName
from config.json_objects import JsonObject, Time, iso
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Query, Sender
from queries.status import QueryStatus, query_status


class Rejection(Schema):
    code: str = Field(description="A stable word.")
    error: str = Field(description="A sentence.")
    retryable: bool = Field(description="Whether sending the batch again can help.")


class BatchQuery(Schema):
    internalId: str = Field(description="A ULID.")
    status: BatchStatus
    queryStatus: QueryStatus = Field(description="The status as in /batch-query-status.")
    label: str | None = Field(description="The name that its owner gave it. null: none.")
    destinationChainId: str
    sourceChainIds: list[str]
    fee: str = Field(description="The maximum cost in wei, decimal.")
    sender: str | None = Field(description="Who sends the batch's transactions. null: the operator.")
    createdAt: str = Field(description="ISO 8601, UTC, as all times.")
    finishedAt: str | None
    queries: int = Field(description="The number of queries: each account at a block is one, and each header.")
    queriesCompleted: int
    gasUsed: int = Field(description="The batch's share of its transactions' gas.")
    spent: str = Field(description="The batch's share of its transactions' cost in wei, decimal.")
    rejection: Rejection | None


@dataclass(frozen=True)
class Wait(JsonObject):
    """A reason why a batch waits, and the chains that it is about."""

    code: str | None  # a stable word; null: a version without codes has stored the sentence
    sentence: str
    failing_since: Time | None
    next_try_at: Time | None
    sources: tuple[ChainName, ...]  # empty if the batch has only one source chain


class BatchState(BatchQuery):
    """A batch with all that isn't about a single query."""

    acceptedAt: str | None
    deadlineAt: str | None = Field(
        description="While the batch is open: the service rejects it if it isn't done by then."
    )
    estimatedGas: int | None
    estimatedWei: str | None
    waits: list[Wait] = Field(description="What the batch waits for, while it is open.")
    wentBackAt: str | None = Field(description="When a reorganisation last reopened a step.")
    wentBackBecause: str | None = Field(description="Why it did, a sentence.")


@dataclass(frozen=True)
class Counts:
    """The source chains of a batch's queries, and the numbers of all queries and of completed ones."""

    source_chains: Sequence[int]
    queries: int
    completed: int


_ENDS = (("position", "source_chain_id"), ("-position", "source_chain_id"), ("-position", "position"))


def count(batches: Collection[str]) -> dict[str, Counts]:
    """Count the queries of each batch in one statement, or in two if a batch has several source chains."""
    queries = Query.objects.filter(batch=OuterRef("pk"))
    ends = [Subquery(queries.order_by(order).values(column)[:1]) for order, column in _ENDS]
    still_open = queries.filter(step__isnull=False).order_by().values("batch").annotate(n=Count("pk")).values("n")
    rows = Batch.objects.filter(pk__in=batches).values_list("pk", *ends, Subquery(still_open))
    counts = dict.fromkeys(batches, Counts((), 0, 0))
    several = []
    for pk, first_chain, last_chain, last_position, open_ones in rows:
        # A request names each source chain once, so the queries of a chain are consecutive.
        if first_chain == last_chain is not None:
            counts[pk] = Counts((last_chain,), last_position + 1, last_position + 1 - (open_ones or 0))
        elif last_chain is not None:
            several.append(pk)
    return counts | _by_chain(several) if several else counts


def _by_chain(batches: Collection[str]) -> dict[str, Counts]:
    """Count the queries of batches with several source chains. This reads every query."""
    counts_by_chain: dict[str, list[tuple[int, int, int]]] = {pk: [] for pk in batches}
    by_chain = Query.objects.filter(batch__in=batches).values_list("batch", "source_chain_id")
    counted = by_chain.annotate(Count("pk"), Count("step")).order_by("source_chain_id")
    for batch, chain, queries, still_open in counted:
        counts_by_chain[batch].append((chain, queries, queries - still_open))
    return {
        pk: Counts(tuple(chain for chain, *_ in rows), sum(row[1] for row in rows), sum(row[2] for row in rows))
        for pk, rows in counts_by_chain.items()
    }


def batch_query(batch: Batch, counts: Counts) -> dict[str, Any]:
    """Return the batch as a `BatchQuery`."""
    return {
        "internalId": batch.pk,
        "status": batch.status,
        "queryStatus": query_status(batch.status),
        "label": batch.label,
        "destinationChainId": str(batch.destination_chain_id),
        "sourceChainIds": list(map(str, counts.source_chains)),
        "fee": str(batch.fee),
        "sender": Sender.SELF.value if batch.is_self_funded else None,
        "createdAt": batch.created_at.isoformat(),
        "finishedAt": iso(batch.finished_at),
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


_WAITS_ADAPTER = TypeAdapter(tuple[Wait, ...])


def state(batch: Batch, counts: Counts, waits: tuple[Wait, ...]) -> dict[str, Any]:
    """Return the batch as a `BatchState`."""
    return batch_query(batch, counts) | {
        "acceptedAt": iso(batch.accepted_at),
        "deadlineAt": iso(batch.deadline_at) if batch.status in OPEN_STATUSES else None,
        "estimatedGas": batch.estimated_gas,
        "estimatedWei": None if batch.estimated_wei is None else str(batch.estimated_wei),
        "waits": _WAITS_ADAPTER.dump_python(waits, mode="json"),
        "wentBackAt": iso(batch.went_back_at),
        "wentBackBecause": batch.went_back_because or None,
    }
