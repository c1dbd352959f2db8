"""Several signers of a destination that send at once: the sender of each transaction, and no delay of others."""

import threading

import pytest
from django.db import connections

from config.configured_chains import get_chains
from proving import lanes
from proving.lanes import LaneKind, LaneName
from proving.models import Transaction
from proving.packing import Intent
from proving.transactions import sending
from proving.transactions.sending import Order, Sent
from tests.proving.chain_state import signer_nonce
from tests.proving.several_signers import configure
from tests.service import ALICE


@pytest.mark.django_db(transaction=True)
def test_threads_that_send_at_once_use_each_nonce_once(chain, settings, tmp_path):
    configure(settings, tmp_path, chain)
    configured = get_chains().chain(31337)

    def send(source: int) -> None:
        with lanes.hold(LaneName(LaneKind.CONNECTION, 31337, source)) as lane:
            assert lane
            for _ in range(8):
                (outcome,) = sending.submit_all(configured, lane, [Order([Intent(ALICE, b"")])])
                assert isinstance(outcome, Sent)
        connections.close_all()

    threads = [threading.Thread(target=send, args=[source]) for source in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert list(Transaction.objects.order_by("nonce").values_list("nonce", flat=True)) == list(range(24))
    assert signer_nonce(chain) == 24
