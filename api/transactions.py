"""`GET /batch-queries/{internalId}/transactions`: the transactions that a self-funded batch still needs."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import Field

from accounts import throttle
from api.batches import own_batch
from chains.chains_file import UnknownChain
from chains.encoding import hex_data
from chains.nodes.node_errors import NodeUnavailable, RpcRefused
from config.database import statements
from proving.reconcile import unsigned
from proving.reconcile.unsigned import MissingTransactions
from queries.api_endpoint import READING_KEY, ApiError, errors
from queries.models import Batch, BatchStatus, Block

router = Router(tags=["Batch queries"])

# Maximum requests of one user in a minute. Each request keeps nodes busy for some seconds.
_MOST_PER_MINUTE = 60
# Seconds after which to try again, if nodes don't answer or too many requests run.
_RETRY_SECONDS = 5


class WalletCall(Schema):
    """A call in the format of EIP-5792."""

    to: str
    data: str
    value: str


class UnsignedTransaction(WalletCall):
    gas: str = Field(description="A sufficient gas limit, as JSON-RPC writes numbers.")
    chainId: str = Field(description="A number in the form of JSON-RPC.")
    what: str = Field(description="What it does, a sentence.")
    queries: list[int] = Field(description="Numbers of the queries that need it, from 1.")


class WalletCalls(Schema):
    """The parameter of `wallet_sendCalls` (EIP-5792)."""

    version: str
    chainId: str
    atomicRequired: bool
    calls: list[WalletCall]


class LeftToSend(Schema):
    chainId: str = Field(description="The destination chain, decimal.")
    isComplete: bool = Field(description="Whether the batch is complete once these transactions are on the chain.")
    waits: list[str] = Field(description="Sentences about what else the batch waits for.")
    transactions: list[UnsignedTransaction] = Field(description="Anybody may send these, in this order.")
    calls: WalletCalls = Field(description="The same in the form of EIP-5792.")


@router.get(
    "/batch-queries/{internalId}/transactions",
    operation_id="get_batch_transactions",
    auth=READING_KEY,
    response={200: LeftToSend, **errors(401, 404, 409, 429, 503)},
    summary="Transactions to send",
)
def batch_transactions(request: HttpRequest, internalId: str) -> HttpResponse:
    """Return the transactions that a batch with the sender `self` still needs on its destination chain, unsigned.

    Anybody may send them, in this order. Each has a sufficient gas limit. If `isComplete` is false, more transactions
    follow once these are on the chain, or once the `waits` are over.
    """
    batch = own_batch(request, internalId)
    check_self_funded(batch)
    if batch.status == BatchStatus.DONE:
        missing = MissingTransactions()
    else:
        if seconds := throttle.take("unsigned transactions", batch.user_id, _MOST_PER_MINUTE):
            sentence = f"You may ask {_MOST_PER_MINUTE} times in a minute. Ask again in {seconds} s."
            raise ApiError(429, "too_many_requests", sentence, retry_after=seconds)
        missing = _left_of(batch)
        if missing.is_complete and not missing.transactions:
            # This makes a worker check the blocks now, even if nodes serve no events.
            waiting = Block.objects.filter(queries__batch=batch, due_at__gt=Now())
            statements.retried(partial(waiting.update, due_at=Now()))
    # The answer isn't validated, because that would take long for megabytes of our own data.
    return HttpResponse(json.dumps(_body(batch, missing)), content_type="application/json; charset=utf-8")


def check_self_funded(batch: Batch) -> None:
    """Raise `ApiError` unless the batch is self-funded and not rejected."""
    if not batch.is_self_funded:
        raise ApiError(409, "paid_by_operator", "The service sends the transactions of this batch.")
    if batch.status == BatchStatus.REJECTED:
        raise ApiError(409, "already_finished", f"The batch was rejected: {batch.rejection_reason}")


def _left_of(batch: Batch) -> MissingTransactions:
    """Ask the chains which transactions the batch still needs. Raises `ApiError`."""
    try:
        return unsigned.left_of(batch)
    except UnknownChain as gone:
        sentence = str(gone)
    except (NodeUnavailable, RpcRefused) as error:
        sentence = f"The service can't tell just now which transactions are missing. {error}"
    raise ApiError(503, "chain_unavailable", sentence, retry_after=_RETRY_SECONDS)


def _body(batch: Batch, missing: MissingTransactions) -> Mapping[str, Any]:
    chain = hex(batch.destination_chain_id)
    calls = [{"to": tx.to, "data": hex_data(tx.data), "value": "0x0"} for tx in missing.transactions]
    numbers = {pk: position + 1 for pk, position in batch.queries.values_list("pk", "position")}
    return {
        "chainId": str(batch.destination_chain_id),
        "isComplete": missing.is_complete,
        "waits": list(map(str, missing.waits)),
        "transactions": [
            {
                **call,
                "gas": hex(tx.gas),
                "chainId": chain,
                "what": tx.what,
                "queries": sorted(numbers[pk] for pk in tx.queries if pk in numbers),
            }
            for tx, call in zip(missing.transactions, calls, strict=True)
        ],
        "calls": {"version": "2.0.0", "chainId": chain, "atomicRequired": False, "calls": calls},
    }
