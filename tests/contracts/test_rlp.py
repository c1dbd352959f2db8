import pytest
import rlp

INVALID, STRING, LIST = 0, 1, 2


@pytest.mark.parametrize("length", [0, 1, 2, 54, 55, 56, 57, 255, 256, 257, 65_535, 65_536])
@pytest.mark.parametrize("after", [b"", b"\x80\x00"], ids=["alone", "followed"])
def test_it_decodes_strings_and_lists_of_any_length(harness, length, after):
    content = b"\x80" * length
    string = rlp.encode(content)
    assert harness.call("decode", string + after) == (STRING, content, len(string))
    # A list of that many empty strings has the same bytes inside.
    items = rlp.encode([b""] * length)
    assert harness.call("decode", items + after) == (LIST, content, len(items))


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x7F])
def test_a_small_byte_is_its_own_encoding(harness, byte):
    assert harness.call("decode", bytes([byte])) == (STRING, bytes([byte]), 1)
    assert harness.call("decode", bytes([0x81, byte]))[0] == INVALID


@pytest.mark.parametrize("byte", [0x80, 0xFF])
def test_a_large_byte_has_a_prefix(harness, byte):
    assert harness.call("decode", bytes([0x81, byte])) == (STRING, bytes([byte]), 2)


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x81", id="string without its byte"),
        pytest.param(b"\xb7" + bytes(54), id="string cut"),
        pytest.param(b"\xc1", id="list without its byte"),
        pytest.param(b"\xf7" + bytes(54), id="list cut"),
        pytest.param(b"\xb8", id="long string without its length"),
        pytest.param(b"\xb9\x01", id="long string with half of its length"),
        pytest.param(b"\xb8\x38" + bytes(55), id="long string cut"),
        pytest.param(b"\xf8\x38" + bytes(55), id="long list cut"),
        pytest.param(b"\xb8\x37" + bytes(55), id="long form of a short string"),
        pytest.param(b"\xf8\x37" + bytes(55), id="long form of a short list"),
        pytest.param(b"\xb9\x00\x38" + bytes(56), id="string length with a leading zero"),
        pytest.param(b"\xf9\x00\x38" + bytes(56), id="list length with a leading zero"),
        pytest.param(b"\xbf" + b"\xff" * 8 + bytes(64), id="string of 2^64-1 bytes"),
        pytest.param(b"\xff" + b"\xff" * 8 + bytes(64), id="list of 2^64-1 bytes"),
    ],
)
def test_it_refuses_what_is_not_canonical_or_not_whole(harness, encoded):
    assert harness.call("decode", encoded) == (INVALID, b"", 0)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 255, 256, 2**64 - 1, 2**64, 2**256 - 1])
def test_it_takes_an_integer_and_leaves_the_rest(harness, value):
    assert harness.call("takeInteger", rlp.encode(value) + b"rest") == (True, value, b"rest")


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"\x00", id="zero as a byte"),
        pytest.param(b"\x82\x00\x80", id="leading zero"),
        pytest.param(b"\xa1\x01" + bytes(32), id="33 bytes"),
        pytest.param(b"\xc0", id="list"),
        pytest.param(b"\xc1\x01", id="list of an integer"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_it_refuses_what_is_no_canonical_integer(harness, encoded):
    assert harness.call("takeInteger", encoded)[0] is False
