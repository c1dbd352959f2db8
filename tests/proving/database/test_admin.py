"""The admin pages, on which operators look at rows and cancel batches."""

import pytest
from django.core.management import call_command
from django.test import Client

from proving.models import FactsRegistry, Share, SignedTransaction, Signer, Transaction, TransactionState
from queries.models import BatchStatus, Block
from tests.factories import act, client_of, log_of_operators
from tests.service import ALICE, BOB, CHARLIE, SIGNER, a_key, request, submit

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def operated_by_alice(unreachable_chain, settings, db) -> None:
    settings.OPERATOR_ADDRESSES = [ALICE.lower()]


def test_stops_are_listed():
    call_command("stop", "31337", reason="A test.")
    client = client_of(ALICE)
    assert "A test." in client.get("/admin/proving/stop/").text
    assert client.post("/admin/proving/stop/add/", {}).status_code == 403


def test_an_operator_cancels_a_batch():
    batch = submit(a_key(BOB), request(ALICE, block=1))
    client = client_of(ALICE)
    assert "Give a reason" in act(client, "queries/batch", "cancel", batch.pk, reason=" ")
    assert log_of_operators() == []
    act(client, "queries/batch", "cancel", batch.pk, reason="A test.")
    batch.refresh_from_db()
    assert (batch.status, batch.rejection_code, batch.rejection_retryable) == (
        BatchStatus.REJECTED,
        "cancelled_by_operator",
        False,
    )
    assert batch.rejection_reason == "The operator has cancelled the batch. The reason given: A test."
    assert "Sent transactions stay paid" in " ".join(client.get(f"/explorer/query/{batch.pk}").text.split())
    assert log_of_operators() == [(ALICE, batch.pk, "Cancelled. Why: A test.")]
    assert "no longer open" in act(client, "queries/batch", "cancel", batch.pk, reason="Again.")
    assert len(log_of_operators()) == 1


@pytest.mark.long
def test_rows_are_listed_found_and_only_shown():
    batch = submit(a_key(BOB), request(ALICE, block=12))
    block = Block.objects.get()
    signer = Signer.objects.create(chain_id=31337, address=SIGNER)
    registry = FactsRegistry.objects.create(
        destination_chain_id=31337, source_chain_id=31337, address=ALICE, block_hash_source=BOB
    )
    tx = Transaction.objects.create(
        signer=signer, nonce=7, data=b"secret data", gas_limit=1, state=TransactionState.MINED, hash="0x" + "ab" * 32
    )
    version = SignedTransaction.objects.create(
        transaction=tx, hash="0x" + "cd" * 32, raw=b"", max_fee_per_gas=1, max_priority_fee_per_gas=1
    )
    Share.objects.create(transaction=tx, batch=batch, gas=1, wei=1, weight=1)
    tx.queries.set(batch.queries.all())
    client = client_of(ALICE)
    # The search finds each row, and the row's page links to related rows.
    for model, term, row, leads_to in (
        ("queries/batch", batch.pk.lower(), batch, [f"/explorer/query/{batch.pk}"]),
        ("queries/batch", BOB.lower(), batch, [f"/admin/accounts/user/{batch.user_id}/change/"]),
        ("queries/batch", batch.api_key.last_four, batch, [f"/admin/accounts/apikey/{batch.api_key_id}/change/"]),
        ("queries/block", "12", block, []),
        ("proving/signer", SIGNER.lower(), signer, []),
        ("proving/factsregistry", ALICE, registry, []),
        ("proving/transaction", str(version), tx, [str(version)]),
        ("proving/transaction", batch.pk, tx, []),
        ("proving/transaction", "7", tx, [f"/admin/proving/signer/{signer.pk}/change/"]),
    ):
        page = f"/admin/{model}/{row.pk}/change/"
        assert page in client.get(f"/admin/{model}/", {"q": term}).text, (model, term)
        assert page not in client.get(f"/admin/{model}/", {"q": "8"}).text
        shown = client.get(page).text
        assert [link for link in leads_to if link not in shown] == []
        assert "secret data" not in shown
        assert client.post(page, {"address": BOB}).status_code == 403
        assert client.post(f"/admin/{model}/{row.pk}/delete/", {"post": "yes"}).status_code == 403
        assert client.post(f"/admin/{model}/add/", {}).status_code == 403
    assert batch.pk in client.get("/admin/queries/batch/?status__exact=RECEIVED").text
    assert batch.pk not in client.get("/admin/queries/batch/?status__exact=DONE").text


@pytest.mark.parametrize("path", ["/admin/", "/admin/proving/stop/", "/admin/login/"])
def test_others_are_not_let_in(path):
    client = client_of(BOB)
    assert client.get(path, follow=True).status_code == 403


def test_a_visitor_signs_in_by_wallet():
    answer = Client().get("/admin/proving/stop/", follow=True)
    assert answer.redirect_chain[-1] == ("/sign-in?next=/admin/proving/stop/", 302)


def test_a_former_operator_is_not_let_in(settings):
    client = client_of(ALICE)
    assert client.get("/admin/").status_code == 200
    settings.OPERATOR_ADDRESSES = [BOB]
    assert client.get("/admin/", follow=True).status_code == 403


def test_an_operator_may_sign_in_where_nobody_else_may(settings):
    settings.ALLOWED_ADDRESSES = [CHARLIE]
    bodies = [{"address": address, "chainId": "31337"} for address in (ALICE, BOB)]
    answers = [Client().post("/sign-in/message", body, content_type="application/json").status_code for body in bodies]
    assert answers == [200, 403]
