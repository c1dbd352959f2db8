import re
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import AccountEvent, ApiKey, EventKind, User
from tests.accounts import over_http as keys
from tests.accounts.wallets import ALICE, BOB, sign
from tests.service import fresh

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.fixture
def alice():
    return User.objects.for_address(ALICE.address)


@pytest.fixture
def key(alice):
    return keys.issue(alice, "laptop")


def raw(key: ApiKey) -> str:
    return keys.reveal(key)


def test_a_key_has_one_form_and_shows_only_its_ends(key):
    assert re.fullmatch(r"bqs_[0-9A-Za-z]{43}", raw(key))
    assert raw(key).startswith(key.prefix)
    assert raw(key).endswith(key.last_four)
    assert len(key.prefix + key.last_four) == 12


def refused(call, *arguments) -> str:
    """Return the error code with which the call is refused."""
    with pytest.raises(keys.Refused) as caught:
        call(*arguments)
    assert caught.value.sentence.endswith(".")
    return caught.value.code


def test_a_name_is_unique_per_user_and_not_among_users(alice, key):
    keys.issue(User.objects.for_address(BOB.address), key.name)
    assert refused(keys.issue, alice, key.name) == "name_taken"
    assert refused(keys.issue, alice, f"  {key.name}\n") == "name_taken"


def test_a_key_that_ended_gives_its_name_back(alice, key):
    keys.revoke(key)
    second = keys.issue(alice, key.name)
    ApiKey.objects.filter(pk=second.pk).update(expires_at=timezone.now())
    third = keys.issue(alice, key.name)
    assert {key.name} == {second.name, third.name}
    assert fresh(second).revoked_at == second.expires_at


@pytest.mark.parametrize(
    ("name", "stored"),
    [(" a  b ", "a b"), ("x" * 60, "x" * 60), ("e\u0301", "\u00e9"), ("🦊 <b>", "🦊 <b>")],
    ids=["spaces", "longest", "composed", "any"],
)
def test_a_name_is_trimmed_to_one_form(alice, name, stored):
    assert keys.issue(alice, name).name == stored


@pytest.mark.parametrize(
    "name", [" \t\n", "x" * 61, "a\x00b", "a\u202eb", "\ud800", "a\u200bb", "my bqs_0123456789", "Z" + "\u0301" * 5]
)
def test_a_malformed_key_name_is_refused(alice, name):
    assert refused(keys.issue, alice, name) == "malformed_name"


def test_there_is_a_cap_that_keys_at_their_end_do_not_count_for(alice):
    live = [keys.issue(alice, f"{n}") for n in range(keys.MAX_KEYS)]
    assert refused(keys.issue, alice, "more") == "too_many_keys"
    assert refused(keys.rotate, live[0], "more", timedelta(hours=1)) == "too_many_keys"
    live[0].refresh_from_db()
    assert live[0].expires_at is None
    keys.rotate(live[0], "instead", timedelta())
    keys.revoke(live[1])
    keys.issue(alice, "more")
    assert refused(keys.issue, alice, "still more") == "too_many_keys"


# --- Rotation ---------------------------------------------------------------------------------------------------------


def test_a_rotated_key_works_until_its_end_and_the_new_one_at_once(key):
    secret, new = raw(key), keys.rotate(key, "laptop 2", timedelta(hours=1))
    assert key.expires_at - timezone.now() > timedelta(minutes=59)
    assert keys.authenticate(secret) == key
    assert keys.authenticate(raw(new)) == new
    ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now())
    assert keys.authenticate(secret) is None
    assert keys.authenticate(raw(new)) == new


def test_without_overlap_the_old_key_ends_at_once(key):
    secret, new = raw(key), keys.rotate(key, key.name, timedelta())
    assert keys.authenticate(secret) is None
    assert keys.authenticate(raw(new)) == new


def test_a_key_is_rotated_once(key):
    keys.rotate(key, "second", timedelta(hours=1))
    assert refused(keys.rotate, key, "third", timedelta()) == "key_expires"
    assert keys.authenticate(raw(key)) == key


def test_a_rotation_without_a_new_key_leaves_the_old_one_as_it_is(alice, key):
    keys.issue(alice, "taken")
    assert refused(keys.rotate, key, "taken", timedelta()) == "name_taken"
    assert (fresh(key).expires_at, key.revoked_at) == (None, None)


# --- Checking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", ["", "bqs_", "bqs_" + "0" * 43, "\x00", "x" * 100_000], ids=["empty", "prefix", "other", "nul", "long"]
)
def test_an_unknown_key_authenticates_nobody_and_writes_nothing(key, wrong):
    with CaptureQueriesContext(connection) as statements:
        assert keys.authenticate(wrong) is None
    assert {statement["sql"].split()[0] for statement in statements} <= {"SELECT"}


def test_a_revoked_key_authenticates_nobody_and_keeps_the_time_when_it_was_revoked_again(key):
    secret = raw(key)
    keys.revoke(key)
    first = key.revoked_at
    assert first is not None
    with pytest.raises(keys.Refused):
        keys.revoke(key)
    assert key.revoked_at == first
    assert keys.authenticate(secret) is None


def test_a_key_under_a_lost_secret_is_not_shown_and_still_authenticates(key, settings):
    secret = raw(key)
    settings.API_KEY_SECRET = "another secret"
    assert refused(keys.reveal, key) == "key_lost"
    assert keys.authenticate(secret) == key


def test_only_a_user_who_never_had_a_key_gets_the_first_one():
    for address, chain in ((ALICE.address, 31337), (ALICE.address.lower(), 5)):
        keys.finish(message := keys.start(address, chain), sign(message, ALICE))
        only = (alice := User.objects.get()).api_keys.get()
        assert only.name == "default"
    keys.revoke(only)
    alice.api_keys.update(name="old")
    keys.finish(message := keys.start(ALICE.address, 31337), sign(message, ALICE))
    assert alice.api_keys.get() == only


# --- `manage.py revoke_keys` ------------------------------------------------------------------------------------------


@pytest.fixture
def issued():
    """Return the raw texts of two keys of Alice and one of Bob."""
    alice, bob = User.objects.for_address(ALICE.address), User.objects.for_address(BOB.address)
    return [keys.reveal(key) for key in (keys.issue(alice, "one"), keys.issue(alice, "two"), keys.issue(bob, "one"))]


def test_revoke_keys_revokes_one_users_keys_and_a_contract_wallets_only_by_its_chain(issued, capsys):
    wallet = keys.reveal(keys.issue(User.objects.for_address(ALICE.address, 5), "one"))
    call_command("revoke_keys", ALICE.address.lower())
    assert live([*issued, wallet]) == [False, False, True, True]
    assert capsys.readouterr().out == "2 keys revoked.\n"
    call_command("revoke_keys", f"5:{ALICE.address.lower()}")
    assert live([*issued, wallet]) == [False, False, True, False]
    for mistaken in (f"6:{ALICE.address}", f"5:{BOB.address}"):
        with pytest.raises(CommandError, match=f"Nothing was changed. Did you mean .*{mistaken[2:]}"):
            call_command("revoke_keys", mistaken)


def live(issued) -> list[bool]:
    return [keys.authenticate(key) is not None for key in issued]


def test_revoke_keys_all_revokes_every_users_keys_and_none_when_repeated(issued, capsys):
    call_command("revoke_keys", "--all")
    assert live(issued) == [False, False, False]
    call_command("revoke_keys", "--all")
    assert capsys.readouterr().out == "3 keys revoked.\n0 keys revoked.\n"


def test_the_user_s_log_says_that_the_operator_did_it(issued):
    call_command("revoke_keys", BOB.address)
    event = AccountEvent.objects.get(kind=EventKind.KEY_REVOKED)
    assert (event.user.address, event.key_name) == (BOB.address, "one")
    assert event.detail == "by the operator"
    assert issued[2] not in (event.key_ends, event.detail)


@pytest.mark.parametrize("arguments", [[], [ALICE.address, "--all"]])
def test_revoke_keys_refuses_neither_or_both_of_addresses_and_all(issued, arguments):
    with pytest.raises(CommandError, match="Name the users' addresses, or --all"):
        call_command("revoke_keys", *arguments)
    assert live(issued) == [True, True, True]


@pytest.mark.parametrize("unknown", ["0x" + "11" * 20, "alice"])
def test_an_unknown_address_revokes_nothing_of_the_others_either(issued, unknown):
    with pytest.raises(CommandError, match=f"Nobody has signed in with {unknown}"):
        call_command("revoke_keys", ALICE.address, unknown)
    assert live(issued) == [True, True, True]
