"""Several signers of a destination and their transactions."""

from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from accounts.models import ApiKey
from chains.contract_artifacts import DEPLOYER
from devnet.devchain import DevChain
from proving.models import Transaction, TransactionState
from queries.models import Batch
from tests.service import ALICE, SIGNER, chains_toml, request, submit, work


def configure(settings, folder: Path, node: DevChain, *, signers: int = 2, **tables: str) -> None:
    settings.CHAINS_FILE = chains_toml(folder, node.url, signers=signers, **tables)  # type: ignore[arg-type]


def senders() -> list[str]:
    """Return the sender of each batch's transaction, in the order of storage."""
    return list(Transaction.objects.exclude(to=DEPLOYER).order_by("pk").values_list("signer__address", flat=True))


def get_stuck(signer: str = SIGNER) -> None:
    """Make the signer's pending transactions look old."""
    Transaction.objects.filter(signer__address=signer, state=TransactionState.PENDING).update(
        spent_at=timezone.now() - timedelta(minutes=5)
    )


def send_each(key: ApiKey, chain: DevChain, *backs: int) -> list[Batch]:
    """Submit a batch for each of these blocks, counted back from the head. Each batch has a transaction of its own."""
    batches = []
    for back in backs:
        batches.append(submit(key, request(ALICE, block=chain.head() - back)))
        work()
    return batches
