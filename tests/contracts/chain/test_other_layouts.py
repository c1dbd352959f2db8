"""Headers with additional fields, which the registry and Python must read alike."""

import pytest
from eth_utils.crypto import keccak

from chains.tries import packed
from chains.tries.header import Header
from chains.tries.packed import AccountToProve, encode, encode_parent_hash
from proving import facts
from queries.columns import HeaderField
from tests import headers
from tests.contracts import decoder, tries

ALICE = b"\xa1" * 20
LEAF = tries.leaf(keccak(ALICE), tries.account(7, 5 * 10**18))
STATE_ROOT = b"\x03" * 32
ALL_LAYOUTS = headers.ETHEREUM | headers.OTHERS


@pytest.fixture(params=ALL_LAYOUTS.values(), ids=list(ALL_LAYOUTS))
def fields(request) -> headers.Fields:
    """Return the fields of block 12. Its state contains Alice."""
    header_fields: headers.Fields = request.param | {"stateRoot": keccak(LEAF)}
    return header_fields


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
    assert set(words) >= {HeaderField(index) for index in range(13)}
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


@pytest.mark.parametrize("slot", [b"", b"\1", b"\x80", b"\xff" * 8, b"\0\1"])
def test_the_fields_of_the_next_fork_are_stored_as_a_header_has_them(registry, source, slot):
    encoded = headers.encode(headers.AMSTERDAM, slotNumber=slot)
    source.send("set", 12, keccak(encoded))
    registry.send_raw(encode(encoded, STATE_ROOT, header_fields=[21, 22]))
    assert registry.call("headerField", 12, 21) == headers.AMSTERDAM["blockAccessListHash"]
    assert registry.call("headerField", 12, 22) == slot.rjust(32, b"\0")
    # The service knows no number with a leading zero, so the layout isn't known to be Ethereum's.
    words = facts.header_words(Header.decode(encoded))
    assert words.get(HeaderField.SLOT_NUMBER) == (None if slot[:1] == b"\0" else slot.rjust(32, b"\0"))


@pytest.mark.parametrize(
    ("more", "known"), [({}, 22), ({"slotNumber": 7, "later": b"\1"}, 13)], ids=["22 fields", "24"]
)
def test_headers_with_one_field_less_or_more_than_the_next_fork(registry, source, more, known):
    before = {name: value for name, value in headers.AMSTERDAM.items() if name != "slotNumber"}
    encoded = headers.encode(before | more)
    source.send("set", 12, keccak(encoded))
    registry.send_raw(encode(encoded, STATE_ROOT, header_fields=[21]))
    assert registry.call("headerField", 12, 21) == before["blockAccessListHash"]
    assert len(Header.decode(encoded).fields) == known
