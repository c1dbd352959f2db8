"""Concurrent transactions on accounts don't rely on rows that the other transaction changes."""

import pytest
from django.core.management import CommandError, call_command

from accounts import keys, sign_in, throttle
from accounts.models import ApiKey, SignInNonce, User
from config.error_answers import Refused
from tests.service import ALICE, fresh
from tests.side_by_side import meet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another"),
]


def code_of(refused: type[Exception], call) -> str:
    try:
        call()
    except refused as error:
        return str(error.code)  # type: ignore[attr-defined]
    return ""


def test_two_can_t_both_make_the_last_key(monkeypatch):
    monkeypatch.setattr(keys, "MAX_KEYS", 1)
    user = User.objects.for_address(ALICE)
    met = meet(lambda: keys.issue(user, "one"), lambda: code_of(Refused, lambda: keys.issue(user, "two")))
    assert (met.second, met.waited) == ("too_many_keys", True)
    assert ApiKey.objects.count() == 1


def test_an_operator_who_revokes_a_user_s_keys_leaves_none_that_is_made_meanwhile():
    user = User.objects.for_address(ALICE)
    met = meet(lambda: keys.issue(user, "one"), lambda: keys.revoke_by_operator(User.objects.filter(pk=user.pk)))
    assert (met.second, met.waited) == (1, True)
    assert not ApiKey.objects.filter(revoked_at=None).exists()


def test_a_throttle_gives_the_last_place_once():
    assert throttle.take("a", 1, 2) == 0
    met = meet(lambda: throttle.take("a", 1, 2), lambda: throttle.take("a", 1, 2))
    assert met.first == 0
    assert met.second > 0
    assert met.waited


def test_a_throttle_that_two_begin_counts_both():
    met = meet(lambda: throttle.take("a", 1, 1), lambda: throttle.take("a", 1, 1))
    assert (met.first, met.second > 0, met.waited) == (0, True, True)


def test_a_nonce_is_used_once(unreachable_chain):
    message = sign_in.start(ALICE, 31337, "127.0.0.1")
    met = meet(
        lambda: sign_in._consume_nonce(message),
        lambda: code_of(sign_in.SignInError, lambda: sign_in._consume_nonce(message)),
    )
    assert (met.second, met.waited) == ("unknown_nonce", True)
    assert SignInNonce.objects.get().consumed_at == met.first.consumed_at


def test_an_own_key_that_signs_in_while_its_user_is_handed_over_is_another_user():
    before = User.objects.create(address=ALICE, own_key_known=False)
    User.objects.for_address(ALICE, 31337)
    met = meet(lambda: call_command("hand_over", f"31337:{ALICE}"), lambda: User.objects.for_address(ALICE))
    assert (met.second.chain_id, met.second == before, met.waited) == (None, False, True)
    assert fresh(before).chain_id == 31337


def test_a_user_whose_own_key_signs_in_is_not_handed_over():
    before = User.objects.create(address=ALICE, own_key_known=False)
    User.objects.for_address(ALICE, 31337)

    def sign_in() -> None:
        user = User.objects.for_address(ALICE)
        user.own_key_known = True
        user.save()

    def hand_over() -> str:
        try:
            call_command("hand_over", f"31337:{ALICE}")
        except CommandError as error:
            return str(error)
        return ""

    met = meet(sign_in, hand_over)
    assert ("signs in with a key of its own" in met.second, met.waited) == (True, True)
    assert fresh(before).chain_id is None
