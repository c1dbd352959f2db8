"""Blocks whose beacon blocks have Gloas's layout: full, empty and missed slots, around the fork and ends of periods."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as current
from django.test import Client

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from queries.models import BatchStatus, Block
from tests import service
from tests.chain_fixtures import chain_fixture
from tests.contracts.beacon_roots import BeaconRoots
from tests.contracts.deployed import Deployed
from tests.deployed import deploy
from tests.proving import estimated_batches
from tests.proving.chain_state import balance_at, registry
from tests.proving.jumping import Jumping, Pointing, World, beacon_chain_of, jumping
from tests.proving.sources import HERE, THERE, balance_proven, grow, of_chains
from tests.service import CHARLIE, asking, balances, fresh, reconfigure, submit, waiting, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.long]

# Each slot from the chain's first block on: full, empty (without an execution block), or skipped (without any block).
# The fork comes within a period, whose last slots have blocks that are named only in the next one.
BEFORE = "F" * 28
SINCE = "FFEFFSFEEFSSFFESFFFFEFEFESEFFFFEFFFFFFFFFF"
PLAN = BEFORE + SINCE
# Seconds for which the destination's blocks derive from a source block, and from the newest one. The service looks at
# some times only, the fewer the longer the destination has run.
EACH_LASTS, LASTS = 5, 400


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
        derived = [number for number in numbers for _ in range(EACH_LASTS)]
        for place, number in enumerate([*derived, *[numbers[-1]] * LASTS]):
            self.tell(first + place, bytes(relaid.fields(number)["parentBeaconBlockRoot"]))
        for place in range(0, len(derived), EACH_LASTS):
            self.chain.rpc("evm_setNextBlockTimestamp", first + place)
            self.chain.mine()
        # The service looks for roots at regular times of blocks. A slow machine would make them irregular.
        self.chain.rpc("anvil_setBlockTimestampInterval", 1)


@pytest.fixture
def roots(request, chain, made) -> Held:
    """Hold the roots in all headers, or in those up to a block."""
    held = Held(chain)
    held.hold(made[0], *range(2, getattr(request, "param", number_of(len(PLAN))) + 1))
    return held


@pytest.fixture
def service_of_roots(chain, made, roots, settings, tmp_path) -> Iterator[Jumping]:
    with jumping(chain, made, settings, tmp_path, block_hash_source="beacon-roots") as opened:
        yield opened


@pytest.fixture
def untold(chain, made, settings, tmp_path) -> Iterator[Jumping]:
    with jumping(chain, made, settings, tmp_path) as jump:
        yield jump


@pytest.fixture
def service_of_jumps(untold: Jumping) -> Jumping:
    untold.tell(number_of(len(PLAN)))
    return untold


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


# A block that only the second header after it names.
LATE = number_of(len(BEFORE) + 3)


@pytest.mark.parametrize("roots", [LATE + 1], indirect=True)
def test_a_block_waits_until_the_second_header_after_it_is_held(service_of_roots, roots, key):
    relaid, here = service_of_roots.relaid, service_of_roots.here
    assert [named_by(service_of_roots.world, relaid, LATE + after) for after in (1, 2)] == [LATE - 1, LATE]
    batch = submit(key, of_chains(there=[LATE]))
    service.work(2)
    (told,) = waiting()
    assert told == (
        f"Chain {here.chain_id} does not hold a beacon root yet that names block {LATE} of chain {THERE}. It is in the "
        "header of the first or second block after it."
    )
    sent = Transaction.objects.count()
    roots.hold(relaid, LATE + 2)
    assert work_until_done(batch, here).status == BatchStatus.DONE
    assert Transaction.objects.count() > sent


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


# --- Registries that know no Gloas ------------------------------------------------------------------------------------

VERSIONS = ["0.4.0", "from before the fork had a slot"]
FORK = 8 + len(BEFORE)
REMEDY = f"The operator must run: manage.py deploy_registry {HERE} {THERE} --replace"


def made_earlier(opened: Jumping, version: str) -> FactsRegistry:
    """Replace the deployed registry with one that knows no Gloas, which a worker has compared."""
    row, name = registry(THERE), "Gloas"
    chain = replace(opened.world.chain, historical_roots=bytes(32), gloas=2**64 - 1)
    arguments = chain.arguments
    if version == "0.4.0":
        name, arguments = "", chain.arguments_without_gloas
    if '"beacon-roots"' in Path(current.CHAINS_FILE).read_text():
        source = Deployed(opened.here, f"{name}BeaconBlockHashSource", arguments)
        row.block_hash_source, row.beacon_history = source.address, source.call("beaconChainHistory")
    else:
        row.beacon_history = Deployed(opened.here, f"{name}BeaconHistory", arguments).address
    of_registry = (THERE, row.block_hash_source, row.history_window, row.beacon_history)
    row.address, row.history_end = Deployed(opened.here, "FactsRegistry", *of_registry).address, None
    row.save()
    work()
    return fresh(row)


def told() -> list[str]:
    """Return the problem about the end of a history, which `/healthz` and `/chains` show."""
    health = Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()
    sentences = [each for each in health["problems"] if "beacon history" in each]
    assert ("history_ends" in health["codes"]) == bool(sentences)
    notes = [each for each in shown()["notes"] if "beacon history" in each]
    # Only operators read the command.
    assert notes == [sentence.partition(" The operator must run")[0] for sentence in sentences]
    return sentences


def shown() -> Any:
    connections = Client().get("/chains.json").json()["connections"]
    return next(each for each in connections if each["sourceChainId"] == f"{THERE}")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_registry_jumps_from_no_block_after_the_fork_until_it_is_replaced(service_of_jumps, there, key, version):
    opened = service_of_jumps
    old, at = made_earlier(opened, version), opened.world.chain.time_of(FORK)
    time = datetime.fromtimestamp(at, UTC)
    ends = f"The beacon history of the facts registry at {old} knows no block from slot {FORK} on, of {time:%F %T} UTC."
    assert (old.refused, old.history_end) == ("", FORK)
    effect = "What is recorded stays good, but without another registry no jump begins or ends after that slot."
    assert told() == [f"{ends} The other chain ({THERE}) has passed it. {effect} {REMEDY}"]
    reach = shown()["reach"]
    assert (reach["beaconHistory"]["endSlot"], reach["jumps"], reach["whyNoJump"]) == (f"{FORK}", False, ends)
    page = " ".join(Client().get("/chains").text.split())
    assert f"Its beacon history knows no block from slot {FORK} on," in page
    # Before the fork, and after it.
    for number in (10, number_of(len(BEFORE)) + 1):
        batch = work_until_done(submit(key, of_chains(there=[number])), opened.here)
        assert batch.rejection_code == "block_too_old"
        assert batch.rejection_reason.endswith(f"that goes back so far. {ends}")
    assert not Transaction.objects.filter(queries__isnull=False).exists()

    new = deploy(HERE, THERE, "--replace")
    assert fresh(old).replaced_because == ends
    assert (new.history_end, told(), shown()["reach"]["jumps"]) == (2**63 - 1, [], True)
    assert "Its beacon history has no known end." in " ".join(Client().get("/chains").text.split())
    assert deploy(HERE, THERE, "--replace") == new
    for number in (10, number_of(len(BEFORE)) + 1):
        batch = work_until_done(submit(key, of_chains(there=[number])), opened.here)
        assert batch.status == BatchStatus.DONE
        assert balance_proven(opened.here, number) == balance_at(there, CHARLIE, number)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_registry_jumps_from_blocks_before_the_fork(service_of_jumps, there, key, version):
    opened = service_of_jumps
    made_earlier(opened, version)
    # The root in this block's header is that of the last beacon block before the fork, and the next one's is not.
    newest = number_of(len(BEFORE))
    opened.tell(newest + 1)
    assert work_until_done(submit(key, of_chains(there=[5])), opened.here).status == BatchStatus.REJECTED
    opened.tell(newest)
    assert work_until_done(submit(key, of_chains(there=[5])), opened.here).status == BatchStatus.DONE
    assert registry(THERE).jump_origin == newest
    # The registry trusts that block for ever.
    opened.tell(number_of(len(PLAN)))
    assert work_until_done(submit(key, of_chains(there=[6])), opened.here).status == BatchStatus.DONE
    assert balance_proven(opened.here, 6) == balance_at(there, CHARLIE, 6)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_registry_records_no_block_that_a_root_of_gloas_names(service_of_roots, roots, there, key, version):
    opened, last = service_of_roots, number_of(len(BEFORE) - 1)
    old = made_earlier(opened, version)
    assert "nothing new is recorded from 2.2 hours after that slot on" in told()[0]
    # The last block before the fork is named by a block of either layout.
    assert work_until_done(submit(key, of_chains(there=[last])), opened.here).status == BatchStatus.DONE
    sent = Transaction.objects.count()
    batch = submit(key, of_chains(there=[last + 1]))
    work(3)
    (sentence,) = waiting()
    assert sentence.startswith(f"The beacon history of the facts registry at {old} knows no block from slot {FORK} on")
    assert REMEDY not in sentence
    assert Transaction.objects.count() == sent
    opened.here.mine(2)  # what is proven is final now
    deploy(HERE, THERE, "--replace")
    assert work_until_done(batch, opened.here).status == BatchStatus.DONE
    assert balance_proven(opened.here, last + 1) == balance_at(there, CHARLIE, last + 1)


def test_an_old_registry_records_the_last_block_before_a_fork_at_a_skipped_slot(chain, there, settings, tmp_path, key):
    """The root in the first header after the fork is that of a block before it."""
    place = PLAN.index("S")
    last, empty = number_of(place), [8 + at for at, what in enumerate(PLAN) if what == "E" and at > place]
    made = beacon_chain_of(there, gloas=8 + place, empty=empty)
    Held(chain).hold(made[0], *range(2, number_of(len(PLAN)) + 1))
    with jumping(chain, made, settings, tmp_path, block_hash_source="beacon-roots") as opened:
        assert made_earlier(opened, "0.4.0").history_end == 8 + place
        assert opened.relaid.timestamp(last + 1) > opened.world.chain.time_of(8 + place)
        assert work_until_done(submit(key, of_chains(there=[last])), chain).status == BatchStatus.DONE
        assert balance_proven(chain, last) == balance_at(there, CHARLIE, last)


def test_an_old_registry_goes_on_by_hops(chain, settings, tmp_path, key):
    grow(chain, 60)
    head = int(chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    lines = f"""
        [chains.beacon_chain]
        period_depth = 3
        genesis_time = {head - 1000}
        slot_seconds = 1
        bellatrix = 0
        capella = 0
        deneb = 0
        electra = 0
    """
    settings.CHAINS_FILE = path = service.chains_toml(
        tmp_path, chain.url, chain='beacon_urls = ["http://127.0.0.1:1"]', connection="window = 20"
    )
    path.write_text(path.read_text().replace("\n[[connections]]", f"{lines}\n[[connections]]"))
    deploy()
    reconfigure(settings, "electra = 0", "electra = 0\ngloas = 960")
    block = chain.head() - 50
    batch = work_until_done(submit(key, service.request(CHARLIE, block=block)), chain, rounds=4)
    assert (batch.status, registry().history_end) == (BatchStatus.DONE, 960)
    assert Block.objects.get(number=block).path_unit == "hops"


# The newest held root is that of a block in the same period.
@pytest.mark.parametrize("roots", [number_of(len(BEFORE) + 34)], indirect=True)
def test_a_block_that_no_root_names_has_its_hash_from_the_next_header(service_of_roots, there, client, key):
    relaid, world = service_of_roots.relaid, service_of_roots.world
    *_, number = [
        each
        for each in range(number_of(len(BEFORE)), number_of(len(PLAN)) - 2)
        if [named_by(world, relaid, each + at) - each for at in (1, 2)] == [-1, 1]
    ]
    assert world.numbers[65] == number
    body = of_chains(there=[number])
    result = estimated_batches.measured(client, key, "by the next header", body, chain=service_of_roots.here)
    assert result.spent <= min(result.bound, result.expected * 1.1), result
    assert result.expected <= result.spent * 1.35, result
    assert balance_proven(service_of_roots.here, number) == balance_at(there, CHARLIE, number)
    # It costs less than a jump, and no state is read.
    assert Block.objects.get(number=number).path_unit == "hops"
    assert states_read(service_of_roots) == []


# --- Through the last block roots in a state --------------------------------------------------------------------------

# The place of a block at which jumps begin, and places of older blocks that are named in a period that is not over
# then: by blocks before the fork and a state before it, by blocks of both layouts and a state after it, and since the
# fork, also from the last slot of the period before.
UNFINISHED = {"before": (27, (24, 25)), "across": (31, (24, 27, 28)), "since": (69, (63, 64, 65, 66))}
OUT_OF_REACH = f"of chain {THERE} is out of reach: the chain has no history of block hashes (EIP-2935)"


def of_places(*places: int) -> dict[str, Any]:
    return asking(balances([number_of(place) for place in places], CHARLIE), source=THERE)


def states_read(service: Jumping) -> list[str]:
    return [path for path in service.api.requested_paths if path.startswith("/eth/v2/debug/")]


def proven_by_jumps(service: Jumping, there: DevChain, places: Iterable[int]) -> bool:
    numbers = [number_of(place) for place in places]
    rows = Block.objects.filter(number__in=numbers)
    return {row.path_unit for row in rows} == {"jumps"} and all(
        balance_proven(service.here, number) == balance_at(there, CHARLIE, number) for number in numbers
    )


@pytest.mark.parametrize(("origin", "places"), UNFINISHED.values(), ids=UNFINISHED)
def test_blocks_of_a_period_that_is_not_over_are_reached_by_one_state(untold, there, key, origin, places):
    untold.tell(number_of(origin))
    batch = submit(key, of_places(*places))
    assert (work_until_done(batch, untold.here, rounds=30).status, waiting()) == (BatchStatus.DONE, [])
    assert proven_by_jumps(untold, there, places)
    assert states_read(untold) == [f"/eth/v2/debug/beacon/states/{8 + origin - 1}"]


def test_a_block_whose_root_a_rollup_holds_no_longer_is_reached_from_the_newest_one(
    chain, made, settings, tmp_path, there, key
):
    Held(chain).hold(made[0], *range(number_of(66), number_of(len(PLAN)) + 1))
    with jumping(chain, made, settings, tmp_path, block_hash_source="beacon-roots") as service:
        batch = submit(key, of_places(63))
        assert (work_until_done(batch, chain, rounds=20).status, waiting()) == (BatchStatus.DONE, [])
        assert proven_by_jumps(service, there, [63])
        assert len(states_read(service)) == 1
        # A block whose root is held is recorded, although the same state leads to it.
        batch = submit(key, of_places(64))
        assert (work_until_done(batch, chain).status, waiting()) == (BatchStatus.DONE, [])
        assert Block.objects.get(number=number_of(64)).path_unit == "hops"


def test_a_registry_with_the_earlier_history_gets_no_such_branch(untold, key):
    row = FactsRegistry.objects.get(source_chain_id=THERE)
    beacon_chain = replace(untold.world.chain, historical_roots=bytes(32))
    arguments = beacon_chain.before_gloas.arguments_without_gloas
    row.beacon_history = Deployed(untold.here, "BeaconHistory", arguments).address
    values = THERE, row.block_hash_source, row.history_window, row.beacon_history
    row.address = Deployed(untold.here, "FactsRegistry", *values).address
    row.save()
    origin, places = UNFINISHED["before"]
    untold.tell(number_of(origin))
    batch = submit(key, of_places(places[0]))
    assert work_until_done(batch, untold.here).rejection_code == "block_too_old"
    assert OUT_OF_REACH in batch.rejection_reason
    # The period before is summarised.
    batch = submit(key, of_places(places[0] - 8))
    assert work_until_done(batch, untold.here, rounds=20).status == BatchStatus.DONE
    assert states_read(untold) == []


def test_a_false_state_is_not_believed_and_is_read_again(untold, there, key):
    origin, places = UNFINISHED["since"]
    untold.tell(number_of(origin))
    slot = 8 + origin - 1
    right = untold.node.states[slot]
    encoded = untold.world.encoded_states[slot]
    # The block roots have offset 176.
    other = encoded[:176] + bytes([encoded[176] ^ 1]) + encoded[177:]
    untold.node.states[slot] = replace(right, encode=partial(bytes, other))
    batch = submit(key, of_places(places[0]))
    work(6, untold.here)
    (sentence,) = waiting()
    assert sentence.startswith(
        "The data for a jump is not available. No beacon node in beacon_urls of The other chain (31338) has "
    )
    assert sentence.endswith("answered with another state than the requested one.")
    assert not Transaction.objects.filter(queries__batch=batch).exists()
    # After a while, which a new process doesn't wait for, it is asked for again.
    work(3, untold.here)
    assert len(states_read(untold)) == 1
    untold.node.states[slot] = right
    forget_chains()
    assert work_until_done(batch, untold.here, rounds=20).status == BatchStatus.DONE
    assert proven_by_jumps(untold, there, places[:1])


def test_the_estimate_of_a_jump_through_block_roots_holds(untold, client, key):
    origin, places = UNFINISHED["since"]
    untold.tell(number_of(origin))
    told = estimated_batches.estimate(client, key, of_places(*places[:2]))
    (source,) = told["sources"]
    assert source["jumps"] == {"count": 2, "fromBlock": str(number_of(origin))}
    for name, body in (("one", of_places(places[0])), ("two", of_places(*places[1:3]))):
        result = estimated_batches.measured(client, key, name, body, chain=untold.here)
        assert result.spent <= result.bound
        assert result.spent <= result.expected * 1.1, result
    # The branch alone counts with the minimum of its calldata, which the whole transaction exceeds.
    proofs = Transaction.objects.filter(queries__isnull=False, extends=None).distinct()
    assert [tx.expected_gas / tx.gas_used for tx in proofs] == [pytest.approx(1.1, abs=0.1)] * 3
