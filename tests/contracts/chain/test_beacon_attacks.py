"""Attacks on both beacon histories, in which the attacker chooses every leaf of a tree."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from chains.beacon import jumps, ssz
from chains.beacon.blocks import EXECUTION_PAYLOAD, BeaconHeader, ExecutionBranch
from chains.beacon.jumps import BLOCK_ROOTS, HISTORICAL_SUMMARIES, HISTORY_DEPTH, Anchor, BeaconChain
from tests.contracts.beacon_worlds import SMALL, SMALL_BEFORE_GLOAS, BeaconWorld, Progressive
from tests.contracts.compared_history import Asked, History

CHAINS = {"GloasBeaconHistory": SMALL, "BeaconHistory": SMALL_BEFORE_GLOAS}
# A slot of each layout, and the generalized index of the proven hash in a body.
BODIES = ((33, 25 << 4 | 12), (45, 25 << 5 | 12), (60, 25 << 5 | 12), (75, 2856))
# The generalized indices in states of those slots.
SUMMARIES = ((33, 59), (45, 59), (60, 91), (75, 2950))
OLDER_ROOTS = ((33, 39), (45, 39), (60, 71), (75, 354))
LAST_ROOTS = ((33, 37), (45, 37), (60, 69), (75, 352))
# A leaf of active fields, which a progressive container has at index 3.
FIELDS = (0x2B7F << 32).to_bytes(32, "little")


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


@pytest.fixture(scope="module", params=CHAINS)
def contract(request) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def world(contract) -> BeaconWorld:
    return BeaconWorld(random.Random(21), CHAINS[contract])


@pytest.fixture(scope="module")
def history(chain, simulator, world, contract) -> History:
    return History(chain, simulator, world.chain, contract)


@pytest.fixture(scope="module")
def unbounded(chain, simulator, world, contract) -> History:
    """Return a history like mainnet's, whose table has no slot for the next fork."""
    return History(chain, simulator, replace(world.chain, gloas=2**64 - 1, end=2**64 - 1), contract)


@pytest.fixture(scope="module")
def current(chain, simulator) -> History:
    """Return the current contract. All slots of `SMALL` are in its table."""
    return History(chain, simulator, BeaconWorld(random.Random(21)).chain)


# --- Places -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("slot", "expected"), BODIES)
def test_of_all_nodes_of_a_body_one_is_taken_for_the_hash(history, world, slot, expected):
    """The attacker's tree may continue below leaves of a real body: graffiti, votes for eth1 data, headers in
    slashings, credentials of deposits, extra data.
    """
    if slot >= world.chain.gloas:
        # Only the leaf of active fields isn't the attacker's choice.
        tree = Tree(random.Random(22), 11, {3: FIELDS})
    else:
        tree = Tree(random.Random(22), 11)
        expected = 25 << world.chain.payload_depth(slot) | 12
    header, nodes = replace(world.blocks[slot].header, body_root=tree.root), range(1 << 7, 2 << 11)
    forged = (ExecutionBranch(header, tree.nodes[index], tree.siblings(index)) for index in nodes)
    answers = history.answers([("ownBlockHash", (header.root, jumps.own(each))) for each in forged])
    assert [index for index, answer in zip(nodes, answers, strict=True) if answer] == [expected]


def _states(anchor: BeaconHeader, planted: bytes, expected: int) -> list[tuple[int, BeaconHeader, list[bytes]]]:
    """Return states in which a root is planted at each index near the expected one's depth.

    The rest is the attacker's choice, except a leaf of active fields.
    """
    chance, depth = random.Random(23), expected.bit_length() - 1
    states = []
    for index in range(1 << max(4, depth - 1), 2 << depth + 1):
        siblings = [chance.randbytes(32) for _ in range(index.bit_length() - 1)]
        if index >> len(siblings) - 1 == 2 and depth > 6:
            siblings[-1] = FIELDS
        root = ssz.climb(planted, siblings, index)
        states.append((index, replace(anchor, state_root=root), siblings))
    return states


def _accepted(
    history: History, name: str, head: bytes, states: list[tuple[int, BeaconHeader, list[bytes]]]
) -> list[int]:
    answers = history.answers([(name, (header.root, head + _end(header, siblings))) for _, header, siblings in states])
    return [index for (index, _, _), answer in zip(states, answers, strict=True) if answer]


@pytest.mark.parametrize(("slot", "expected"), SUMMARIES)
def test_of_all_nodes_of_a_state_one_is_taken_for_the_summaries(current, slot, expected):
    world = BeaconWorld(random.Random(21))
    roots, others = world.periods[world.chain.period(33)]
    summaries = [(ssz.tree_root(roots, 3), ssz.tree_root(others, 3))]
    listed = ssz.list_root([ssz.merge(*summaries[0])], HISTORY_DEPTH)
    anchor = world.blocks[slot].header
    head = _head(world, anchor, summaries)
    assert _accepted(current, "oldBlockHash", head, _states(anchor, listed, expected)) == [expected]


@pytest.mark.parametrize(("slot", "expected"), OLDER_ROOTS)
def test_of_all_nodes_of_a_state_one_is_taken_for_the_older_roots(current, slot, expected):
    world = BeaconWorld(random.Random(21))
    states = _states(world.blocks[slot].header, world.chain.historical_roots, expected)
    assert _accepted(current, "provesHistoricalRoots", b"", states) == [expected]


@pytest.mark.parametrize(("slot", "expected"), LAST_ROOTS)
def test_of_all_nodes_of_a_state_one_is_taken_for_the_last_block_roots(current, slot, expected):
    world = BeaconWorld(random.Random(21))
    anchor = world.blocks[slot].header
    head = world.recent(slot - 1, slot)[: -len(_end(anchor, world.state_branch(slot, BLOCK_ROOTS)))]
    planted = ssz.tree_root(world.block_roots[slot], world.chain.period_depth)
    assert _accepted(current, "oldBlockHash", head, _states(anchor, planted, expected)) == [expected]


@pytest.mark.parametrize("target", [60, 75])
@pytest.mark.parametrize("anchor", [66, 81])
def test_a_block_is_taken_from_its_own_place_in_a_state_only(current, target, anchor):
    """The block's root is planted at each place of a state's block roots, always with the same slot."""
    chance, world = random.Random(25), BeaconWorld(random.Random(21))
    own, header = jumps.own(world.blocks[target]), world.blocks[anchor].header
    depth = world.chain.state_index(anchor, BLOCK_ROOTS).bit_length() - 1
    accepted = []
    for place in range(8):
        below, state = ([chance.randbytes(32) for _ in range(count)] for count in (3, depth))
        state[-1] = FIELDS
        root = ssz.climb(ssz.climb(world.root(target), below, place), state, BLOCK_ROOTS if anchor < 74 else 352)
        forged = replace(header, state_root=root)
        branch = own + b"".join(below) + bytes(35) + _end(forged, state)
        if current.answer("oldBlockHash", forged.root, branch):
            accepted.append(place)
    assert accepted == [world.chain.place(target)]


def test_parts_of_genuine_branches_prove_nothing_else_together(current):
    """The attacker joins parts of branches below one root, and puts promised hashes and other blocks into them."""
    world, root = BeaconWorld(random.Random(21)), 89
    slots = (40, 57, 58, 73, 74, 75, 82, 88)
    genuine = {slot: world.recent(slot, root) if slot > 80 else world.old(slot, root) for slot in slots}
    heads = [jumps.own(world.blocks[slot]) for slot in (*slots, 66, root)]
    for slot in (75, 88):
        promise, siblings = world.promises[slot]
        forged = replace(world.blocks[slot], block_hash=promise)
        heads += [jumps.own(replace(forged, branch=each)) for each in (forged.branch, siblings, siblings[3:])]
    ends = {slot: branch[len(jumps.own(world.blocks[slot])) :] for slot, branch in genuine.items()}
    size = 32 * world.chain.period_depth
    joined = {
        head + below[:size] + above[size:] for head in heads for below in ends.values() for above in ends.values()
    }
    answers = current.answers([("oldBlockHash", (world.root(root), branch)) for branch in joined])
    proven = {branch: answer for branch, answer in zip(joined, answers, strict=True) if answer}
    assert proven == {branch: world.blocks[slot].block_hash for slot, branch in genuine.items()}
    assert len(joined) > 500


@pytest.mark.parametrize("anchor_slot", [70, 89])
@pytest.mark.parametrize("slot", [33, 38, 61])
def test_a_block_is_taken_from_its_own_place_only(history, world, slot, anchor_slot):
    """The block's root is planted at each index of both halves of eight elements, always with the same slot."""
    chance = random.Random(24)
    anchor = world.blocks[anchor_slot].header
    own = jumps.own(world.blocks[slot])
    field = world.chain.state_index(anchor_slot, HISTORICAL_SUMMARIES)
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
        state = [*(chance.randbytes(32) for _ in range(field.bit_length() - 2)), FIELDS]
        header = replace(anchor, state_root=ssz.climb(listed, state, field))
        branch = own + b"".join(below) + count.to_bytes(3) + b"".join(above) + _end(header, state)
        calls.append(("oldBlockHash", (header.root, branch)))
    accepted = [index for index, answer in zip(places, history.answers(calls), strict=True) if answer]
    period = world.chain.period(slot) - world.chain.periods_before_capella
    assert accepted == [(period, 0, world.chain.place(slot))]


# --- The next fork ----------------------------------------------------------------------------------------------------

# Gloas's body has 13 fields, and its state 46. All are active, and none is reserved (EIP-7688). Here it is the fork
# after those of the table: the contract is the earlier one, or the current one whose slot of Gloas is too late.
_BODY_FIELDS, _STATE_FIELDS = 13, 46


@pytest.mark.parametrize("is_made_up", [False, True])
def test_a_body_of_the_fork_after_is_turned_away_at_the_leaf_of_fields_in_use(unbounded, world, is_made_up):
    """The protocol fixes the leaf of active fields. Only this protects the hashes from the attacker."""
    chance = random.Random(26)
    # The tree reaches from the payload's hash up to the node in the leaf's place.
    below = Tree(chance, 8)
    made_up = below.root if is_made_up else None
    body = Progressive([chance.randbytes(32) for _ in range(_BODY_FIELDS)], made_up)
    header = replace(world.blocks[85].header, body_root=body.root)
    # The path of index 25 (1_1001) goes right first; the remaining 1001 and leaf 12 of 32 (01100) are below.
    index = 0b1_001_01100
    forged = ExecutionBranch(header, below.nodes[index], [*below.siblings(index), body.nodes[2]])
    answer = unbounded.answer("ownBlockHash", header.root, jumps.own(forged))
    assert (answer is not None) == is_made_up


def test_no_node_of_a_body_of_the_fork_after_is_taken_for_the_hash(unbounded, world):
    """The attacker's tree may continue below each field. The hash is expected nine levels below the body's root."""
    chance = random.Random(27)
    fields = [chance.randbytes(32) for _ in range(_BODY_FIELDS)]
    nodes = Progressive(fields).nodes
    calls: list[Asked] = []
    for leaf in sorted(nodes):
        if leaf == 3 or 2 * leaf in nodes:
            continue
        # The attacker's tree replaces the field.
        depth = 9 - (leaf.bit_length() - 1)
        below, changed = Tree(chance, depth), Progressive(fields)
        changed.set(leaf, below.root)
        header = replace(world.blocks[85].header, body_root=changed.root)
        for index in range(1 << depth, 2 << depth):
            forged = ExecutionBranch(header, below.nodes[index], below.siblings(index) + changed.siblings(leaf))
            calls.append(("ownBlockHash", (header.root, jumps.own(forged))))
    assert len(calls) == 256
    assert not any(unbounded.answers(calls))


@pytest.mark.parametrize("is_made_up", [False, True])
def test_a_state_of_the_fork_after_is_turned_away_at_checkpoints(unbounded, world, is_made_up):
    """Index 91 is the node above fields 17 to 20. The attacker might choose its left half. Its right half is a hash of
    two checkpoints at the place of a list's length, so a list can be forged only if that hash could be chosen.
    """
    chance = random.Random(28)
    roots, others = world.periods[world.chain.period(33)]
    summaries = [(ssz.tree_root(roots, 3), ssz.tree_root(others, 3))]
    state = Progressive([chance.randbytes(32) for _ in range(_STATE_FIELDS)])
    state.set(182, ssz.tree_root([ssz.merge(*summaries[0])], HISTORY_DEPTH))
    if is_made_up:
        state.set(183, ssz.integer_leaf(1))
    anchor = replace(world.blocks[85].header, state_root=state.root)
    branch = _head(world, anchor, summaries, unbounded.beacon) + _end(anchor, state.siblings(91))
    answer = unbounded.answer("oldBlockHash", anchor.root, branch)
    assert (answer is not None) == is_made_up


def test_no_node_of_a_state_of_the_fork_after_is_taken_for_a_list(unbounded, world):
    """Three roots are planted at each field once, including their own indices (2950, 354 and 352)."""
    chance = random.Random(29)
    roots, others = world.periods[world.chain.period(33)]
    summaries = [(ssz.tree_root(roots, 3), ssz.tree_root(others, 3))]
    listed = ssz.list_root([ssz.merge(*summaries[0])], HISTORY_DEPTH)
    anchor = world.blocks[85].header
    old = _head(world, anchor, summaries, unbounded.beacon)
    recent = old[: len(jumps.own(world.blocks[33])) + 32 * 3] + bytes(35)
    calls: list[Asked] = []
    for field in range(_STATE_FIELDS):
        for planted in (listed, world.chain.historical_roots, summaries[0][0]):
            fields = [chance.randbytes(32) for _ in range(_STATE_FIELDS)]
            fields[field] = planted
            state = Progressive(fields)
            header = replace(anchor, state_root=state.root)
            siblings = state.branch(field)
            for branch in (siblings, siblings[:6], siblings[-6:], siblings[-5:], [*siblings, *siblings][:6]):
                calls.append(("provesHistoricalRoots", (header.root, _end(header, branch))))
                calls += [("oldBlockHash", (header.root, head + _end(header, branch))) for head in (old, recent)]
    assert len(calls) == 2070
    assert not any(unbounded.answers(calls))


@pytest.mark.parametrize("is_made_up", [False, True])
def test_a_state_before_the_fork_is_turned_away_at_the_leaf_of_fields(chain, simulator, is_made_up):
    """The fork was postponed after the contract was deployed. Field 24 of a state of Fulu is the header of a payload,
    whose fifth field is the bloom of logs. By many logs a builder chooses a chunk of the bloom: the node above a false
    block, which is among the state's block roots if the state is taken for one of Gloas.
    """
    chance = random.Random(31)
    history = History(chain, simulator, replace(SMALL, period_depth=7))
    block = BeaconWorld(random.Random(21)).blocks[75]
    false_hash = b"\x66" * 32
    body = ssz.climb(false_hash, block.branch, 2856)
    false = replace(block, header=replace(block.header, body_root=body), block_hash=false_hash)
    chunks, payload, state = ([chance.randbytes(32) for _ in range(count)] for count in (8, 17, 37))
    # Slot 75 is 100_101_1: field 4, its chunk 5, and there on the right.
    beside = chance.randbytes(32)
    chunks[5] = ssz.merge(beside, false.header.root)
    payload[4] = ssz.tree_root(chunks, 3)
    state[24] = ssz.tree_root(payload, 5)
    below = [beside, *ssz.siblings(chunks, 3, 5), *ssz.siblings(payload, 5, 4)]
    above = [*below[7:], *ssz.siblings(state, 6, 24)]
    root = ssz.tree_root(state, 6)
    assert ssz.climb(false.header.root, [*below[:7], *above], 352 << 7 | 75) == root
    if is_made_up:
        above[-1] = FIELDS
        root = ssz.climb(false.header.root, [*below[:7], *above], 352 << 7 | 75)
    anchor = replace(block.header, slot=89, state_root=root)
    branch = jumps.own(false) + b"".join(below[:7]) + bytes(35) + _end(anchor, above)
    assert history.answer("oldBlockHash", anchor.root, branch) == (false_hash if is_made_up else None)


@pytest.mark.parametrize("is_made_up", [False, True])
def test_a_body_before_the_fork_is_turned_away_at_the_leaf_of_fields(current, is_made_up):
    """Below index 2856 of a body before Gloas are the proofs of its eleventh deposit."""
    world = BeaconWorld(random.Random(21))
    tree = Tree(random.Random(32), 11, {3: FIELDS} if is_made_up else None)
    header = replace(world.blocks[85].header, body_root=tree.root)
    forged = jumps.own(ExecutionBranch(header, tree.nodes[2856], tree.siblings(2856)))
    assert (current.answer("ownBlockHash", header.root, forged) is not None) == is_made_up


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


def _head(
    world: BeaconWorld,
    anchor: BeaconHeader,
    summaries: list[tuple[bytes, bytes]],
    chain: BeaconChain | None = None,
) -> bytes:
    """Return the beginning of a branch to the block of slot 33, up to the anchor."""
    chain = chain or world.chain
    roots, _ = world.periods[chain.period(33)]
    branch = [bytes(32)] * (chain.state_index(anchor.slot, HISTORICAL_SUMMARIES).bit_length() - 1)
    listed = ssz.list_root([ssz.merge(*each) for each in summaries], HISTORY_DEPTH)
    root = ssz.climb(listed, branch, chain.state_index(anchor.slot, HISTORICAL_SUMMARIES))
    header = replace(anchor, state_root=root)
    whole = jumps.old(chain, world.blocks[33], roots, Anchor(header, summaries, branch))
    return whole[: -len(_end(header, branch))]
