"""The operator's page, which only operators can see."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from proving.models import ChainWatch, Signer
from queries.models import Block
from tests.explorer.batches import DEAD_NODE, a_batch, accept, beat, deployed
from tests.factories import client_of
from tests.service import ALICE, BOB, SIGNER, chains_toml

pytestmark = pytest.mark.django_db

STATEMENTS = 10


@pytest.fixture(autouse=True)
def operated_by_bob(db, settings, tmp_path) -> None:
    """Store rows of a healthy service whose operator is Bob."""
    settings.CHAINS_FILE = chains_toml(tmp_path, f"{DEAD_NODE}/secret-path", chain='minimum_signer_balance = "0.5"')
    settings.OPERATOR_ADDRESSES = [BOB.lower()]
    beat()
    deployed()
    saw()


def saw(*problems: tuple[str, str]) -> None:
    ChainWatch.objects.update_or_create(chain_id=31337, defaults={"looked_at": timezone.now(), "problems": problems})


def page() -> str:
    """Return the page's text with single spaces."""
    answer = client_of(BOB).get("/operator")
    assert answer.status_code == 200
    assert "secret" not in answer.text
    return " ".join(answer.text.split())


# --- Visitors ---------------------------------------------------------------------------------------------------------


def test_nobody_else_learns_that_there_is_such_a_page(settings):
    for client in (Client(), client_of(ALICE)):
        answer = client.get("/operator")
        assert (answer.status_code, "There is nothing here" in answer.text) == (404, True)
    assert client_of(BOB).get("/operator").status_code == 200
    settings.OPERATOR_ADDRESSES = []
    assert client_of(BOB).get("/operator").status_code == 404, "by default there is no operator"


def test_it_only_reads_and_is_neither_kept_nor_indexed():
    client = client_of(BOB)
    answer = client.get("/operator")
    assert "no-store" in answer.headers["Cache-Control"]
    assert "private" in answer.headers["Cache-Control"]
    assert answer.headers["X-Robots-Tag"] == "noindex"
    assert '<meta name="robots" content="noindex">' in answer.text
    assert client.post("/operator").status_code == 405
    assert "<form" not in answer.text.partition("<main")[2].partition("</main>")[0]


# --- Links ------------------------------------------------------------------------------------------------------------


def test_its_links_lead_somewhere():
    client = client_of(BOB)
    for address in re.findall(r'href="(/admin/[^"]*)"', page()):
        assert client.get(address).status_code == 200, address


# --- Cost -------------------------------------------------------------------------------------------------------------


def test_it_takes_the_same_statements_however_much_there_is_and_asks_no_chain(django_assert_num_queries, monkeypatch):
    monkeypatch.setattr("chains.bounded_http.send_all", lambda *_: pytest.fail("a chain was asked"))
    client = client_of(BOB)
    Signer.objects.create(chain_id=31337, address=SIGNER)
    client.get("/operator")  # writes, at most every ten seconds
    with django_assert_num_queries(STATEMENTS):
        client.get("/operator")
    for number in range(12, 16):
        accept(a_batch(block=number))
        Block.objects.update(due_at=timezone.now(), failing_since=timezone.now(), attempts=1)
    with django_assert_num_queries(STATEMENTS):
        client.get("/operator")
