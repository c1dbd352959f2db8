import re
from datetime import timedelta

import pytest
from django.apps import apps
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import keys
from accounts.models import ApiKey, User
from tests.accounts.wallets import ALICE, BOB

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return User.objects.for_address(ALICE.address)


@pytest.fixture
def key(alice):
    return keys.issue(alice, "laptop")


def raw(key: ApiKey) -> str:
    value = keys.reveal(key)
    assert value is not None
    return value


def test_a_key_can_be_shown_again_and_authenticates_its_user(alice, key):
    stored = ApiKey.objects.get(pk=key.pk)
    assert raw(stored) == raw(key)
    found = keys.authenticate(raw(stored))
    assert found is not None
    assert found == key
    assert found.user == alice


def test_a_key_has_one_form_and_shows_only_its_ends(key):
    assert re.fullmatch(r"bqs_[0-9A-Za-z]{43}", raw(key))
    assert raw(key).startswith(key.prefix)
    assert raw(key).endswith(key.last_four)
    assert len(key.prefix + key.last_four) == 12


def test_two_keys_differ(alice, key):
    assert raw(keys.issue(alice, "server")) != raw(key)


def test_a_name_is_unique_per_user_and_not_among_users(alice, key):
    keys.issue(User.objects.for_address(BOB.address), key.name)
    with pytest.raises(IntegrityError):
        keys.issue(alice, key.name)


def test_no_column_of_any_table_holds_the_key(key):
    keys.authenticate(raw(key))
    secret = raw(key)
    values = [
        str(bytes(v) if isinstance(v, memoryview) else v)
        for m in (ApiKey, User)
        for r in m.objects.values_list()
        for v in r
    ]
    assert values
    assert not [value for value in values if secret in value or secret[4:] in value]
    assert {ApiKey, User} <= set(apps.get_app_config("accounts").get_models())


@pytest.mark.parametrize(
    "wrong",
    ["", "bqs_", "bqs_" + "0" * 43, "\ud800", "\x00", "x" * 100_000],
    ids=["empty", "prefix", "other", "surrogate", "nul", "long"],
)
def test_what_is_no_key_authenticates_nobody_and_writes_nothing(key, wrong):
    with CaptureQueriesContext(connection) as statements:
        assert keys.authenticate(wrong) is None
    assert len(statements) == 1


def test_a_revoked_key_authenticates_nobody(key):
    secret = raw(key)
    keys.revoke(key)
    assert key.revoked_at is not None
    assert keys.authenticate(secret) is None


def test_revoking_twice_keeps_the_first_time(key):
    keys.revoke(key)
    first = key.revoked_at
    keys.revoke(key)
    assert key.revoked_at == first


def test_a_key_under_a_lost_secret_is_not_shown_and_still_authenticates(key, settings):
    secret = raw(key)
    settings.API_KEY_SECRET = "another secret"
    assert keys.reveal(key) is None
    assert keys.authenticate(secret) == key


def test_the_time_of_use_is_written_at_most_once_a_minute(key):
    secret = raw(key)
    keys.authenticate(secret)
    key.refresh_from_db()
    first = key.last_used_at
    with CaptureQueriesContext(connection) as statements:
        keys.authenticate(secret)
    assert len(statements) == 1
    key.refresh_from_db()
    assert key.last_used_at == first

    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    keys.authenticate(secret)
    key.refresh_from_db()
    assert key.last_used_at > first


def test_only_a_user_who_never_had_a_key_gets_the_first_one(alice):
    keys.issue_first(alice)
    keys.issue_first(alice)
    only = alice.api_keys.get()
    assert only.name == "default"
    keys.revoke(only)
    alice.api_keys.update(name="old")
    keys.issue_first(alice)
    assert alice.api_keys.get() == only
