import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from tests.accounts.wallets import ALICE

pytestmark = pytest.mark.outside


@pytest.mark.parametrize(
    ("allowed", "destination_is_test", "ids"),
    [
        ([], True, []),
        ([], False, ["accounts.W001"]),
        (["*"], False, []),
        ([ALICE.address, ALICE.address.lower()], False, []),
        (["0x12", ALICE.address[:-1] + "7", ALICE.address], False, ["accounts.E001", "accounts.E001"]),
    ],
)
def test_it_says_who_can_not_sign_in(settings, configure_chains, allowed, destination_is_test, ids):
    settings.ALLOWED_ADDRESSES = allowed
    configure_chains(
        (1, destination_is_test, "http://127.0.0.1:1"), (2, False, "http://127.0.0.1:1"), destinations=(1,)
    )
    assert [message.id for message in run_checks() if "accounts." in (message.id or "")] == ids


def test_it_says_that_the_chains_can_not_be_read(settings, configure_chains):
    settings.CHAINS_FILE.write_text("nonsense")
    settings.CHAINS_FILE = settings.CHAINS_FILE
    (message,) = [
        each for each in run_checks(include_deployment_checks=True) if (each.id or "").startswith("accounts.")
    ]
    assert message.id == "accounts.E003"
    assert message.msg.startswith(f"{settings.CHAINS_FILE} can't be used:\n- it is not TOML: ")


@pytest.mark.django_db
def test_nothing_is_migrated_by_settings_that_are_wrong(settings):
    settings.OPERATOR_ADDRESSES = ["0x12"]
    with pytest.raises(SystemCheckError, match=r"accounts\.E002"):
        call_command("migrate", skip_checks=False)
