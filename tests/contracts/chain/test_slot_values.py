"""Several slots from one proof, in which each node is once."""

import random
from collections.abc import Sequence
from itertools import permutations

import pytest
from eth_utils.crypto import keccak

from tests.chains.tries import slot_proof, storage_trie
from tests.contracts import tries
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call
from tests.contracts.walks import REFUSAL, slots_answer, slots_calldata
from tests.contracts.worlds import NEAR_SLOTS

# Two of them have embedded leaves, and 1,000 to 1,003 are absent.
STORED = dict.fromkeys(NEAR_SLOTS, 7) | {number: number + 1 for number in range(1, 200)}
TRIE = storage_trie(STORED)


@pytest.fixture(scope="module")
def user(chain) -> Deployed:
    return Deployed(chain, "test/PackageUser")


@pytest.fixture(scope="module")
def ask(simulator, user):
    def answers(slots: Sequence[int], proofs: Sequence[bytes], root: bytes = TRIE.root_hash) -> list[bytes | None]:
        """Return the answer to each proof of these slots. None stands for InvalidProof."""
        names = [slot.to_bytes(32) for slot in slots]
        calls = [Call(user.address, slots_calldata(names, root, proof)) for proof in proofs]
        outcomes = simulator.run(calls)
        assert {each.data for each in outcomes if not each.succeeded} <= {REFUSAL}
        return [each.data if each.succeeded else None for each in outcomes]

    return answers


def nodes_of(slots: Sequence[int]) -> list[bytes]:
    """Return the nodes of all slots' proofs, each once."""
    return list(dict.fromkeys(node for slot in slots for node in slot_proof(TRIE, slot)))


def values_of(slots: Sequence[int]) -> bytes:
    return slots_answer([STORED.get(slot, 0) for slot in slots])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 50])
def test_slots_in_any_order_have_their_values(ask, count):
    chance = random.Random(count)
    for _ in range(10):
        slots = chance.choices([*STORED, *range(1000, 1004)], k=count)
        assert ask(slots, [tries.encode(nodes_of(slots))]) == [values_of(slots)]


def test_slots_with_embedded_leaves_have_their_values(ask):
    for slots in permutations([*NEAR_SLOTS, 1000, 5]):
        assert ask(slots, [tries.encode(nodes_of(slots))]) == [values_of(slots)]


def test_slots_of_an_empty_trie_are_zero(ask):
    answers = ask([1, 2], [tries.encode([]), tries.encode([tries.EMPTY])], tries.EMPTY_ROOT)
    assert answers == [slots_answer([0, 0])] * 2
    others = [[tries.EMPTY, tries.EMPTY], [b""], [nodes_of([1])[0]]]
    assert ask([1, 2], list(map(tries.encode, others)), tries.EMPTY_ROOT) == [None] * len(others)


def test_each_node_is_there_once_and_in_its_place(ask):
    """A node that is left out, repeated, moved or changed makes the proof invalid, and so does one for nothing."""
    slots = [3, 77, 1001, NEAR_SLOTS[0]]
    nodes = nodes_of(slots)
    places = range(len(nodes))
    spoilt = [[*nodes[:place], *nodes[place + 1 :]] for place in places]
    spoilt += [[*nodes[:place], nodes[place], *nodes[place:]] for place in places]
    spoilt += [[*nodes[:place], nodes[place + 1], nodes[place], *nodes[place + 2 :]] for place in places[:-1]]
    spoilt += [
        [*nodes[:place], nodes[place][:-1] + bytes([nodes[place][-1] ^ 1]), *nodes[place + 1 :]] for place in places
    ]
    spoilt += [[*nodes, slot_proof(TRIE, 100)[-1]], [*nodes, b""]]
    proofs = [tries.encode(each) for each in spoilt]
    genuine = tries.encode(nodes)
    proofs += [genuine[:-1], genuine + b"\0", b"", tries.encode(genuine), tries.encode([slot_proof(TRIE, 3)])]
    assert ask(slots, proofs) == [None] * len(proofs)
    assert ask(slots, [genuine]) == [values_of(slots)]


def test_a_proof_of_other_slots_or_of_another_root_is_refused(ask):
    genuine = tries.encode(nodes_of([3, 77]))
    assert ask([77, 3], [genuine]) == ask([3], [genuine]) == ask([3, 77, 78], [genuine]) == [None]
    assert ask([], [genuine]) == ask([3, 77], [genuine], keccak(b"")) == [None]
    # A slot that is asked twice needs no other node.
    assert ask([3, 77, 3], [genuine]) == [slots_answer([4, 78, 4])]
