"""A batch's page polls for changes, and stops."""

import re
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from explorer.batch import fragment
from proving.models import FactsRegistry, Signer
from queries import batch_states
from queries.columns import RejectionCode
from queries.models import Batch, Block, Step, StepKind
from queries.waits import wait
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
    reopen,
)
from tests.factories import client_of
from tests.plans import looks_at_all_due_blocks, plans
from tests.service import ALICE, BOB, SIGNER

pytestmark = pytest.mark.django_db

NODE_DOWN = wait("node_fails", problem="The node is down.")
NOW = timezone.now()


def interval(html: str) -> int | None:
    """Return the seconds between polls, or None if the page doesn't poll."""
    match = re.search(r'data-poll-seconds="(\d+)"', html)
    assert bool(match) == ("hx-get=" in html)
    return int(match[1]) if match else None


def next_poll(html: str) -> str:
    match = re.search(r'hx-get="([^"]+)"', html)
    assert match
    return match[1].replace("&amp;", "&")


def poll(url: str, client: Client | None = None):
    return (client or Client()).get(url, headers={"hx-request": "true"})


def reject(batch: Batch) -> None:
    batch_states.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="Because.", retryable=False)


def test_an_unchanged_page_gets_204_without_a_body_and_a_changed_one_the_fragment():
    batch = a_batch()
    beat()
    url = next_poll(page(batch))
    for _ in range(2):
        response = poll(url)
        assert (response.status_code, response.content) == (204, b"")
    accept(batch)
    response = poll(url)
    what = f"Balance of {ALICE[:6]}…{ALICE[-4:]} at block 12 of Development chain"
    assert response.text.startswith(f"<title>ACCEPTED · {what} · Batch Query Service</title>")
    assert "<main" not in response.text
    assert poll(next_poll(response.text)).status_code == 204


@pytest.mark.long("<lambda>4")
@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch_states.note_failure(queries_of(batch), NODE_DOWN),
        lambda batch: Step.objects.filter(query__batch=batch).update(transaction_hash="0x" + "ab" * 32),
        lambda _: Batch.objects.update(wait=NODE_DOWN, failing_since=NOW),
        lambda _: Batch.objects.update(gas_used=1),
        reject,
        lambda _: beat(),
        lambda _: Signer.objects.create(
            chain_id=31337, address=SIGNER, wait=wait("signer_cant_pay"), wait_seen_at=timezone.now()
        ),
        lambda _: Block.objects.update(wait=NODE_DOWN, failing_since=NOW, due_at=NOW),
        lambda _: Step.objects.update(went_back_because="The chain was reorganised.", went_back_at=NOW),
        lambda _: Batch.objects.update(created_at=NOW - timedelta(minutes=11)),
        lambda _: FactsRegistry.objects.update(address=SIGNER, deployed_at=NOW),
    ],
)
def test_whatever_the_page_shows_is_a_change(change):
    batch = a_batch()
    FactsRegistry.objects.create(destination_chain_id=31337, source_chain_id=31337)
    url = next_poll(page(batch))
    assert poll(url).status_code == 204
    change(batch)
    assert poll(url).status_code == 200


def test_a_poll_gets_204_if_only_time_has_changed(monkeypatch):
    batch = finish(a_batch())
    beat()
    url = next_poll(page(batch))
    monkeypatch.setattr(timezone, "now", lambda: NOW + timedelta(seconds=90))
    beat()
    assert poll(url).status_code == 204


@pytest.mark.parametrize("suffix", ["", "/1"])
def test_a_page_that_was_done_is_loaded_anew_once_its_batch_is_open_again(suffix):
    batch = finish(a_batch(*many_accounts(2)))
    url = next_poll(Client().get(path(batch) + suffix).text)
    assert "HX-Refresh" not in poll(url).headers
    reopen(batch, StepKind.HEADER_ACCUMULATED)
    answer = poll(url)
    assert (answer.status_code, answer.content, answer.headers["HX-Refresh"]) == (200, b"", "true")
    url = next_poll(Client().get(path(batch) + suffix).text)
    complete(batch, *StepKind)
    answer = poll(url)
    assert "HX-Refresh" not in answer.headers
    assert interval(answer.text) == 10


@pytest.mark.parametrize("suffix", ["", "/1"])
def test_a_page_is_loaded_anew_once_if_its_batch_went_back_and_is_done_again_between_two_polls(suffix):
    batch = finish(a_batch(*many_accounts(2)))
    for _ in range(2):
        url = next_poll(Client().get(path(batch) + suffix).text)
        assert poll(url).status_code == 204
        reopen(batch, StepKind.HEADER_ACCUMULATED)
        complete(batch, *StepKind)
        answer = poll(url)
        assert (answer.status_code, answer.content, answer.headers["HX-Refresh"]) == (200, b"", "true")


def test_all_who_watch_share_a_page_for_half_a_second(monkeypatch, django_assert_num_queries):
    batch = a_batch()
    url = next_poll(page(batch))
    monkeypatch.setattr(fragment, "_KEPT_SECONDS", 60)
    poll(url)
    accept(batch)
    with django_assert_num_queries(0):
        assert poll(url).status_code == 204
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert poll(url).status_code == 200


@pytest.mark.parametrize("first", ["owner", "other"])
def test_the_owner_s_page_is_kept_for_the_owner_alone(monkeypatch, alice, first):
    monkeypatch.setattr(fragment, "_KEPT_SECONDS", 60)
    batch = accept(a_batch())
    clients = {"owner": alice, "other": client_of(BOB)}
    for name in sorted(clients, key=lambda name: name != first):
        for client in (clients[name], Client() if name == "other" else alice):
            text = client.get(path(batch), headers={"hx-request": "true"}).text
            assert ("Cancel batch" in text) == (name == "owner")
            assert poll(next_poll(text), client).status_code == 204


@pytest.mark.long
def test_a_process_keeps_few_pages(monkeypatch):
    batch = a_batch()
    url = next_poll(page(batch))
    monkeypatch.setattr(fragment, "_KEPT_SECONDS", 60)
    poll(url)
    accept(batch)
    for account in range(50):
        polled(batch, account=account)
    assert poll(url).status_code == 200


@pytest.mark.parametrize("suffix", ["?page=3", "/7", f"?account={ALICE}"])
def test_a_poll_asks_for_the_page_and_filter_that_are_shown(suffix):
    batch = a_batch(*many_accounts(60), ALICE)
    html = Client().get(path(batch) + suffix).text
    url = next_poll(html)
    assert url.startswith(f"{path(batch)}{suffix}")
    shown = r'id="row-(\d+)"|id="query-(\d+)"'
    accept(batch)
    assert re.findall(shown, poll(url).text) == re.findall(shown, html) != []
    assert "<main" in Client().get(url).text, "A reload of the polled address gets the whole page."


@pytest.mark.parametrize(("age", "seconds"), [(0, 1), (500, 1), (601, 5), (10_000, 5)])
def test_the_older_an_open_batch_is_the_slower_it_polls(age, seconds):
    batch = a_batch()
    Batch.objects.update(created_at=timezone.now() - timedelta(seconds=age))
    assert interval(page(batch)) == seconds


@pytest.mark.long
def test_the_answer_is_stored_by_nobody_and_differs_for_htmx():
    batch = a_batch()
    for response in (Client().get(path(batch)), polled(batch), poll(next_poll(page(batch)))):
        assert "no-store" in response.headers["Cache-Control"]
        assert "HX-Request" in response.headers["Vary"]


def test_no_poll_looks_at_all_blocks_that_are_due():
    batch = accept(a_batch())
    Block.objects.update(wait=wait("node_fails", problem="The node is down."), due_at=timezone.now())
    for is_done in (False, True):
        if is_done:
            finish(batch)
        with CaptureQueriesContext(connection) as statements:
            page(batch)
        plan_lines = plans(statements)
        assert any("queries_block" in line for line in plan_lines)
        assert not looks_at_all_due_blocks(plan_lines)
