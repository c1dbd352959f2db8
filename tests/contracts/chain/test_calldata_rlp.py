"""RLP as the contracts read it in calldata. py-rlp is the model."""

from itertools import product
from typing import Any

import pytest
from eth_abi.abi import decode
from rlp.codec import consume_length_prefix
from rlp.exceptions import DecodingError

from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call
from tests.contracts.walks import REFUSAL

STRING, LIST = 0x80, 0xC0
SIZES = (
    *(0, 1, 2, 8, 31, 32, 33, 54, 55, 56, 57, 127, 128, 255, 256, 257, 65_535, 65_536),
    *(1 << 8 * digits for digits in range(3, 8)),
    *((1 << 8 * digits) - 1 for digits in range(3, 9)),
)
# The content's first bytes. The others, as far as they are sent, are 5a.
FIRST_BYTES = (0, 1, 0x7F, 0x80, 0xFF)


def prefixes(kind: int, size: int) -> list[bytes]:
    """Return the prefix of content of this size, and longer forms of it."""
    digits = (size.bit_length() + 7) // 8
    short = [bytes([kind + size])] if size < 56 else []
    return short + [
        bytes([kind + 55 + length]) + size.to_bytes(length) for length in range(max(digits, 1), min(digits + 2, 9))
    ]


TEXTS = sorted(
    {bytes([first]) + b"\x5a" * 40 for first in range(STRING)}
    | {
        prefix + bytes([first]) + b"\x5a" * 40
        for kind, size in product((STRING, LIST), SIZES)
        for prefix in prefixes(kind, size)
        for first in FIRST_BYTES
    }
)


def item(text: bytes, end: int) -> tuple[int, int, bool] | None:
    """Return where the content of the first item begins and where the item ends, and whether it is a list.

    None if it has another form than the shortest, or ends behind `end`.
    """
    try:
        _, kind, size, content = consume_length_prefix(text, 0)
    except DecodingError:
        return None
    return (content, content + size, kind is list) if content + size <= end else None


def ends(text: bytes) -> set[int]:
    """Return ends around that of the item."""
    content, end, _ = item(text, 2**65) or (1, 2**65, False)
    return {0, content, end - 1, end, end + 1}


def integer(text: bytes, end: int, most: int) -> tuple[int, int] | None:
    """Return the number in an item of at most so many bytes, and where it ends."""
    if (found := item(text, end)) is None or found[2] or found[1] - found[0] > most:
        return None
    number = text[found[0] : found[1]]
    return (int.from_bytes(number), found[1]) if number[:1] != b"\0" else None


@pytest.fixture(scope="module")
def reader(chain) -> Deployed:
    return Deployed(chain, "test/RlpReader")


@pytest.fixture(scope="module")
def read(simulator, reader):
    """Return a function that returns the answer to each list of arguments, None where it is refused."""

    def answers(function: str, types: list[str], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...] | None]:
        outcomes = simulator.run([Call(reader.address, reader.calldata(function, *row)) for row in rows])
        assert {outcome.data for outcome in outcomes if not outcome.succeeded} <= {REFUSAL}
        return [decode(types, outcome.data) if outcome.succeeded else None for outcome in outcomes]

    return answers


def test_an_item_has_its_shortest_form_and_ends_within_the_end(read):
    rows = [(text, end) for text in TEXTS for end in ends(text)]
    expected = [item(*row) for row in rows]
    assert read("item", ["uint256", "uint256", "bool"], rows) == expected
    assert len([each for each in expected if each]) > 800


def test_a_list_takes_all_bytes_to_the_end(read):
    rows = [(text, end) for text in TEXTS if text[0] >= LIST - 1 for end in ends(text)]
    found = [item(*row) for row in rows]
    expected = [
        (each[0],) if each and each[2] and each[1] == end else None for each, (_, end) in zip(found, rows, strict=True)
    ]
    assert read("list", ["uint256"], rows) == expected


@pytest.mark.parametrize("most", [0, 1, 8, 31, 32])
def test_an_integer_has_no_leading_zero_and_no_more_bytes_than_allowed(read, most):
    texts = [text for text in TEXTS if text[0] <= STRING + 34 or text[0] in {LIST, LIST + 1, LIST + 32}]
    rows = [(text, end, most) for text in texts for end in ends(text)]
    assert read("integer", ["uint256"] * 2, rows) == [integer(*row) for row in rows]


def test_a_word_has_32_bytes(read):
    rows = [(text, end) for text in TEXTS for end in ends(text)]
    expected = [
        (text[1:33], 33) if (found := item(text, end)) and not found[2] and found[1] - found[0] == 32 else None
        for text, end in rows
    ]
    assert read("word", ["bytes32", "uint256"], rows) == expected


def test_a_number_has_at_most_32_bytes(read):
    text = bytes(range(1, 41))
    rows = [(text, size) for size in range(35)]
    expected = [(int.from_bytes(text[:size]) if size <= 32 else 0,) for size in range(35)]
    assert read("number", ["uint256"], rows) == expected


# --- Items whose end the caller checks --------------------------------------------------------------------------------

MOST = 2**24 - 1


def is_kind(text: bytes, kind: int) -> bool:
    return (text[0] >= LIST) == (kind == LIST)


@pytest.mark.parametrize("kind", [STRING, LIST])
def test_a_prefix_tells_at_most_24_bits(read, kind):
    texts = [text for text in TEXTS if text[0] >= STRING]
    # Only `string_` refuses a string of one byte below 80.
    texts = [text for text in texts if text[0] != STRING + 1 or text[1] >= STRING]
    expected = [
        (found[1] - found[0], found[0])
        if is_kind(text, kind) and (found := item(text, 2**65)) and found[1] - found[0] <= MOST
        else None
        for text in texts
    ]
    assert read("prefix", ["uint256"] * 2, [(text, kind) for text in texts]) == expected


def test_a_string_without_an_end_has_its_shortest_form(read):
    expected = [
        (found[0], found[1] - found[0])
        if (found := item(text, 2**65)) and not found[2] and found[1] - found[0] <= MOST
        else None
        for text in TEXTS
    ]
    assert read("string_", ["uint256"] * 2, [(text,) for text in TEXTS]) == expected


def test_an_integer_without_an_end_has_at_most_64_bits(read):
    expected = [integer(text, 2**65, 8) for text in TEXTS]
    assert read("openInteger", ["uint256"] * 2, [(text,) for text in TEXTS]) == expected
