"""Encoded states, which are read in parts. The oracles' tests compare all layouts (tests/beacon_oracles)."""

import random
from dataclasses import replace
from functools import partial

import pytest

from chains.beacon import ssz, states
from chains.beacon.beacon_client import BeaconClient
from chains.beacon.blocks import MINIMAL_PRESET, Layout
from chains.beacon.ssz import InvalidSsz
from chains.beacon.states import ReadState, StateReader
from chains.chains_file import Chain
from chains.nodes.node_errors import NodeUnavailable
from devnet.beacon_api import BeaconApi, BeaconNode
from tests.contracts.beacon_worlds import SMALL
from tests.proving import beacon_chains
from tests.proving.beacon_chains import CHAIN_ID, EncodedWorld

LAYOUTS = ((Layout.ELECTRA, False), (Layout.ELECTRA, True), (Layout.GLOAS, True))
ANCHOR = 89
MINIMAL = replace(SMALL, period_depth=6, preset=MINIMAL_PRESET)


def read(encoded: bytes, layout: Layout) -> ReadState:
    slot = {Layout.ELECTRA: MINIMAL.electra, Layout.GLOAS: MINIMAL.gloas}[layout]
    reader = StateReader(MINIMAL, slot)
    reader.feed(encoded)
    return reader.end()


@pytest.mark.long
@pytest.mark.parametrize(("layout", "fulu"), LAYOUTS)
def test_lists_of_any_length_have_the_root_that_the_whole_object_has(layout, fulu):
    kind = states.state_of(layout, MINIMAL_PRESET, 6, fulu=fulu)
    chance = random.Random(4)
    # Around the ends of the trees of progressive lists, and of the parts that are hashed together.
    for count in (0, 1, 2, 5, 6, 21, 22, 1023, 1024, 1025, 1366):
        given = {
            "validators": chance.randbytes(121 * count),
            "balances": chance.randbytes(8 * count),
            "current_epoch_participation": chance.randbytes(count),
            "pending_deposits": chance.randbytes(192 * (count // 9)),
            "historical_summaries": chance.randbytes(64 * (count // 7)),
        }
        encoded = beacon_chains.encode(kind, chance, given)
        state = read(encoded, layout)
        assert (state.root, state.block_roots_branch) == kind.branch(encoded, "block_roots")
        assert (state.root, state.summaries_branch) == kind.branch(encoded, "historical_summaries")
        assert state.block_roots == kind.parts(encoded)["block_roots"]
        assert b"".join(b"".join(each) for each in state.summaries) == given["historical_summaries"]


@pytest.mark.long
@pytest.mark.parametrize(("layout", "fulu"), LAYOUTS)
def test_other_bytes_are_no_state_or_another_one(layout, fulu):
    kind = states.state_of(layout, MINIMAL_PRESET, 6, fulu=fulu)
    chance = random.Random(5)
    encoded = beacon_chains.encode(kind, chance, {"validators": chance.randbytes(121 * 3)})
    root = read(encoded, layout).root
    for cut in (0, 3, 4000, 6000, len(encoded) - 400):
        with pytest.raises(InvalidSsz, match="is cut"):
            read(encoded[:cut], layout)
    with pytest.raises(InvalidSsz, match="another layout"):
        read(encoded, Layout.ELECTRA if layout == Layout.GLOAS else Layout.GLOAS)
    with pytest.raises(InvalidSsz, match="too long"):
        read(encoded + bytes(17 * 1024**2), layout)
    lists = 176 + 2 * 32 * 64
    for at in range(0, len(encoded), 997):
        changed = encoded[:at] + bytes([encoded[at] ^ 1]) + encoded[at + 1 :]
        try:
            assert read(changed, layout).root != root
        except InvalidSsz:
            assert at >= lists
    # The second list begins where the first one does, because that is empty.
    offset = encoded[lists : lists + 4]
    second = encoded.index(offset, lists + 4)
    earlier = (int.from_bytes(offset, "little") - 1).to_bytes(4, "little")
    with pytest.raises(InvalidSsz, match="Offsets"):
        read(encoded[:second] + earlier + encoded[second + 4 :], layout)


# --- From nodes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world() -> EncodedWorld:
    return beacon_chains.small_world(gloas=74, end=100, preset=MINIMAL_PRESET)


def client_of(world: EncodedWorld, *urls: str) -> BeaconClient:
    chain = Chain(id=CHAIN_ID, name="Test chain", rpc_urls=("http://127.0.0.1:9",), beacon_urls=urls, test_network=True)
    return BeaconClient(chain, world.chain)


def node_with(world: EncodedWorld, encoded: bytes) -> BeaconNode:
    node = beacon_chains.node_of(world, [ANCHOR])
    node.states[ANCHOR] = replace(node.states[ANCHOR], encode=partial(bytes, encoded) if encoded else None)
    return node


def test_what_follows_wrong_bytes_is_dropped():
    reader = StateReader(MINIMAL, MINIMAL.gloas)
    for _ in range(20):
        reader.feed(bytes(100_000))
    assert not reader._rest
    with pytest.raises(InvalidSsz, match="another layout"):
        reader.end()


def test_a_state_that_no_node_has_is_asked_for_again_after_ten_minutes(world):
    now, header = 5000.0, world.blocks[ANCHOR].header
    with BeaconApi(node_with(world, b"")) as lacking:
        chain = client_of(world, lacking.url)._chain
        client = BeaconClient(chain, world.chain, clock=lambda: now)
        for passed, asked in ((0, 1), (599, 1), (2, 2)):
            now += passed
            with pytest.raises(NodeUnavailable, match="the state of slot 89"):
                client.last_roots(header)
            assert len([path for path in lacking.requested_paths if "/states/" in path]) == asked


def test_the_state_of_a_slot_after_the_known_forks_is_not_asked_for(world):
    chain = replace(world.chain, end=80)
    with BeaconApi(node_with(world, world.encoded_states[ANCHOR])) as api:
        client = BeaconClient(client_of(world, api.url)._chain, chain)
        with pytest.raises(NodeUnavailable, match="slot 89 has no known layout"):
            client.last_roots(world.blocks[ANCHOR].header)
        assert not [path for path in api.requested_paths if "/debug/" in path]


def test_a_false_or_cut_state_is_refused_and_the_next_node_is_asked(world):
    right, header = world.encoded_states[ANCHOR], world.blocks[ANCHOR].header
    other = right[:200] + bytes([right[200] ^ 1]) + right[201:]
    with (
        BeaconApi(node_with(world, b"")) as lacking,
        BeaconApi(node_with(world, other)) as lying,
        BeaconApi(node_with(world, right[:-9])) as cutting,
        BeaconApi(node_with(world, right)) as honest,
    ):
        client = client_of(world, lacking.url, lying.url, cutting.url)
        with pytest.raises(NodeUnavailable) as unavailable:
            client.last_roots(header)
        first, second, third = (api.url.removeprefix("http://") for api in (lacking, lying, cutting))
        assert str(unavailable.value) == (
            "No beacon node in beacon_urls of Test chain (31337) has the state of slot 89: "
            f"{first} answered with HTTP status 404; {second} answered with another state than the requested one; "
            f"{third} answered with another state than the requested one."
        )
        roots, branch = client_of(world, lacking.url, lying.url, cutting.url, honest.url).last_roots(header)
    assert roots == b"".join(world.block_roots[ANCHOR])
    first_root = ssz.tree_root(world.block_roots[ANCHOR], 3)
    assert world.chain.is_in_state(header, 5, first_root, branch)
