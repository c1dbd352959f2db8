"""The service on a real rollup of the OP Stack, whose L1 has a beacon chain by the executable specifications."""

import pytest

from devnet.consensus_client import SLOTS_PER_EPOCH
from devnet.op_stack import OpStack
from tests import service
from tests.real_nodes import l1 as forked
from tests.real_nodes.facts import Facts, facts_of, send_transactions, wrong
from tests.real_nodes.l1 import CHAIN_ID, L1, connect, roots_of
from tests.real_nodes.rollup import L2, Rollup
from tests.specifications import with_specifications

pytestmark = [pytest.mark.op_stack, pytest.mark.outside, pytest.mark.django_db, with_specifications]

_GLOAS = SLOTS_PER_EPOCH
# A block without payload follows the fork's first three.
_SINCE_GLOAS = "FFFEFFFF"


def test_facts_of_l1_are_proven_by_its_beacon_roots_before_gloas_and_across_it(key, settings, tmp_path):
    with forked.running(_SINCE_GLOAS, gloas=_GLOAS, prepare=OpStack.prepare) as l1:
        l1.mine()
        with Rollup(l1.node, L2) as rollup:
            rollup.wait_for_block(1)
            registry = connect(settings, tmp_path, rollup.l2, l1).address
            before = _derive(l1, rollup, slots=4)
            _prove(key, rollup, registry, facts_of(l1.node, before))
            assert l1.beacon("/eth/v2/beacon/blocks/head")["version"] == "fulu"
            l1.consensus.advance(_GLOAS - 5)
            since = _derive(l1, rollup, slots=len(_SINCE_GLOAS) - 1)
            assert [l1.version(slot) for slot in (_GLOAS - 1, _GLOAS)] == ["fulu", "gloas"]
            # The newest root names none of the last two blocks.
            around = range(l1.number_at(_GLOAS - 2), l1.node.head() - 1)
            _prove(key, rollup, registry, facts_of(l1.node, since), roots_of(l1, around))


def _derive(l1: L1, rollup: Rollup, slots: int) -> int:
    """Let the rollup derive blocks from L1's next slots. Return the number of L1's first block, with transactions."""
    send_transactions(l1.node)
    number = l1.node.head() + 1
    l1.consensus.advance(slots)
    rollup.wait_for_origin(l1.node.head())
    root = rollup.rpc("eth_getBlockByNumber", "latest", False)["parentBeaconBlockRoot"]
    assert root == l1.header(l1.node.head())["parentBeaconBlockRoot"]
    return number


def _prove(key, rollup: Rollup, registry: str, *asked: Facts) -> None:
    """Prove the facts, and read them on the rollup."""
    batches = [service.submit(key, service.asking(facts.asked, source=CHAIN_ID, destination=L2)) for facts in asked]
    for batch in batches:
        service.done(batch, rollup, rounds=30)
    assert [wrong(rollup, registry, facts) for facts in asked] == [[]] * len(asked)
