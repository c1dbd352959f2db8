"""Each function refuses memory that no operation leaves, so none relies on another one."""

import pytest

from campaigns.fuzzing.ledger import word
from campaigns.fuzzing.memory import NODE, STACK, SUBTREE, harness_calldata, raw
from campaigns.fuzzing.operations import slot_name
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import NIBBLES
from tests.contracts.decoder import EMPTY, _Subtree
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Simulator

OWNER = b"\x77" * 20
SLOT = slot_name(5)
# Indices of a subtree's words (contracts/src/SubtreeStack.sol).
SIZE, DEPTH, REACH = 1, 3, 4
PLACE = SLOT.key >> 244 & 15

HASH = _Subtree(b"\xa0" + b"\x11" * 32, SLOT.key, 3)
BRANCH = bytes([0x10, 0x80, 0]) + bytes(32)
FULL_BRANCH = bytes([0x00]) + bytes(15 * 32)
EXTENSION = bytes([0x36, 1])
LONG_EXTENSION = bytes([0x36, 20])
ABSENT_SLOT = bytes([0x34]) + SLOT.written
# An account with its head, nonce and balance. It closes the storage.
ACCOUNT = bytes([0xC8]) + (3 << 10 | 1 << 6 | 1).to_bytes(2) + b"\1\2"
# Operations that take a subtree from the stack, and that subtree.
TAKE = [
    pytest.param(BRANCH, HASH, id="branch"),
    pytest.param(FULL_BRANCH, HASH, id="full branch"),
    pytest.param(EXTENSION, HASH, id="extension"),
    pytest.param(ACCOUNT, _Subtree(HASH.reference, SLOT.key, 0), id="root of a storage"),
]


@pytest.fixture(scope="module")
def accepts(chain):
    harness, simulator = Deployed(chain, "test/StepHarness", HISTORY_WINDOW).address, Simulator(chain)

    def run(operations: bytes, subtree: bytes) -> bool:
        image = bytes(STACK - NODE) + subtree
        data = harness_calldata(STACK, STACK + SUBTREE, OWNER, image, operations)
        [outcome] = simulator.run([Call(harness, data)])
        assert outcome.succeeded or not outcome.halted
        return outcome.succeeded

    return run


def _with(subtree: _Subtree, index: int, value: int) -> bytes:
    words = raw(subtree)
    return words[: 32 * index] + word(value) + words[32 * (index + 1) :]


@pytest.mark.parametrize("size", [32, 33, 64, 0x640, 2**255, 2**256 - 1])
@pytest.mark.parametrize(("operation", "subtree"), TAKE)
def test_a_reference_of_more_bytes_than_any_is_refused(accepts, operation, subtree, size):
    assert accepts(operation, raw(subtree))
    assert not accepts(operation, _with(subtree, SIZE, size))


@pytest.mark.parametrize("depth", [65, 66, 2**32, 2**254, 2**255, 2**256 - 1])
@pytest.mark.parametrize(
    ("operation", "subtree"),
    [
        *TAKE,
        pytest.param(LONG_EXTENSION, _Subtree(HASH.reference, SLOT.key, 62), id="long extension"),
        pytest.param(ABSENT_SLOT, _Subtree(EMPTY, SLOT.key ^ 1, 3, NIBBLES), id="same place"),
    ],
)
def test_a_depth_beyond_a_key_is_refused(accepts, operation, subtree, depth):
    assert accepts(operation, raw(subtree))
    assert not accepts(operation, _with(subtree, DEPTH, depth))


@pytest.mark.parametrize("reach", [0, 65, 66, 2**32, 2**254, 2**255, 2**256 - 1])
def test_a_key_is_absent_at_no_node_that_ends_beyond_all_keys(accepts, reach):
    node = _Subtree(EMPTY, SLOT.key ^ 1, 3, NIBBLES)
    assert accepts(ABSENT_SLOT, raw(node))
    assert not accepts(ABSENT_SLOT, _with(node, REACH, reach))
