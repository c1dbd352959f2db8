"""The endpoint that lists the facts that this service has proven for any user."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query as Parameter
from ninja import Router, Schema
from ninja.params import functions
from pydantic import Field

from accounts import read_rate
from api import fact_schema
from api.fact_schema import Fact
from proving.reading import fact_search
from proving.reading.fact_search import FactCursor, FactFilters, FoundFact
from queries.api_endpoint import READING_KEY, ApiError, errors
from queries.query_parameters import CURSOR, LIMIT
from queries.strict_json import INVALID

router = Router(tags=["Facts"])


class HeldFact(Fact):
    sourceChainId: str
    destinationChainId: str
    blockNumber: str
    account: str | None = Field(description="null: it is a fact of the block, or of a transaction.")
    transactionHash: str | None = Field(description="The hash of the transaction that proved the fact, if it is known.")


class HeldFacts(Schema):
    facts: list[HeldFact]
    next: str | None = Field(description="The `cursor` of the next page. null: there is none.")


@router.get(
    "/facts",
    operation_id="list_facts",
    auth=READING_KEY,
    response={200: HeldFacts, **errors(400, 401, 429, 503)},
    url_name="list_facts",
)
def list_facts(
    request: HttpRequest,
    filters: Parameter[FactFilters],
    limit: int = LIMIT,
    cursor: str = functions.Query(fact_search.START, pattern=fact_search.CURSOR, description=CURSOR),
) -> dict[str, Any] | HttpResponse:
    """List the facts in the registries in use about an account, or about a block and its transactions.

    Facts of the block that was requested last come first.

    The facts may come from any user's batch, and other services may have proven more. If several queries have a fact, a
    later page may repeat it. A client address may search by a slot, or read a file, 30 times a minute.
    """
    if filters.account is None and filters.block is None:
        raise ApiError(400, INVALID, "One of the query parameters account and block is needed.")
    # A search by slot reads all queries of the account or the block.
    if filters.slot and (refusal := read_rate.refusal(request)):
        return refusal
    reader = request.auth.user_id  # type: ignore[attr-defined]
    page = fact_search.search(filters, FactCursor.of(cursor), limit, reader=reader)
    return {"facts": list(map(_as_json, page.facts)), "next": str(page.next) if page.next else None}


def _as_json(fact: FoundFact) -> dict[str, Any]:
    return fact_schema.fact_json(fact.fact, fact.word, fact.registry.address, fact.block, fact.transaction) | {
        "sourceChainId": str(fact.block.source_chain_id),
        "destinationChainId": str(fact.block.destination_chain_id),
        "blockNumber": str(fact.block.number),
        "account": fact.address or None,
        "transactionHash": fact.transaction_hash or None,
    }
