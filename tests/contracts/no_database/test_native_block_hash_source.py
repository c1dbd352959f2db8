from collections.abc import Iterator

import pytest

from chains.encoding import hex_data
from devnet.devchain import DevChain
from tests.chain_fixtures import chain_fixture
from tests.contracts.deployed import Deployed, Reverted

# Contract address in EIP-2935.
HISTORY = "0x0000F90827F1C53a10cb7A02335B175320002935"
WINDOW = 8191
# Blocks that BLOCKHASH reaches.
BLOCKHASHES = 256

START = 20_000
ZERO = bytes(32)
PLANTED = b"\x07" * 32

# Each code puts 32 bytes with the value 7 into memory. The codes end in different ways.
_PLANT = "0x7f" + PLANTED.hex() + "5f52"
ALWAYS_ANSWERS = _PLANT + "60205ff3"
ANSWERS_31_BYTES = _PLANT + "601f5ff3"
ANSWERS_64_BYTES = _PLANT + "60405ff3"
REVERTS_WITH_32_BYTES = _PLANT + "60205ffd"


# A chain whose block numbers are beyond the window. It jumped 20,000 numbers ahead and then mined 300 blocks.
long_chain = chain_fixture(lambda chain: chain.mine(300), extra_args=("--number", str(START)))


@pytest.fixture(scope="module")
def source(long_chain) -> Deployed:
    return Deployed(long_chain, "NativeBlockHashSource", 8191)


@pytest.fixture
def undo(long_chain) -> Iterator[None]:
    """Revert the chain to its state before the test."""
    snapshot = long_chain.rpc("evm_snapshot")
    yield
    assert long_chain.rpc("evm_revert", snapshot)


def _hash(chain: DevChain, number: int) -> bytes:
    return bytes.fromhex(chain.rpc("eth_getBlockByNumber", hex(number), False)["hash"][2:])


def _plant(chain: DevChain, number: int, block_hash: bytes) -> None:
    chain.rpc("anvil_setStorageAt", HISTORY, f"0x{number % WINDOW:064x}", hex_data(block_hash))


@pytest.mark.parametrize("window", [0, WINDOW + 1, 2**256 - 1])
def test_a_native_source_with_a_window_beyond_the_history_cannot_be_deployed(long_chain, window):
    with pytest.raises(Reverted) as reverted:
        Deployed(long_chain, "NativeBlockHashSource", window)
    assert reverted.value.error == ("InvalidWindow",)


@pytest.mark.parametrize("window", [1, 2, 256, 257, WINDOW])
def test_a_native_source_vouches_for_exactly_its_window_of_blocks(long_chain, undo, window):
    source = Deployed(long_chain, "NativeBlockHashSource", window)
    assert source.call("window") == window
    oldest = long_chain.head() - window
    _plant(long_chain, oldest, PLANTED)
    _plant(long_chain, oldest - 1, b"\x08" * 32)
    known = PLANTED if window > BLOCKHASHES else _hash(long_chain, oldest)
    assert source.call("blockHash", oldest) == known
    assert source.call("blockHash", oldest - 1) == ZERO


@pytest.mark.parametrize("age", [1, 2, 255, 256, 257, 300])
def test_a_native_source_knows_blocks_inside_and_beyond_the_last_256(long_chain, source, age):
    number = long_chain.head() - age
    assert source.call("blockHash", number) == _hash(long_chain, number) != ZERO


@pytest.mark.parametrize("ahead", [0, 1, 1000, WINDOW - 1, WINDOW, WINDOW + 1])
def test_current_and_future_blocks_have_no_hash(long_chain, source, ahead):
    assert source.call("blockHash", long_chain.head() + ahead) == ZERO


def test_the_largest_number_has_no_hash(source):
    assert source.call("blockHash", 2**256 - 1) == ZERO


def test_an_old_block_from_before_the_history_began_has_no_hash(long_chain, source):
    assert source.call("blockHash", START - 1) == ZERO


def test_a_recent_block_from_before_the_history_began_has_one(long_chain, source, undo):
    number = long_chain.head() - 10
    _plant(long_chain, number, ZERO)
    assert source.call("blockHash", number) == _hash(long_chain, number)


@pytest.mark.parametrize(
    "code",
    ["0x", "0x00", REVERTS_WITH_32_BYTES, "0xfe", ANSWERS_31_BYTES, ANSWERS_64_BYTES],
    ids=["none", "stops", "reverts", "invalid", "31 bytes", "64 bytes"],
)
def test_without_a_working_history_contract_it_knows_the_last_256(long_chain, source, undo, code):
    long_chain.rpc("anvil_setCode", HISTORY, code)
    head = long_chain.head()
    assert source.call("blockHash", head) == ZERO
    assert source.call("blockHash", head - 1) == _hash(long_chain, head - 1)
    assert source.call("blockHash", head - 256) == _hash(long_chain, head - 256)
    assert source.call("blockHash", head - 257) == ZERO


def test_a_history_contract_that_answers_wrongly_spoils_no_block_outside_its_window_and_none_of_the_last_256(
    long_chain, source, undo
):
    long_chain.rpc("anvil_setCode", HISTORY, ALWAYS_ANSWERS)
    head = long_chain.head()
    for number in (head - 1, head - BLOCKHASHES):
        assert source.call("blockHash", number) == _hash(long_chain, number)
    for number in (head - BLOCKHASHES - 1, head - WINDOW):
        assert source.call("blockHash", number) == PLANTED
    for number in (head - WINDOW - 1, head, head + 1):
        assert source.call("blockHash", number) == ZERO
