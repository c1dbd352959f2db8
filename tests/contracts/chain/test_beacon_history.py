"""Both beacon histories and their models on chains of random leaves. They must answer for every block, and
for nothing else.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from campaigns.fuzzing import branches
from campaigns.fuzzing.branches import MODELS, arguments_of
from chains.beacon import jumps, ssz
from chains.beacon.jumps import CannotProve
from chains.contract_artifacts import load_artifact
from devnet.devchain import DevChain
from tests.contracts import beacon_worlds
from tests.contracts.beacon_worlds import SMALL, SMALL_BEFORE_GLOAS, BeaconWorld
from tests.contracts.compared_history import Asked, History
from tests.contracts.deployed import Deployed, Reverted
from tests.contracts.simulator import Call

# Missed slots: the second of a period, the last before a fork, a fork's first, one within a fork, and a period's last.
MISSED = frozenset({9, 41, 58, 68, 79})
EMPTY = frozenset({14, 15, 20})
# Each contract with a chain whose blocks it proves up to the chain's end.
CHAINS = {"GloasBeaconHistory": SMALL, "BeaconHistory": SMALL_BEFORE_GLOAS}


@pytest.fixture(scope="module", params=CHAINS)
def contract(request) -> str:
    """Return the name of the current contract, or of the earlier one, which knows no Gloas."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def world(contract) -> BeaconWorld:
    return BeaconWorld(random.Random(1), CHAINS[contract], missed=MISSED, empty=EMPTY)


@pytest.fixture(scope="module")
def history(chain, simulator, world, contract) -> History:
    return History(chain, simulator, world.chain, contract)


@pytest.fixture(scope="module")
def gloas_world() -> BeaconWorld:
    return BeaconWorld(random.Random(1), missed=MISSED, empty=EMPTY)


@pytest.fixture(scope="module")
def gloas_history(chain, simulator, gloas_world) -> History:
    return History(chain, simulator, gloas_world.chain)


# --- Existing blocks --------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("capella", [32, 35], ids=["Capella begins with a period", "Capella begins within one"])
def test_every_old_block_is_proven_from_every_later_one(chain, simulator, contract, capella):
    world = BeaconWorld(random.Random(2), replace(CHAINS[contract], capella=capella), missed=MISSED, empty=EMPTY)
    history = History(chain, simulator, world.chain, contract)
    calls, expected = [], []
    for anchor in sorted(world.blocks):
        first, end = (world.chain.period(slot) * 8 for slot in (capella, anchor))
        for slot in range(first, min(end, SMALL.end)) if capella <= anchor < SMALL.end else ():
            if slot in world.blocks:
                calls.append(("oldBlockHash", (world.root(anchor), world.old(slot, anchor))))
                expected.append(world.blocks[slot].block_hash)
    assert len(calls) > 500
    assert history.answers(calls) == expected


def test_every_block_before_capella_is_proven_but_those_without_a_payload(world, history):
    slots = [slot for slot in sorted(world.blocks) if slot < SMALL.capella]
    answers = history.answers([("blockHashBeforeCapella", (world.before_capella(slot),)) for slot in slots])
    proven = {slot: world.blocks[slot].block_hash for slot in slots if slot >= SMALL.bellatrix and slot not in EMPTY}
    assert dict(zip(slots, answers, strict=True)) == {slot: proven.get(slot) for slot in slots}
    assert len(proven) == 18


def test_a_block_proves_its_own(world, history):
    slots = sorted(world.blocks)
    answers = history.answers([("ownBlockHash", (world.root(slot), jumps.own(world.blocks[slot]))) for slot in slots])
    proven = [
        world.blocks[slot].block_hash if SMALL.bellatrix <= slot < SMALL.end and slot not in EMPTY else None
        for slot in slots
    ]
    assert answers == proven


def test_anybody_can_check_the_constant_of_historical_roots(chain, simulator, contract, world, history):
    anchors = [slot for slot in sorted(world.blocks) if SMALL.capella <= slot < SMALL.end]
    calls = [("provesHistoricalRoots", (world.root(slot), world.historical_roots(slot))) for slot in anchors]
    assert None not in history.answers(calls)
    wrong = History(chain, simulator, replace(world.chain, historical_roots=b"\x01" * 32), contract)
    assert wrong.answers(calls) == [None] * len(calls)


@pytest.mark.parametrize("remainder", [0, 1, 5])
def test_blocks_before_the_merge_are_proven(chain, simulator, contract, remainder):
    count = 2 * 8192 + remainder
    records, epochs = beacon_worlds.before_merge(random.Random(3), count)
    accumulator = ssz.list_root(epochs, jumps.EPOCHS_DEPTH)
    beacon = replace(SMALL, blocks_before_merge=count, accumulator=accumulator)
    history = History(chain, simulator, beacon, contract)
    numbers = [0, 1, 4095, 8190, 8191, 8192, 12288, *range(16380, count)]
    branches = [jumps.before_merge(beacon, number, records[number // 8192], epochs) for number in numbers]
    answers = history.answers([("blockHashBeforeMerge", (branch,)) for branch in branches])
    assert answers == [records[number // 8192][number % 8192][0] for number in numbers]
    # A branch with another number proves nothing, unless that number has the same branch.
    moved = [(number + by).to_bytes(4) for number in numbers for by in (1, 2, 8192, 2**30) if number + by < 2**32]
    again = [("blockHashBeforeMerge", (number + branch[4:],)) for number in moved for branch in branches[-2:]]
    answers = history.answers(again)
    assert not any(answers[at] for at, (_, (branch,)) in enumerate(again) if branch not in branches)


# --- Invalid branches -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def genuine(world) -> list[Asked]:
    """Return a call with a valid branch for each kind and layout."""
    recent = [("oldBlockHash", (world.root(89), world.recent(83, 89)))] if world.chain.gloas < SMALL.end else []
    return (
        recent
        + [
            ("oldBlockHash", (world.root(anchor), world.old(slot, anchor)))
            for slot, anchor in ((33, 57), (40, 41 + 9), (47, 60), (59, 73), (59, 89), (75, 89))
        ]
        + [
            ("blockHashBeforeCapella", (world.before_capella(26),)),
            ("ownBlockHash", (world.root(80), jumps.own(world.blocks[80]))),
            ("provesHistoricalRoots", (world.root(59), world.historical_roots(59))),
            ("provesHistoricalRoots", (world.root(80), world.historical_roots(80))),
        ]
    )


@pytest.mark.long
def test_no_flipped_bit_leaves_a_branch_to_the_same_root(history, genuine):
    for name, (*root, branch) in genuine:
        flipped = [
            branch[:offset] + bytes([branch[offset] ^ 1 << bit]) + branch[offset + 1 :]
            for offset in range(len(branch))
            for bit in ((offset % 8,) if offset > 60 else range(8))
        ]
        assert history.answer(name, *root, branch) is not None
        assert not any(history.answers([(name, (*root, each)) for each in flipped]))


def test_no_branch_goes_on_behind_its_end(simulator, history, genuine):
    """The caller chooses the size in calldata. Bytes beyond it must not count as the branch's end."""
    for name, arguments in genuine:
        data, at = history.contract.calldata(name, *arguments), 4 + 32 * len(arguments)
        size = int.from_bytes(data[at : at + 32])
        assert size == len(arguments[-1])
        calls = [data[:at] + (size - by).to_bytes(32) + data[at + 32 :] for by in (0, 1, 31, 32, 64)]
        outcomes = simulator.run([Call(history.contract.address, each) for each in calls])
        assert [outcome.succeeded for outcome in outcomes] == [True, False, False, False, False]


def test_beyond_the_forks_that_it_knows_nothing_is_proven(history, world):
    last, first = max(slot for slot in world.blocks if slot < SMALL.end), SMALL.end
    assert history.answer("ownBlockHash", world.root(last), jumps.own(world.blocks[last])) is not None
    for name, branch in (
        ("ownBlockHash", jumps.own(world.blocks[first])),
        ("oldBlockHash", world.old(34, first)),
        ("provesHistoricalRoots", world.historical_roots(first)),
    ):
        assert history.answer(name, world.root(first), branch) is None
        assert history.contract.refusal(name, world.root(first), branch) == ("UnknownFork", first)


@pytest.mark.long
def test_only_bounds_refuse_what_leads_to_the_root(chain, contract):
    tally = branches.run(chain, 1, 5000, contract=contract)
    assert tally.accepted.keys() == MODELS[contract].keys()
    assert min(tally.accepted.values()) > 3


# --- Forks ------------------------------------------------------------------------------------------------------------


_FORKS = ("bellatrix", "capella", "deneb", "electra", "gloas", "end")


@pytest.mark.parametrize(
    "wrong",
    [
        {"bellatrix": 33},
        {"capella": 43},
        {"deneb": 59},
        {"electra": 91},
        {"end": 2**64},
        {"period_depth": 0},
        {"period_depth": 25},
        {"capella": 2**27 + 8, **dict.fromkeys(("deneb", "electra", "gloas", "end"), 2**63)},
        {"blocks_before_merge": 2**30 + 1},
    ],
)
def test_forks_follow_each_other(chain, contract, wrong):
    _is_refused(chain, contract, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"gloas": SMALL.electra - 1}, {"gloas": SMALL.end + 1}, {"gloas": 2**64 - 1}, dict.fromkeys(_FORKS, 0)],
    ids=["below electra", "above end", "the last slot", "zero"],
)
def test_gloas_follows_electra_and_is_not_zero(chain, wrong):
    _is_refused(chain, "GloasBeaconHistory", **wrong)


def _is_refused(chain: DevChain, contract: str, **wrong: Any) -> None:
    beacon = replace(CHAINS[contract], **wrong)
    arguments = beacon.arguments if contract == "GloasBeaconHistory" else beacon.arguments_without_gloas
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, contract, arguments)
    assert reverted.value.error == ("InvalidChain",)


@pytest.mark.parametrize(
    "right",
    [
        {**dict.fromkeys(_FORKS, 0), "gloas": 1, "end": 1},
        {"gloas": SMALL.electra},
        {"gloas": SMALL.end},
        {"end": 2**64 - 1},
        {"gloas": 2**64 - 1, "end": 2**64 - 1},
        {"period_depth": 24},
        {"capella": 2**27, **dict.fromkeys(("deneb", "electra", "gloas", "end"), 2**63)},
        {"blocks_before_merge": 2**30},
    ],
)
def test_forks_may_be_at_any_other_slots(chain, contract, right):
    arguments, beacon = arguments_of(contract, replace(SMALL, **right))
    deployed = Deployed(chain, contract, arguments)
    assert deployed.code == load_artifact(contract).deployed(**beacon.immutables)
    names = [name for name in beacon.immutables if name != "gloas" or contract == "GloasBeaconHistory"]
    assert tuple(deployed.call(name) for name in names) == arguments


@pytest.mark.parametrize(
    ("code", "error"),
    [("0x", ("NoSha256",)), ("0x5f195f5260205ff3", ("NoSha256",)), ("0x5f5ffd", ("",))],
    ids=["nothing", "something else", "reverts"],
)
def test_a_chain_that_hashes_otherwise_is_refused(chain, contract, code, error):
    """All development chains have the precompiled SHA-256, so its calls go to one of these contracts instead."""
    artifact = load_artifact(contract)
    call, elsewhere = bytes.fromhex("60025afa"), bytes.fromhex("60ff5afa")
    assert artifact.bytecode.count(call) == {"BeaconHistory": 10, "GloasBeaconHistory": 13}[contract]
    artifact = replace(artifact, bytecode=artifact.bytecode.replace(call, elsewhere))
    chain.rpc("anvil_setCode", "0x" + "00" * 19 + "ff", code)
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, contract, arguments_of(contract, CHAINS[contract])[0], artifact=artifact)
    chain.rpc("anvil_setCode", "0x" + "00" * 19 + "ff", "0x")
    assert reverted.value.error == error


# --- Gloas ------------------------------------------------------------------------------------------------------------


def _heze(*without: int, also: int = 0) -> bytes:
    """Return a leaf of active fields with 13 bits, except some, and another."""
    bits = (1 << 13) - 1 & ~sum(1 << field for field in without) | 1 << also
    return bits.to_bytes(32, "little")


@pytest.mark.parametrize("by", [-1, 0, 1])
def test_layouts_change_at_the_slot_of_the_fork(chain, simulator, by):
    """The chain forks one slot before the contract's slot, at it, or one slot after it."""
    world = BeaconWorld(random.Random(4), replace(SMALL, gloas=SMALL.gloas + by))
    history = History(chain, simulator, replace(world.chain, gloas=SMALL.gloas))
    slots = range(SMALL.gloas - 2, SMALL.gloas + 3)
    is_right = [(slot >= SMALL.gloas) == (slot >= SMALL.gloas + by) for slot in slots]
    assert is_right == [slot != SMALL.gloas + min(by, 0) for slot in slots] if by else all(is_right)
    calls: dict[str, list[Asked]] = {
        "own": [("ownBlockHash", (world.root(slot), jumps.own(world.blocks[slot]))) for slot in slots],
        "old": [("oldBlockHash", (world.root(slot), world.old(60, slot))) for slot in slots],
        "recent": [("oldBlockHash", (world.root(slot), world.recent(70, slot))) for slot in slots],
        "roots": [("provesHistoricalRoots", (world.root(slot), world.historical_roots(slot))) for slot in slots],
        # Targets on both sides of the fork, from an anchor after it.
        "old target": [("oldBlockHash", (world.root(85), world.old(slot, 85))) for slot in slots],
    }
    for asked in calls.values():
        assert [answer is not None for answer in history.answers(asked)] == is_right
    # The block's branch for the contract's slot, which has other siblings.
    for slot in slots:
        if slot != SMALL.gloas + min(by, 0):
            continue
        block = world.blocks[slot]
        for branch in (block.branch[:9], block.branch[-9:], block.branch[:11], [*block.branch, *block.branch][:11]):
            forged = jumps.own(replace(block, branch=branch))
            assert by == 0 or history.answer("ownBlockHash", world.root(slot), forged) is None


def test_a_state_proves_each_of_its_last_blocks_and_no_other(gloas_world, gloas_history):
    world, size = gloas_world, 1 << SMALL.period_depth
    calls: list[Asked] = []
    expected = []
    for anchor in sorted(world.blocks):
        for slot in range(max(SMALL.bellatrix, anchor - size), anchor):
            if SMALL.capella <= anchor < SMALL.end and slot in world.blocks and slot not in EMPTY:
                calls.append(("oldBlockHash", (world.root(anchor), world.recent(slot, anchor))))
                expected.append(world.blocks[slot].block_hash)
    assert len(calls) == 400
    assert {world.chain.place(anchor) for anchor in world.blocks} == set(range(size))
    assert gloas_history.answers(calls) == expected
    for slot in (73, 71, 82, 83):
        with pytest.raises(CannotProve, match="not among the roots"):
            world.recent(slot, 82)


def test_block_roots_have_no_state_roots_beside_them(gloas_world, gloas_history):
    for anchor in (40, 50, 71, 80):
        branch = gloas_world.recent(anchor - 2, anchor)
        assert gloas_history.answer("oldBlockHash", gloas_world.root(anchor), branch) is not None
        at = len(jumps.own(gloas_world.blocks[anchor - 2])) + 32 * SMALL.period_depth
        assert branch[at : at + 35] == bytes(35)
        for place in (at, at + 31, at + 34):
            spoilt = branch[:place] + b"\x01" + branch[place + 1 :]
            assert gloas_history.answer("oldBlockHash", gloas_world.root(anchor), spoilt) is None


@pytest.mark.parametrize("slot", [74, 75, 89])
def test_no_promise_is_proven(gloas_world, gloas_history, slot):
    """A block of Gloas also contains the hash of a payload that may never be revealed."""
    block, (promise, siblings) = gloas_world.blocks[slot], gloas_world.promises[slot]
    assert len(siblings) == len(block.branch) + 3
    cut = [siblings[:first] + siblings[first + 3 :] for first in range(len(siblings) - 2)]
    calls: list[Asked] = []
    for branch in (siblings, block.branch, *cut):
        forged = replace(block, block_hash=promise, branch=branch)
        calls.append(("ownBlockHash", (block.header.root, jumps.own(forged))))
    assert not any(gloas_history.answers(calls))
    forged = replace(block, block_hash=promise, branch=siblings)
    for root, rest in (
        (gloas_world.root(97), b""),
        (gloas_world.root(89), gloas_world.recent(83, 89)[len(jumps.own(gloas_world.blocks[83])) :]),
    ):
        assert gloas_history.answer("oldBlockHash", root, jumps.own(forged) + rest) is None


@pytest.mark.parametrize("slot", [73, 74, 75])
def test_a_branch_has_the_number_of_siblings_of_its_layout(gloas_world, gloas_history, slot):
    block = gloas_world.blocks[slot]
    places = range(len(block.branch))
    less = [[*block.branch[:place], *block.branch[place + 1 :]] for place in places]
    more = [[*block.branch[:place], bytes(32), *block.branch[place:]] for place in (*places, len(places))]
    forged = [jumps.own(replace(block, branch=branch)) for branch in (*less, *more)]
    assert not any(gloas_history.answers([("ownBlockHash", (block.header.root, each)) for each in forged]))
    anchor = gloas_world.blocks[slot].header
    for field, kind in ((gloas_world.recent(70, slot), "recent"), (gloas_world.old(50, slot), "old")):
        # The branch ends with the state's siblings and another one.
        for spoilt in (field[:-64] + field[-32:], field[:-32] + bytes(32) + field[-32:]):
            assert gloas_history.answer("oldBlockHash", anchor.root, spoilt) is None, kind


@pytest.mark.parametrize(
    ("fields", "is_known"),
    [
        (_heze(1, 6), True),
        (_heze(1, 6, also=45), True),
        (_heze(8, 9, 10, also=28), True),
        (_heze(also=127), True),
        (_heze(also=120), True),
        (_heze(also=128), False),
        (_heze(also=135), False),
        (_heze(also=255), False),
        (b"\xff" * 32, False),
    ],
)
def test_other_active_fields_change_no_place(chain, simulator, fields, is_known):
    """Heze removes fields of body and state, and adds one to the bid. A tree of before Gloas has a hash there."""
    world = BeaconWorld(random.Random(5), fields={75: fields, 89: fields})
    history = History(chain, simulator, world.chain)
    calls: list[Asked] = [
        ("ownBlockHash", (world.root(75), jumps.own(world.blocks[75]))),
        ("oldBlockHash", (world.root(89), world.old(50, 89))),
        ("oldBlockHash", (world.root(89), world.recent(85, 89))),
        ("provesHistoricalRoots", (world.root(89), world.historical_roots(89))),
        ("oldBlockHash", (world.root(88), world.old(75, 88))),
    ]
    assert [answer is not None for answer in history.answers(calls)] == [is_known] * 5


def test_a_chain_with_gloas_from_its_first_block(chain, simulator):
    """Slot 0 has the tree of Gloas too. The contract takes it for an earlier one and proves nothing by it."""
    first: dict[str, Any] = dict.fromkeys(_FORKS[:-1], 0)
    world = BeaconWorld(random.Random(6), replace(SMALL, **first), 20, empty=frozenset({1}))
    history = History(chain, simulator, replace(world.chain, gloas=1))
    slots = range(20)
    own: list[Asked] = [("ownBlockHash", (world.root(slot), jumps.own(world.blocks[slot]))) for slot in slots]
    # The first block has no execution block before it: it names a hash of zero.
    expected = [world.blocks[slot].block_hash if slot > 1 else None for slot in slots]
    assert history.answers(own) == expected
    old: list[Asked] = [("oldBlockHash", (world.root(17), world.old(slot, 17))) for slot in range(16)]
    assert history.answers(old) == expected[:16]
    recent: list[Asked] = [("oldBlockHash", (world.root(7), world.recent(slot, 7))) for slot in range(7)]
    assert history.answers(recent) == expected[:7]
    roots: list[Asked] = [
        ("provesHistoricalRoots", (world.root(slot), world.historical_roots(slot))) for slot in (0, 1)
    ]
    assert [answer is not None for answer in history.answers(roots)] == [False, True]


def test_without_a_slot_of_gloas_earlier_blocks_are_proven(chain, simulator, gloas_world):
    """Gloas has no slot of its own: it is where the known forks end."""
    world = gloas_world
    history = History(chain, simulator, replace(world.chain, end=SMALL.gloas))
    slots = [slot for slot in range(SMALL.gloas - 3, SMALL.gloas + 3) if slot in world.blocks]
    for calls in (
        [("ownBlockHash", (world.root(slot), jumps.own(world.blocks[slot]))) for slot in slots],
        [("oldBlockHash", (world.root(slot), world.old(40, slot))) for slot in slots],
        [("oldBlockHash", (world.root(slot), world.recent(70, slot))) for slot in slots],
        [("provesHistoricalRoots", (world.root(slot), world.historical_roots(slot))) for slot in slots],
    ):
        assert [answer is not None for answer in history.answers(calls)] == [slot < SMALL.gloas for slot in slots]


def test_a_block_before_a_period_without_blocks_is_proven_at_its_own_place_only(chain, simulator):
    """All block roots of the state are this block's. It is more slots behind than the state has roots."""
    world = BeaconWorld(random.Random(7), missed=frozenset(range(76, 86)))
    history = History(chain, simulator, world.chain)
    roots = world.block_roots[86]
    assert set(roots) == {world.root(75)}
    branch = world.recent(75, 86)
    assert history.answer("oldBlockHash", world.root(86), branch) == world.blocks[75].block_hash
    # A block that claims another slot has another root, and the block before is in no place.
    for slot in (67, 74, 76, 83):
        assert history.answer("oldBlockHash", world.root(86), slot.to_bytes(8) + branch[8:]) is None
    own = jumps.own(world.blocks[74])
    assert history.answer("oldBlockHash", world.root(86), own + branch[len(own) :]) is None


def test_the_earlier_contract_proves_nothing_by_blocks_of_gloas(chain, simulator, gloas_world):
    """Its table of forks goes on for ever."""
    world, unbounded = gloas_world, replace(gloas_world.chain, gloas=2**64 - 1, end=2**64 - 1)
    earlier = History(chain, simulator, unbounded, "BeaconHistory")
    late = History(chain, simulator, unbounded)
    calls: list[Asked] = []
    for anchor in range(SMALL.gloas, SMALL.end):
        if {anchor, anchor - 1} & MISSED:
            continue
        old = [*(world.old(slot, anchor) for slot in (40, 50, 70)), world.recent(anchor - 1, anchor)]
        calls += [("oldBlockHash", (world.root(anchor), branch)) for branch in old]
        calls.append(("ownBlockHash", (world.root(anchor), jumps.own(world.blocks[anchor]))))
        calls.append(("provesHistoricalRoots", (world.root(anchor), world.historical_roots(anchor))))
    assert len(calls) > 80
    assert not any(earlier.answers(calls))
    # Neither does the current one, if its slot of Gloas is too late.
    assert not any(late.answers(calls))
    # Before Gloas it has no branches through block roots.
    assert earlier.answer("oldBlockHash", world.root(70), world.recent(66, 70)) is None
    assert late.answer("oldBlockHash", world.root(70), world.recent(66, 70)) == world.blocks[66].block_hash
