"""What happens to transactions: time passes, and another signs with the same key."""

from datetime import timedelta

from django.utils import timezone
from eth_account import Account

from devnet.devchain import DevChain
from proving.models import SignedTransaction
from tests.service import ALICE, SIGNER_KEY


def age(seconds: float = 3600) -> None:
    """All signed versions have waited for so long."""
    SignedTransaction.objects.update(created_at=timezone.now() - timedelta(seconds=seconds))


def send_from_elsewhere(chain: DevChain, nonce: int) -> None:
    fields = {"chainId": 31337, "nonce": nonce, "gas": 21000, "gasPrice": 10**11, "to": ALICE, "value": 1}
    chain.rpc("eth_sendRawTransaction", Account.sign_transaction(fields, SIGNER_KEY).raw_transaction.to_0x_hex())


def roll_back(chain: DevChain, snapshot: str) -> None:
    """A reorg: other blocks take the place of those since the snapshot, and the mempool is empty."""
    chain.rpc("evm_revert", snapshot)
    chain.rpc("anvil_dropAllTransactions")
    chain.rpc("evm_setNextBlockTimestamp", hex(int(timezone.now().timestamp()) + 100))
    chain.mine(3)
