"""No operation reads or writes outside the stack's zone of memory, even if the stack's bounds lie outside."""

import pytest

from campaigns.fuzzing.memory import NODE, STACK, STACK_END, SUBTREE, harness_calldata, raw
from campaigns.fuzzing.operations import slot_name
from chains.encoding import HISTORY_WINDOW
from chains.tries.packed import NIBBLES
from tests.contracts.decoder import EMPTY, _Subtree
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Simulator

OWNER = b"\x77" * 20
SLOT = slot_name(5)
# Head, nonce and balance of the account that closes the storage.
BODY = (3 << 10 | 1 << 6 | 1).to_bytes(2) + b"\1\2"


def branch_below(depth: int) -> _Subtree:
    return _Subtree(b"\xa0" + b"\x11" * 32, SLOT.key, depth)


# Operations that take a subtree from the stack, and that subtree.
TAKE = {
    "extension": (bytes([0x36, 1]), branch_below(3)),
    "full branch": (bytes([0x00]) + bytes(15 * 32), branch_below(3)),
    "branch": (b"\x10" + (1 << 15).to_bytes(2) + bytes(32), branch_below(3)),
    "absent key": (bytes([0x34]) + SLOT.written, _Subtree(EMPTY, SLOT.key ^ 1, 3, NIBBLES)),
    "account": (bytes([0xC8]) + BODY, branch_below(0)),
}
PUSH = {
    "slot": bytes([0x40]) + SLOT.written + b"\3\1\7",
    "empty place": bytes([0x32]) + SLOT.written + b"\3",
    "other extension": bytes([0x33]) + SLOT.written + b"\3\2\x77" + bytes(32),
    "other leaf": bytes([0x35]) + SLOT.written + b"\4" + bytes(30) + b"\1\7",
}


@pytest.fixture(scope="module")
def accepts(chain):
    harness, simulator = Deployed(chain, "test/StepHarness", HISTORY_WINDOW).address, Simulator(chain)

    def run(bottom: int, top: int, operations: bytes, item: _Subtree | None = None) -> bool:
        image = b""
        if item is not None:
            offset = top - SUBTREE - NODE
            image = raw(item).rjust(offset + SUBTREE, b"\0") if offset >= 0 else b""
        data = harness_calldata(bottom, top, OWNER, image, operations)
        [outcome] = simulator.run([Call(harness, data)])
        assert outcome.succeeded or not outcome.halted
        return outcome.succeeded

    return run


@pytest.mark.parametrize("name", TAKE)
@pytest.mark.parametrize(
    ("bottom", "top"), [(STACK, STACK + SUBTREE), (STACK_END - SUBTREE, STACK_END), (STACK + 7, STACK + 7 + SUBTREE)]
)
def test_operations_take_what_lies_in_the_zone(accepts, name, bottom, top):
    assert accepts(bottom, top, *TAKE[name])


@pytest.mark.parametrize("name", TAKE)
@pytest.mark.parametrize(
    ("bottom", "top"),
    [
        (STACK - SUBTREE, STACK),
        (STACK - 1, STACK - 1 + SUBTREE),
        (STACK_END, STACK_END + SUBTREE),
        (STACK_END + 1 - SUBTREE, STACK_END + 1),
        (STACK, STACK_END + SUBTREE),
        (STACK + SUBTREE, STACK + SUBTREE),
        (STACK + 2 * SUBTREE, STACK + SUBTREE),
        (STACK + 1, STACK + SUBTREE),
        (NODE, NODE + SUBTREE),
        (2**256 - SUBTREE, 0),
        (0, SUBTREE - 1),
    ],
)
def test_operations_take_nothing_from_outside_the_zone(accepts, name, bottom, top):
    operation, item = TAKE[name]
    assert not accepts(bottom, top, operation, item)


@pytest.mark.parametrize("name", PUSH)
def test_operations_push_into_the_zone_alone(accepts, name):
    push = PUSH[name]
    assert accepts(STACK, STACK, push)
    assert accepts(STACK_END - SUBTREE, STACK_END - SUBTREE, push)
    for top in (
        STACK_END - SUBTREE + 1,
        STACK_END,
        STACK_END + SUBTREE,
        STACK - 1,
        STACK - SUBTREE,
        0,
        2**256 - SUBTREE,
    ):
        assert not accepts(min(top, STACK), top, push)


def test_a_stack_holds_as_many_subtrees_as_its_zone(accepts):
    room = (STACK_END - STACK) // SUBTREE
    assert accepts(STACK, STACK, PUSH["slot"] * room)
    assert not accepts(STACK, STACK, PUSH["slot"] * (room + 1))
