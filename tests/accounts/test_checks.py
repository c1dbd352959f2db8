import pytest

from accounts.checks import check_allowed_addresses
from tests.accounts.wallets import ALICE


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
    assert [message.id for message in check_allowed_addresses()] == ids


def test_it_says_that_the_chains_can_not_be_read(settings, configure_chains):
    settings.CHAINS_FILE.write_text("nonsense")
    (message,) = check_allowed_addresses()
    assert message.id == "accounts.W002"
