"""Self-funded batches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from devnet.devchain import DevChain
from proving.models import Share, Transaction
from tests.service import SIGNER


def itself(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "fee"} | {"sender": "self"}


@contextmanager
def nothing_spent(chain: DevChain) -> Iterator[None]:
    """By the operator, who sends nothing either."""

    def state() -> tuple[object, ...]:
        account = [chain.rpc(f"eth_get{what}", SIGNER, "pending") for what in ("Balance", "TransactionCount")]
        return (*account, Transaction.objects.count(), Share.objects.count())

    before = state()
    yield
    assert state() == before
