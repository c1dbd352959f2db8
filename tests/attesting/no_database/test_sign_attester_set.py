import pytest
from django.core.management import CommandError, call_command
from eth_account import Account

from tests.attesting.process import ALICE, BOB, CHARLIE, CONTRACT, chains_file, message

pytestmark = pytest.mark.outside

ORDERED = sorted((ALICE.address, BOB.address, CHARLIE.address), key=str.lower)


@pytest.fixture(autouse=True)
def attester(settings, tmp_path) -> None:
    settings.CHAINS_FILE = chains_file(tmp_path, "http://127.0.0.1:1")


def sign_set(*addresses: str, **changed: object) -> None:
    options = {"destination": 10, "contract": CONTRACT, "nonce": 3, "threshold": 2} | changed
    call_command("sign_attester_set", *addresses, **options)


def test_a_set_is_printed_and_signed_in_the_order_that_the_contract_takes(capsys):
    sign_set(*reversed(ORDERED[:2]), ORDERED[2].lower())
    *lines, signature = capsys.readouterr().out.splitlines()
    signed = message("AttesterSet", 10, CONTRACT, ORDERED, 2, 3)
    assert Account.recover_message(signed, signature=signature) == ALICE.address
    assert lines == [
        f"For the contract {CONTRACT} on chain 10, as its change 3:",
        "2 of these 3 attesters must agree from then on:",
        *(f"  {address}" for address in ORDERED),
        f"The signature of {ALICE.address}:",
    ]


@pytest.mark.parametrize(
    ("addresses", "changed", "fault"),
    [
        ([*ORDERED, ORDERED[0]], {}, "twice"),
        ([*ORDERED, ORDERED[0].lower()], {}, "twice"),
        ([ORDERED[0], "0x12"], {}, "0x12 is not an address"),
        ([*ORDERED, f"0x{0:040x}"], {}, "zero address"),
        (ORDERED, {"contract": "0x12"}, "0x12 is not an address"),
        (ORDERED, {"threshold": 4}, "from 1 to 3"),
        (ORDERED, {"threshold": 0}, "from 1 to 3"),
        (ORDERED, {"nonce": -1}, "nonce at least 0"),
        (ORDERED, {"destination": 0}, "at least 1"),
        ([f"0x{number:040x}" for number in range(1, 102)], {}, "100 at most"),
    ],
)
def test_an_attester_set_that_contracts_would_refuse_is_not_signed(addresses, changed, fault, capsys):
    with pytest.raises(CommandError, match=fault):
        sign_set(*addresses, **changed)
    assert capsys.readouterr().out == ""
