"""The beacon history and its model on chains of random leaves. They must answer for every block, and
for nothing else.
"""

import random
from dataclasses import replace

import pytest

from campaigns.fuzzing import branches
from campaigns.fuzzing.branches import MODEL
from chains.beacon import jumps, ssz
from chains.contract_artifacts import load_artifact
from tests.contracts import beacon_worlds
from tests.contracts.beacon_worlds import SMALL, BeaconWorld
from tests.contracts.compared_history import Asked, History
from tests.contracts.deployed import Deployed, Reverted
from tests.contracts.simulator import Call

# Missed slots: the second of a period, the last before a fork, a fork's first, one within a fork, and a period's last.
MISSED = frozenset({9, 41, 58, 68, 79})
EMPTY = frozenset({14, 15, 20})


@pytest.fixture(scope="module")
def world() -> BeaconWorld:
    return BeaconWorld(random.Random(1), missed=MISSED, empty=EMPTY)


@pytest.fixture(scope="module")
def history(chain, simulator, world) -> History:
    return History(chain, simulator, world.chain)


# --- Existing blocks --------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("capella", [32, 35], ids=["Capella begins with a period", "Capella begins within one"])
def test_every_old_block_is_proven_from_every_later_one(chain, simulator, capella):
    world = BeaconWorld(random.Random(2), replace(SMALL, capella=capella), missed=MISSED, empty=EMPTY)
    history = History(chain, simulator, world.chain)
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


def test_anybody_can_check_the_constant_of_historical_roots(chain, simulator, world, history):
    anchors = [slot for slot in sorted(world.blocks) if SMALL.capella <= slot < SMALL.end]
    calls = [("provesHistoricalRoots", (world.root(slot), world.historical_roots(slot))) for slot in anchors]
    assert None not in history.answers(calls)
    wrong = History(chain, simulator, replace(world.chain, historical_roots=b"\x01" * 32))
    assert wrong.answers(calls) == [None] * len(calls)


@pytest.mark.parametrize("remainder", [0, 1, 5])
def test_blocks_before_the_merge_are_proven(chain, simulator, remainder):
    count = 2 * 8192 + remainder
    records, epochs = beacon_worlds.before_merge(random.Random(3), count)
    accumulator = ssz.list_root(epochs, jumps.EPOCHS_DEPTH)
    beacon = replace(SMALL, blocks_before_merge=count, accumulator=accumulator)
    history = History(chain, simulator, beacon)
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
    return [
        ("oldBlockHash", (world.root(anchor), world.old(slot, anchor)))
        for slot, anchor in ((33, 57), (40, 41 + 9), (47, 60), (59, 89))
    ] + [
        ("blockHashBeforeCapella", (world.before_capella(26),)),
        ("ownBlockHash", (world.root(80), jumps.own(world.blocks[80]))),
        ("provesHistoricalRoots", (world.root(59), world.historical_roots(59))),
    ]


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
def test_only_bounds_refuse_what_leads_to_the_root(chain):
    tally = branches.run(chain, 1, 5000)
    assert tally.accepted.keys() == MODEL.keys()
    assert min(tally.accepted.values()) > 3


# --- Forks ------------------------------------------------------------------------------------------------------------


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
        {"capella": 2**27 + 8, "deneb": 2**63, "electra": 2**63, "end": 2**63},
        {"blocks_before_merge": 2**30 + 1},
    ],
)
def test_forks_follow_each_other(chain, wrong):
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, "BeaconHistory", replace(SMALL, **wrong).arguments)
    assert reverted.value.error == ("InvalidChain",)


@pytest.mark.parametrize(
    "right",
    [
        dict.fromkeys(("bellatrix", "capella", "deneb", "electra", "end"), 0),
        {"end": 2**64 - 1},
        {"period_depth": 24},
        {"capella": 2**27, "deneb": 2**63, "electra": 2**63, "end": 2**63},
        {"blocks_before_merge": 2**30},
    ],
)
def test_forks_may_be_at_any_other_slots(chain, right):
    beacon = replace(SMALL, **right)
    contract = Deployed(chain, "BeaconHistory", beacon.arguments)
    names = ("sourceChainId", "periodDepth", "bellatrix", "capella", "deneb", "electra", "end", "historicalRoots")
    answers = [contract.call(name) for name in (*names, "blocksBeforeMerge", "accumulator")]
    assert tuple(answers) == beacon.arguments


@pytest.mark.parametrize(
    ("code", "error"),
    [("0x", ("NoSha256",)), ("0x5f195f5260205ff3", ("NoSha256",)), ("0x5f5ffd", ("",))],
    ids=["nothing", "something else", "reverts"],
)
def test_a_chain_that_hashes_otherwise_is_refused(chain, code, error):
    """All development chains have the precompiled SHA-256, so its calls go to one of these contracts instead."""
    artifact = load_artifact("BeaconHistory")
    call, elsewhere = bytes.fromhex("60025afa"), bytes.fromhex("60ff5afa")
    assert artifact.bytecode.count(call) == 10
    artifact = replace(artifact, bytecode=artifact.bytecode.replace(call, elsewhere))
    chain.rpc("anvil_setCode", "0x" + "00" * 19 + "ff", code)
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, "BeaconHistory", SMALL.arguments, artifact=artifact)
    chain.rpc("anvil_setCode", "0x" + "00" * 19 + "ff", "0x")
    assert reverted.value.error == error
