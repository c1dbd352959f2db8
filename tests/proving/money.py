"""A service that spends real money: what gas costs, and what batches have sent."""

from pathlib import Path
from typing import Any

from config.configured_chains import forget_chains, get_rpc
from devnet.devchain import DevChain
from proving.models import Transaction, TransactionState
from queries import progress
from queries.models import Batch
from queries.rejection_codes import RejectionCode
from tests.deployed import deploy_on
from tests.service import chains_toml, work

GWEI = 10**9
ETHER = 10**18
COSTLY = "test_network = false\nminimum_signer_balance = '0'"


def serve(settings, folder: Path, chain: DevChain, url: str = "") -> None:
    settings.CHAINS_FILE = chains_toml(folder, url or chain.url, chain_id=chain.chain_id, chain=COSTLY)
    settings.ALLOWED_ADDRESSES = ["*"]
    forget_chains()
    deploy_on(chain)
    # What the operator has paid for the registry is no matter of these tests.
    Transaction.objects.all().delete()


def price_of(chain: DevChain) -> int:
    """In wei: of a unit of gas, the tip included."""
    fees = get_rpc(chain.chain_id).fees()
    return fees.base_fee + fees.priority_fee


def mine_at(chain: DevChain, gwei: float) -> None:
    """Mine a block at this base fee, as gas costs from then on."""
    chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(int(gwei * GWEI)))
    chain.mine()


def rejected_late(batch: Batch) -> None:
    """As when the deadline passes, or a second source chain is refused, after the first has been paid for."""
    progress.reject([batch.pk], code=RejectionCode.DEADLINE_EXCEEDED, reason="Late.", retryable=True)


def pending(batch: Batch) -> Transaction:
    """Its transaction, which is in the mempool now."""
    work()
    work()
    return Transaction.objects.filter(queries__batch=batch, state=TransactionState.PENDING).distinct().get()


def asking(block: int, fee: int, **accounts: Any) -> dict[str, Any]:
    data = {"31337": {f"block:{block}": {"accounts": accounts}}}
    return {"destinationChainId": "31337", "fee": str(fee), "data": data}
