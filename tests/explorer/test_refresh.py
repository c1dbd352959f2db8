"""How the page of a batch keeps itself up to date, and when it stops."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from explorer.batch import changes
from explorer.batch.query_paging import Wanted
from proving.models import FactsRegistry, Signer, Transaction, TransactionState
from queries import progress
from queries.models import Batch, Block, Step, StepKind
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import (
    TRANSACTION,
    a_batch,
    accept,
    beat,
    complete,
    finish,
    many_accounts,
    page,
    path,
    plan_path,
    polled,
    queries_of,
    settle,
)
from tests.plans import columns, looks_at_all_due_blocks, plans
from tests.service import ALICE, SIGNER

pytestmark = pytest.mark.django_db


def interval(html: str) -> int | None:
    """Seconds between polls, or None where the page doesn't poll."""
    found = re.search(r'data-poll-seconds="(\d+)"', html)
    assert bool(found) == ("hx-get=" in html)
    return int(found[1]) if found else None


def without_times(html: str) -> str:
    """Without what only tells how late it is."""
    return re.sub(
        r'data-now="[^"]+"|(?<=data-since=")([^"]+">)[^<]+|(?<=data-until=")([^"]+">)[^<]+|(width|x)="[\d.]+"'
        r"|<h2 id=.timeline.+?</svg>",
        "",
        html,
        flags=re.DOTALL,
    )


def next_poll(html: str) -> str:
    found = re.search(r'hx-get="([^"]+)"', html)
    assert found
    return found[1].replace("&amp;", "&")


def poll(url: str):
    return Client().get(url, headers={"hx-request": "true"})


def test_the_fragment_is_the_changing_part_of_the_page_as_it_stands():
    batch = a_batch()
    beat()
    fragment = without_times(polled(batch).text)
    title, _, body = fragment.partition('<div id="batch"')
    what = f"Balance of {ALICE[:6]}…{ALICE[-4:]} at block 12 of Development chain"
    assert title.strip() == f"<title>RECEIVED · {what} · Batch Query Service</title>"
    assert ('<div id="batch"' + body).strip() in without_times(page(batch))
    assert "<main" not in fragment


def test_an_unchanged_page_gets_204_without_a_body_and_a_changed_one_the_fragment():
    batch = a_batch()
    beat()
    url = next_poll(page(batch))
    for _ in range(2):
        response = poll(url)
        assert (response.status_code, response.content) == (204, b"")
    accept(batch)
    response = poll(url)
    assert response.status_code == 200
    assert "ACCEPTED" in response.text
    assert poll(next_poll(response.text)).status_code == 204


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: progress.note_failure(queries_of(batch), "The node is down."),
        lambda batch: Step.objects.filter(query__batch=batch).update(transaction_hash="0x" + "ab" * 32),
        lambda _: Batch.objects.update(waiting_for="The node is down."),
        lambda _: Batch.objects.update(gas_used=1),
        lambda batch: progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False),
        lambda _: beat(),
        lambda _: Signer.objects.create(chain_id=31337, address=SIGNER, notice="It must be funded."),
        lambda _: Block.objects.update(path_unit="hops", path_length=7, path_left=3),
        lambda _: Block.objects.update(waiting_for="The node is down.", due_at=timezone.now()),
        lambda _: Step.objects.update(went_back_because="The chain was reorganised.", went_back_at=timezone.now()),
        lambda _: Batch.objects.update(created_at=timezone.now() - timedelta(minutes=3)),
        lambda _: FactsRegistry.objects.create(destination_chain_id=31337, source_chain_id=31337),
    ],
    ids=[
        *("failure", "transaction", "waiting", "cost", "rejection", "worker", "notice"),
        *("path", "block", "reorg", "pace", "registry"),
    ],
)
def test_whatever_the_page_shows_is_a_change(change):
    batch = a_batch()
    url = next_poll(page(batch))
    assert poll(url).status_code == 204
    change(batch)
    assert poll(url).status_code == 200


def test_two_statements_find_that_nothing_is_new(django_assert_num_queries):
    batch = a_batch(*many_accounts(60))
    accept(batch)
    beat()
    url = next_poll(page(batch))
    with django_assert_num_queries(2):
        assert poll(url).status_code == 204


# What the page reads and no poll watches: it is written once, with its row, or with a step or a hash that is watched.
WRITTEN_ONCE = {
    "proving_accountproof": {"address", "balance", "code_hash", "nonce", "storage_root"},
    "proving_factsregistry": {"source_chain_id"},
    "queries_batch": {"fee", "fee_is_estimate", "request", "sender"},
    "queries_block": {"header_rlp"},
    "queries_query": {"block_tag", "fields", "name", "slots", "source_chain_id", "timestamp"},
    # It isn't shown.
    "proving_chainhead": {"seen_at"},
}


def test_it_watches_every_column_that_the_page_reads(monkeypatch):
    """A page that reads another column would else stay as it is when that changes."""
    read = set[tuple[str, str]]()
    batches = [make() for make in (a_batch, waiting_for_transactions, done)]
    for model in apps.get_models():
        if model._meta.app_label in {"queries", "proving"}:
            monkeypatch.setattr(model, "__getattribute__", noting(model, read))
    for batch in batches:
        with CaptureQueriesContext(connection) as statements:
            page(batch)
        read |= {column for statement in statements for column in columns(statement["sql"], with_objects=False)}
    with CaptureQueriesContext(connection) as statements:
        changes.version(batch.pk, Wanted())
    watched = {column for statement in statements for column in columns(statement["sql"])}
    assert len(watched) > 60
    unwatched: dict[str, set[str]] = {}
    for table, column in read - watched:
        if table.startswith(("queries_", "proving_")):
            unwatched.setdefault(table, set()).add(column)
    assert unwatched == WRITTEN_ONCE


def noting(model: type[Model], read: set[tuple[str, str]]) -> Callable[[Model, str], Any]:
    """Note what is read of the model's objects, as (table, column)."""
    fields = {field.attname: (model._meta.db_table, str(field.column)) for field in model._meta.concrete_fields}

    def read_and_note(row: Model, name: str) -> Any:
        if name in fields:
            read.add(fields[name])
        return object.__getattribute__(row, name)

    return read_and_note


def waiting_for_transactions() -> Batch:
    batch = a_batch(block=13)
    accept(batch)
    plan_path(batch, 10, left=5)
    complete(batch, StepKind.INITIAL_STATE, transaction_hash=TRANSACTION)
    return batch


def done() -> Batch:
    batch = a_batch(block=14)
    finish(batch)
    return batch


def test_beyond_the_last_query_it_looks_at_the_last():
    batch = a_batch(*many_accounts(60))
    url = next_poll(page(batch, **{"from": 1000}))
    changes_of_the_last = batch.queries.get(position=59).steps
    assert changes.version(batch.pk, Wanted(first="1000")) == re.search(r"version=(\w+)", url)[1]  # type: ignore[index]
    before = changes.version(batch.pk, Wanted(first="1000"))
    changes_of_the_last.update(last_error="The node is down.")
    assert changes.version(batch.pk, Wanted(first="1000")) != before


def test_a_reload_of_the_polled_address_gets_the_whole_page():
    batch = a_batch()
    response = Client().get(next_poll(page(batch)))
    assert response.status_code == 200
    assert "<main" in response.text


def test_it_polls_the_page_of_queries_that_it_shows():
    batch = a_batch(*many_accounts(60))
    url = next_poll(page(batch, **{"from": 51}))
    assert url.startswith(f"{path(batch)}?from=51&version=")
    accept(batch)
    assert "Queries 51 to 60 of 60" in poll(url).text


def test_it_polls_the_query_that_it_shows():
    batch = a_batch(*many_accounts(60))
    html = Client().get(f"{path(batch)}/7").text
    url = next_poll(html)
    assert url.startswith(f"{path(batch)}/7?version=")
    accept(batch)
    assert 'id="query-7"' in poll(url).text


def test_it_polls_for_the_account_that_was_looked_for():
    batch = a_batch(*many_accounts(60), ALICE)
    url = next_poll(page(batch, account=ALICE))
    accept(batch)
    assert re.findall(r'id="row-(\d+)"', poll(url).text) == ["61"]


@pytest.mark.parametrize(("age", "seconds"), [(0, 2), (119, 2), (121, 5), (599, 5), (601, 15), (10_000, 15)])
def test_the_older_an_open_batch_is_the_slower_it_polls(age, seconds):
    batch = a_batch()
    Batch.objects.update(created_at=timezone.now() - timedelta(seconds=age))
    assert interval(page(batch)) == seconds


def test_what_only_time_changes_is_no_change(monkeypatch):
    batch = a_batch()
    accept(batch)
    beat()
    now = timezone.now()
    Block.objects.update(waiting_for="The node is down.", failing_since=now, due_at=now + timedelta(seconds=1))
    url = next_poll(page(batch))
    monkeypatch.setattr(timezone, "now", lambda: now + timedelta(seconds=90))
    beat()
    assert poll(url).status_code == 204


def test_each_state_has_a_sentence_that_is_announced():
    batch = a_batch()
    said = [announced(page(batch))]
    accept(batch)
    said.append(announced(page(batch)))
    complete(batch, StepKind.INITIAL_STATE)
    said.append(announced(page(batch)))
    progress.note_failure(queries_of(batch), "The node is down.")
    assert announced(page(batch)) == said[-1], "A failed try is shown, not announced."
    progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="Because.", retryable=False)
    said.append(announced(page(batch)))
    assert said == [
        "The batch is RECEIVED: 0 of 4 steps completed.",
        "The batch is ACCEPTED: 0 of 4 steps completed.",
        "The batch is IN_PROGRESS: 1 of 4 steps completed.",
        "The batch is REJECTED. Because.",
    ]


def test_of_a_large_batch_each_tenth_is_announced():
    batch = a_batch(*many_accounts(100))
    accept(batch)
    said = []
    for count in (1, 39, 40, 41):
        progress.complete(queries_of(batch)[:count], StepKind.INITIAL_STATE)
        said.append(announced(page(batch)))
    assert said == [f"The batch is IN_PROGRESS: {tenth} % of the steps completed." for tenth in (0, 0, 10, 10)]


def announced(html: str) -> str:
    found = re.search(r'data-announcement="([^"]+)"', html)
    assert found
    return found[1]


def test_an_open_batch_polls_fast_a_done_one_slowly_and_a_final_one_no_more():
    batch = a_batch()
    assert interval(page(batch)) == 2
    finish(batch)
    html = page(batch)
    assert interval(html) == 10
    settle(batch)
    response = poll(next_poll(html))
    assert response.status_code == 200
    assert interval(response.text) is None
    assert "htmx" in html


def test_a_done_batch_whose_worker_stopped_says_so_only_while_it_can_change():
    batch = a_batch()
    finish(batch)
    assert "No worker is running" in page(batch)
    settle(batch)
    assert "No worker is running" not in page(batch)


def test_a_rejected_batch_polls_no_more():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    assert interval(page(batch)) is None
    assert interval(polled(batch).text) is None


def test_a_rejected_batch_polls_slowly_as_long_as_a_transaction_may_add_to_its_cost():
    batch = a_batch()
    signer = Signer.objects.create(chain_id=31337, address=SIGNER)
    transaction = Transaction.objects.create(signer=signer, nonce=0, data=b"", gas_limit=1)
    transaction.queries.set(queries_of(batch))
    progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    assert interval(page(batch)) == 10
    Transaction.objects.update(state=TransactionState.FINAL)
    assert interval(page(batch)) is None


def test_the_answer_is_stored_by_nobody_and_differs_for_htmx():
    batch = a_batch()
    for response in (Client().get(path(batch)), polled(batch), poll(next_poll(page(batch)))):
        assert "no-store" in response.headers["Cache-Control"]
        assert "HX-Request" in response.headers["Vary"]


def test_without_javascript_it_says_to_reload_as_long_as_that_helps():
    batch = a_batch()
    assert "Reload the page" in page(batch)
    progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    assert "Reload the page" not in page(batch)


def test_no_poll_looks_at_all_blocks_that_are_due():
    batch = a_batch()
    accept(batch)
    Block.objects.update(waiting_for="The node is down.", due_at=timezone.now())
    for is_done in (False, True):
        if is_done:
            finish(batch)
        with CaptureQueriesContext(connection) as statements:
            page(batch)
        found = plans(statements)
        assert any("queries_block" in line for line in found)
        assert not looks_at_all_due_blocks(found)
