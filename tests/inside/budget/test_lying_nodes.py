"""Nodes that lie about nonces."""

from typing import Any

import pytest
from django.db.models import Q

from proving.health import findings
from proving.models import Transaction, TransactionState
from proving.transactions import transaction_monitor
from tests.chains.lying_node import between
from tests.proving.money import ETHER, mine_at
from tests.proving.transactions import age
from tests.service import ALICE, SIGNER, reconfigure, request, submit, work


@pytest.mark.parametrize(
    ("while_monitoring", "while_sending", "repaid"),
    [(lambda _: 1, lambda nonce: nonce, 3), (lambda nonce: nonce, lambda nonce: nonce + 16, 3 * 16)],
    ids=["left behind", "filled"],
)
def test_a_signer_whose_gaps_were_repaired_three_times_in_a_day_pauses(
    costly, key, settings, monkeypatch, while_monitoring, while_sending, repaid
):
    """A node tells one nonce before it sends, and another one after it: each repair is paid for."""
    costly.rpc("anvil_setNonce", SIGNER, hex(500))
    costly.mine(2)
    mine_at(costly, 1)
    is_monitoring, monitor = False, transaction_monitor._monitor

    def note_monitoring(*arguments: Any) -> Any:
        nonlocal is_monitoring
        is_monitoring = True
        try:
            return monitor(*arguments)
        finally:
            is_monitoring = False

    def change(question: Any, reply: Any) -> list[Any]:
        match question["method"]:
            case "eth_getTransactionCount":
                told = while_monitoring if is_monitoring else while_sending
                return [reply | {"result": hex(told(int(reply["result"], 16)))}]
            case "eth_getTransactionReceipt" if while_monitoring(500) == 1:
                return [reply | {"result": None}]
        return [reply]

    monkeypatch.setattr(transaction_monitor, "_monitor", note_monitoring)
    with between(costly.url, change) as url:
        reconfigure(settings, costly.url, url)
        for number in range(5):
            mine_at(costly, 1)
            submit(key, request(ALICE, block=costly.head() - 1 - number, fee=ETHER // 1000))
            for _ in range(6):
                work()
                mine_at(costly, 1)
                age()
    assert Transaction.objects.filter(Q(to=SIGNER) | Q(state=TransactionState.DISPLACED)).count() == repaid
    assert "node_doubtful" in [problem.code for problem in findings.stopped()]
