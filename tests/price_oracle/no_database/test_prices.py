"""The price table, compared with what EthereumJS's EVM charges."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from chains.contract_artifacts import DEPLOYER, DEPLOYER_CODE
from chains.prices import RECORDS, GasPrices
from proving.registries.creations import Creation
from proving.registries.deployments import creation_code

_FOLDER = Path(__file__).parents[1] / "npm"
# An account without code, and a contract that answers each call with 1, the source chain's id.
_SOMEONE, _SOURCE = "0x" + "22" * 20, "0x" + "33" * 20
_ANSWERS_ONE = "0x60015f5260205ff3"
_LIMIT = 60_000_000
# Maximum gas of a constructor.
CONSTRUCTOR = 60_000

pytestmark = [
    pytest.mark.parametrize("prices", RECORDS.values(), ids=RECORDS),
    pytest.mark.skipif(
        not (_FOLDER / "node_modules" / "ready").exists(),
        reason="the oracle is not installed: make tests/price_oracle/npm/node_modules/ready",
    ),
]


def used(prices: GasPrices, *transactions: tuple[str | None, bytes], gas: int | None = None) -> Sequence[int | None]:
    """Return the gas that each transaction uses, or None if it fails. A recipient may be `self`."""
    limit = gas or (min(prices.most_gas, _LIMIT))
    asked = {
        "fork": prices.name,
        "accounts": {_SOMEONE: "0x", _SOURCE: _ANSWERS_ONE, DEPLOYER: f"0x{DEPLOYER_CODE.hex()}"},
        "transactions": [{"to": to, "data": f"0x{data.hex()}", "gas": limit} for to, data in transactions],
    }
    command = [Path(sys.executable).with_name("node"), _FOLDER / "prices.mjs"]
    done = subprocess.run(command, input=json.dumps(asked).encode(), stdout=subprocess.PIPE, check=True)
    results: list[int | None] = json.loads(done.stdout)
    return results


def test_a_transaction_takes_its_base_and_the_floor_of_its_bytes(prices: GasPrices):
    contents = [bytes(1000), b"\1" * 1000, bytes(500) + b"\1" * 500]
    least = [prices.least_limit(_SOMEONE, data) for data in contents]
    to_self, *calls = used(prices, ("self", b""), *((_SOMEONE, data) for data in contents))
    assert to_self == prices.transfer_to_self == prices.least_limit(_SOMEONE, b"")
    assert calls == least
    assert used(prices, (_SOMEONE, contents[1]), gas=least[1]) == [least[1]]


def test_new_words_and_code_take_what_the_table_says(prices: GasPrices):
    # PUSH1 1 PUSH0 SSTORE, and 32 bytes of code: PUSH1 32 PUSH0 RETURN.
    of_word, of_code = bytes.fromhex("60015f55"), bytes.fromhex("60205ff3")
    nothing, word, code = used(prices, (None, b""), (None, of_word), (None, of_code))
    created = prices.before_execution(None, b"") + prices.new_account
    assert nothing == created
    extra = [prices.before_execution(None, data) + prices.new_account for data in (of_word, of_code)]
    assert word == extra[0] + 3 + 2 + prices.new_word
    # The memory of a word takes 3.
    assert code == extra[1] + 3 + 2 + 3 + prices.code_word + 32 * prices.code_byte_state


@pytest.mark.parametrize("name", ["NativeBlockHashSource", "Multicall", "FactsRegistry"])
def test_a_deployment_needs_the_limit_that_is_asked_for(prices: GasPrices, name: str):
    arguments = {
        "NativeBlockHashSource": (8191,),
        "Multicall": (),
        "FactsRegistry": (1, _SOURCE, 8191, "0x" + "0" * 40),
    }
    creation = Creation(name, creation_code(name, *arguments[name]))
    least = creation.least_limit(prices)
    assert used(prices, (DEPLOYER, creation.data), gas=least + CONSTRUCTOR) != [None]
    assert used(prices, (DEPLOYER, creation.data), gas=least - 1) == [None]
