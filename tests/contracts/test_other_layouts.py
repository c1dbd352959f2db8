"""Headers of chains with fields of their own, read by the registry and in Python: both take the same ones, and read the
same in them.
"""

import random

import pytest
import rlp
from eth_utils.crypto import keccak

from chains import packed
from chains.header import Header, InvalidHeader
from chains.packed import AccountToProve, encode, encode_parent_hash
from proving import facts
from queries.columns import HeaderField
from tests import headers
from tests.contracts import decoder, tries
from tests.contracts.deployed import Deployed, Reverted

ALICE = b"\xa1" * 20
LEAF = tries.leaf(keccak(ALICE), tries.account(7, 5 * 10**18))
ALL_LAYOUTS = headers.ETHEREUM | headers.OTHERS


@pytest.fixture(params=ALL_LAYOUTS.values(), ids=list(ALL_LAYOUTS))
def fields(request) -> headers.Fields:
    """Return the fields of block 12, with Alice in its state."""
    found: headers.Fields = request.param | {"stateRoot": keccak(LEAF)}
    return found


def child_of(fields: headers.Fields) -> headers.Fields:
    time = fields["timestamp"]
    assert isinstance(time, int)
    return fields | {"parentHash": keccak(headers.encode(fields)), "number": 13, "timestamp": time + 12}


def test_an_account_is_proven_under_it_with_what_is_known_of_the_header(registry, source, fields):
    header = Header.decode(headers.encode(fields))
    source.send("set", 12, header.hash)
    words = facts.header_words(header)
    account = AccountToProve(ALICE, packed.NONCE_AND_BALANCE, [LEAF])
    proof = encode(header.encode(), header.state_root, [account], header_fields=words)
    registry.send_raw(proof)
    assert registry.call("accountField", ALICE, 12, 1) == (5 * 10**18).to_bytes(32)
    assert set(words) >= {HeaderField(place) for place in range(13)}
    for field, word in words.items():
        assert registry.call("headerField", 12, field) == word
    proven = decoder.decode(proof, block_hash=lambda _: header.hash, state_root=lambda _: None)
    assert proven.accounts[ALICE].balance == 5 * 10**18


def test_its_time_is_proven(registry, source, fields):
    header, following = headers.encode(fields), headers.encode(child_of(fields))
    source.send("set", 13, keccak(following))
    time = Header.decode(header).timestamp
    registry.send("proveTimestamp", header, following, time + 11)
    assert registry.call("tryBlockAtTimestamp", time + 11) == (True, 12)
    assert Header.decode(following).timestamp == time + 12


def test_a_walk_leads_over_it(registry, source, fields):
    header, following = headers.encode(fields), headers.encode(child_of(fields))
    source.send("set", 13, keccak(following))
    registry.send_raw(encode([following, header], keccak(LEAF)))
    assert registry.call("stateRoot", 12) == keccak(LEAF)
    registry.send_raw(encode_parent_hash([following, header]))
    assert registry.call("vouches", 11, fields["parentHash"])


# --- The same headers -------------------------------------------------------------------------------------------------


def mutated(chance: random.Random, encoded: bytes) -> bytes:
    """Another header, or none: a field changed into another form, or a few bytes of the RLP."""
    items = list(rlp.decode(encoded))
    if chance.random() < 0.5:
        place = chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 9, 10, 11, 11, 12, *range(13, len(items))])
        size = chance.choice([0, 1, 2, 8, 9, 20, 31, 32, 33, 55, 56, 255, 256, 300])
        content = chance.choice([bytes(size), chance.randbytes(size), b"\x7f", b"\x80", b"\x01" * size])
        items[place] = chance.choice([content, content, [content], []])
        if chance.random() < 0.2:
            del items[chance.randrange(len(items)) :]
        changed: bytes = rlp.encode(items)
        return changed
    # The prefixes of what the registry reads lie here.
    at = chance.choice([0, 1, 2, 3, 36, 69, 90, 123, 156, 189, 190, 191, *range(446, min(len(encoded), 520))])
    byte = chance.choice([chance.randrange(256), 0x00, 0x7F, 0x80, 0x81, 0x82, 0xA0, 0xB8, 0xB9, 0xC0, 0xF9])
    return encoded[:at] + bytes([byte]) + encoded[at + 1 :]


def refusal(registry: Deployed, calldata: bytes) -> tuple[object, ...]:
    """Nobody vouches for the header: then it is known whether it was read, and as which block's."""
    with pytest.raises(Reverted) as reverted:
        registry.call_raw(calldata)
    return reverted.value.error


def is_taken(registry: Deployed, encoded: bytes) -> bool:
    """Return whether it is a header. The registry and Python must agree, and read the same number in it."""
    answer = refusal(registry, registry.calldata("proveTimestamp", encoded, encoded, 0))
    try:
        header = Header.decode(encoded)
    except InvalidHeader:
        assert answer == ("InvalidHeader",), encoded.hex()
        return False
    assert answer == ("UnknownBlock", header.number), encoded.hex()
    return True


def test_python_takes_what_the_registry_takes(registry):
    chance = random.Random(7)
    layouts = list(ALL_LAYOUTS.values())
    taken = sum(is_taken(registry, mutated(chance, headers.encode(chance.choice(layouts)))) for _ in range(600))
    assert 150 < taken < 450, taken


# How one field may be written, in RLP or in what is none.
WRITTEN = {
    "zero": b"\x80",
    "a byte": b"\x05",
    "a zero byte": b"\x00",
    "a byte with a prefix": b"\x81\x05",
    "a high byte": b"\x81\x80",
    "8 bytes": b"\x88" + b"\x01" * 8,
    "9 bytes": b"\x89" + b"\x01" * 9,
    "a leading zero": b"\x82\x00\x05",
    "32 bytes": b"\xa0" + b"\x01" * 32,
    "33 bytes": b"\xa1" + b"\x01" * 33,
    "55 bytes": b"\xb7" + b"\x01" * 55,
    "a length for a byte": b"\xb8\x01\x05",
    "a length for 55 bytes": b"\xb8\x37" + b"\x01" * 55,
    "56 bytes": b"\xb8\x38" + b"\x01" * 56,
    "two bytes of length for 255": b"\xb9\x00\xff" + b"\x01" * 255,
    "256 bytes": b"\xb9\x01\x00" + b"\x01" * 256,
    "three bytes of length": b"\xba\x00\x01\x00" + b"\x01" * 256,
    "an empty list": b"\xc0",
    "a list": b"\xc1\x05",
    "a long list": b"\xf8\x38" + b"\x05" * 56,
    "more than there is": b"\xb9\xff\xff",
    "a few bytes more than there are": b"\x84\x01",
    "nothing": b"",
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=list(WRITTEN))
def test_both_read_a_field_alike_however_it_is_written(registry, written):
    for place in range(7, 14):
        items = [rlp.encode(item) for item in rlp.decode(headers.encode(headers.PRAGUE))]
        items[place] = written
        # With what comes after, and as the last one.
        for payload in (b"".join(items), b"".join(items[: place + 1])):
            is_taken(registry, b"\xf9" + len(payload).to_bytes(2) + payload)
