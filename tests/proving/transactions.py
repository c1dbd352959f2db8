"""Events that affect transactions: time passes, or another program signs with the same key."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone
from eth_account import Account
from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from devnet.execution_client import ExecutionClient
from proving.models import SignedTransaction, Transaction
from queries.models import Step
from tests.service import ALICE, SIGNER_KEY, work


def age(seconds: float = 3600) -> None:
    """Make all signed versions, and the refusals of their broadcasts, look this old."""
    then = timezone.now() - timedelta(seconds=seconds)
    SignedTransaction.objects.update(created_at=then)
    SignedTransaction.objects.exclude(refused_at=None).update(refused_at=then)


def work_aged(rounds: int = 1) -> None:
    """Do all work once in each round, in which signed versions look an hour old."""
    for _ in range(rounds):
        age()
        work()


def sign_otherwise(tx: Transaction, *, gas: int, price: int) -> None:
    """Give the transaction another gas limit and price, as an earlier version of the service could sign it."""
    prices = {"maxFeePerGas": price, "maxPriorityFeePerGas": price}
    fields = {"type": 2, "chainId": 31337, "nonce": tx.nonce, "to": tx.to, "value": 0, "data": bytes(tx.data)}
    raw = Account.sign_transaction({**fields, **prices, "gas": gas}, SIGNER_KEY).raw_transaction
    before, tx_hash = tx.latest_hash, "0x" + keccak(raw).hex()
    Step.objects.filter(transaction_hash=before).update(transaction_hash=tx_hash)
    for share in tx.shares.all():
        tx.shares.filter(pk=share.pk).update(weight=share.weight * gas // tx.gas_limit)
    Transaction.objects.filter(pk=tx.pk).update(gas_limit=gas)
    tx.versions.update(hash=tx_hash, raw=raw, max_fee_per_gas=price, max_priority_fee_per_gas=price, broadcast_at=None)
    tx.refresh_from_db()
    tx.reserve()
    tx.save(update_fields=["reserved_gwei"])


def send_from_elsewhere(chain: DevChain | ExecutionClient, nonce: int) -> None:
    fields = {"chainId": chain.chain_id, "nonce": nonce, "gas": 21000, "gasPrice": 10**11, "to": ALICE, "value": 1}
    chain.rpc("eth_sendRawTransaction", Account.sign_transaction(fields, SIGNER_KEY).raw_transaction.to_0x_hex())


def roll_back(chain: DevChain, snapshot: str) -> None:
    """Replace the blocks since the snapshot by other ones, and empty the mempool."""
    chain.rpc("evm_revert", snapshot)
    chain.rpc("anvil_dropAllTransactions")
    chain.rpc("evm_setNextBlockTimestamp", hex(int(timezone.now().timestamp()) + 100))
    chain.mine(3)


@contextmanager
def between_statements(is_time: Callable[[str], object], act: Callable[[], object]) -> Iterator[None]:
    """Act once between two database transactions, as another process may, after a statement for which `is_time` is
    true.

    Fail if there is no such moment.
    """
    depth = len(connection.savepoint_ids)
    acted, is_late = False, False

    def execute(execute: Any, sql: str, *more: Any) -> Any:
        nonlocal acted, is_late
        is_late = is_late or bool(is_time(sql))
        if is_late and not acted and len(connection.savepoint_ids) == depth:
            acted = True
            act()
        return execute(sql, *more)

    with connection.execute_wrapper(execute):
        yield
    assert acted
