"""The admin, by which the operator's people stop and resume sending."""

import pytest
from django.test import Client

from accounts.models import OperatorDeed
from proving.models import (
    ConnectionPause,
    FactsRegistry,
    Share,
    SignedTransaction,
    Signer,
    SigningStop,
    Transaction,
    TransactionState,
)
from queries.models import Batch, BatchStatus, Block
from tests.factories import client_of
from tests.service import ALICE, BOB, CHARLIE, SIGNER, a_key, chains_toml, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.fixture(autouse=True)
def operated_by_alice(unreachable_chain, settings, db) -> None:
    settings.OPERATOR_ADDRESSES = [ALICE.lower()]


def test_an_operator_stops_and_resumes_sending():
    client = client_of(ALICE)
    assert "Signing stops" in client.get("/admin/").text
    form = client.get("/admin/proving/signingstop/add/").text
    assert "Development chain (31337)" in form
    added = client.post("/admin/proving/signingstop/add/", {"chain_id": "31337", "reason": "A test."})
    assert added.headers["Location"] == "/admin/proving/signingstop/"
    stop = SigningStop.objects.get()
    assert (stop.chain_id, stop.reason) == (31337, "A test.")
    assert "A test." in client.get("/admin/proving/signingstop/").text
    deleted = client.post(f"/admin/proving/signingstop/{stop.pk}/delete/", {"post": "yes"})
    assert deleted.headers["Location"] == "/admin/"
    assert not SigningStop.objects.exists()


def logged_actions() -> list[tuple[str, str, str, str]]:
    return list(OperatorDeed.objects.order_by("pk").values_list("operator", "kind", "subject", "reason"))


def test_stopping_and_resuming_are_logged():
    client = client_of(ALICE)
    client.post("/admin/proving/signingstop/add/", {"chain_id": "31337", "reason": "A test."})
    client.post(f"/admin/proving/signingstop/{SigningStop.objects.get().pk}/delete/", {"post": "yes"})
    assert logged_actions() == [(ALICE, "stopped", "chain 31337", "A test."), (ALICE, "resumed", "chain 31337", "")]
    log = client.get("/admin/accounts/operatordeed/").text
    assert "A test." in log


def test_an_operator_pauses_and_resumes_a_connection():
    client = client_of(ALICE)
    form = client.get("/admin/proving/connectionpause/add/").text
    assert "Development chain (31337) to Development chain (31337)" in form
    client.post("/admin/proving/connectionpause/add/", {"connection": "31337-31337", "reason": "A test."})
    pause = ConnectionPause.objects.get()
    assert (pause.source_chain_id, pause.destination_chain_id, pause.reason) == (31337, 31337, "A test.")
    chosen = {"action": "delete_selected", "_selected_action": [pause.pk], "post": "yes"}
    client.post("/admin/proving/connectionpause/", chosen)
    assert not ConnectionPause.objects.exists()
    assert logged_actions() == [
        (ALICE, "paused_connection", "31337 to 31337", "A test."),
        (ALICE, "resumed_connection", "31337 to 31337", ""),
    ]


def test_an_operator_pauses_and_resumes_a_signer():
    signer = Signer.objects.create(chain_id=31337, address=SIGNER)
    client, path = client_of(ALICE), f"/admin/proving/signer/{signer.pk}"
    assert "Pause the signer" in client.get(f"{path}/change/").text
    assert "signs and broadcasts nothing more" in client.get(f"{path}/action/pause/").text
    client.post(f"{path}/action/pause/", {"reason": "A test."})
    signer.refresh_from_db()
    assert signer.notice.endswith("The reason given: A test.")
    assert "Resume the signer" in client.get(f"{path}/change/").text
    client.post(f"{path}/action/resume/", {"reason": "Over."})
    signer.refresh_from_db()
    assert (signer.paused_at, signer.notice) == (None, "")
    again = client.post(f"{path}/action/resume/", {"reason": "Over."}, follow=True)
    assert "The signer was not paused." in again.text
    assert logged_actions() == [
        (ALICE, "paused_signer", str(signer), "A test."),
        (ALICE, "resumed_signer", str(signer), "Over."),
    ]


def test_an_operator_cancels_a_batch():
    batch = submit(a_key(BOB), request(ALICE, block=1))
    client, path = client_of(ALICE), f"/admin/queries/batch/{batch.pk}"
    assert "Cancel the batch" in client.get(f"{path}/change/").text
    client.post(f"{path}/action/cancel/", {"reason": "A test."})
    batch.refresh_from_db()
    assert (batch.status, batch.rejection_code, batch.rejection_retryable) == (
        BatchStatus.REJECTED,
        "cancelled_by_operator",
        False,
    )
    assert batch.rejection_reason == "The operator has cancelled the batch. The reason given: A test."
    assert "What was sent for it before stays paid" in client.get(f"/explorer/query/{batch.pk}").text
    assert logged_actions() == [(ALICE, "cancelled_batch", batch.pk, "A test.")]
    assert "/action/cancel/" not in client.get(f"{path}/change/").text
    again = client.post(f"{path}/action/cancel/", {"reason": "Again."}, follow=True)
    assert "not open any more" in again.text
    assert len(logged_actions()) == 1


def test_rows_are_listed_linked_found_and_only_shown():
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
    # Each is found, and its page names what it leads to.
    for model, term, row, leads_to in (
        (
            "queries/batch",
            batch.pk.lower(),
            batch,
            [f"/explorer/query/{batch.pk}", f"shares__batch__id__exact={batch.pk}"],
        ),
        ("queries/batch", BOB, batch, [f"/admin/accounts/user/{batch.user_id}/change/"]),
        ("queries/block", "12", block, [f"/admin/queries/batch/{batch.pk}/change/", f"block__id__exact={block.pk}"]),
        ("proving/signer", SIGNER.lower(), signer, [f"signer__id__exact={signer.pk}"]),
        ("proving/factsregistry", ALICE, registry, [f"extends__id__exact={registry.pk}"]),
        ("proving/transaction", version.hash, tx, [f"/explorer/query/{batch.pk}", version.hash]),
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
    # The lists that pages link to.
    for model, lookup, row in (
        ("queries/batch", f"user__id__exact={batch.user_id}", batch),
        ("queries/batch", f"api_key__id__exact={batch.api_key_id}", batch),
        ("queries/batch", f"shares__transaction__id__exact={tx.pk}", batch),
        ("queries/batch", "open=yes", batch),
        ("queries/block", f"queries__batch__id__exact={batch.pk}", block),
        ("proving/transaction", f"shares__batch__id__exact={batch.pk}", tx),
        ("proving/transaction", f"queries__block__id__exact={block.pk}", tx),
        ("proving/transaction", f"signer__id__exact={signer.pk}", tx),
    ):
        answer = client.get(f"/admin/{model}/?{lookup}")
        assert answer.status_code == 200, lookup
        assert f"/admin/{model}/{row.pk}/change/" in answer.text, lookup
    Batch.objects.update(status=BatchStatus.DONE)
    assert batch.pk not in client.get("/admin/queries/batch/?open=yes").text


@pytest.mark.parametrize("url", ["", "https://scan.example"])
def test_a_registry_is_linked_to_its_chains_explorer_where_there_is_one(settings, tmp_path, url):
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain=f'explorer_url = "{url}"' if url else "")
    registry = FactsRegistry.objects.create(
        source_chain_id=31337, destination_chain_id=31337, address=ALICE, block_hash_source=BOB
    )
    page = client_of(ALICE).get(f"/admin/proving/factsregistry/{registry.pk}/change/").text
    assert (f"https://scan.example/address/{ALICE}" in page) == bool(url)
    assert ("explorer</a>" in page) == bool(url)


def test_several_are_resumed_at_once():
    SigningStop.objects.create(chain_id=31337)
    chosen = {"action": "delete_selected", "_selected_action": [SigningStop.objects.get().pk], "post": "yes"}
    client_of(ALICE).post("/admin/proving/signingstop/", chosen)
    assert not SigningStop.objects.exists()


def test_only_destinations_can_be_chosen():
    answer = client_of(ALICE).post("/admin/proving/signingstop/add/", {"chain_id": "5"})
    assert "Select a valid choice" in answer.text
    assert not SigningStop.objects.exists()


@pytest.mark.parametrize("path", ["/admin/", "/admin/proving/signingstop/add/", "/admin/login/"])
def test_others_are_not_let_in(path):
    client = client_of(BOB)
    assert client.get(path, follow=True).status_code == 403
    assert client.post("/admin/proving/signingstop/add/", {"chain_id": "31337"}, follow=True).status_code == 403
    assert not SigningStop.objects.exists()


def test_who_is_not_signed_in_signs_in_by_wallet():
    answer = Client().get("/admin/proving/signingstop/", follow=True)
    assert answer.redirect_chain[-1] == ("/sign-in?next=/admin/proving/signingstop/", 302)


def test_who_is_no_operator_any_more_is_not_let_in(settings):
    client = client_of(ALICE)
    assert client.get("/admin/").status_code == 200
    settings.OPERATOR_ADDRESSES = [BOB]
    assert client.get("/admin/", follow=True).status_code == 403


def test_an_operator_may_sign_in_where_nobody_else_may(settings):
    settings.ALLOWED_ADDRESSES = [CHARLIE]
    asked = [{"address": address, "chainId": "31337"} for address in (ALICE, BOB)]
    answers = [Client().post("/sign-in/message", one, content_type="application/json").status_code for one in asked]
    assert answers == [200, 403]
