"""Events that affect transactions: time passes, or another program signs with the same key."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone
from eth_account import Account

from devnet.devchain import DevChain
from proving.models import SignedTransaction
from tests.service import ALICE, SIGNER_KEY


def age(seconds: float = 3600) -> None:
    """Make all signed versions, and the refusals of their broadcasts, look this old."""
    then = timezone.now() - timedelta(seconds=seconds)
    SignedTransaction.objects.update(created_at=then)
    SignedTransaction.objects.exclude(refused_at=None).update(refused_at=then)


def send_from_elsewhere(chain: DevChain, nonce: int) -> None:
    fields = {"chainId": 31337, "nonce": nonce, "gas": 21000, "gasPrice": 10**11, "to": ALICE, "value": 1}
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
