"""What the operator's money pays for, and the sentence where it pays for nothing."""

from dataclasses import replace

import pytest
from proving.transactions.funds import Affordable, Costs, Funds

from chains.chains_file import Chain
from proving.models import Signer
from proving.transactions import funds
from proving.transactions.fees import MarketFees, OfferedFees
from tests.service import SIGNER

GWEI = 10**9
ETHER = 10**18
CHAIN = Chain(id=31337, name="Test chain", rpc_urls=("http://127.0.0.1:1",))
# What 1,000,000 gas takes: 0.01 ETH now, 0.02 ETH if the base fee doubles.
MARKET = MarketFees(base_and_tip=10 * GWEI, offer=OfferedFees(20 * GWEI, GWEI), least=11 * GWEI)
ONE = Costs(10**6, 0)
RICH = Funds(cap=150 * GWEI, balance=ETHER, free=ETHER, left_today=None)


def has(**changes) -> Funds:
    return replace(RICH, **changes)


@pytest.mark.parametrize(
    ("costs", "left", "expected"),
    [
        pytest.param([ONE] * 3, RICH, Affordable(3, 20 * GWEI), id="all"),
        pytest.param([ONE] * 3, has(cap=15 * GWEI), Affordable(3, 15 * GWEI), id="the cap bounds the price"),
        pytest.param([ONE] * 3, has(free=ETHER // 20), Affordable(2, 20 * GWEI), id="what is free does for two"),
        pytest.param([ONE] * 3, has(left_today=ETHER // 20), Affordable(2, 20 * GWEI), id="the day's limit, for two"),
        pytest.param([ONE] * 3, has(left_today=ETHER // 80), Affordable(1, 12_500_000_000), id="at a lower price"),
        pytest.param([ONE], has(left_today=ETHER // 125), Affordable(0, 20 * GWEI), id="not at the market's price"),
        pytest.param([ONE], has(left_today=-1), Affordable(0, 20 * GWEI), id="more than the limit is spent"),
        pytest.param([Costs(10**6, ETHER)], RICH, Affordable(0, 20 * GWEI), id="data costs too"),
        pytest.param([ONE, Costs(10**6, ETHER)], RICH, Affordable(1, 20 * GWEI), id="the second one's data"),
    ],
)
def test_it_pays_for_the_first_ones(costs, left, expected):
    assert funds.affordable(costs, MARKET, left) == expected


@pytest.mark.parametrize(
    ("left", "notice"),
    [
        (RICH, ""),
        (has(balance=ETHER // 200), "holds 0.005000 ETH, less than the 0.01 at which it stops. Its operator must fund"),
        (has(cap=9 * GWEI), "Gas on chain 31337 costs more than the cap of 200"),
        (
            has(free=ETHER // 100),
            "holds 1.000000 ETH, less than the 1.010000 ETH that it may have to pay. Its operator",
        ),
        (has(left_today=-1), "limit of 0.5 ETH in 24 hours on chain 31337 leaves 0.000000 ETH, and 0.010000 ETH are"),
    ],
)
def test_it_says_what_is_lacking(left, notice):
    chain = CHAIN.model_copy(update={"daily_limit": "0.5"})
    said = funds.why_too_little(chain, Signer(address=SIGNER, chain_id=31337), ONE, MARKET, left)
    assert notice in (said.sentence if said else "")
    assert bool(notice) == bool(said)
