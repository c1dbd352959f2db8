"""Attacks on the beacon history, in which the attacker chooses every leaf of a tree."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from chains.beacon import jumps, ssz
from chains.beacon.blocks import EXECUTION_PAYLOAD, BeaconHeader, ExecutionBranch
from chains.beacon.jumps import HISTORICAL_SUMMARIES, HISTORY_DEPTH, Anchor
from tests.contracts.beacon_worlds import SMALL, BeaconWorld
from tests.contracts.compared_history import Asked, History

# A slot of each layout, with the depths of payload and state.
LAYOUTS = ((33, 4, 5), (45, 5, 5), (60, 5, 6))


class Tree:
    """A tree of random leaves, except for the given nodes by generalized index."""

    def __init__(self, chance: random.Random, depth: int, given_nodes: Mapping[int, bytes] | None = None) -> None:
        self.nodes = {index: chance.randbytes(32) for index in range(1 << depth, 2 << depth)}
        for index in range((1 << depth) - 1, 0, -1):
            self.nodes[index] = ssz.merge(self.nodes[2 * index], self.nodes[2 * index + 1])
        for index, node in (given_nodes or {}).items():
            self.nodes[index] = node
            for above in itertools.takewhile(bool, (index >> height for height in range(1, depth + 1))):
                self.nodes[above] = ssz.merge(self.nodes[2 * above], self.nodes[2 * above + 1])

    @property
    def root(self) -> bytes:
        return self.nodes[1]

    def siblings(self, index: int) -> list[bytes]:
        return [self.nodes[index >> height ^ 1] for height in range(index.bit_length() - 1)]


@pytest.fixture(scope="module")
def world() -> BeaconWorld:
    return BeaconWorld(random.Random(21))


@pytest.fixture(scope="module")
def history(chain, simulator, world) -> History:
    return History(chain, simulator, world.chain)


@pytest.fixture(scope="module")
def unbounded(chain, simulator, world) -> History:
    """Return a history like mainnet's, whose table has no slot for the next fork."""
    return History(chain, simulator, replace(world.chain, end=2**64 - 1))


# --- Places -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("slot", "payload_depth", "_"), LAYOUTS)
def test_of_all_nodes_of_a_body_one_is_taken_for_the_hash(history, world, slot, payload_depth, _):
    """The attacker's tree may continue below leaves of a real body: graffiti, votes for eth1 data, headers in
    slashings, credentials of deposits, extra data.
    """
    tree = Tree(random.Random(22), 11)
    header = replace(world.blocks[slot].header, body_root=tree.root)
    nodes = range(1 << 7, 2 << 11)
    forged = (ExecutionBranch(header, tree.nodes[index], tree.siblings(index)) for index in nodes)
    answers = history.answers([("ownBlockHash", (header.root, jumps.own(each))) for each in forged])
    expected = 25 << payload_depth | 12
    assert [index for index, answer in zip(nodes, answers, strict=True) if answer] == [expected]


@pytest.mark.parametrize(("slot", "_", "depth"), LAYOUTS)
def test_of_all_nodes_of_a_state_one_is_taken_for_the_summaries(history, world, slot, _, depth):
    chance = random.Random(23)
    block, anchor = world.blocks[33], world.blocks[slot].header
    roots, others = world.periods[world.chain.period(33)]
    summaries = [(ssz.tree_root(roots, 3), ssz.tree_root(others, 3))]
    listed = ssz.list_root([ssz.merge(*summaries[0])], HISTORY_DEPTH)
    head = jumps.old(world.chain, block, roots, _listing(anchor, summaries))
    head = head[: len(head) - 32 * (depth + 2) - 16]
    nodes = range(1 << 4, 2 << 7)
    calls: list[Asked] = []
    for index in nodes:
        tree = Tree(chance, 7, {index: listed})
        header = replace(anchor, state_root=tree.root)
        calls.append(("oldBlockHash", (header.root, head + _end(header, tree.siblings(index)))))
    accepted = [index for index, answer in zip(nodes, history.answers(calls), strict=True) if answer]
    assert accepted == [1 << depth | HISTORICAL_SUMMARIES]


@pytest.mark.parametrize("slot", [33, 38, 61])
def test_a_block_is_taken_from_its_own_place_only(history, world, slot):
    """The block's root is planted at each index of both halves of eight elements, always with the same slot."""
    chance = random.Random(24)
    anchor = world.blocks[89].header
    own = jumps.own(world.blocks[slot])
    count = 8
    places = list(itertools.product(range(count), range(2), range(8)))
    calls: list[Asked] = []
    for element, half, index in places:
        below = [chance.randbytes(32) for _ in range(4)]
        node = ssz.climb(world.root(slot), below, half << 3 | index)
        # Siblings of the element: random ones within the list's eight elements, and zeros above.
        above = [chance.randbytes(32) for _ in range(3)]
        node = ssz.climb(node, above + [ssz.zeros(height) for height in range(3, HISTORY_DEPTH)], element)
        listed = ssz.merge(node, ssz.integer_leaf(count))
        state = [chance.randbytes(32) for _ in range(6)]
        header = replace(anchor, state_root=ssz.climb(listed, state, HISTORICAL_SUMMARIES))
        branch = own + b"".join(below) + count.to_bytes(3) + b"".join(above) + _end(header, state)
        calls.append(("oldBlockHash", (header.root, branch)))
    accepted = [index for index, answer in zip(places, history.answers(calls), strict=True) if answer]
    period = world.chain.period(slot) - world.chain.periods_before_capella
    assert accepted == [(period, 0, world.chain.place(slot))]


# --- The next fork ----------------------------------------------------------------------------------------------------

# Gloas's body has 13 fields, and its state 46. All are active, and none is reserved (EIP-7688).
_BODY_FIELDS, _STATE_FIELDS = 13, 46


def progressive(leaves: list[bytes], fields: bytes | None = None) -> dict[int, bytes]:
    """Return the nodes of a progressive container by generalized index (EIP-7495, EIP-7916).

    `fields` replaces the leaf of active fields.
    """
    nodes = {3: fields or ((1 << len(leaves)) - 1).to_bytes(32, "little")}
    spine, size = 2, 1
    remaining = list(leaves)
    while remaining:
        depth = size.bit_length() - 1
        part, remaining = remaining[:size], remaining[size:]
        for offset in range(size):
            nodes[(2 * spine) << depth | offset] = part[offset] if offset < len(part) else bytes(32)
        spine, size = 2 * spine + 1, 4 * size
    nodes[spine] = bytes(32)
    for index in sorted(_above(nodes), reverse=True):
        nodes[index] = ssz.merge(nodes[2 * index], nodes[2 * index + 1])
    return nodes


def _above(nodes: Mapping[int, bytes]) -> set[int]:
    return {index >> height for index in nodes for height in range(1, index.bit_length())}


def _siblings(nodes: Mapping[int, bytes], index: int) -> list[bytes]:
    return [nodes[index >> height ^ 1] for height in range(index.bit_length() - 1)]


@pytest.mark.parametrize("is_made_up", [False, True])
def test_a_body_of_the_fork_after_is_turned_away_at_the_leaf_of_fields_in_use(unbounded, world, is_made_up):
    """The protocol fixes the leaf of active fields. Only this protects the hashes from the attacker."""
    chance = random.Random(26)
    # The tree reaches from the payload's hash up to the node in the leaf's place.
    below = Tree(chance, 8)
    made_up = below.root if is_made_up else None
    nodes = progressive([chance.randbytes(32) for _ in range(_BODY_FIELDS)], made_up)
    header = replace(world.blocks[85].header, body_root=nodes[1])
    # The path of index 25 (1_1001) goes right first; the remaining 1001 and leaf 12 of 32 (01100) are below.
    index = 0b1_001_01100
    forged = ExecutionBranch(header, below.nodes[index], [*below.siblings(index), nodes[2]])
    answer = unbounded.answer("ownBlockHash", header.root, jumps.own(forged))
    assert (answer is not None) == is_made_up


def test_no_node_of_a_body_of_the_fork_after_is_taken_for_the_hash(unbounded, world):
    """The attacker's tree may continue below each field. The hash is expected nine levels below the body's root."""
    chance = random.Random(27)
    nodes = progressive([chance.randbytes(32) for _ in range(_BODY_FIELDS)])
    calls: list[Asked] = []
    for leaf in sorted(nodes):
        if leaf == 3 or 2 * leaf in nodes:
            continue
        # The attacker's tree replaces the field.
        depth = 9 - (leaf.bit_length() - 1)
        below = Tree(chance, depth)
        changed = {**nodes, leaf: below.root}
        for height in range(1, leaf.bit_length()):
            above = leaf >> height
            changed[above] = ssz.merge(changed[2 * above], changed[2 * above + 1])
        header = replace(world.blocks[85].header, body_root=changed[1])
        for index in range(1 << depth, 2 << depth):
            forged = ExecutionBranch(header, below.nodes[index], below.siblings(index) + _siblings(changed, leaf))
            calls.append(("ownBlockHash", (header.root, jumps.own(forged))))
    assert len(calls) == 256
    assert not any(unbounded.answers(calls))


@pytest.mark.parametrize("is_made_up", [False, True])
def test_a_state_of_the_fork_after_is_turned_away_at_checkpoints(unbounded, world, is_made_up):
    """Index 91 is the node above fields 17 to 20. The attacker might choose its left half. Its right half is a hash of
    two checkpoints at the place of a list's length, so a list can be forged only if that hash could be chosen.
    """
    chance = random.Random(28)
    block = world.blocks[33]
    roots, others = world.periods[world.chain.period(33)]
    summaries = [(ssz.tree_root(roots, 3), ssz.tree_root(others, 3))]
    nodes = progressive([chance.randbytes(32) for _ in range(_STATE_FIELDS)])
    assert ssz.merge(nodes[182], nodes[183]) == nodes[91]
    nodes[182] = ssz.tree_root([ssz.merge(*summaries[0])], HISTORY_DEPTH)
    if is_made_up:
        nodes[183] = ssz.integer_leaf(1)
    for index in (91 >> height for height in range(7)):
        nodes[index] = ssz.merge(nodes[2 * index], nodes[2 * index + 1])
    anchor = replace(world.blocks[85].header, state_root=nodes[1])
    head = jumps.old(world.chain, block, roots, _listing(anchor, summaries))
    head = head[: len(head) - 32 * 8 - 16]
    branch = head + _end(anchor, _siblings(nodes, 91))
    answer = unbounded.answer("oldBlockHash", anchor.root, branch)
    assert (answer is not None) == is_made_up


def test_no_node_of_a_state_of_the_fork_after_is_taken_for_a_list(unbounded, world):
    """The summaries and the older roots are planted at each field once, including their own indices (2950 and 352)."""
    chance = random.Random(29)
    block = world.blocks[33]
    roots, others = world.periods[world.chain.period(33)]
    summaries = [(ssz.tree_root(roots, 3), ssz.tree_root(others, 3))]
    listed = ssz.list_root([ssz.merge(*summaries[0])], HISTORY_DEPTH)
    anchor = world.blocks[85].header
    head = jumps.old(world.chain, block, roots, _listing(anchor, summaries))
    head = head[: len(head) - 32 * 8 - 16]
    calls: list[Asked] = []
    for field in range(_STATE_FIELDS):
        for planted in (listed, world.chain.historical_roots):
            fields = [chance.randbytes(32) for _ in range(_STATE_FIELDS)]
            fields[field] = planted
            nodes = progressive(fields)
            header = replace(anchor, state_root=nodes[1])
            [leaf] = [index for index, node in nodes.items() if node == planted]
            siblings = _siblings(nodes, leaf)
            for branch in (siblings, siblings[:6], siblings[-6:], siblings[-5:], [*siblings, *siblings][:6]):
                calls.append(("oldBlockHash", (header.root, head + _end(header, branch))))
                calls.append(("provesHistoricalRoots", (header.root, _end(header, branch))))
    assert len(calls) == 920
    assert not any(unbounded.answers(calls))


def test_a_fork_after_without_progressive_containers_needs_an_end(history, unbounded, world):
    """Without progressive containers, the hash of a block's 13th change of withdrawal credentials would pass as a block
    hash. The list of changes takes the payload's place. No header has that hash.
    """
    chance = random.Random(30)
    changes = [chance.randbytes(32) for _ in range(13)]
    fields = [chance.randbytes(32) for _ in range(_BODY_FIELDS)]
    fields[EXECUTION_PAYLOAD] = ssz.list_root(changes, 4)
    header = replace(world.blocks[90].header, body_root=ssz.tree_root(fields, 4))
    below = [*ssz.siblings(changes, 4, 12), ssz.integer_leaf(13), *ssz.siblings(fields, 4, EXECUTION_PAYLOAD)]
    forged = jumps.own(ExecutionBranch(header, changes[12], below))
    assert unbounded.answer("ownBlockHash", header.root, forged) == changes[12]
    assert history.answer("ownBlockHash", header.root, forged) is None


# --- Parts of branches ------------------------------------------------------------------------------------------------


def _end(header: BeaconHeader, state: list[bytes]) -> bytes:
    """Return the end of a branch, from a field of the state on. The table of depths is ignored."""
    last_sibling = ssz.merge(ssz.merge(header.body_root, bytes(32)), ssz.zeros(1))
    return b"".join([header.slot.to_bytes(8), header.proposer.to_bytes(8), header.parent_root, *state, last_sibling])


def _listing(header: BeaconHeader, summaries: list[tuple[bytes, bytes]]) -> Anchor:
    """Return an anchor whose state consists of these summaries and zeros."""
    branch = [bytes(32)] * SMALL.state_depth(header.slot)
    listed = ssz.list_root([ssz.merge(*each) for each in summaries], HISTORY_DEPTH)
    return Anchor(replace(header, state_root=ssz.climb(listed, branch, HISTORICAL_SUMMARIES)), summaries, branch)
