"""Beacon branches in Python: encodings, recorded blocks and constants."""

import random
from dataclasses import replace

import pytest
from eth_utils.crypto import keccak

from chains.beacon import blocks, jumps, ssz
from chains.beacon.jumps import MAINNET, CannotProve
from chains.beacon.ssz import BitList, ByteList, Bytes, Container, InvalidSsz, List
from chains.encoding import decode_rlp
from tests.contracts import recorded_beacon
from tests.contracts.beacon_worlds import BeaconWorld
from tests.fixtures_folder import FOLDER, needs_fixtures


def _hex(text: str) -> bytes:
    return bytes.fromhex(text)


def test_roots_are_those_that_the_specification_says():
    """The expected roots are written out by hand, following "Merkleization" in the SSZ specification."""
    chunk, other = b"\x01" + bytes(31), b"\x02" + bytes(31)
    assert Bytes(8).root(_hex("0100000000000000")) == chunk
    assert ByteList(32).root(b"\x01") == ssz.merge(chunk, chunk)
    assert ByteList(64).root(b"") == ssz.merge(ssz.zeros(1), bytes(32))
    assert BitList(256).root(b"\x05") == ssz.merge(b"\x01" + bytes(31), other)
    assert BitList(256).root(b"\x01") == ssz.merge(bytes(32), bytes(32))
    numbers = List(Bytes(8), 8, packed=True)
    assert numbers.root(_hex("0100000000000000")) == ssz.merge(ssz.merge(chunk, bytes(32)), chunk)
    pair = Container({"a": ByteList(32), "b": Bytes(1)})
    assert pair.root(_hex("05000000020101")) == ssz.merge(ssz.merge(b"\x01\x01" + bytes(30), other), other)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Bytes(4), "010203"),
        (ByteList(2), "010203"),
        (BitList(8), ""),
        (BitList(8), "0100"),
        (BitList(8), "ff03"),
        (List(Bytes(2), 2), "010203"),
        (List(Bytes(1), 2), "010203"),
        (List(Bytes(1), 3), "01020304"),
        (List(Bytes(8), 8, packed=True), "01"),
        (List(ByteList(4), 4), "0500000001"),
        (List(ByteList(4), 4), "08000000070000000101"),
        (List(ByteList(4), 4), "08000000ff0000000101"),
        (Container({"a": Bytes(1)}), "0102"),
        (Container({"a": Bytes(1)}), ""),
        (Container({"a": ByteList(4), "b": Bytes(1)}), "0600000001aa"),
        (Bytes(64), "00" * 63),
    ],
)
def test_invalid_ssz_encodings_are_refused(kind, data):
    with pytest.raises(InvalidSsz):
        kind.root(_hex(data))


def test_no_tree_has_more_leaves_than_it_holds():
    with pytest.raises(InvalidSsz):
        ssz.tree_root([bytes(32)] * 3, 1)


def test_lists_longer_than_any_block_has_room_for_are_not_hashed(monkeypatch):
    monkeypatch.setattr(ssz, "_MOST_ELEMENTS", 3)
    kind = List(ByteList(4), 100)
    for count in (3, 4):
        data = (4 * count).to_bytes(4, "little") * count
        if count == 3:
            assert kind.root(data) == ssz.list_root([ByteList(4).root(b"")] * 3, 7)
        else:
            with pytest.raises(InvalidSsz, match="more than 3 elements"):
                kind.root(data)


def test_slots_begin_at_their_times():
    assert MAINNET.slot_at(MAINNET.genesis_time) == 0
    assert MAINNET.slot_at(MAINNET.time_of(MAINNET.electra)) == MAINNET.electra
    for time in (MAINNET.genesis_time - 12, MAINNET.genesis_time + 1, 0):
        with pytest.raises(CannotProve, match=f"No slot begins at the time {time}."):
            MAINNET.slot_at(time)


@needs_fixtures
@pytest.mark.parametrize("number", recorded_beacon.numbers())
def test_recorded_blocks_have_the_recorded_branches(number):
    block = recorded_beacon.block(number)
    recorded = FOLDER / "beacon" / f"beacon_block_proof_{number}.yaml"
    if recorded.exists():
        text = recorded.read_text()
        nodes = [block.header.root, block.block_hash, *block.branch]
        assert all(node.hex() in text for node in nodes)
    place = blocks.EXECUTION_PAYLOAD << len(block.branch) - blocks.BODY_DEPTH | blocks.BLOCK_HASH
    assert ssz.climb(block.block_hash, block.branch, place) == block.header.body_root


@needs_fixtures
def test_mainnets_constants_are_the_roots_of_the_recorded_lists():
    hashes = recorded_beacon.historical_roots()
    assert len(hashes) == MAINNET.periods_before_capella == 758
    assert ssz.list_root(hashes, jumps.HISTORY_DEPTH) == MAINNET.historical_roots
    epochs = recorded_beacon.epochs()
    assert len(epochs) == -(-MAINNET.blocks_before_merge // 8192) == 1897
    assert ssz.list_root(epochs, jumps.EPOCHS_DEPTH) == MAINNET.accumulator


@needs_fixtures
def test_parts_that_do_not_belong_together_are_refused():
    anchor, records, epochs = recorded_beacon.anchor(), recorded_beacon.records(), recorded_beacon.epochs()
    block = recorded_beacon.block(19426587)
    roots = recorded_beacon.roots(19426587)
    others = recorded_beacon.roots(17034870)
    less = jumps.Anchor(anchor.header, anchor.summaries[:-1], anchor.branch)
    for arguments in ((block, others, anchor), (block, roots[:-1], anchor), (block, roots, less)):
        with pytest.raises(CannotProve):
            jumps.old(MAINNET, *arguments)
    with pytest.raises(CannotProve):
        jumps.before_capella(MAINNET, block, roots, bytes(32), recorded_beacon.historical_roots())
    for number, these in ((MAINNET.blocks_before_merge, epochs), (-1, epochs), (8192, epochs), (999_424, epochs[:-1])):
        with pytest.raises(CannotProve):
            jumps.before_merge(MAINNET, number, records, these)
    with pytest.raises(CannotProve):
        jumps.historical_roots(MAINNET, anchor.header, anchor.branch)


@pytest.mark.parametrize("slot", [20, 88])
def test_a_period_that_a_state_does_not_summarise_is_refused(slot):
    """The state of slot 89 has no summary of a period before Capella, and none of a period that hasn't ended."""
    world = BeaconWorld(random.Random(21))
    roots = world.periods[world.chain.period(slot)][0] if slot < 80 else [bytes(32)] * 8
    with pytest.raises(CannotProve, match="is none of the 7 summaries"):
        jumps.old(world.chain, world.blocks[slot], roots, world.anchor(89))


def test_a_block_stands_in_its_place_among_its_periods_roots():
    world = BeaconWorld(random.Random(21))
    block, anchor, (roots, _) = world.blocks[50], world.anchor(89), world.periods[6]
    assert jumps.old(world.chain, block, roots, anchor) == world.old(50, 89)
    other = replace(block, header=replace(block.header, proposer=1))
    for candidate, these in ((other, roots), (block, [*roots, bytes(32)]), (block, roots[:2]), (block, roots[::-1])):
        with pytest.raises(CannotProve, match="is not among the roots of its period"):
            jumps.old(world.chain, candidate, these, anchor)
    with pytest.raises(CannotProve, match="don't match the period"):
        jumps.old(world.chain, block, [*roots[:7], bytes(32)], anchor)


@pytest.mark.parametrize(("slot", "depth"), [(60, 5), (50, 6), (20, 5), (75, 6), (75, 10), (73, 11)])
def test_a_state_has_the_depth_of_its_fork(slot, depth):
    """The branch leads to the root, but its depth isn't that of the slot's fork. Before Capella a state has no
    summaries.
    """
    world = BeaconWorld(random.Random(21))
    summaries = world.anchor(89).summaries
    branch = [bytes(32)] * depth
    listed = ssz.list_root([ssz.merge(*each) for each in summaries], jumps.HISTORY_DEPTH)
    header = replace(world.blocks[slot].header, state_root=ssz.climb(listed, branch, jumps.HISTORICAL_SUMMARIES))
    with pytest.raises(CannotProve, match="don't match the state" if slot >= 32 else "has no such branch"):
        jumps.old(world.chain, world.blocks[41], world.periods[5][0], jumps.Anchor(header, summaries, branch))


def test_lists_that_are_not_the_chains_are_refused():
    """Each list is consistent, but its root isn't the configured constant."""
    world = BeaconWorld(random.Random(21))
    block, lists = world.blocks[20], list(world._historical_roots)
    roots, states = world.periods[2]
    second = ssz.tree_root(states, 3)
    assert jumps.before_capella(world.chain, block, roots, second, lists) == world.before_capella(20)
    others = [*lists[:3], bytes(32)]
    for these, of_states, why in ((others, second, "not the chain's historical"), (lists, bytes(32), "of period 2")):
        with pytest.raises(CannotProve, match=why):
            jumps.before_capella(world.chain, block, roots, of_states, these)
    with pytest.raises(CannotProve, match="is not before Capella"):
        jumps.before_capella(world.chain, world.blocks[33], world.periods[4][0], second, lists)


def test_blocks_and_epochs_before_the_merge_are_the_chains():
    records = [(bytes([number + 1]) * 32, number) for number in range(5)]
    epochs = [ssz.list_root(jumps.record_leaves(records), jumps.RECORDS_DEPTH)]
    accumulator = ssz.list_root(epochs, jumps.EPOCHS_DEPTH)
    chain = replace(MAINNET, blocks_before_merge=5, accumulator=accumulator)
    assert jumps.before_merge(chain, 4, records, epochs)[4:36] == records[4][0]
    for number in (-1, 5):
        with pytest.raises(CannotProve, match=f"Block {number} is not before the Merge"):
            jumps.before_merge(chain, number, records, epochs)
    with pytest.raises(CannotProve, match="not the epochs"):
        jumps.before_merge(chain, 4, records, [*epochs, bytes(32)])
    with pytest.raises(CannotProve, match="not the records of epoch 0"):
        jumps.before_merge(chain, 4, [*records, (bytes(32), 0)], epochs)


@needs_fixtures
def test_recorded_records_are_made_as_ours_are():
    """A record's total difficulty includes the block's own, so two records differ by the later block's difficulty."""
    records = recorded_beacon.records()
    for number in range(1_000_002, 1_000_011):
        header = recorded_beacon.header(number)
        digest, total = records[number % 8192]
        difficulty = decode_rlp(header)[7]
        assert isinstance(difficulty, bytes)
        assert digest == keccak(header)
        assert total - records[number % 8192 - 1][1] == int.from_bytes(difficulty)
