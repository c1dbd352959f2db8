"""How pages write amounts, long values and numbers."""

import re

import pytest
from django.utils.safestring import SafeString

from explorer.formatting.amounts import cost, rounded
from explorer.templatetags import explorer_values as values
from tests.service import ALICE

HASH = "0x" + "ab" * 32


def plain(html: str) -> str:
    """Return the text that a reader copies from `html`."""
    return re.sub(r"<[^>]+>", "", html)


def test_what_is_put_into_html_is_escaped_once():
    said = values.html('<i title="{}">{}</i>', '"<b>', SafeString("<u>safe</u>"))
    assert said == '<i title="&quot;&lt;b&gt;"><u>safe</u></i>'
    assert isinstance(said, SafeString)


@pytest.mark.parametrize(
    ("amount", "groups"),
    [
        ("0", ["0"]),
        ("1.5", ["1.5"]),
        ("1234", ["1", "234"]),
        ("123456.7891", ["123", "456.789", "1"]),
        ("0.000000000000000001", ["0.000", "000", "000", "000", "000", "001"]),
    ],
)
def test_digits_are_in_groups_and_copied_plain(amount, groups):
    html = values.digits(amount)
    assert re.findall(r'<span class="g">([^<]+)</span>', html) == groups
    assert plain(html) == amount


def test_a_sentence_has_its_long_values_by_their_ends_and_whole_when_copied():
    sentence = f"<b> {ALICE} sent {HASH}; 0x12 and {HASH}ff are left."
    html = values.with_short_values(sentence)
    assert re.findall(r'title="(\w+)"', html) == [ALICE, HASH]
    assert plain(html) == sentence.replace("<b>", "&lt;b&gt;")


@pytest.mark.parametrize(("slot", "is_short"), [("0x0", False), ("0x" + "f" * 18, False), ("0x1" + "0" * 30, True)])
def test_a_long_number_of_a_slot_is_shown_by_its_ends(slot, is_short):
    html = values.slot_in_short(slot)
    assert ('class="short"' in html) == is_short
    assert plain(html) == slot


def test_estimated_lengths_of_time_are_round_numbers():
    times = {29: "less than a minute", 90: "about 2 min", 7200: "about 2 h", 172_800: "about 2 days"}
    assert {seconds: values.roughly(seconds) for seconds in times} == times
    assert values.roughly(10**7 * 86_400) == "about 10,000,000 days"
    assert [values.lasting(seconds) for seconds in (29.4, 7200.0)] == ["29 s", "about 2 h"]


# --- Amounts ----------------------------------------------------------------------------------------------------------

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
