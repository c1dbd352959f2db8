"""Batches taken through their states by the functions that proving uses, without a chain."""

from collections.abc import Iterator
from typing import Any

from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey
from proving.models import (
    AccountProof,
    ChainHead,
    FactsRegistry,
    SignedTransaction,
    Signer,
    Transaction,
    TransactionState,
    WorkerHeartbeat,
)
from queries import progress
from queries.models import Batch, Block, StepKind
from tests.service import ALICE, SIGNER, a_key, request, submit

HASH = "0x" + "ab" * 32
TRANSACTION = "0x" + "7a" * 32
STORAGE_ROOT = "0x" + "11" * 32
CODE_HASH = "0x" + "22" * 32
REGISTRY = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
# Not a multiple of anything: a float would round it.
BALANCE = 123_456_789_012_345_678_901_234_567


def a_batch(*accounts: str, block: int = 12, props: list[str] | None = None, fee: int = 0) -> Batch:
    """RECEIVED, of Alice."""
    key = ApiKey.objects.filter(user__address=ALICE).first() or a_key()
    return submit(key, request(*(accounts or (ALICE,)), block=block, props=props, fee=fee))


def many_accounts(count: int) -> Iterator[str]:
    return (f"0x{number:040x}" for number in range(1, count + 1))


def queries_of(batch: Batch) -> list[int]:
    return list(batch.queries.values_list("pk", flat=True))


def accept(batch: Batch) -> None:
    progress.accept(batch, estimated_gas=511_000)
    Block.objects.filter(queries__batch=batch).update(due_at=timezone.now())


def complete(batch: Batch, *kinds: StepKind, transaction_hash: str = "") -> None:
    for kind in kinds:
        progress.complete(queries_of(batch), kind, transaction_hash=transaction_hash)


def fetch_proofs(batch: Batch) -> None:
    """What INITIAL_STATE stores, with made-up values."""
    for query in batch.queries.select_related("block"):
        AccountProof.objects.create(
            block=query.block,
            address=query.address,
            nodes=[],
            nonce=7,
            balance=BALANCE,
            storage_root=STORAGE_ROOT,
            code_hash=CODE_HASH,
        )
    FactsRegistry.objects.update_or_create(
        destination_chain_id=31337,
        source_chain_id=31337,
        defaults={"address": REGISTRY, "block_hash_source": REGISTRY, "deployed_at": timezone.now()},
    )


def finish(batch: Batch) -> None:
    """To DONE, not yet final."""
    accept(batch)
    fetch_proofs(batch)
    complete(batch, *StepKind)


def send(batch: Batch) -> Transaction:
    """A transaction for all its queries, sent."""
    signer, _ = Signer.objects.get_or_create(chain_id=31337, address=SIGNER)
    tx = Transaction.objects.create(signer=signer, nonce=signer.transactions.count(), data=b"", gas_limit=1)
    tx.queries.set(queries_of(batch))
    SignedTransaction.objects.create(
        transaction=tx, hash=TRANSACTION, raw=b"", max_fee_per_gas=1, max_priority_fee_per_gas=1
    )
    progress.note_transaction(queries_of(batch), TRANSACTION)
    return tx


def mine(tx: Transaction, *, block: int, head: int | None = None) -> None:
    """The transaction is in a block; the one before the head is final."""
    tx.state, tx.block_number, tx.succeeded, tx.gas_used = TransactionState.MINED, block, True, 175_840
    tx.hash = TRANSACTION
    tx.save()
    number = head or block
    ChainHead.objects.create(chain_id=31337, number=number, final=number - 2, seen_at=timezone.now())


def settle(batch: Batch) -> None:
    """What happens when the destination block that holds the facts is final."""
    Block.objects.filter(queries__batch=batch).update(due_at=None)


def beat() -> None:
    """A worker says that it runs."""
    now = timezone.now()
    WorkerHeartbeat.objects.update_or_create(worker="worker", defaults={"started_at": now, "beat_at": now})


def path(batch: Batch) -> str:
    return f"/explorer/query/{batch.pk}"


def page(batch: Batch, **parameters: Any) -> str:
    response = Client().get(path(batch), parameters)
    assert response.status_code == 200
    return response.text


def polled(batch: Batch, **parameters: Any) -> Any:
    """The answer to htmx."""
    return Client().get(path(batch), parameters, headers={"hx-request": "true"})
