"""`chains/prices.py` has each price of the EVM, and nothing else of the service does."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from chains.prices import AMSTERDAM, OSAKA, Load
from devnet.devchain import PROJECT

PRICES = {21_000, 22_100, 53_000, 110_020, 97_920, 183_600, 2**24}
FOLDERS = ("accounts", "api", "attesting", "chains", "client", "config", "contracts", "explorer", "proving", "queries")
FILES = ("*.py", "*.js", "*.html")

_POWER = re.compile(r"(?<![\w.])(\d+) ?(\*\*|\^|<<) ?(\d+)(?![\w.])|\bpow\((\d+), ?(\d+)\)")
_NUMBER = re.compile(
    r"(?<![\w.])(0x[0-9a-f_]+|\d+(?:[_,]\d{3})+|\d[\d_]*(?:\.\d+)?(?:e\d+)?)n?(?!\w|\.\d)", re.IGNORECASE
)


def numbers(line: str) -> Iterator[float]:
    """Yield the numbers of a line of Python, JavaScript or text, in each usual spelling."""
    for base, operator, exponent, of_pow, by in _POWER.findall(line):
        if int(exponent or by) < 64:
            yield int(base) << int(exponent) if operator == "<<" else int(base or of_pow) ** int(exponent or by)
    for number in _NUMBER.findall(line):
        digits = re.sub("[_,]", "", number.lower())
        yield int(digits, 16) if digits.startswith("0x") else float(digits)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "gas = 21000",
            "gas=21_000,",
            "<b>21,000</b> gas",
            '"0x5208"',
            "21e3",
            "2.1e4",
            "0X52_08",
            "21000n",
            "(21_000)",
        ),
        *(
            "2**24",
            "2 ** 24",
            "1 << 24",
            "2^24",
            "Math.pow(2, 24)",
            "pow(2, 24)",
            "16_777_216;",
            "16777216",
            "0x1000000",
        ),
    ],
)
def test_a_price_is_found_in_each_usual_spelling(line):
    assert PRICES & {*numbers(line)}


@pytest.mark.parametrize(
    "line", ["0x21000", "121_000", "21,0001", "21_000_000", "2**240", "a21000", "#21000f", "1.21000"]
)
def test_another_number_is_no_price(line):
    assert not PRICES & {*numbers(line)}


def test_no_other_module_script_or_template_has_a_price():
    folders = [PROJECT / folder for folder in (*FOLDERS, "static/js", "templates")]
    files = {path for folder in folders for kind in FILES for path in folder.rglob(kind)}
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in files - {PROJECT / "chains" / "prices.py"}
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PRICES & {*numbers(line)}
    ]
    assert found == []
    of_each_kind = {"proving/packing/packs.py", "static/js/sending.js", "templates/base.html", "chains/prices.py"}
    assert {PROJECT / name for name in of_each_kind} <= files


# --- Limits -----------------------------------------------------------------------------------------------------------

SLOT = Load(execution=20_000, words=1)
# In order: the record, the gas limit of a block, a number of slots, the transactions of the operator, and of a wallet.
SLOTS = {
    "today": (OSAKA, 60_000_000, 308, 1, 1),
    "today, with one slot more": (OSAKA, 60_000_000, 309, 2, 2),
    "a hundred slots at the usual limit": (AMSTERDAM, 60_000_000, 100, 1, 2),
    "words for a quarter of a block": (AMSTERDAM, 60_000_000, 153, 1, 2),
    "words for more": (AMSTERDAM, 60_000_000, 154, 2, 2),
    "a small block": (AMSTERDAM, 30_000_000, 100, 2, 2),
    "30 million gas in all": (AMSTERDAM, 200_000_000, 230, 1, 3),
    "more gas in all": (AMSTERDAM, 200_000_000, 231, 2, 3),
}


@pytest.mark.parametrize(("record", "block_gas", "slots", "operator", "wallet"), SLOTS.values(), ids=SLOTS)
def test_a_transaction_s_execution_and_new_words_have_limits_of_their_own(record, block_gas, slots, operator, wallet):
    prices, load = replace(record, block_gas=block_gas), SLOT * slots
    for sender, transactions in ((prices, operator), (prices.of_wallets, wallet)):
        assert sender.transactions_for(load, 13_000_000) == transactions
        assert sender.fits(load, 13_000_000) == (transactions == 1)


def test_the_block_limits_a_transaction_after_the_fork_and_wallets_know_an_earlier_limit():
    for record, block_gas, operator, wallet in (
        (OSAKA, 60_000_000, 2**24, 2**24),
        (OSAKA, 10_000_000, 10_000_000, 10_000_000),
        (AMSTERDAM, 60_000_000, 60_000_000, 2**24),
        (AMSTERDAM, 2**40, 2**32 - 1, 2**24),
        (AMSTERDAM, 0, 2**32 - 1, 2**24),
    ):
        prices = replace(record, block_gas=block_gas)
        assert (prices.max_gas, prices.of_wallets.max_gas) == (operator, wallet)
