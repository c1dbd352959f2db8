"""Tests of `manage.py revoke_keys`."""

import pytest
from django.core.management import CommandError, call_command

from accounts.models import AccountEvent, EventKind, User
from tests.accounts import over_http as keys
from tests.accounts.wallets import ALICE, BOB

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


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
        with pytest.raises(CommandError, match=f"no key was revoked. Did you mean .*{mistaken[2:]}"):
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
