from ipaddress import ip_network

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from tests.accounts.wallets import ALICE
from tests.service import reconfigure

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.mark.parametrize(
    ("allowed", "destination_is_test", "ids"),
    [
        ([], True, []),
        ([], False, ["accounts.W001"]),
        (["*"], False, []),
        ([ALICE.address, ALICE.address.lower()], False, []),
        (["0x12", ALICE.address[:-1] + "7", ALICE.address], False, ["accounts.E001", "accounts.E001"]),
        ([f"1:{ALICE.address}", f"{10**18}:{ALICE.address.lower()}"], False, []),
        (
            [f"{wrong}{ALICE.address}" for wrong in (":", "0:", "-1:", "01:", "x:", "eip155:1:")],
            False,
            ["accounts.E001"] * 6,
        ),
    ],
)
def test_system_checks_report_allowed_addresses_that_are_malformed_or_let_nobody_sign_in(
    settings, configure_chains, allowed, destination_is_test, ids
):
    settings.ALLOWED_ADDRESSES = allowed
    configure_chains(
        (1, destination_is_test, "http://127.0.0.1:1"), (2, False, "http://127.0.0.1:1"), destinations=(1,)
    )
    assert [message.id for message in run_checks() if "accounts." in (message.id or "")] == ids


def test_an_unreadable_chains_file_is_an_error_of_the_deployment_checks(settings, configure_chains):
    settings.CHAINS_FILE.write_text("nonsense")
    settings.CHAINS_FILE = settings.CHAINS_FILE
    (message,) = [
        each for each in run_checks(include_deployment_checks=True) if (each.id or "").startswith("accounts.")
    ]
    assert message.id == "accounts.E003"
    assert message.msg.startswith(f"{settings.CHAINS_FILE} can't be used:\n- it is not TOML: ")


RANDOM = "3f9c0a7be1d2486557acf09b81de3c42"  # from `openssl rand -hex 16`


@pytest.mark.parametrize(
    ("changed", "ids"),
    [
        ({}, []),
        ({"SECRET_KEY": "changeme"}, ["W002"]),
        ({"API_KEY_SECRET": "a" * 64}, ["W002"]),
        ({"API_KEY_SECRET": "0123456789abcdef" * 4}, ["W002"]),
        ({"SECRET_KEY": f"django-insecure-{RANDOM}"}, ["W002"]),
        ({"METRICS_TOKEN": "metrics"}, ["W002"]),
        ({"SECRET_KEY": RANDOM, "API_KEY_SECRET": RANDOM}, ["W003"]),
        ({"API_KEY_SECRET": RANDOM, "METRICS_TOKEN": RANDOM}, ["W003"]),
        ({"ALLOWED_HOSTS": ["127.0.0.1", "*"]}, ["W004"]),
        ({"ALLOWED_HOSTS": ["127.0.0.1", ".example.org"]}, []),
        ({"WEBHOOK_ALLOW": [ip_network("0.0.0.0/0")]}, ["W005"]),
        ({"WEBHOOK_ALLOW": ["localhost", ip_network("::/0")]}, ["W005"]),
        ({"WEBHOOK_ALLOW": [ip_network("0.0.0.0/1"), ip_network("128.0.0.0/1")]}, ["W005"]),
        ({"WEBHOOK_ALLOW": ["localhost", ip_network("10.0.0.0/8"), ip_network("fc00::/7")]}, []),
    ],
)
def test_a_deployment_is_warned_of_weak_secrets_and_open_settings(settings, changed, ids):
    settings.SECRET_KEY, settings.API_KEY_SECRET = f"{RANDOM}{RANDOM[::-1]}", RANDOM[::-1]
    for name, value in changed.items():
        setattr(settings, name, value)
    warnings = [
        check for check in run_checks(include_deployment_checks=True) if (check.id or "").startswith("accounts.")
    ]
    assert [check.id for check in warnings] == [f"accounts.{number}" for number in ids]
    assert not [check for check in warnings if RANDOM in check.msg]


def test_nothing_is_migrated_by_settings_that_are_wrong(settings):
    settings.OPERATOR_ADDRESSES = ["0x12"]
    with pytest.raises(SystemCheckError, match=r"accounts\.E002"):
        call_command("migrate", skip_checks=False)


def test_a_setting_that_is_gone_is_told_in_one_sentence(monkeypatch):
    def told() -> list[str]:
        return [message.msg for message in run_checks(tags=["settings"]) if message.id == "accounts.W007"]

    assert told() == []
    monkeypatch.setenv("SENTRY_DSN_FILE", "/run/dsn")
    assert told() == ["SENTRY_DSN is no longer a setting: errors are in the log. Remove it."]


def test_a_field_of_the_chains_file_that_is_gone_is_accepted_and_told(settings, configure_chains):
    def told() -> list[str]:
        return [message.msg for message in run_checks(tags=["settings"]) if message.id == "accounts.W007"]

    configure_chains((7, True, "http://127.0.0.1:1"))
    assert told() == []
    reconfigure(settings, "[[chains]]", "[[chains]]\ngather_seconds = 5")
    [sentence] = told()
    assert sentence.startswith("gather_seconds of ")
    assert "(7)" in sentence


@pytest.mark.parametrize(("is_hidden", "told"), [(False, []), (True, ["accounts.W008"])])
def test_a_proxy_that_hides_its_clients_is_told_before_deployment(settings, is_hidden, told):
    settings.IS_CLIENT_HIDDEN = is_hidden
    messages = run_checks(include_deployment_checks=True)
    assert [message.id for message in messages if message.id == "accounts.W008"] == told
