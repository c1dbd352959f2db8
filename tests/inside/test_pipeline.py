"""How what was decided is written, whatever one statement may name."""

import sqlite3

import pytest
from django.db import connection

from config.configured_chains import get_chains
from database import leases
from proving import connections, heads
from proving.admission.admit import admit
from proving.reconcile import apply
from proving.reconcile.context import Context
from proving.reconcile.decide import Reject
from queries.error_codes import RejectionCode
from queries.models import BatchStatus, Block
from tests.service import ALICE, request, submit


@pytest.mark.sqlite_only(reason="statements for PostgreSQL hold their values, which are as many as they like")
def test_thousands_of_queries_are_rejected_whatever_one_statement_may_name(service, key):
    batch = submit(key, request(ALICE, block=service.head()))
    admit(batch.pk)
    block = Block.objects.get()
    lease = leases.claim(Block.objects.all(), block.pk)
    assert lease is not None
    to_itself = connections.open_connection(31337, 31337)
    destination = get_chains().chain(31337)
    context = Context(lease, to_itself, destination, heads.read(destination, to_itself.destination_rpc))
    before = connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
    try:
        queries = range(batch.queries.get().pk + 1500)
        apply.carry_out(context, [Reject(queries, RejectionCode.PROOF_UNAVAILABLE, "Pruned.")])
    finally:
        connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, before)
    batch.refresh_from_db()
    assert (batch.status, batch.rejection_reason) == (BatchStatus.REJECTED, "Pruned.")
