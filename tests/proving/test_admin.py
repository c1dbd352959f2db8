"""The admin, by which the operator's people stop and resume sending."""

import pytest
from django.test import Client

from accounts.allowed_addresses import may_sign_in
from accounts.models import User
from proving.models import SigningStop
from tests.service import ALICE, BOB, chains_toml


@pytest.fixture(autouse=True)
def operated_by_alice(settings, tmp_path, db) -> None:
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1")
    settings.OPERATOR_ADDRESSES = [ALICE.lower()]


def client_of(address: str) -> Client:
    client = Client()
    client.force_login(User.objects.for_address(address))
    return client


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
    settings.ALLOWED_ADDRESSES = [BOB]
    assert may_sign_in(ALICE)
