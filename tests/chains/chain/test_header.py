from typing import Any

import pytest
import rlp
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from chains.tries.header import FEWEST_FIELDS, MOST_FIELDS, SHARED_FIELDS, Header, InvalidHeader, UnknownLayout, verify
from devnet.devchain import DevChain
from tests import headers
from tests.fixtures_folder import fixture_names, load_fixture, unhex

HASH = st.binary(min_size=32, max_size=32)
ROOT = HASH.filter(any)
UINT64 = st.integers(0, 2**64 - 1)
UINT128 = st.integers(0, 2**128 - 1)
UINT256 = st.integers(0, 2**256 - 1)
FIELDS = [
    *(HASH, HASH, st.binary(min_size=20, max_size=20), ROOT, HASH, HASH, st.binary(min_size=256, max_size=256)),
    *(UINT256, UINT64, UINT64, UINT64, UINT64, st.binary(max_size=100), HASH, st.binary(min_size=8, max_size=8)),
    *(UINT128, HASH, UINT64, UINT64, HASH, HASH, HASH, UINT64),
]
ETHEREUMS = st.integers(FEWEST_FIELDS, MOST_FIELDS).flatmap(lambda count: st.tuples(*FIELDS[:count]))

PRAGUE = headers.encode(headers.PRAGUE)


def real_headers() -> list[tuple[str, str]]:
    contents = [load_fixture(name) for name in fixture_names()]
    rollups = [load_fixture(f"rollups/{name}") for name in fixture_names("rollups/*.json")]
    return [
        (block.get("headerRlp") or block["rlpBlockHeader"], block.get("blockHash") or block["hash"])
        for content in contents + rollups
        for block in content.get("headers", [content])
    ]


def test_real_headers_of_ethereum_and_arbitrum_are_known_in_all_their_fields():
    blocks = real_headers()
    assert len(blocks) >= 5
    for encoded, block_hash in blocks:
        header = verify(unhex(encoded), unhex(block_hash))
        assert header.encode() == unhex(encoded)
        assert header.hash == unhex(block_hash)
        assert list(header.fields) == rlp.decode(unhex(encoded))
        assert header.is_ethereums


@pytest.mark.long
@settings(derandomize=True, max_examples=100, deadline=None, database=None)
@given(ETHEREUMS)
def test_headers_with_any_valid_number_of_ethereums_fields_are_read(values):
    encoded = rlp.encode(values)
    header = verify(encoded, keccak(encoded))
    assert list(header.fields) == rlp.decode(encoded)
    assert (header.parent_hash, header.state_root) == (values[0], values[3])
    assert (header.number, header.timestamp) == (values[8], values[11])
    assert header.base_fee_per_gas == (values[15] if len(values) > 15 else None)


@pytest.mark.parametrize("hardfork", ["london", "paris", "shanghai", "cancun", "prague", "osaka"])
def test_headers_of_a_node_of_each_fork_have_the_hash_that_it_says(hardfork):
    with DevChain(hardfork=hardfork) as chain:
        chain.mine(1)
        block = chain.rpc("eth_getBlockByNumber", "latest", False)
    header = Header.from_rpc(block)
    assert header.hash == unhex(block["hash"])
    assert header.base_fee_per_gas == int(block["baseFeePerGas"], 16)


# --- Other layouts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", headers.OTHERS.values(), ids=headers.OTHERS.keys())
def test_of_another_layout_only_the_first_fields_are_known(fields):
    header = Header.decode(headers.encode(fields))
    assert list(header.fields) == rlp.decode(headers.encode(headers.SHARED, difficulty=fields["difficulty"]))
    assert not header.is_ethereums
    assert header.base_fee_per_gas is None
    assert (header.number, header.timestamp) == (12, 1_700_000_000)
    assert (header.parent_hash, header.state_root) == (b"\x01" * 32, b"\x03" * 32)


def resealed(block: dict[str, Any], *changed: Any) -> dict[str, Any]:
    """Return the block with the given end of its extra data: another round or other seals."""
    extra_data = unhex(block["extraData"])
    start = 32 if block in (headers.IBFT_BLOCK, headers.HOTSTUFF_BLOCK) else 0
    items = rlp.decode(extra_data[start:])
    items[len(items) - len(changed) :] = changed
    return block | {"extraData": "0x" + (extra_data[:start] + rlp.encode(items)).hex()}


QBFT_BLOCK = resealed(headers.QBFT_GENESIS, b"\2", [b"\xaa" * 65, b"\xbb" * 65])


@pytest.mark.parametrize(
    "block",
    [
        headers.IBFT_BLOCK,
        # Seals are not hashed, so a block with other seals proves the same facts.
        resealed(headers.IBFT_BLOCK, [b"\xaa" * 65]),
        headers.IBFT_2_BLOCK,
        resealed(headers.IBFT_2_BLOCK, bytes(4), [b"\xaa" * 65]),
        headers.QBFT_GENESIS,
        QBFT_BLOCK,
        headers.HOTSTUFF_BLOCK,
    ],
)
def test_a_header_holds_of_the_extra_data_what_the_hash_is_made_of(block):
    header = Header.from_rpc(block)
    assert header == verify(header.encode(), unhex(block["hash"]))
    assert header.is_ethereums
    assert len(header.fields) == FEWEST_FIELDS


AURA_SEALS = ("sealFields", "step", "signature")


@pytest.mark.parametrize(
    "seals",
    [
        {name: headers.SOKOL_BLOCK[name] for name in AURA_SEALS},
        {"sealFields": headers.SOKOL_BLOCK["sealFields"], "mixHash": None, "nonce": None},
        # Nethermind and Erigon return these fields.
        {"step": 302674395, "signature": "0x" + headers.SOKOL_BLOCK["signature"]},
        {
            "auraStep": "0x120a71db",
            "auraSeal": "0x" + headers.SOKOL_BLOCK["signature"],
            "mixHash": "0x" + 32 * "00",
            "nonce": "0x" + 8 * "00",
        },
    ],
)
def test_auras_seals_are_read_by_the_names_of_each_node(seals):
    block = {name: value for name, value in headers.SOKOL_BLOCK.items() if name not in AURA_SEALS}
    header = Header.from_rpc(block | seals)
    assert header.hash == unhex(block["hash"])
    assert (header.number, len(header.fields)) == (34, SHARED_FIELDS)


def test_seals_besides_mix_hash_and_nonce_say_the_same():
    """Parity returned these fields for blocks of Ethereum."""
    block = headers.as_json(headers.FRONTIER)
    header = Header.from_rpc(block | {"sealFields": [block["mixHash"], block["nonce"]]})
    assert header.encode() == headers.encode(headers.FRONTIER)


NESTED = b""
# From 500 levels on, Python 3.13 can not encode what it can decode; older ones from 350 on.
for _ in range(700):
    NESTED = rlp.codec.length_prefix(len(NESTED), 0xC0) + NESTED


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (headers.HYPEREVM_BLOCK, "The header has no state root: the field is zero"),
        (headers.IBFT_BLOCK | {"gasLimit": "0x1"}, "neither with nor without the seals"),
        (resealed(headers.IBFT_BLOCK, b"\xaa" * 65, []), "neither with nor without the seals"),
        (resealed(headers.IBFT_2_BLOCK, b"\1", bytes(4), []), "neither with nor without the seals"),
        (resealed(headers.QBFT_GENESIS, [b"\xaa" * 20, b""], b"", []), "neither with nor without the seals"),
        (headers.SOKOL_BLOCK | {"sealFields": ["0x" + NESTED.hex()]}, "too deeply to be read"),
    ],
)
def test_invalid_fields_of_a_known_layout_are_refused_by_name(block, fault):
    with pytest.raises(InvalidHeader, match=fault) as caught:
        Header.from_rpc(block)
    assert not isinstance(caught.value, UnknownLayout)


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (
            headers.SOKOL_BLOCK | {"sealFields": ["0x84120a71dc", "0x00"]},
            "whose fields don't give its hash",
        ),
        (headers.SOKOL_BLOCK | {"sealFields": None, "signature": None}, "which has no mixHash"),
        (headers.IBFT_BLOCK | {"mixHash": "0x" + 31 * "00"}, "whose mixHash is 31 bytes instead of 32"),
        (headers.IBFT_BLOCK | {"nonce": "0x0"}, "whose nonce is data that is not hexadecimal"),
        (headers.SOKOL_BLOCK | {"sealFields": ["0x84120a71"]}, "with a seal that is not canonical RLP"),
        (headers.SOKOL_BLOCK | {"sealFields": None}, "with a seal that is"),
        (headers.SOKOL_BLOCK | {"sealFields": None, "step": -1}, "with a seal that is"),
        (headers.HYPEREVM_BLOCK | {"sha3Uncles": None}, "which has no sha3Uncles"),
        (headers.HYPEREVM_BLOCK | {"gasLimit": "0x1"}, "whose fields don't give its hash"),
    ],
)
def test_fields_of_an_unknown_layout_are_refused_as_unknown_layout(block, fault):
    with pytest.raises(UnknownLayout, match=fault):
        Header.from_rpc(block)


def test_a_hash_is_no_base_fee_whatever_a_node_calls_it():
    lie = headers.as_json(headers.FRONTIER | {"baseFeePerGas": int.from_bytes(b"\xe1" * 32)})
    assert lie["hash"] == headers.as_json(headers.AVALANCHE_AT_FIRST, difficulty=0)["hash"]
    with pytest.raises(InvalidHeader, match="baseFeePerGas is more than 16 bytes"):
        Header.from_rpc(lie)


# --- Malformed headers ------------------------------------------------------------------------------------------------


def changed(index: int, value: Any) -> bytes:
    fields = list(rlp.decode(PRAGUE))
    fields[index] = value
    encoded: bytes = rlp.encode(fields)
    return encoded


@pytest.mark.parametrize(
    ("encoded", "fault"),
    [
        (b"", "is not an RLP list, or is too short"),
        (PRAGUE + b"\0", "is not an RLP list, or is too short"),
        (PRAGUE[:-1], "is not an RLP list, or is too short"),
        (b"\xc1" * 5000, "is not an RLP list, or is too short"),
        # The list's length must not begin with a zero byte.
        (b"\xfa\0" + PRAGUE[1:], "is not an RLP list, or is too short"),
        (rlp.encode(b"header" * 100), "is not an RLP list, or is too short"),
        (changed(0, b"\1" * 31), "first fields have wrong sizes"),
        (changed(2, b"\1" * 21), "first fields have wrong sizes"),
        (changed(3, [b"\1" * 32]), "first fields have wrong sizes"),
        (changed(6, b""), "first fields have wrong sizes"),
        (changed(3, bytes(32)), "no state root"),
        (changed(7, b"\1" * 33), "no difficulty"),
        (changed(7, []), "is a list, or its length"),
        (changed(8, b"\0\x64"), "number is not a canonical integer"),
        (changed(8, b"\1" * 9), "number is not a canonical integer"),
        (changed(8, [b"\1"]), "is a list, or its length"),
        (changed(9, [b"\1"]), "is a list, or its length"),
        (changed(11, b"\1" * 9), "timestamp is not a canonical integer"),
        (changed(11, [b"\1"]), "is a list, or its length"),
        (rlp.encode(rlp.decode(PRAGUE)[:11]), "no timestamp"),
    ],
)
def test_malformed_header_encodings_are_refused(encoded, fault):
    with pytest.raises(InvalidHeader, match=fault):
        Header.decode(encoded)


def test_a_header_with_another_hash_is_refused():
    assert verify(PRAGUE, keccak(PRAGUE)) == Header.decode(PRAGUE)
    with pytest.raises(InvalidHeader, match="hash"):
        verify(PRAGUE, bytes(32))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stateRoot", None),
        ("stateRoot", "0x12"),
        ("stateRoot", "0x" + "12" * 32),
        ("number", "12"),
        ("number", 12),
        ("number", "0x10000000000000000"),
        ("nonce", None),
        ("withdrawalsRoot", None),
        ("extraData", "0x1"),
        ("hash", None),
        ("hash", "0x" + "12" * 32),
        ("extDataHash", "0x" + "12" * 32),
    ],
)
def test_malformed_blocks_of_a_node_are_refused(devchain, key, value):
    block = devchain.rpc("eth_getBlockByNumber", "latest", False)
    with pytest.raises(InvalidHeader):
        Header.from_rpc({**block, key: value})
