from collections.abc import Iterator

import pytest

from tests.chain_fixtures import chain_fixture
from tests.contracts import l1_block
from tests.contracts.conftest import SOURCE_CHAIN_ID
from tests.contracts.deployed import Deployed
from tests.contracts.l1_block import L1Block

BLOCK = 1234
HASH = b"\x07" * 32
OTHER_HASH = b"\x08" * 32
ZERO = bytes(32)

# Each code puts 32 bytes with the value 7 into memory. The codes end in different ways.
_PLANT = "0x7f" + HASH.hex() + "5f52"
ANSWERS_31_BYTES = _PLANT + "601f5ff3"
ANSWERS_64_BYTES = _PLANT + "60405ff3"
REVERTS_WITH_32_BYTES = _PLANT + "60205ffd"


# A chain for an L1Block. Other tests need chains without one.
op_chain = chain_fixture()


@pytest.fixture
def l1(op_chain) -> Iterator[L1Block]:
    """Yield the predeploy for one test."""
    snapshot = op_chain.rpc("evm_snapshot")
    yield L1Block(op_chain)
    assert op_chain.rpc("evm_revert", snapshot)


@pytest.fixture
def source(op_chain, l1) -> Deployed:
    return Deployed(op_chain, "OpStackBlockHashSource", SOURCE_CHAIN_ID)


def _refuses_to_record(source: Deployed) -> bool:
    return source.refusal("record") == ("NoL1Block",) and source.call("newest") == 0


def test_nothing_is_known_before_the_chain_has_begun(source):
    assert _refuses_to_record(source)
    assert [source.call("blockHash", number) for number in (0, 1, 2**256 - 1)] == [ZERO] * 3


def test_the_present_block_is_known_only_when_recorded(l1, source):
    l1.tell(BLOCK, HASH)
    assert source.call("blockHash", BLOCK) == ZERO
    source.send("record")
    assert [source.call("blockHash", number) for number in (BLOCK - 1, BLOCK, BLOCK + 1)] == [ZERO, HASH, ZERO]
    assert source.call("newest") == BLOCK


def test_a_recorded_block_stays_known(l1, source):
    l1.tell(BLOCK, HASH)
    assert source.call("record") == BLOCK
    assert source.logged(source.send("record")) == [("BlockRecorded", BLOCK, HASH)]
    l1.tell(BLOCK + 1, OTHER_HASH)
    assert source.call("blockHash", BLOCK) == HASH
    assert source.call("newest") == BLOCK

    source.send("record")
    assert [source.call("blockHash", number) for number in (BLOCK, BLOCK + 1)] == [HASH, OTHER_HASH]
    assert source.call("newest") == BLOCK + 1


def test_the_newest_is_the_highest_that_was_recorded(l1, source):
    for number in (BLOCK, BLOCK + 5, BLOCK + 3):
        l1.tell(number, HASH)
        source.send("record")
    assert source.call("newest") == BLOCK + 5
    assert source.call("blockHash", BLOCK + 3) == HASH


@pytest.mark.parametrize("number", [1, 2**64 - 1])
def test_the_first_and_the_largest_number_can_be_recorded(l1, source, number):
    l1.tell(number, HASH, timestamp=2**64 - 1)
    source.send("record")
    assert source.call("newest") == number
    assert source.call("blockHash", number) == HASH


def test_an_answer_stays_even_if_the_chain_told_something_else_later(l1, source):
    l1.tell(BLOCK, HASH)
    source.send("record")
    l1.tell(BLOCK, OTHER_HASH)
    assert source.logged(source.send("record")) == []
    assert source.call("blockHash", BLOCK) == HASH


@pytest.mark.parametrize(("number", "block_hash"), [(BLOCK, ZERO), (0, HASH)], ids=["hash", "number"])
def test_zero_is_no_answer(l1, source, number, block_hash):
    l1.tell(number, block_hash)
    assert _refuses_to_record(source)
    assert source.call("blockHash", number) == ZERO


@pytest.mark.parametrize(
    "code",
    ["0x", "0x00", "0xfe", REVERTS_WITH_32_BYTES, ANSWERS_31_BYTES, ANSWERS_64_BYTES],
    ids=["none", "stops", "invalid", "reverts", "31 bytes", "64 bytes"],
)
def test_without_a_working_predeploy_it_vouches_for_nothing(op_chain, l1, source, code):
    op_chain.rpc("anvil_setCode", l1_block.ADDRESS, code)
    assert _refuses_to_record(source)
    # Zero, the block, the number that the codes answer, and the selector that is left in memory.
    numbers = (0, BLOCK, int.from_bytes(HASH), int.from_bytes(source.calldata("record")[:4]) << 224)
    assert [source.call("blockHash", number) for number in numbers] == [ZERO] * 4


def test_asking_for_a_recorded_hash_costs_one_cold_read(l1, source):
    l1.tell(BLOCK, HASH)
    source.send("record")
    data = source.calldata("blockHash", BLOCK)
    zeros = data.count(0)
    used = int(source.send("blockHash", BLOCK)["gasUsed"], 16)
    # Calldata gas: EIP-2028. A cold read costs 2,100 (EIP-2929).
    assert 2_100 < used - 21_000 - 4 * zeros - 16 * (len(data) - zeros) < 2_500
