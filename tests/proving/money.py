"""A service that spends real money: gas prices, limits, and transactions of batches."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.test import Client

from accounts.models import ApiKey
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import ChainWatch, Transaction, TransactionState
from queries.models import OPEN_STATUSES, Batch
from tests.deployed import deploy_on
from tests.proving.estimated_batches import estimate
from tests.proving.prices import ACCOUNT_GAS, ETHER, GWEI
from tests.service import ALICE, CHARLIE, chains_toml, fresh, header, request, submit, work

COSTLY = "test_network = false\nminimum_signer_balance = '0'"


def serve(settings, folder: Path, chain: DevChain, url: str = "") -> None:
    settings.CHAINS_FILE = chains_toml(folder, url or chain.url, chain_id=chain.chain_id, chain=COSTLY)
    settings.ALLOWED_ADDRESSES = ["*"]
    deploy_on(chain)
    # The registry's deployment would count against limits in the tests.
    Transaction.objects.all().delete()


def limit(settings, **wei: int) -> None:
    """Replace the limits of chain 31337: `daily_limit` and `daily_limit_per_user`, in wei."""
    lines = "".join(f"{name} = '{Decimal(amount) / ETHER:f}'\n" for name, amount in wei.items())
    text = settings.CHAINS_FILE.read_text()
    assert "test_network = false\n" in text
    settings.CHAINS_FILE.write_text(re.sub(r"(test_network = false\n)(?:daily_limit.*\n)*", rf"\g<1>{lines}", text))
    forget_chains()


def without_limits(settings) -> None:
    """Remove the limits, so batches of any size can be paid for."""
    limit(settings, daily_limit=100 * ETHER, daily_limit_per_user=100 * ETHER)


def accepted(key: ApiKey, body: dict[str, Any], *, fee: int | None = None) -> Batch:
    """Submit a batch, and have it accepted without sending a transaction. Then set its fee, if given."""
    batch = submit(key, body)
    with stopped():
        work()
    assert fresh(batch).status in OPEN_STATUSES, batch.rejection_reason
    assert batch.accepted_at, str(batch.wait)
    if fee is not None:
        set_fee(batch, fee)
    return batch


@contextmanager
def stopped() -> Iterator[None]:
    """Stop signing and sending within the context."""
    call_command("stop", stdout=StringIO())
    yield
    call_command("resume", stdout=StringIO())


def set_fee(batch: Batch, fee: int) -> None:
    Batch.objects.filter(pk=batch.pk).update(fee=fee)
    batch.refresh_from_db()


def paying_up_to(gwei: float, key: ApiKey, *accounts: str, block: int) -> tuple[Batch, Transaction]:
    """Return a batch whose fee covers gas up to this price, and its transaction in the mempool."""
    batch = accepted(key, request(*accounts, block=block, fee=ETHER), fee=int(ACCOUNT_GAS * gwei * GWEI))
    return batch, pending(batch)


def in_mempool(chain: DevChain, key: ApiKey) -> tuple[Batch, Transaction]:
    """Return a batch about one account at the newest block, and its transaction in the mempool."""
    batch = submit(key, request(ALICE, block=chain.head(), fee=ETHER))
    return batch, pending(batch)


def cancel(batch: Batch) -> None:
    """Cancel the batch by the API. Its pending transactions become useless."""
    headers = header(batch.user.api_keys.all()[0])
    assert Client().post(f"/batch-queries/{batch.pk}/cancel", headers=headers).status_code == 200
    batch.refresh_from_db()


def cancel_by_command(batch: Batch) -> None:
    """Cancel the batch as an operator."""
    call_command("cancel", batch.pk, reason="A test.", stdout=StringIO())


def pending(batch: Batch) -> Transaction:
    """Return the batch's transaction from the mempool."""
    work(2)
    return Transaction.objects.filter(queries__batch=batch, state=TransactionState.PENDING).distinct().get()


def spent_today() -> int | None:
    """Return the wei that a worker's next turn counts against the daily limit of chain 31337."""
    work()
    return ChainWatch.objects.get(chain_id=31337).spent_in_day


def scattered_slots(count: int) -> dict[str, Any]:
    """Return a request for one account with `count` slots whose proofs share few nodes."""
    return {CHARLIE: {"props": ["BALANCE"], "slots": [hex(slot * 7919 * 2**40) for slot in range(count)]}}


def counts_of_day(settings, key: ApiKey, chain: DevChain, wei: int) -> bool:
    """Return whether exactly `wei` count of the user's day on chain 31337. A limit lower by a wei must
    refuse a batch.
    """
    body = request(CHARLIE, block=chain.head(), fee=ETHER)
    codes = []
    for lacks in (0, 1):
        limit(settings, daily_limit_per_user=100 * ETHER)
        needed = int(estimate(Client(), key, body)["wei"]["bound"])
        limit(settings, daily_limit_per_user=wei + needed - lacks)
        codes.append([rejection["code"] for rejection in estimate(Client(), key, body)["rejections"]])
    return codes == [[], ["budget_exceeded" if wei else "too_large_for_budget"]]
