"""A reorganisation of the L1 of a real rollup, whose op-node drops blocks, and whose op-geth mines their transactions
again in one block with an older L1 origin.
"""

from collections.abc import Iterator

import pytest

from proving.models import Transaction
from queries.models import BatchStatus
from tests import service
from tests.deployed import deploy
from tests.real_nodes.facts import Call, Facts, Node, facts_of, wrong
from tests.real_nodes.rollup import L1, L2, Rollup, connect, rollup

pytestmark = [pytest.mark.op_stack, pytest.mark.outside, pytest.mark.django_db]

# Blocks of L1 that aren't final. Fewer are dropped.
_NOT_FINAL = 40
_DROPPED = 8
_ROUNDS = 40


@pytest.fixture
def running() -> Iterator[Rollup]:
    with rollup(final_behind=_NOT_FINAL) as running:
        yield running


def plain_facts(node: Node, number: int) -> Facts:
    """Return the facts of a block without its transactions, which a new block of the same number may lack."""
    facts = facts_of(node, number)
    facts.asked[f"block:{number}"].pop("transactions", None)
    expected = {call: value for call, value in facts.expected.items() if call[0].startswith(("header", "account"))}
    return Facts(facts.asked, expected)


def block_at(node: Node, time: int, newest: int) -> int:
    """Return the number of the last block up to a time. It is at most the `newest`."""
    while int(node.rpc("eth_getBlockByNumber", hex(newest), False)["timestamp"], 16) > time:
        newest -= 1
    return newest


def reverted() -> set[Transaction]:
    return set(Transaction.objects.filter(succeeded=False))


def test_facts_are_proven_again_after_a_reorg_of_l1_and_nothing_else_reverts(running, key, settings, tmp_path):
    connect(settings, tmp_path, running)
    registry = deploy(L2, L1).address
    # The registry stays.
    running.wait_for_origin(running.origin() + _DROPPED)
    at = running.l1.head()
    running.wait_for_origin(at + 1)
    before = plain_facts(running.l1, at)
    batch = service.done(service.submit(key, service.asking(before.asked, source=L1, destination=L2)), running, 30)
    sent = set(Transaction.objects.filter(queries__batch=batch))
    assert len(sent) > 2
    running.drop_l1(max(_DROPPED, running.l1.head() - at + 2))
    while service.fresh(batch).status == BatchStatus.DONE:
        service.work(1, running)
    # These were mined again before the service could know of it. The first one has recorded another block of L1.
    by_chain = reverted()
    assert by_chain == sent - {min(sent, key=lambda tx: tx.nonce)}
    service.done(batch, running, _ROUNDS)
    after = plain_facts(running.l1, at)
    assert after.expected != before.expected
    # The new blocks are later ones.
    time = int(next(name for name in before.asked if name.startswith("timestamp")).partition(":")[2])
    moved: dict[Call, int] = {("blockAtTimestamp(uint256)", time): block_at(running.l1, time, at)}
    assert wrong(running, registry, Facts({}, {**after.expected, **moved})) == []
    assert reverted() == by_chain
