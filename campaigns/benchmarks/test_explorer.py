"""How long the server takes for the explorer's pages, and with how many statements, by the size of a batch."""

import gzip
import statistics
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import ApiKey
from queries import progress
from queries.models import Batch, Block, StepKind
from tests.explorer.batches import a_batch, accept, beat, fetch_proofs, finish, many_accounts, path, queries_of, settle
from tests.service import ALICE, a_key, request, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("unreachable_chain")]

SIZES = (1, 10, 1000, 10_000)


def in_progress(count: int) -> Batch:
    """Half of the queries are fetched, and a tenth is done."""
    batch = a_batch(*many_accounts(count), block=count)
    accept(batch)
    pks = queries_of(batch)
    progress.complete(pks[: count // 2], StepKind.INITIAL_STATE)
    for kind in list(StepKind)[1:]:
        progress.complete(pks[: count // 10], kind)
    return batch


def spread(count: int) -> Batch:
    """Each query is at a block of its own, and all of these wait."""
    body = request(ALICE, block=0)
    at_block = {"accounts": {ALICE: {"props": ["BALANCE"]}}}
    body["data"]["31337"] = {f"block:{count * 100_000 + number}": at_block for number in range(count)}
    batch = submit(ApiKey.objects.first() or a_key(), body)
    accept(batch)
    Block.objects.filter(queries__batch=batch).update(waiting_for="The node is down.", failing_since=timezone.now())
    return batch


def final(count: int) -> Batch:
    batch = a_batch(*many_accounts(count), block=count)
    accept(batch)
    fetch_proofs(batch)
    for kind in StepKind:
        progress.complete(queries_of(batch), kind)
    settle(batch)
    return batch


@pytest.mark.parametrize("state", [in_progress, spread, final])
def test_the_time_of_a_batch_page(client: Client, report, state):
    beat()
    batches = {count: state(count) for count in SIZES}
    milliseconds: dict[int, list[float]] = {count: [] for count in SIZES}
    # In turns, so that what else the machine does falls on all alike.
    for _ in range(15):
        for count, batch in batches.items():
            began = time.perf_counter()
            assert client.get(path(batch)).status_code == 200
            milliseconds[count].append(1000 * (time.perf_counter() - began))
    for count, batch in batches.items():
        with CaptureQueriesContext(connection) as statements:
            page = client.get(path(batch)).content
        report(
            f"page of a batch of {count:,} queries, {state.__name__}: ms, SQL statements, gzipped bytes",
            f"{statistics.median(milliseconds[count]):.1f}, {len(statements)}, {len(gzip.compress(page))}",
        )


@pytest.mark.parametrize("url", ["/dashboard", "/explorer", "/"])
def test_the_time_of_a_user_s_pages(client: Client, report, url):
    """With batches of the last thirty days, of which the newest have one fact each that is done."""
    client.force_login((key := a_key()).user)
    now = timezone.now()
    milliseconds: dict[int, list[float]] = {}
    for count in (100, 1000, 10_000):
        Batch.objects.bulk_create(
            Batch(
                id=f"0{count:05d}{number:020d}",  # older than those that are submitted below
                user=key.user,
                api_key=key,
                destination_chain_id=31337,
                fee=0,
                request="{}" * 500,
                size=3,
                gas_used=100_000,
                status="DONE",
                created_at=now - number % 30 * timedelta(days=1),
                finished_at=now - number % 30 * timedelta(days=1),
                deadline_at=now,
            )
            for number in range(count - Batch.objects.count())
        )
        if count == 100:
            for block in range(1, 26):
                finish(a_batch(block=block))
        milliseconds[count] = []
        for _ in range(15):
            began = time.process_time()
            assert client.get(url).status_code == 200
            milliseconds[count].append(1000 * (time.process_time() - began))
        with CaptureQueriesContext(connection) as statements:
            page = client.get(url).content
        report(
            f"{url} of a user of {count:,} batches: ms of the processor, SQL statements, gzipped bytes",
            f"{statistics.median(milliseconds[count]):.1f}, {len(statements)}, {len(gzip.compress(page))}",
        )
