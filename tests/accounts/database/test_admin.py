"""The admin's pages of users, keys and the log of operators."""

import html
from io import StringIO

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.management import call_command
from django.test import Client

from accounts.models import AccountEvent, ApiKey, User
from tests.factories import act, client_of, log_of_operators
from tests.service import ALICE, BOB, CHARLIE, a_key, fresh, request, secret_of, submit

pytestmark = pytest.mark.outside


@pytest.fixture(autouse=True)
def operated_by_alice(unreachable_chain, settings, db) -> None:
    settings.OPERATOR_ADDRESSES = [ALICE]


@pytest.fixture
def operator() -> Client:
    return client_of(ALICE)


@pytest.fixture
def bob() -> User:
    return a_key(BOB).user


# --- Limits -----------------------------------------------------------------------------------------------------------


USERS = "accounts/user"
LIMITS = (
    *("max_batches_per_minute", "max_queries_per_minute"),
    *("max_open_batches", "max_open_queries", "daily_limits_wei"),
)


def set_limits(client: Client, user: User, **limits: str) -> str:
    path = f"/admin/accounts/user/{user.pk}/change/"
    return html.unescape(client.post(path, dict.fromkeys(LIMITS, "") | limits, follow=True).text)


def test_an_operator_sets_limits(operator, bob):
    hash_of_session = bob.get_session_auth_hash()
    set_limits(operator, bob, max_batches_per_minute="7", max_open_batches="0", daily_limits_wei='{"31337": "5"}')
    assert (fresh(bob).max_batches_per_minute, bob.max_open_batches, bob.max_open_queries) == (7, 0, None)
    assert bob.daily_limits_wei == {"31337": "5"}
    changes = "max_batches_per_minute: None → 7; max_open_batches: None → 0; daily_limits_wei: None → {'31337': '5'}"
    assert log_of_operators() == [(ALICE, str(bob), changes)]
    set_limits(operator, bob, max_batches_per_minute="7")
    assert (fresh(bob).max_batches_per_minute, bob.max_open_batches, bob.daily_limits_wei) == (7, None, None)
    assert bob.get_session_auth_hash() == hash_of_session


def test_a_limit_of_a_chain_that_is_no_destination_now_stays(operator, bob):
    User.objects.filter(pk=bob.pk).update(daily_limits_wei={"5": "1"})
    set_limits(operator, bob, max_batches_per_minute="7", daily_limits_wei='{"5": "1"}')
    assert (fresh(bob).max_batches_per_minute, bob.daily_limits_wei) == (7, {"5": "1"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batches_per_minute": "-1"},
        *(
            {"daily_limits_wei": limits}
            for limits in ('{"31337": 0.5}', '{"31337": "0.5"}', '{"6": "1"}', "[1]", "7", "{")
        ),
    ],
)
def test_a_wrong_limit_is_not_set(operator, bob, wrong):
    assert "Please correct the error below" in set_limits(operator, bob, **wrong)
    assert (fresh(bob).max_batches_per_minute, bob.daily_limits_wei) == (None, None)
    assert log_of_operators() == []


# --- Keys -------------------------------------------------------------------------------------------------------------


def test_an_operator_revokes_all_keys_of_a_user(operator, bob):
    a_key(BOB, "another")
    other = a_key(ALICE)
    act(operator, USERS, "revoke_keys", bob.pk)
    assert not bob.api_keys.filter(revoked_at=None).exists()
    assert ApiKey.objects.get(pk=other.pk).revoked_at is None
    assert list(AccountEvent.objects.values_list("user", "detail")) == [(bob.pk, "by the operator")] * 2
    assert log_of_operators() == [(ALICE, str(bob), "Revoked all keys.")]


def test_no_page_shows_a_key_its_hash_or_its_salt(operator, bob):
    key = ApiKey.objects.get()
    shown = operator.get("/admin/accounts/apikey/").text + operator.get(f"/admin/accounts/apikey/{key.pk}/change/").text
    assert key.ends in shown
    secrets = [secret_of(key), key.key_hash, bytes(key.salt).hex(), str(key.salt), repr(bytes(key.salt))]
    assert not [secret for secret in secrets if secret and secret in shown]


# --- Actions that are refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["accounts/user", "accounts/apikey", "admin/logentry"])
@pytest.mark.parametrize("verb", ["add/", "{}/change/", "{}/delete/"])
def test_rows_are_only_shown(operator, bob, model, verb):
    entry = LogEntry.objects.create(user=bob, object_repr="chain 1", action_flag=CHANGE)
    row = {"accounts/user": bob, "accounts/apikey": bob.api_keys.get(), "admin/logentry": entry}[model]
    answer = operator.post(f"/admin/{model}/{verb.format(row.pk)}", {"post": "yes", "address": ALICE})
    assert answer.status_code == (302 if (model, verb) == (USERS, "{}/change/") else 403)
    row.refresh_from_db()
    assert bob.address == BOB


def test_several_rows_can_not_be_deleted_at_once(operator, bob):
    chosen = {"action": "delete_selected", "_selected_action": [bob.pk], "post": "yes"}
    operator.post("/admin/accounts/user/", chosen)
    assert User.objects.filter(pk=bob.pk).exists()


@pytest.mark.parametrize("client", [Client(), None])
def test_others_do_nothing(bob, client):
    set_limits(client or client_of(BOB), bob, max_batches_per_minute="7")
    act(client or client_of(BOB), USERS, "revoke_keys", bob.pk)
    assert fresh(bob).max_batches_per_minute is None
    assert bob.api_keys.filter(revoked_at=None).exists()


# --- Visitors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/admin/", "/admin/accounts/user/", "/admin/login/"])
def test_others_are_not_let_in(path):
    assert client_of(BOB).get(path, follow=True).status_code == 403


def test_a_visitor_signs_in_by_wallet():
    answer = Client().get("/admin/accounts/user/", follow=True)
    assert answer.redirect_chain[-1] == ("/sign-in?next=/admin/accounts/user/", 302)


def test_a_former_operator_is_not_let_in(operator, settings):
    assert operator.get("/admin/").status_code == 200
    settings.OPERATOR_ADDRESSES = [BOB]
    assert operator.get("/admin/", follow=True).status_code == 403


def test_an_operator_may_sign_in_where_nobody_else_may(settings):
    settings.ALLOWED_ADDRESSES = [CHARLIE]
    bodies = [{"address": address, "chainId": "31337"} for address in (ALICE, BOB)]
    answers = [Client().post("/sign-in/message", body, content_type="application/json").status_code for body in bodies]
    assert answers == [200, 403]


@pytest.mark.parametrize(
    "rows", ["queries/", "queries/batch/", "queries/block/?failing=yes", "proving/transaction/?q=7"]
)
def test_there_are_no_pages_of_queries_and_proving(operator, rows):
    assert operator.get(f"/admin/{rows}").status_code == 404
    assert operator.post(f"/admin/{rows}", {"action": "cancel"}).status_code == 404
    index = operator.get("/admin/").text
    assert [name for name in ("Batches", "Transactions", "Signers") if name in index] == []


def test_the_log_still_shows_what_operators_did_to_batches(operator):
    batch = submit(a_key(ALICE), request(ALICE, block=1))
    call_command("cancel", batch.pk, reason="A test.", stdout=StringIO())
    assert batch.pk in operator.get("/admin/admin/logentry/").text
    assert "Cancelled. Why: A test." in operator.get("/admin/admin/logentry/").text
