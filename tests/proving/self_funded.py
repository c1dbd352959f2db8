"""Helpers for self-funded batches."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.test import Client

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.models import Share, Transaction
from queries.models import Batch
from tests.service import SIGNER, header

# An account with money that the service doesn't know. anvil signs for it.
STRANGER = "0x00000000000000000000000000000000c0ffee00"


def itself(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "fee"} | {"sender": "self"}


def get(batch: Batch, key: ApiKey | None = None) -> Any:
    """Request the missing transactions, by default with the key that submitted the batch."""
    assert key or batch.api_key
    return Client().get(f"/batch-queries/{batch.pk}/transactions", headers=header(key or batch.api_key))


def left_of(batch: Batch) -> dict[str, Any]:
    answer = get(batch)
    assert answer.status_code == 200, answer.text
    transactions: dict[str, Any] = answer.json()
    return transactions


def send(chain: DevChain, transactions: Iterable[dict[str, Any]], sender: str = STRANGER) -> None:
    """Send the transactions one after another, each with the gas limit that the service gives."""
    chain.rpc("anvil_setBalance", sender, hex(10**21))
    chain.rpc("anvil_impersonateAccount", sender)
    for tx in transactions:
        sent = {name: tx[name] for name in ("to", "data", "gas")} | {"from": sender}
        receipt = chain.rpc("eth_sendTransactionSync", sent)
        assert receipt["status"] == "0x1", tx["what"]
        assert int(receipt["gasUsed"], 16) <= int(tx["gas"], 16)


@contextmanager
def nothing_spent(chain: DevChain) -> Iterator[None]:
    """Assert that the operator sends and spends nothing within the context."""

    def state() -> tuple[object, ...]:
        account = [chain.rpc(f"eth_get{what}", SIGNER, "pending") for what in ("Balance", "TransactionCount")]
        return (*account, Transaction.objects.count(), Share.objects.count())

    before = state()
    yield
    assert state() == before
