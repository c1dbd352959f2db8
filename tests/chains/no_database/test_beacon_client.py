"""The client of beacon nodes: slow nodes and sent requests. Lies are in tests/inside/database/test_jump_branches.py."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest

from chains.beacon import ssz, states
from chains.beacon.beacon_client import BeaconClient
from chains.beacon.blocks import BeaconHeader, Layout
from chains.beacon.jumps import Anchor
from chains.chains_file import Chain
from chains.nodes.node_errors import NodeUnavailable
from devnet.beacon_api import NIMBUS, BeaconApi, BeaconBlock, BeaconNode, BeaconState, Reply
from tests.proving import beacon_chains
from tests.proving.beacon_chains import CHAIN_ID, EncodedWorld


@pytest.fixture(scope="module")
def world() -> EncodedWorld:
    return beacon_chains.small_world([53])


@pytest.fixture(scope="module")
def node(world) -> BeaconNode:
    return beacon_chains.node_of(world, [89])


def client_of(
    world: EncodedWorld, *urls: str, timeout_seconds: float = 10, clock: Callable[[], float] = time.monotonic
) -> BeaconClient:
    chain = Chain(id=CHAIN_ID, name="Test chain", rpc_urls=("http://127.0.0.1:9",), beacon_urls=urls, test_network=True)
    return BeaconClient(chain, world.chain, timeout_seconds=timeout_seconds, clock=clock)


class Slow(BeaconApi):
    """A node that delays some answers, by a number of seconds."""

    def __init__(self, node: BeaconNode, about: str, seconds: float) -> None:
        super().__init__(node)
        self._about, self._seconds = about, seconds

    def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
        if self._about in path:
            time.sleep(self._seconds)
        return super().answer(path, accepts_ssz=accepts_ssz)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@pytest.mark.long
def test_a_node_that_hangs_is_passed_over(world, node):
    with Slow(node, "/", 20) as slow, BeaconApi(node) as other:
        client = client_of(world, slow.url, other.url, timeout_seconds=3)
        with within(16):
            assert client.header(world.root(89)) == world.blocks[89].header
            assert client.summaries(world.blocks[89].header) == world.anchor(89)
            assert client.block(world.root(50)) == world.blocks[50]
            assert roots_of(client, world) == b"".join(world.periods[6][0])


def roots_of(client: BeaconClient, world: EncodedWorld) -> bytes:
    return client.block_roots(6, ssz.tree_root(world.periods[6][0], 3))


def test_a_slow_node_is_left_in_the_midst_of_a_period(world, node):
    # The client reads the clock at a node's first request and before each exchange.
    times = iter([0, 119, 121, 121, 122, 123])
    with BeaconApi(node) as slow, BeaconApi(node) as other:
        client = client_of(world, slow.url, other.url, clock=lambda: next(times))
        assert roots_of(client, world) == b"".join(world.periods[6][0])
        assert (len(slow.requested_paths), len(other.requested_paths)) == (32, 40)
        times = iter([0, 119, 121, 121, 240, 242])
        with pytest.raises(NodeUnavailable, match=r"is too slow; 127\.0\.0\.1:\d+ is too slow"):
            roots_of(client, world)


# --- States of Gloas --------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_summaries_come_from_whole_states_where_nodes_have_no_right_branch(world):
    """Nimbus may return a branch of an earlier layout, and others none. The first node has a wrong state."""
    chain = replace(world.chain, gloas=80)
    kind = states.state_of(Layout.GLOAS, chain.preset, chain.period_depth)
    listed = [(bytes([n]) * 32, bytes([n + 100]) * 32) for n in range(5)]
    encoded = beacon_chains.encode(kind, Random(3), {"historical_summaries": b"".join(b"".join(two) for two in listed)})
    header = BeaconHeader(89, 7, bytes(32), kind.root(encoded), bytes(32))
    anchor = Anchor(header, listed, kind.branch(encoded, "historical_summaries")[1])
    block = BeaconBlock(89, 7, bytes(32), header.state_root, bytes(32), version="gloas")

    def node_with(state: bytes, *paths: str) -> BeaconNode:
        told = BeaconState(listed, anchor.branch[:6], lambda: state)
        return BeaconNode(
            CHAIN_ID,
            beacon_chains.GENESIS,
            roots={89: header.root},
            blocks={header.root: block},
            states={89: told},
            state_paths=paths,
        )

    other = encoded[:-1] + bytes([encoded[-1] ^ 1])
    with BeaconApi(node_with(other, NIMBUS)) as liar, BeaconApi(node_with(encoded)) as honest:
        alone = client_of(replace(world, chain=chain), liar.url)
        with pytest.raises(NodeUnavailable, match=rf"{liar.url[7:]} answered with summaries that don't belong"):
            alone.summaries(header)
        assert client_of(replace(world, chain=chain), liar.url, honest.url).summaries(header) == anchor
    with BeaconApi(node_with(encoded, NIMBUS)) as nimbus:
        assert client_of(replace(world, chain=chain), nimbus.url).summaries(header) == anchor
        # Before Gloas both clients return the branch, and a state isn't asked for.
        nimbus.requested_paths.clear()
        with pytest.raises(NodeUnavailable):
            client_of(world, nimbus.url).summaries(header)
        assert not any("/v2/debug" in path for path in nimbus.requested_paths)


GLOAS = 80


@pytest.fixture(scope="module")
def forked() -> EncodedWorld:
    return beacon_chains.small_world(gloas=GLOAS)


@pytest.fixture(scope="module")
def forked_early() -> EncodedWorld:
    return beacon_chains.small_world(gloas=64)


@pytest.mark.parametrize("slot", [GLOAS - 1, GLOAS, GLOAS + 1])
def test_a_block_with_the_layout_of_another_fork_is_refused_and_the_next_node_is_asked(
    world, forked, forked_early, slot
):
    """The first node answers with a block of this slot as if the fork had come later, or earlier."""
    others = (world if slot >= GLOAS else forked_early).encoded[slot]
    right, node = forked.blocks[slot], beacon_chains.node_of(forked)
    wrong = replace(node, blocks={right.header.root: replace(node.blocks[right.header.root], encoded=others)})
    with BeaconApi(wrong) as liar, BeaconApi(node) as honest:
        with pytest.raises(
            NodeUnavailable, match=f"{liar.url[7:]} answered with .* not with the layout of slot {slot}"
        ):
            client_of(forked, liar.url).block(right.header.root)
        assert client_of(forked, liar.url, honest.url).block(right.header.root) == right
        assert len([path for path in honest.requested_paths if "/v2/beacon/blocks" in path]) == 1


@pytest.mark.parametrize(
    ("genesis_time", "spec", "why"),
    [
        (1, {}, "is of another network: its chain began at 1, and that of chain 31337 at 1700000000"),
        (None, {"SLOTS_PER_EPOCH": "8"}, f"doesn't know that Gloas begins at slot {GLOAS}: update it"),
        (None, {"SLOTS_PER_EPOCH": "8", "GLOAS_FORK_EPOCH": str(2**64 - 1)}, f"doesn't know .* at slot {GLOAS}"),
        (None, {"SLOTS_PER_EPOCH": "8", "GLOAS_FORK_EPOCH": "10"}, "answered with HTTP status 404"),
        (None, {}, "answered with HTTP status 404"),
        (None, {"SLOTS_PER_EPOCH": "8", "GLOAS_FORK_EPOCH": "x"}, "answered with HTTP status 404"),
    ],
    ids=["another network", "none", "no slot", "fits", "says nothing", "says nonsense"],
)
def test_a_node_that_fails_is_asked_for_its_network_and_its_forks(forked, genesis_time, spec, why):
    node = BeaconNode(CHAIN_ID, beacon_chains.GENESIS if genesis_time is None else genesis_time, spec=spec)
    with BeaconApi(node) as api:
        client = client_of(forked, api.url.replace("//", "//me:secret@"))
        for _ in range(2):
            with pytest.raises(NodeUnavailable, match=rf"in beacon_urls.*{api.url[7:]} .*{why}") as unavailable:
                client.block(forked.root(85))
        assert "secret" not in str(unavailable.value)
        assert len([path for path in api.requested_paths if "genesis" in path]) == 1


@pytest.mark.parametrize(("epoch", "is_told"), [(10, True), (10**9, False), (2**64 - 1, False)])
def test_a_node_that_fails_after_a_fork_that_the_service_does_not_know_is_told_of(world, epoch, is_told):
    spec = {"SLOTS_PER_EPOCH": "8", "GLOAS_FORK_EPOCH": str(epoch)}
    with BeaconApi(BeaconNode(CHAIN_ID, beacon_chains.GENESIS, spec=spec)) as api:
        client = client_of(world, api.url)
        with pytest.raises(NodeUnavailable) as unavailable:
            client.block(world.root(85))
    told = "says that Gloas has begun at slot 80, which the service doesn't know"
    assert (told in str(unavailable.value)) == is_told


def test_path_and_query_of_a_beacon_url_are_kept_in_requests_and_out_of_errors(world, node):
    with BeaconApi(node) as api:
        client = client_of(world, f"{api.url}/secret/?key=secret")
        with pytest.raises(NodeUnavailable) as unavailable:
            client.header(world.root(89))
        paths = (f"beacon/headers/0x{world.root(89).hex()}", "beacon/genesis", "config/spec")
        assert api.requested_paths[0] == f"/secret/eth/v1/{paths[0]}?key=secret"
        assert {*api.requested_paths} == {f"/secret/eth/v1/{path}?key=secret" for path in paths}
        assert "secret" not in f"{unavailable.value!r} {unavailable.value} {client!r}"
