"""Upgrade what 0.4.0 left on a geth that reached Amsterdam.

0.4.0's own code wrote the files in `baseline/0.4.0/`: `sqlite.forked.xz` is its database, and `sqlite.geth.xz` has the
chain's genesis and blocks. A test submitted batches over HTTP, and a worker took turns. Three batches had failed five
or six times each for want of gas. Three cancellations took 12,000 gas, so the worker stopped the signer. geth restarted
and lost three transactions: a proof, one with too little gas, and a cancellation. Four more batches were waiting.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db.models import QuerySet
from django.test import Client

from proving.models import Signer, Stop, Transaction, TransactionState
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Query
from tests import service
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth
from tests.upgrades import baselines, writing

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.geth,
    pytest.mark.outside,
    pytest.mark.sqlite_only(reason="0.4.0 left an SQLite database."),
]

_VERSION = "0.4.0"


@pytest.fixture
def node(settings, tmp_path, monkeypatch) -> Iterator[DrivenGeth]:
    """Yield the chain, and load the database."""
    settings.API_KEY_SECRET = writing.SECRET
    settings.BATCH_DEADLINE_SECONDS = writing.DEADLINE_SECONDS
    recorded = json.loads(baselines.read(_VERSION, "geth"))
    geth = DrivenGeth(CHAIN_ID)
    geth.genesis = recorded["genesis"]
    with geth, baselines.database_of(baselines.read(_VERSION, "forked"), tmp_path, monkeypatch):
        geth.add(recorded["blocks"])
        settings.CHAINS_FILE = service.chains_toml(tmp_path, geth.url, chain_id=CHAIN_ID)
        yield geth


def test_what_0_4_0_left_becomes_final_and_done_and_only_what_it_signed_fails(node):
    call_command("migrate", verbosity=0)
    transactions, batches = Transaction.objects, Batch.objects.filter(status__in=OPEN_STATUSES)
    pending = pks(transactions.filter(state=TransactionState.PENDING))
    failed, opened = pks(transactions.filter(succeeded=False)), pks(batches)
    assert (len(pending), len(failed), len(opened)) == (6, 18, 9)

    # The cancellations are believed, and the signer stays stopped until the operator resumes it.
    service.work(3, node)
    assert set(Stop.objects.values_list("signer", "code")) == {(service.SIGNER, "not_believed")}
    assert nonce(node) == transactions.count() - 3
    assert Signer.objects.get().receipt_fault is None
    call_command("resume", str(CHAIN_ID), "--signer", service.SIGNER)
    for _ in range(10):
        if not batches.exists():
            break
        service.work(chain=node)
    service.work(8, node)

    assert {batch.status for batch in Batch.objects.filter(pk__in=opened)} == {BatchStatus.DONE}
    assert {tx.state for tx in transactions.all()} == {TransactionState.FINAL}
    assert not Stop.objects.exists()
    # Nothing is lost or paid twice, and nothing fails that this version has signed.
    assert pks(transactions.filter(succeeded=False)) - failed <= pending
    assert nonce(node) == transactions.count()
    for query in Query.objects.filter(batch__in=opened):
        assert query.transactions.filter(succeeded=True).count() == 1
    assert Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()["codes"] == ["no_worker"]


def pks(rows: QuerySet[Any]) -> set[Any]:
    return set(rows.values_list("pk", flat=True))


def nonce(node: DrivenGeth) -> int:
    return int(node.rpc("eth_getTransactionCount", service.SIGNER, "latest"), 16)
