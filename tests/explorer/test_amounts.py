"""How amounts are written."""

import pytest

from explorer.formatting.amounts import cost, rounded

ETH = 10**18


@pytest.mark.parametrize(
    ("wei", "written"),
    [
        (0, "0"),
        (1, "0.000000000000000001"),
        (49_999_999_999_999, "0.000049999999999999"),
        (50_000_000_000_000, "0.0001"),
        (ETH // 10, "0.1"),
        (ETH, "1"),
        (ETH + 1, "1.0000"),
        (2 * ETH - 1, "2.0000"),
        (9_999_995_962_482_150_034_275, "9,999.9960"),
        (123_456_789 * ETH, "123,456,789"),
    ],
)
def test_an_amount_is_rounded_to_four_decimals_and_never_to_nothing(wei, written):
    assert rounded(wei) == written


def test_other_units_have_other_decimals():
    assert rounded(1_042_749_999, decimals=9) == "1.0427"
    assert cost(121_533_919_016_489) == "0.000122"
