import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from eth_utils.crypto import keccak

from chains.beacon import jumps
from chains.beacon.jumps import BeaconChain
from chains.encoding import HISTORY_WINDOW
from chains.tries import packed
from chains.tries.packed import OLD_BLOCK, BlockBranch
from tests.chain_fixtures import chain_fixture
from tests.contracts import tries
from tests.contracts.beacon_roots import WINDOW, BeaconRoots
from tests.contracts.beacon_worlds import SMALL, SMALL_BEFORE_GLOAS, BeaconWorld
from tests.contracts.conftest import SOURCE_CHAIN_ID
from tests.contracts.deployed import Deployed
from tests.contracts.lying_calldata import lies
from tests.contracts.simulator import Call, Simulator

# A block of Gloas with the current contract, and a block of Deneb.
ANCHOR, SLOT = 78, 40
TIME = 1_700_000_000
ROOT = b"\x44" * 32

# The beacon history's own error, which a source passes on.
REFUSALS = {(keccak(text="InvalidProof()")[:4].hex(),), ("InvalidProof",)}

# Each code puts a root into memory. The codes end in different ways.
_PLANT = "0x7f" + "07" * 32 + "5f52"


def number(slot: int) -> int:
    return 500 + slot


@pytest.fixture(scope="module")
def headers() -> dict[int, bytes]:
    """Return headers of execution blocks by slot."""
    return {slot: tries.header(number(slot), ROOT) for slot in range(90)}


@pytest.fixture(scope="module", params=["GloasBeaconBlockHashSource", "BeaconBlockHashSource"])
def contract(request) -> str:
    """Return the name of the current contract, or of the earlier one, which knows no Gloas."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def chain_of_blocks(contract) -> BeaconChain:
    is_current = contract == "GloasBeaconBlockHashSource"
    return SMALL if is_current else replace(SMALL_BEFORE_GLOAS, end=SMALL.end + 1)


@pytest.fixture(scope="module")
def world(headers, chain_of_blocks) -> BeaconWorld:
    hashes = {slot: keccak(header) for slot, header in headers.items()}
    return BeaconWorld(random.Random(9), chain_of_blocks, hashes=hashes)


# A chain whose EIP-4788 contract a test may change.
roots_chain = chain_fixture()


@pytest.fixture
def roots(roots_chain) -> Iterator[BeaconRoots]:
    """Yield the EIP-4788 contract. It has no root of another test."""
    snapshot = roots_chain.rpc("evm_snapshot")
    yield BeaconRoots(roots_chain)
    roots_chain.rpc("evm_revert", snapshot)


@pytest.fixture
def source(roots_chain, roots, world, contract) -> Deployed:
    """Return a source. The EIP-4788 contract has ANCHOR's beacon root at TIME."""
    roots.tell(TIME, world.root(ANCHOR))
    chain = replace(world.chain, id=SOURCE_CHAIN_ID)
    is_current = contract == "GloasBeaconBlockHashSource"
    return Deployed(roots_chain, contract, chain.arguments if is_current else chain.arguments_without_gloas)


def test_the_beacon_source_vouches_for_no_unrecorded_block(source):
    assert source.call("sourceChainId") == SOURCE_CHAIN_ID
    assert [source.call("blockHash", each) for each in (0, number(ANCHOR), number(SLOT), 2**256 - 1)] == [bytes(32)] * 4


def test_the_block_of_a_root_is_recorded_once(source, world, headers):
    branch, header = jumps.own(world.blocks[ANCHOR]), headers[ANCHOR]
    assert source.call("record", TIME, branch, header) == number(ANCHOR)
    receipt = source.send("record", TIME, branch, header)
    assert source.logged(receipt) == [("BlockRecorded", number(ANCHOR), keccak(header))]
    assert source.call("blockHash", number(ANCHOR)) == keccak(header)
    assert source.logged(source.send("record", TIME, branch, header)) == []
    assert source.call("record", TIME, branch, header) == number(ANCHOR)
    assert [source.call("blockHash", number(ANCHOR) + by) for by in (-1, 1)] == [bytes(32)] * 2


def test_an_old_block_is_recorded_below_the_root(source, world, headers):
    branch, header = world.old(SLOT, ANCHOR), headers[SLOT]
    receipt = source.send("recordOld", TIME, branch, header)
    assert source.logged(receipt) == [("BlockRecorded", number(SLOT), keccak(header))]
    assert source.call("blockHash", number(SLOT)) == keccak(header)
    assert source.call("blockHash", number(ANCHOR)) == bytes(32)


def test_a_recorded_block_stays_when_its_beacon_root_is_gone(roots, source, world, headers):
    source.send("record", TIME, jumps.own(world.blocks[ANCHOR]), headers[ANCHOR])
    roots.tell(TIME + WINDOW, world.root(79))
    assert source.refusal("record", TIME, jumps.own(world.blocks[ANCHOR]), headers[ANCHOR]) == ("NoBeaconRoot", TIME)
    assert source.call("blockHash", number(ANCHOR)) == keccak(headers[ANCHOR])
    source.send("record", TIME + WINDOW, jumps.own(world.blocks[79]), headers[79])
    assert source.call("blockHash", number(79)) == keccak(headers[79])


def test_another_header_or_branch_is_refused(source, world, headers):
    own, old = jumps.own(world.blocks[ANCHOR]), world.old(SLOT, ANCHOR)
    assert source.refusal("record", TIME, own, headers[79]) == ("InvalidHeader",)
    assert source.refusal("record", TIME, own, headers[ANCHOR] + b"\0") == ("InvalidHeader",)
    assert source.refusal("record", TIME, own, headers[ANCHOR][:-1]) == ("InvalidHeader",)
    for function, branch, slot in (
        ("record", old, SLOT),
        ("recordOld", own, ANCHOR),
        ("record", jumps.own(world.blocks[79]), 79),
    ):
        assert source.refusal(function, TIME, branch, headers[slot]) in REFUSALS


def test_calldata_that_lies_about_places_and_sizes_records_nothing_else(roots_chain, source, world, headers):
    """The caller chooses offsets and sizes. The source may record only the header's own hash."""
    honest = {
        source.calldata("record", TIME, jumps.own(world.blocks[ANCHOR]), headers[ANCHOR]): ANCHOR,
        source.calldata("recordOld", TIME, world.old(SLOT, ANCHOR), headers[SLOT]): SLOT,
    }
    for data, slot in honest.items():
        swapped = data[:36] + data[68:100] + data[36:68] + data[100:]
        calls = [data, *lies(data, (36, 68)), swapped]
        first, *others = Simulator(roots_chain).run([Call(source.address, each) for each in calls])
        [log] = first.logs
        assert (log.topics[1], log.data) == (number(slot).to_bytes(32), keccak(headers[slot]))
        assert not any(each.succeeded for each in others)


def test_a_time_without_a_root_is_refused(source, world, headers):
    for time in (0, TIME - 1, TIME + 1, TIME + WINDOW, 2**256 - 1):
        error = source.refusal("record", time, jumps.own(world.blocks[ANCHOR]), headers[ANCHOR])
        assert error == ("NoBeaconRoot", time)
        error = source.refusal("recordOld", time, world.old(SLOT, ANCHOR), headers[SLOT])
        assert error == ("NoBeaconRoot", time)


@pytest.mark.parametrize(
    "ending",
    ["0x", "0x00", "0xfe", _PLANT + "60205ffd", _PLANT + "601f5ff3", _PLANT + "60405ff3", "0x60205ff3"],
    ids=["none", "stops", "invalid", "reverts", "31 bytes", "64 bytes", "zero"],
)
def test_without_a_working_contract_of_roots_nothing_is_recorded(roots, source, world, headers, ending):
    roots.run(ending)
    assert source.refusal("record", TIME, jumps.own(world.blocks[ANCHOR]), headers[ANCHOR]) == ("NoBeaconRoot", TIME)


def test_a_block_is_recorded_through_the_last_block_roots_of_a_state(source, world, headers, contract):
    """The current contract needs no period that is over."""
    if contract == "BeaconBlockHashSource":
        assert source.refusal("recordOld", TIME, world.recent(76, ANCHOR), headers[76]) != ("",)
        return
    for slot in (73, 76):
        receipt = source.send("recordOld", TIME, world.recent(slot, ANCHOR), headers[slot])
        assert source.logged(receipt) == [("BlockRecorded", number(slot), keccak(headers[slot]))]


@pytest.mark.parametrize("is_full", [True, False])
def test_the_last_block_before_gloas_is_named_by_both_layouts(roots_chain, roots, headers, is_full):
    """The fork's first beacon block names it. If that one is empty, the next one names it too."""
    named = {SMALL.gloas - 1: 73, SMALL.gloas: 73, SMALL.gloas + 1: 74 if is_full else 73}
    world = BeaconWorld(random.Random(11), hashes={slot: keccak(headers[each]) for slot, each in named.items()})
    source = Deployed(roots_chain, "GloasBeaconBlockHashSource", world.chain.arguments)
    earlier = Deployed(roots_chain, "BeaconBlockHashSource", replace(SMALL, end=2**64 - 1).arguments_without_gloas)
    recorded = []
    for slot, each in named.items():
        roots.tell(TIME, world.root(slot))
        arguments = TIME, jumps.own(world.blocks[slot]), headers[each]
        assert source.call("record", *arguments) == number(each)
        recorded += source.logged(source.send("record", *arguments))
        if slot >= SMALL.gloas:
            assert earlier.refusal("record", *arguments) in REFUSALS
        else:
            assert earlier.call("record", *arguments) == number(each)
    assert recorded == [
        ("BlockRecorded", number(each), keccak(headers[each])) for each in ([73, 74] if is_full else [73])
    ]


def test_a_registry_jumps_from_a_recorded_block(roots_chain, roots, source, world, headers):
    fields = [bytes(32), bytes(32), bytes(20), ROOT, bytes(32), bytes(32), bytes(256), 0, 999, 0, 0, TIME, b""]
    newest = tries.encode([*fields, bytes(32), bytes(8), 7, bytes(32), 0, 0, world.root(ANCHOR)])
    newer = BeaconWorld(random.Random(10), world.chain, hashes={80: keccak(newest)})
    roots.tell(TIME + 1, newer.root(80))
    source.send("record", TIME + 1, jumps.own(newer.blocks[80]), newest)
    beacon = source.call("beaconChainHistory")
    registry = Deployed(roots_chain, "FactsRegistry", SOURCE_CHAIN_ID, source.address, HISTORY_WINDOW, beacon)
    proof = packed.encode([newest, BlockBranch(OLD_BLOCK, world.old(SLOT, ANCHOR)), headers[SLOT]], ROOT)
    assert registry.logged(registry.send_raw(proof)) == [("HeaderAccumulated", number(SLOT), ROOT)]
