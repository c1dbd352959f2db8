"""The admin of users, keys and the log of operators."""

import html

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import AccountEvent, ApiKey, User
from tests.factories import act, client_of, log_of_operators
from tests.service import ALICE, BOB, a_key, secret_of

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


SET = (
    "daily_gas_budget from the installation's to 7; max_open_batches from the installation's to 0; "
    "daily_limit_per_user on chain 31337 from the installation's to 500000000000000000 wei."
)


USERS = "accounts/user"


def test_an_operator_sets_limits_and_says_why(operator, bob):
    form = act(operator, USERS, "limits", bob.pk)
    assert "daily_limit_per_user on Development chain (31337), in ETH" in form
    said = {"daily_gas_budget": "7", "max_open_batches": "0", "daily_limit_31337": "0.5", "reason": "They asked."}
    assert SET in html.unescape(act(operator, USERS, "limits", bob.pk, **said))
    bob.refresh_from_db()
    assert (bob.daily_gas_budget, bob.max_open_batches, bob.max_open_queries) == (7, 0, None)
    assert bob.daily_limits_wei == {"31337": str(10**18 // 2)}
    assert log_of_operators() == [(ALICE, str(bob), f"Set limits. {SET} Why: They asked.")]
    assert 'value="0.5"' in act(operator, USERS, "limits", bob.pk)
    assert "7" in operator.get(f"/admin/accounts/user/{bob.pk}/change/").text
    act(operator, USERS, "limits", bob.pk, daily_gas_budget="7", reason="Enough.")
    bob.refresh_from_db()
    assert (bob.daily_gas_budget, bob.max_open_batches, bob.daily_limits_wei) == (7, None, None)


def test_a_limit_of_a_chain_that_is_no_destination_now_stays(operator, bob):
    User.objects.filter(pk=bob.pk).update(daily_limits_wei={"5": "1"})
    act(operator, USERS, "limits", bob.pk, daily_gas_budget="7", reason="Enough.")
    bob.refresh_from_db()
    assert bob.daily_limits_wei == {"5": "1"}


@pytest.mark.parametrize("said", [{"daily_gas_budget": "7", "reason": ""}, {"daily_gas_budget": "-1", "reason": "x"}])
def test_without_a_reason_or_with_a_wrong_limit_nothing_is_done(operator, bob, said):
    assert 'value="Confirm"' in act(operator, USERS, "limits", bob.pk, **said)
    bob.refresh_from_db()
    assert bob.daily_gas_budget is None
    assert log_of_operators() == []


def test_what_changes_nothing_is_no_action(operator, bob):
    assert "Nothing was changed." in act(operator, USERS, "limits", bob.pk, reason="x")
    assert log_of_operators() == []


# --- Keys -------------------------------------------------------------------------------------------------------------


def test_an_operator_revokes_all_keys_of_a_user(operator, bob):
    a_key(BOB, "another")
    other = a_key(ALICE)
    act(operator, USERS, "revoke_keys", bob.pk, reason="Leaked.")
    assert not bob.api_keys.filter(revoked_at=None).exists()
    assert ApiKey.objects.get(pk=other.pk).revoked_at is None
    assert list(AccountEvent.objects.values_list("user", "detail")) == [(bob.pk, "by the operator")] * 2
    assert log_of_operators() == [(ALICE, str(bob), "Revoke all keys. 2 keys. Why: Leaked.")]


def test_no_page_shows_a_key_its_hash_or_its_salt(operator, bob):
    key = ApiKey.objects.get()
    shown = operator.get("/admin/accounts/apikey/").text + operator.get(f"/admin/accounts/apikey/{key.pk}/change/").text
    assert key.ends in shown
    secrets = [secret_of(key), key.key_hash, bytes(key.salt).hex(), str(key.salt), repr(bytes(key.salt))]
    assert not [secret for secret in secrets if secret and secret in shown]


# --- What can't be done -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["accounts/user", "accounts/apikey", "admin/logentry"])
@pytest.mark.parametrize("verb", ["add/", "{}/change/", "{}/delete/"])
def test_rows_are_only_shown(operator, bob, model, verb):
    entry = LogEntry.objects.create(user=bob, object_repr="chain 1", action_flag=CHANGE)
    row = {"accounts/user": bob, "accounts/apikey": bob.api_keys.get(), "admin/logentry": entry}[model]
    answer = operator.post(f"/admin/{model}/{verb.format(row.pk)}", {"post": "yes", "address": ALICE})
    assert answer.status_code == 403
    row.refresh_from_db()


def test_several_rows_can_not_be_deleted_at_once(operator, bob):
    chosen = {"action": "delete_selected", "_selected_action": [bob.pk], "post": "yes"}
    operator.post("/admin/accounts/user/", chosen)
    assert User.objects.filter(pk=bob.pk).exists()


@pytest.mark.parametrize("client", [Client(), None])
def test_others_do_nothing(bob, client):
    page = act(client or client_of(BOB), USERS, "limits", bob.pk, daily_gas_budget="7", reason="x")
    assert "Done" not in page
    bob.refresh_from_db()
    assert bob.daily_gas_budget is None


# --- Lists ------------------------------------------------------------------------------------------------------------


def test_lists_are_searched_and_linked(operator, bob):
    found = operator.get("/admin/accounts/user/", {"q": BOB.lower()}).text
    assert BOB in found
    assert "1 user" in found
    page = operator.get(f"/admin/accounts/user/{bob.pk}/change/").text
    assert f"/admin/queries/batch/?user__id__exact={bob.pk}" in page
    listed = operator.get(f"/admin/accounts/apikey/?user__id__exact={bob.pk}").text
    assert bob.api_keys.get().ends in listed
    for text in (BOB, BOB.lower(), bob.api_keys.get().last_four):
        assert "1 api key" in operator.get("/admin/accounts/apikey/", {"q": text}).text
    assert "0 api keys" in operator.get("/admin/accounts/apikey/", {"q": "'; --"}).text
    assert "0 users" in operator.get("/admin/accounts/user/", {"q": "x" * 1000}).text


def test_a_list_counts_no_more_rows_than_it_pages_to(operator, bob):
    User.objects.bulk_create(User(address=f"0x{number:040x}") for number in range(10_001))
    with CaptureQueriesContext(connection) as statements:
        listed = operator.get("/admin/accounts/user/")
    assert "10000 users" in listed.text
    counts = [one["sql"] for one in statements if "COUNT(" in one["sql"]]
    assert counts
    assert all("LIMIT 10000" in sql for sql in counts)
