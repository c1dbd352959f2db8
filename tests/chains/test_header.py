from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import rlp
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from chains.devchain import DevChain
from chains.header import FIELD_COUNTS, Header, InvalidHeader, verify
from tests.fixtures_folder import fixture_names, load_fixture, needs_fixtures, unhex

HASH = st.binary(min_size=32, max_size=32)
UINT64 = st.integers(0, 2**64 - 1)
UINT256 = st.integers(0, 2**256 - 1)
FIELDS = [
    *(HASH, HASH, st.binary(min_size=20, max_size=20), HASH, HASH, HASH, st.binary(min_size=256, max_size=256)),
    *(UINT256, UINT64, UINT64, UINT64, UINT64, st.binary(max_size=100), HASH, st.binary(min_size=8, max_size=8)),
    *(UINT256, HASH, UINT64, UINT64, HASH, HASH, HASH, UINT64),
]
HEADERS = st.sampled_from(FIELD_COUNTS).flatmap(lambda count: st.tuples(*FIELDS[:count]))

PRAGUE = Header(
    parent_hash=b"\1" * 32,
    uncles_hash=b"\2" * 32,
    coinbase=bytes(20),
    state_root=b"\3" * 32,
    transactions_root=b"\4" * 32,
    receipts_root=b"\5" * 32,
    logs_bloom=bytes(256),
    difficulty=0,
    number=100,
    gas_limit=30_000_000,
    gas_used=21_000,
    timestamp=1_700_000_000,
    extra_data=b"extra",
    mix_hash=bytes(32),
    nonce=bytes(8),
    base_fee_per_gas=7,
    withdrawals_root=b"\6" * 32,
    blob_gas_used=0,
    excess_blob_gas=0,
    parent_beacon_block_root=b"\7" * 32,
    requests_hash=b"\x08" * 32,
)


def real_headers() -> list[tuple[str, str]]:
    return [
        (one["headerRlp"], one.get("blockHash") or one["hash"])
        for name in fixture_names()
        for content in [load_fixture(name)]
        for one in content.get("headers", [content])
    ]


@needs_fixtures
def test_real_headers_are_read_and_written_byte_for_byte():
    headers = real_headers()
    assert len(headers) >= 12
    for encoded, block_hash in headers:
        header = verify(unhex(encoded), unhex(block_hash))
        assert header.encode() == unhex(encoded)
        assert header.hash == unhex(block_hash)


@needs_fixtures
def test_a_chain_of_real_headers_is_linked_by_parent_hashes():
    headers = [Header.decode(unhex(one["headerRlp"])) for one in load_fixture("goerli_header_chain_5.json")["headers"]]
    headers.sort(key=lambda header: header.number)
    assert len(headers) == 5
    for parent, child in pairwise(headers):
        assert child.parent_hash == parent.hash


@needs_fixtures
def test_a_real_prague_header_has_its_state_root_and_requests_hash():
    content = load_fixture("mainnet_26050794_header_prague.json")
    header = Header.decode(unhex(content["headerRlp"]))
    assert header.number == content["blockNumber"]
    assert header.state_root == unhex(content["stateRoot"])
    assert header.requests_hash is not None
    assert header.block_access_list_hash is None


@settings(derandomize=True, max_examples=100, deadline=None, database=None)
@given(HEADERS)
def test_every_form_survives_encoding_and_decoding(values):
    header = Header(*values)
    assert Header.decode(header.encode()) == header
    assert rlp.decode(header.encode()) == [
        value if isinstance(value, bytes) else rlp.sedes.big_endian_int.serialize(value) for value in values
    ]


@pytest.mark.parametrize("hardfork", ["london", "paris", "shanghai", "cancun", "prague", "osaka"])
def test_headers_of_a_node_of_each_fork_have_the_hash_that_it_says(hardfork):
    with DevChain(hardfork=hardfork) as chain:
        chain.mine(1)
        block = chain.rpc("eth_getBlockByNumber", "latest", False)
    assert Header.from_rpc(block).hash == unhex(block["hash"])


@pytest.mark.parametrize("count", [count for count in range(1, 26) if count not in FIELD_COUNTS])
def test_it_refuses_other_numbers_of_fields(count):
    fields = [*rlp.decode(PRAGUE.encode()), b"\x09" * 32, b"\x01", b"", b""][:count]
    with pytest.raises(InvalidHeader, match=rf"a list of {count};"):
        Header.decode(rlp.encode(fields))


def changed(place: int, value: Any) -> bytes:
    fields = list(rlp.decode(PRAGUE.encode()))
    fields[place] = value
    encoded: bytes = rlp.encode(fields)
    return encoded


@pytest.mark.parametrize(
    ("encoded", "fault"),
    [
        (b"", "canonical"),
        (PRAGUE.encode() + b"\0", "canonical"),
        (PRAGUE.encode()[:-1], "canonical"),
        (b"\xc1" * 5000, "canonical"),
        (rlp.encode(b"header"), "no list"),
        (changed(0, b"\1" * 31), "parent_hash is not 32 bytes"),
        (changed(2, b"\1" * 21), "coinbase is not 20 bytes"),
        (changed(3, [b"\1" * 32]), "state_root is not 32 bytes"),
        (changed(6, b""), "logs_bloom is not 256 bytes"),
        (changed(8, b"\0\x64"), "number is not a canonical integer"),
        (changed(8, b"\1" * 9), "number is not a canonical integer"),
        (changed(11, [b"\1"]), "timestamp is not a canonical integer"),
        (changed(12, [b"extra"]), "extra_data is not bytes"),
        (changed(14, b"\0" * 9), "nonce is not 8 bytes"),
        (changed(15, b"\1" * 33), "base_fee_per_gas is not a canonical integer"),
        (changed(17, b"\0"), "blob_gas_used is not a canonical integer"),
    ],
)
def test_it_refuses_malformed_headers(encoded, fault):
    with pytest.raises(InvalidHeader, match=fault):
        Header.decode(encoded)


def test_it_refuses_a_long_length_in_place_of_a_short_one():
    # A list's length written with a leading zero byte says the same in another form.
    encoded = PRAGUE.encode()
    assert encoded[0] == 0xF9
    with pytest.raises(InvalidHeader, match="canonical"):
        Header.decode(b"\xfa\0" + encoded[1:])


def test_it_refuses_a_header_of_another_hash():
    assert verify(PRAGUE.encode(), keccak(PRAGUE.encode())) == PRAGUE
    with pytest.raises(InvalidHeader, match="hash"):
        verify(PRAGUE.encode(), bytes(32))


def test_it_refuses_to_encode_fields_of_no_fork():
    with pytest.raises(InvalidHeader, match="no known fork"):
        replace(PRAGUE, withdrawals_root=None).encode()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stateRoot", None),
        ("stateRoot", "0x12"),
        ("number", "12"),
        ("number", 12),
        ("number", "0x10000000000000000"),
        ("nonce", None),
        ("withdrawalsRoot", None),
        ("extraData", "0x1"),
    ],
)
def test_it_refuses_malformed_blocks_of_a_node(devchain, key, value):
    block = devchain.rpc("eth_getBlockByNumber", "latest", False)
    with pytest.raises(InvalidHeader):
        Header.from_rpc({**block, key: value})
