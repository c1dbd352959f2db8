"""How the page of a batch keeps itself up to date, and when it stops."""

import re

import pytest
from django.test import Client

from proving.models import Signer, Transaction, TransactionState
from queries import progress
from queries.models import Batch, StepKind
from tests.explorer.batches import (
    a_batch,
    accept,
    beat,
    complete,
    finish,
    many_accounts,
    page,
    path,
    polled,
    queries_of,
    settle,
)
from tests.service import SIGNER

pytestmark = pytest.mark.django_db


def interval(html: str) -> int | None:
    """Seconds between polls, or None where the page doesn't poll."""
    found = re.search(r'hx-trigger="every (\d+)s"', html)
    assert bool(found) == ("hx-get=" in html)
    return int(found[1]) if found else None


def next_poll(html: str) -> str:
    found = re.search(r'hx-get="([^"]+)"', html)
    assert found
    return found[1].replace("&amp;", "&")


def poll(url: str):
    return Client().get(url, headers={"hx-request": "true"})


def test_the_fragment_is_the_changing_part_of_the_page_as_it_stands():
    batch = a_batch()
    beat()
    fragment = polled(batch).text
    title, _, body = fragment.partition('<div id="batch"')
    assert title.strip() == f"<title>RECEIVED · {batch.pk} · Batch Query Service</title>"
    assert ('<div id="batch"' + body).strip() in page(batch)
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
        lambda batch: progress.note_transaction(queries_of(batch), "0x" + "ab" * 32),
        lambda _: Batch.objects.update(waiting_for="The node is down."),
        lambda _: Batch.objects.update(gas_used=1),
        lambda batch: progress.reject([batch.pk], code="x", reason="X.", retryable=False),
        lambda _: beat(),
        lambda _: Signer.objects.create(chain_id=31337, address=SIGNER, notice="It must be funded."),
    ],
    ids=["failure", "transaction", "waiting", "cost", "rejection", "worker", "notice"],
)
def test_whatever_the_page_shows_is_a_change(change):
    batch = a_batch()
    url = next_poll(page(batch))
    assert poll(url).status_code == 204
    change(batch)
    assert poll(url).status_code == 200


def test_a_reload_of_the_polled_address_gets_the_whole_page():
    batch = a_batch()
    response = Client().get(next_poll(page(batch)))
    assert response.status_code == 200
    assert "<main" in response.text


def test_it_polls_the_page_of_queries_that_it_shows():
    batch = a_batch(*many_accounts(60))
    url = next_poll(page(batch, page=2))
    assert url.startswith(f"{path(batch)}?page=2&version=")
    accept(batch)
    assert "Page 2 of 2" in poll(url).text


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
    assert "<script" in html
    assert "<script" not in page(batch)


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
    progress.reject([batch.pk], code="x", reason="X.", retryable=False)
    assert interval(page(batch)) is None
    assert interval(polled(batch).text) is None


def test_a_rejected_batch_polls_slowly_as_long_as_a_transaction_may_add_to_its_cost():
    batch = a_batch()
    signer = Signer.objects.create(chain_id=31337, address=SIGNER)
    transaction = Transaction.objects.create(signer=signer, nonce=0, data=b"", gas_limit=1)
    transaction.queries.set(queries_of(batch))
    progress.reject([batch.pk], code="x", reason="X.", retryable=False)
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
    assert "<noscript>" in page(batch)
    progress.reject([batch.pk], code="x", reason="X.", retryable=False)
    assert "<noscript>" not in page(batch)
