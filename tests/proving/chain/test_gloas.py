"""Blocks whose beacon blocks have Gloas's layout: full, empty and missed slots, around the fork and ends of periods."""

from collections.abc import Iterator

import pytest

from devnet.devchain import DevChain
from proving.models import Transaction
from queries.models import BatchStatus, Block
from tests import service
from tests.chain_fixtures import chain_fixture
from tests.contracts.beacon_roots import BeaconRoots
from tests.proving.chain_state import balance_at
from tests.proving.jumping import Jumping, Pointing, World, beacon_chain_of, jumping
from tests.proving.sources import THERE, balance_proven, of_chains
from tests.service import CHARLIE, asking, balances, submit, waiting, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.long]

# Each slot from the chain's first block on: full, empty (without an execution block), or skipped (without any block).
# The fork comes within a period, whose last slots have blocks that are named only in the next one.
BEFORE = "F" * 28
SINCE = "FFEFFSFEEFSSFFESFFFFEFEFESEFFFFEFFFFFFFFFF"
PLAN = BEFORE + SINCE
# Seconds for which the destination's blocks derive from the newest source block.
LASTS = 400


def mined(chain: DevChain) -> None:
    """Mine a block at each full slot, a second after the slot before. Each gives money to Charlie."""
    first = int(chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16) + 10
    for place, what in enumerate(PLAN):
        if what == "F":
            chain.rpc("evm_setNextBlockTimestamp", first + place)
            chain.rpc("eth_sendTransactionSync", {"from": service.BOB, "to": CHARLIE, "value": "0x1"})


there = chain_fixture(mined, chain_id=THERE, hardfork="cancun")


@pytest.fixture(scope="module")
def made(there) -> tuple[Pointing, World]:
    # The chain's first block is at slot 8 of its beacon chain.
    return beacon_chain_of(
        there, gloas=8 + len(BEFORE), empty=[8 + place for place, what in enumerate(PLAN) if what == "E"]
    )


def number_of(place: int) -> int:
    """Return the number of the block at a place of the plan, or of the last one before."""
    return PLAN[: place + 1].count("F")


class Held(BeaconRoots):
    """A destination that holds the beacon roots in these blocks of the source chain."""

    def hold(self, relaid: Pointing, *numbers: int) -> None:
        head = int(self.chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
        first = max(head + 1, relaid.timestamp(numbers[-1]) + 1)
        # The blocks after these are derived from the same source block.
        for place, number in enumerate([*numbers, *[numbers[-1]] * LASTS]):
            self.tell(first + place, bytes(relaid.fields(number)["parentBeaconBlockRoot"]))
        for place in range(len(numbers)):
            self.chain.rpc("evm_setNextBlockTimestamp", first + place)
            self.chain.mine()


@pytest.fixture
def roots(chain, made) -> Held:
    held = Held(chain)
    held.hold(made[0], *range(2, number_of(len(PLAN)) + 1))
    return held


@pytest.fixture
def service_of_roots(chain, made, roots, settings, tmp_path) -> Iterator[Jumping]:
    with jumping(chain, made, settings, tmp_path, block_hash_source="beacon-roots") as opened:
        yield opened


@pytest.fixture
def service_of_jumps(chain, made, settings, tmp_path) -> Iterator[Jumping]:
    with jumping(chain, made, settings, tmp_path) as jump:
        jump.tell(number_of(len(PLAN)))
        yield jump


def named_by(world: World, relaid: Pointing, number: int) -> int:
    """Return the number of the block that the root in a block's header names."""
    (block,) = [
        each for each in world.blocks.values() if each.header.root == relaid.fields(number)["parentBeaconBlockRoot"]
    ]
    (named,) = [at for at in (number - 1, number - 2) if relaid.hash(at) == block.block_hash]
    return named


def test_each_block_is_recorded_by_the_root_that_names_it_or_the_next_one(service_of_roots, there, key):
    relaid, world = service_of_roots.relaid, service_of_roots.world
    numbers = range(number_of(len(BEFORE)) - 2, number_of(len(PLAN)) - 2)
    ways = set()
    for number in numbers:
        ways.add(tuple(named_by(world, relaid, later) - number for later in (number + 1, number + 2)))
        batch = work_until_done(submit(key, of_chains(there=[number])), service_of_roots.here)
        assert (number, batch.status, waiting()) == (number, BatchStatus.DONE, [])
        assert balance_proven(service_of_roots.here, number) == balance_at(there, CHARLIE, number)
    # All four cases: one of two roots names the block, both do, or neither does.
    assert ways == {(-1, 0), (0, 0), (0, 1), (-1, 1)}
    assert set(Transaction.objects.values_list("succeeded", flat=True)) == {True}


def test_each_block_is_reached_by_a_jump_through_the_block_that_names_it(service_of_jumps, there, key):
    world = service_of_jumps.world
    # Periods that the state of the origin summarises.
    last = world.chain.period(8 + len(PLAN) - 1) * 8 - 8
    numbers = [number_of(place) for place in range(len(BEFORE) - 3, last - 1) if PLAN[place] == "F"]
    batch = submit(key, asking(balances(numbers, CHARLIE), source=THERE))
    assert (work_until_done(batch, service_of_jumps.here, rounds=40).status, waiting()) == (BatchStatus.DONE, [])
    for number in numbers:
        assert balance_proven(service_of_jumps.here, number) == balance_at(there, CHARLIE, number)
    rows = Block.objects.filter(number__in=numbers)
    assert {row.path_unit for row in rows} == {"jumps"}
