"""Work on many queries of a block: how many a decision may be about, and how little many transactions take."""

import sqlite3

import pytest
from django.db import connection

from campaigns.benchmarks.receipts import LargeBlock, measured
from config.configured_chains import get_chains
from proving import connections, heads, lanes
from proving.connections import WorkContext
from proving.lanes import LaneKind, LaneName
from proving.reconcile import rows
from proving.reconcile.decide import Reject
from queries.columns import RejectionCode
from queries.models import BatchStatus, Block
from queries.waits import wait
from tests.inside.working import accept_all
from tests.service import ALICE, request, submit


@pytest.mark.sqlite_only(reason="statements for PostgreSQL hold their values, which are as many as they like")
def test_thousands_of_queries_are_rejected_whatever_one_statement_may_name(service, key):
    batch = submit(key, request(ALICE, block=service.head()))
    accept_all()
    block = Block.objects.get()
    to_itself = connections.open_connection(31337, 31337)
    seen = heads.read(get_chains().chain(31337), to_itself.destination_rpc)
    before = connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
    try:
        queries = range(batch.queries.get().pk + 1500)
        with lanes.hold(LaneName(LaneKind.CONNECTION, 31337, 31337)) as lane:
            assert lane
            pruned = Reject(queries, RejectionCode.PROOF_UNAVAILABLE, wait("proof_refused", problem="Pruned."))
            rows.write(WorkContext(to_itself, seen, lane), {block.pk: block}, [(block.pk, pruned)])
    finally:
        connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, before)
    batch.refresh_from_db()
    assert (batch.status, batch.rejection_reason) == (BatchStatus.REJECTED, "Pruned.")


def test_many_transactions_of_a_block_take_little_more_than_one():
    block = LargeBlock(100)
    for alone, together in zip(measured(block, 1), measured(block, 50), strict=True):
        assert together.calls < 3 * alone.calls, together
        assert together.mebibytes < 4 * block.bytes / 2**20, together
