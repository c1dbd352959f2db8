"""Sequences of events break no promise about money. Two thirds of the sequences are long tests.

`make attack ONLY=sequences SEQUENCES=2000` searches for more. Sequences that it finds are added here.
"""

from collections.abc import Iterator

import pytest

from tests.proving.money_machine import Machine, a_machine, a_node
from tests.proving.money_node import Node

pytestmark = pytest.mark.outside

SEQUENCES = {
    "users share a block": "alice:0 bob:0 work drop work cancel:0 work mine work alice:0 work mine final work",
    "self-funded beside others": "self:0 alice:0 self:3 work work mine work final work work",
    "stopped before signing": "alice:0 stop work work mine resume work mine",
    "stopped while pending": "alice:0 bob:2 work drop stop cancel:0 age work age work resume work",
    "a cap below the price": "gwei:5 stop alice:0 work cap:3 resume work work gwei:1 work mine",
    "a cap on replacements": "cap:3 alice:0 bob:2 work drop gwei:5 age work cancel:0 age work age work",
    "a day for one of three": "stop alice:0 bob:2 work day:5 resume work work mine work final work",
    "a day until it is final": "day:5 alice:0 work mine work alice:2 work work tomorrow work",
    "a day on replacements": "alice:0 work drop day:4 gwei:5 age work age work",
    "a day on cancellations": "alice:0 alice:2 work day:8 gwei:150 cancel:0 work age work age work",
    "a day on gaps": "alice:0 lie:ahead work honest day:4 gwei:150 work age work mine work",
    "a final nonce that is no such": "bob:0 work lie:ahead drop final work",
    "the same, and killed": "alice:0 work lie:ahead drop final kill:27",
    "used nonces that are no such": "lie:unused alice:0 bob:2 work age work mine honest final work alice:3 work work",
    "a user's day": "stop alice:0 alice:2 bob:0 work user:5 resume work work mine work final work",
    "a user's day on replacements": "alice:0 work drop user:4 gwei:5 age work age work",
    "a fee when gas becomes dearer": "stop bob:0 work gwei:5 resume work mine gwei:1 work drop gwei:5 age work",
    "a fee when all reverts": "bob:0 work work broken work broken work broken work",
    "a fee of auto when gas runs out": "bob:0 work dear final work work dear final work work dear final work",
    "a fee of auto when all reverts": "bob:0 work broken final work work broken final work work final work",
    "shared, and gas runs out": "alice:0 bob:2 work dear work work dear final work work work mine final work",
    "receipts that say too little": "day:5 alice:0 work mine lie:cheap work final work alice:2 work work mine work",
    "receipts that say failed, or nothing": "alice:0 work mine lie:failed work mine lie:hidden work final work",
    "a node that is stale": "alice:0 work mine lie:stale work alice:0 work lie:behind alice:2 work work mine work",
    "killed, and lost by the node": "alice:0 crash work lie:lost bob:1 kill:20 work mine age work honest kill:9 work",
    "reorgs, and another program": "alice:0 work mine work reorg:3 work bob:2 work elsewhere work reorg:1 work mine",
}


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[Node, str]]:
    with a_node() as node:
        yield node


@pytest.fixture
def machine(node: tuple[Node, str], transactional_db, settings, tmp_path) -> Iterator[Machine]:
    with a_machine(*node, settings, tmp_path) as machine:
        yield machine


@pytest.mark.long
@pytest.mark.story("users share a block")
@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_no_promise_about_money_is_broken(machine, sequence):
    machine.run(sequence)
