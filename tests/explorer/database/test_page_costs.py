"""No request costs more than it is worth: the rows that lists read, and pages that stay rendered."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import ApiKey
from campaigns.rows import BATCH_ID
from proving.models import ChainWatch, FactsRegistry, Signer, Stop, Transaction
from tests.explorer import batches
from tests.factories import client_of, copies
from tests.plans import rows_of
from tests.service import ALICE, BOB, a_key, header, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def many(count: int, user: str, queries: int) -> ApiKey:
    """Store DONE batches of a new user with this number of queries, each about another account."""
    batch = batches.finish(submit(key := a_key(user), request(*batches.many_accounts(queries), block=queries)))
    batch.refresh_from_db()
    copies(batch, count - 1, id=BATCH_ID.format(user[2]))
    for query in batch.queries.all():
        copies(query, count - 1, batch_id=BATCH_ID.format(user[2]))
    return key


@pytest.mark.parametrize("path", ["/explorer.csv", "/explorer", "/dashboard", "/", "/batch-queries"])
def test_a_list_reads_no_more_rows_of_large_batches(path):
    taken = []
    for user, queries in ((ALICE, 2), (BOB, 60)):
        key, client = many(10, user, queries), client_of(user)
        headers = header(key) if path == "/batch-queries" else {}
        client.get(path, headers=headers)
        with CaptureQueriesContext(connection) as statements:
            assert client.get(path, headers=headers).status_code == 200
        taken.append((len(statements), rows_of(statements)))
    assert taken[0] == taken[1]


@pytest.mark.long
def test_a_file_of_batches_counts_by_their_queries():
    def files(user: str, queries: int) -> int:
        many(250, user, queries)
        client = client_of(user)
        client.defaults["REMOTE_ADDR"] = f"192.0.2.{queries}"
        return next(count for count in range(32) if client.get("/explorer.csv").status_code == 429)

    # Each file counts as one read of an address's 30, and one more for each 1,000 items.
    assert [files(ALICE, 1), files(BOB, 64)] == [30, 15]


@pytest.mark.long
def test_a_list_of_queries_counts_by_them_and_a_short_one_as_none():
    key = a_key()

    def lists(queries: int) -> int:
        batch = submit(key, request(*batches.many_accounts(queries), block=queries))
        client = Client(REMOTE_ADDR=f"192.0.2.{queries % 256}")
        answers = (client.get(f"/get_queries/{batch.pk}", headers=header(key)) for _ in range(32))
        return next((count for count, answer in enumerate(answers) if answer.status_code == 429), 32)

    assert [lists(1), lists(3_000)] == [32, 10]


def stop() -> None:
    Stop.objects.create(chain_id=31337, source_chain_id=31337, reason="Maintenance.")


@pytest.mark.parametrize(
    "change",
    [
        lambda: ChainWatch.objects.update(number=21),
        lambda: FactsRegistry.objects.update(address=ALICE),
        stop,
        lambda: Signer.objects.update(foreign_since=timezone.now(), foreign_count=1),
        lambda: Transaction.objects.update(spent_at=timezone.now() - timedelta(days=3)),
        lambda: [batches.finish(batches.a_batch(block=number)) for number in range(30, 33)],
    ],
    ids=["watch", "registry", "stop", "signer", "pending", "batches"],
)
def test_the_details_of_chains_stay_rendered_until_one_changes(client, change):
    batches.send(batches.finish(batches.a_batch()))
    ChainWatch.objects.create(chain_id=31337, number=20, looked_at=timezone.now(), seen_at=timezone.now())

    def etag() -> str:
        return str(client.get("/chains.json").headers["ETag"])

    before = etag()
    with CaptureQueriesContext(connection) as statements:
        assert etag() == before
    assert len(statements) < 11
    change()
    assert etag() != before


def test_the_page_of_the_api_stays_rendered(client):
    def templates() -> set[str]:
        return {template.name for template in client.get("/api/docs").templates}

    templates()
    assert not {name for name in templates() if name.startswith("explorer/api_docs/_")}
