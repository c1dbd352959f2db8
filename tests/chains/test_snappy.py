"""Snappy's frames (google/snappy, `framing_format.txt`, `format_description.txt`), and what is none."""

import random

import pytest

from chains.beacon.snappy import InvalidSnappy, unpack

NAME = b"\xff\x06\0\0sNaPpY"


def frame(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + (len(content) + 4).to_bytes(3, "little") + bytes(4) + content


def test_frames_are_joined_and_others_skipped():
    stream = NAME + frame(1, b"plain ") + frame(0x80, b"padding") + frame(0, b"\x04\x0cpack") + NAME + frame(1, b"ed")
    assert unpack(stream, 100) == b"plain packed"
    assert unpack(b"", 100) == b""


def test_literals_and_copies_of_all_sizes():
    long = random.Random(1).randbytes(300)
    cases = {
        b"\x0c\x08abc\x01\x03\x06\x03\0\x07\x03\0\0\0\x00x": b"abcabcabcabx",
        b"\xac\x02\xf4\x2b\x01" + long: long,
        # One byte again and again: a copy overlaps with what it makes.
        b"\x41\x00a\xfe\x01\0": b"a" * 65,
        # A distance of eleven bits.
        b"\xb0\x02\xf4\x2b\x01" + long + b"\x21\x2c": long + long[:4],
    }
    for block, expected in cases.items():
        assert unpack(frame(0, block), 1000) == expected


def test_no_more_is_unpacked_than_may_be():
    stream = frame(1, bytes(60)) + frame(0, b"\x41\x00a\xfe\x01\0")
    assert len(unpack(stream, 125)) == 125
    with pytest.raises(InvalidSnappy, match="holds more than 124 bytes"):
        unpack(stream, 124)
    # A frame holds 65,536 bytes at most.
    bomb = frame(0, b"\x80\x80\x40\x00a" + b"\xfe\x01\0" * 16_000)
    with pytest.raises(InvalidSnappy, match="block holds more than 65536 bytes"):
        unpack(bomb, 10**9)


def test_enough_may_be_all_there_is():
    stream = frame(1, b"first") + frame(1, b"second")
    for enough in range(6):
        assert unpack(stream[:13], 100, enough=enough).startswith(b"first"[:enough])
    assert unpack(stream + b"\1rubbish", 100, enough=11) == b"firstsecond"
    with pytest.raises(InvalidSnappy, match="cut"):
        unpack(stream[:-1], 100, enough=6)


def test_a_length_without_end_is_not_read():
    """Each of its bytes would be added to a number as long as what comes before: ten megabytes would take hours."""
    with pytest.raises(InvalidSnappy, match="block is cut"):
        unpack(frame(0, b"\xff" * 12 * 1024**2), 100)


@pytest.mark.parametrize(
    "stream",
    [
        frame(1, b"plain")[:-1],
        b"\0",
        frame(2, b"unknown"),
        frame(0x7F, b"unknown"),
        frame(0, b""),
        frame(0, b"\xff"),
        frame(0, b"\x84\x80\x80\x80\x80\x00\x0cpack"),
        frame(0, b"\x05\x0cpack"),
        frame(0, b"\x03\x0cpack"),
        frame(0, b"\x04\x10pack"),
        frame(0, b"\x05\x00a\x01\x02"),
        frame(0, b"\x05\x00a\x01\x00"),
        frame(0, b"\x05\x00a\x01"),
        frame(0, b"\x05\xf0"),
    ],
    ids=repr,
)
def test_what_is_no_stream(stream):
    with pytest.raises(InvalidSnappy):
        unpack(stream, 100)
