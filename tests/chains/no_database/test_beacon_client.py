"""The client of beacon nodes: slow nodes and sent requests. Lies are in tests/inside/database/test_jump_branches.py."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chains.beacon import ssz
from chains.beacon.beacon_client import BeaconClient
from chains.chains_file import Chain
from chains.nodes.node_errors import NodeUnavailable
from devnet.beacon_api import BeaconApi, BeaconNode, Reply
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


def test_path_and_query_of_a_beacon_url_are_kept_in_requests_and_out_of_errors(world, node):
    with BeaconApi(node) as api:
        client = client_of(world, f"{api.url}/secret/?key=secret")
        with pytest.raises(NodeUnavailable) as unavailable:
            client.header(world.root(89))
        assert api.requested_paths == [f"/secret/eth/v1/beacon/headers/0x{world.root(89).hex()}?key=secret"]
        assert "secret" not in f"{unavailable.value!r} {unavailable.value} {client!r}"
