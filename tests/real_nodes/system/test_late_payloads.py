"""The service on a geth whose newest block goes, since its payload was revealed late: the next block is its sibling."""

from itertools import pairwise

import pytest
from django.test import Client

from devnet.consensus_client import SLOTS_PER_EPOCH
from proving.models import Transaction
from queries.models import Batch, BatchStatus
from tests.proving import chain_state
from tests.real_nodes import l1 as forked
from tests.real_nodes.deploying import deployed_on
from tests.real_nodes.facts import wrong
from tests.real_nodes.l1 import CHAIN_ID, roots_of
from tests.service import asking, chains_toml, fresh, submit, waiting, work
from tests.specifications import with_specifications

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.geth,
    pytest.mark.outside,
    with_specifications,
]

# After a late payload, the head's number goes back if the next slot is empty, and stays if it is full.
_SLOTS = "LEFLLF"
# Slots up to now, which the deployment and the end of the test need.
_SPARE = 100
_MOST_ROUNDS = 20
_MOST_GAS_OF_FAILURE = 110_000


def test_batches_are_done_and_nothing_is_paid_twice_while_payloads_come_late(key, settings, tmp_path):
    with forked.running("", gloas=SLOTS_PER_EPOCH, spare=_SPARE) as l1:
        l1.consensus.advance(SLOTS_PER_EPOCH + 2)
        settings.CHAINS_FILE = chains_toml(tmp_path, l1.node.url, chain_id=CHAIN_ID)
        registry = deployed_on(CHAIN_ID, l1.mine)
        asked: list[tuple[int, Batch]] = []
        heads, codes = [l1.node.head()], set()
        for kind in _SLOTS:
            # Some of these blocks go.
            facts = roots_of(l1, [heads[-1]])
            asked.append((heads[-1], submit(key, asking(facts.asked, source=CHAIN_ID, destination=CHAIN_ID))))
            work(2)
            l1.consensus.advance(kind)
            heads.append(l1.node.head())
            work()
            # A node that lags reports a lower head too, so the next block decides which transactions are mined.
            for tx in Transaction.objects.exclude(block_hash="") if kind == "F" else ():
                assert l1.node.rpc("eth_getTransactionReceipt", tx.hash)["blockHash"] == tx.block_hash
            codes |= {*Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()["codes"]}
        assert {after - before for before, after in pairwise(heads)} == {-1, 0, 1}
        for _ in range(_MOST_ROUNDS):
            if {fresh(batch).status for _, batch in asked} == {BatchStatus.DONE}:
                break
            work()
            l1.mine()
        assert {batch.status for _, batch in asked} == {BatchStatus.DONE}, waiting()
        assert wrong(l1.node, registry.address, roots_of(l1, sorted({number for number, _ in asked}))) == []
        nonces = [*Transaction.objects.order_by("nonce").values_list("nonce", flat=True)]
        assert nonces == [*range(chain_state.signer_nonce(l1.node))]
    # `work` is no worker that runs, and the chain's time is behind that of this machine. No node is blamed.
    assert codes <= {"no_worker", "signer_waits"}
    for number in {number for number, _ in asked}:
        batches = [batch for about, batch in asked if about == number]
        assert Transaction.objects.filter(queries__batch__in=batches, succeeded=True).distinct().count() == 1
    # Proofs for blocks that went have failed, before they cost much.
    failed = Transaction.objects.filter(succeeded=False)
    assert failed.count() <= _SLOTS.count("L")
    assert all(tx.gas_used < _MOST_GAS_OF_FAILURE for tx in failed)
