"""Blocks of an Arbitrum chain's parent. A stand-in for the buffer is used, because no package has the buffer's code."""

from collections.abc import Iterator

import pytest
from eth_utils.crypto import keccak

from tests.chain_fixtures import chain_fixture
from tests.contracts import block_hash_buffer
from tests.contracts.block_hash_buffer import PLACES, BlockHashBuffer
from tests.contracts.deployed import Deployed

PARENT_CHAIN_ID = 1
BLOCK = 21_000_000
HASH, OTHER_HASH = b"\x07" * 32, b"\x08" * 32
ZERO = bytes(32)


# A chain for the buffer. Other tests need chains without one.
arbitrum_chain = chain_fixture()


@pytest.fixture
def buffer(arbitrum_chain) -> Iterator[BlockHashBuffer]:
    """Yield the buffer for one test."""
    snapshot = arbitrum_chain.rpc("evm_snapshot")
    yield BlockHashBuffer(arbitrum_chain)
    assert arbitrum_chain.rpc("evm_revert", snapshot)


@pytest.fixture
def source(arbitrum_chain, buffer) -> Deployed:
    return Deployed(arbitrum_chain, "ArbitrumBufferBlockHashSource", PARENT_CHAIN_ID)


def test_nothing_is_known_before_something_is_pushed(source):
    assert [source.call("blockHash", number) for number in (0, 1, BLOCK, 2**256 - 1)] == [ZERO] * 4
    assert source.call("sourceChainId") == PARENT_CHAIN_ID


def test_only_block_hashes_pushed_to_the_buffer_are_known(buffer, source):
    hashes = [keccak(bytes([n])) for n in range(256)]
    buffer.push(BLOCK, hashes)
    assert [source.call("blockHash", BLOCK + offset) for offset in (-1, 0, 255, 256)] == [
        ZERO,
        hashes[0],
        hashes[-1],
        ZERO,
    ]


@pytest.mark.parametrize("number", [1, 2**64 - 1, 2**256 - 2])
def test_any_number_may_be_pushed(buffer, source, number):
    buffer.push(number, [HASH])
    assert source.call("blockHash", number) == HASH


def test_a_known_hash_stays_until_a_later_block_takes_its_place_and_turns_into_no_other(buffer, source):
    buffer.push(BLOCK, [HASH])
    for again in (BLOCK, BLOCK - PLACES):
        buffer.push(again, [OTHER_HASH])
        assert [source.call("blockHash", number) for number in (BLOCK, BLOCK - PLACES)] == [HASH, ZERO]
    buffer.push(BLOCK + PLACES, [OTHER_HASH])
    assert [source.call("blockHash", number) for number in (BLOCK, BLOCK + PLACES)] == [ZERO, OTHER_HASH]
    buffer.push(BLOCK, [HASH])
    assert source.call("blockHash", BLOCK) == ZERO


def test_nobody_but_the_pusher_of_the_parent_chain_makes_a_hash_known(buffer, source):
    assert buffer.contract.refusal("receiveHashes", BLOCK, [HASH]) == ("NotPusher",)
    assert source.call("blockHash", BLOCK) == ZERO


# Each code puts 32 bytes with the value 7 into memory. The codes end in different ways.
_PLANT = "0x7f" + HASH.hex() + "5f52"


@pytest.mark.parametrize(
    "code",
    ["0x", "0x00", "0xfe", _PLANT + "60205ffd", _PLANT + "601f5ff3", _PLANT + "60405ff3"],
    ids=["none", "stops", "invalid", "reverts", "31 bytes", "64 bytes"],
)
def test_without_a_working_buffer_it_vouches_for_nothing(arbitrum_chain, buffer, source, code):
    buffer.push(BLOCK, [HASH])
    arbitrum_chain.rpc("anvil_setCode", block_hash_buffer.ADDRESS, code)
    # Before the answer arrives, memory holds the selector and the number.
    selector_word = int.from_bytes(keccak(text="parentChainBlockHash(uint256)")[:4]) << 224
    assert [source.call("blockHash", number) for number in (0, BLOCK, selector_word, 2**256 - 1)] == [ZERO] * 4
    arbitrum_chain.rpc("anvil_setCode", block_hash_buffer.ADDRESS, _PLANT + "60205ff3")
    assert source.call("blockHash", BLOCK) == HASH


def test_asking_for_a_hash_costs_two_cold_reads(buffer, source):
    buffer.push(BLOCK, [HASH])
    data = source.calldata("blockHash", BLOCK)
    zeros = data.count(0)
    used = int(source.send("blockHash", BLOCK)["gasUsed"], 16)
    # Calldata gas: EIP-2028. A cold account costs 2,600, and a cold slot 2,100 (EIP-2929).
    assert 4_700 < used - 21_000 - 4 * zeros - 16 * (len(data) - zeros) < 5_400
