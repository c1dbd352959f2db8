"""Branches to old blocks: where they come from, what is kept, and what lies are worth."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from eth_utils.crypto import keccak

from chains.beacon import beacon_client, era_files, jumps, shipped, ssz
from chains.beacon.beacon_client import BeaconEndpoint
from chains.beacon.jumps import MAINNET
from chains.header import Header
from chains.node_errors import NodeUnavailable
from chains.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, OLD_BLOCK, BlockBranch
from config.configured_chains import forget_chains, get_chains
from database import leases
from database.leases import LeaseLost
from devnet.beacon_api import LODESTAR, NIMBUS, BeaconApi, BeaconNode, Reply
from proving import jump_branches, jump_leaves, pruning
from proving.models import BeaconAnchor, JumpLeaves, JumpLeavesKind
from proving.sources import NotYet
from tests import headers
from tests.chains.lying_node import lying_node, result
from tests.contracts import beacon_model, recorded_beacon
from tests.fixtures_folder import needs_fixtures
from tests.proving import beacon_chains
from tests.proving.beacon_chains import CHAIN_ID, EncodedWorld
from tests.proving.conftest import killer  # noqa: F401  # a fixture
from tests.proving.kills import Killed
from tests.service import chains_toml

ANCHOR = 89
# The first slot of a period and the last one of another among them.
MISSED = (40, 44, 53, 71)


@pytest.fixture(scope="module")
def world() -> EncodedWorld:
    return beacon_chains.small_world(MISSED)


@pytest.fixture
def node(world) -> BeaconNode:
    return beacon_chains.node_of(world, [ANCHOR])


@pytest.fixture
def configured(world, db, settings, tmp_path) -> Callable[..., None]:
    """Configures the service, as `beacon_chains.configure`."""

    def configure(**given: Any) -> None:
        beacon_chains.configure(settings, tmp_path, given.pop("chain", world.chain), **given)
        jump_branches._beacon_block.cache_clear()

    return configure


@pytest.fixture
def api(node, configured) -> Iterator[BeaconApi]:
    """The service with one beacon node, which has everything."""
    with BeaconApi(node) as api:
        configured(beacon_urls=[api.url])
        yield api


def target(slot: int) -> Header:
    return Header.decode(beacon_chains.target(slot))


def origin(root: bytes, number: int = 1000) -> Header:
    """A newer header, which names a beacon block."""
    return Header.decode(headers.encode(headers.PRAGUE, number=number, parentBeaconBlockRoot=root))


def ask(world: EncodedWorld, slot: int, anchor: int = ANCHOR) -> BlockBranch | NotYet:
    source = get_chains().chain(world.chain.id)
    start = origin(world.root(anchor))
    return jump_branches.branch_to(source, start, target(slot), extend_lease=lambda: None)


def holds(world: EncodedWorld, slot: int, found: object, anchor: int = ANCHOR) -> bool:
    return found == BlockBranch(OLD_BLOCK, world.old(slot, anchor))


# --- What comes of it -------------------------------------------------------------------------------------------------


def test_a_branch_leads_from_the_origin_to_the_target(world, api):
    for slot in (33, 41, 50, 55, 60, 72, 79):
        found = ask(world, slot)
        assert holds(world, slot, found)
        assert isinstance(found, BlockBranch)
        assert beacon_model.old(world.chain, world.root(ANCHOR), found.branch) == target(slot).hash


def test_what_is_asked_for_a_jump(world, node, api, eras, configured):
    """docs/operating/old-blocks.md tells it of periods of 8,192 slots."""

    def asked(slot: int) -> tuple[int, int]:
        before = len(api.asked)
        assert holds(world, slot, ask(world, slot))
        paths = api.asked[before:]
        roots = sum(path.endswith("/root") for path in paths)
        return roots, len(paths) - roots

    # The chain's id, the header, summaries in two forms, the block.
    assert asked(50) == (8, 5)
    assert asked(52) == (0, 1)
    assert asked(52) == (0, 0)
    assert asked(60) == (8, 1)
    BeaconAnchor.objects.all().delete()
    configured(beacon_urls=[api.url], era_files=["eras"])
    assert asked(41) == (0, 5)


@needs_fixtures
@pytest.mark.parametrize(("number", "path"), [(19426587, NIMBUS), (22162263, LODESTAR), (17034870, LODESTAR)])
def test_branches_to_recorded_blocks_of_mainnet(configured, number, path):
    """They are those that contracts take (tests/contracts/test_jumps.py)."""
    block = recorded_beacon.block(number)
    period = MAINNET.period(block.header.slot)
    known = b"".join(recorded_beacon.roots(number))[: 32 * 8000]
    # Most of it was fetched before.
    JumpLeaves.objects.create(chain_id=1, kind=JumpLeavesKind.PERIOD, number=period, content=known)
    node = beacon_chains.mainnets_node([number])
    node.state_paths = [path]
    with BeaconApi(node) as api:
        configured(chain=MAINNET, beacon_urls=[api.url])
        start, end = origin(recorded_beacon.anchor().header.root), Header.decode(recorded_beacon.header(number))

        def branch() -> BlockBranch | NotYet:
            return jump_branches.branch_to(get_chains().chain(1), start, end, extend_lease=lambda: None)

        assert branch() == BlockBranch(OLD_BLOCK, recorded_beacon.branch(number))
        # What is known by now isn't asked again.
        asked = len(api.asked)
        assert branch() == BlockBranch(OLD_BLOCK, recorded_beacon.branch(number))
        assert len(api.asked) == asked
    anchor = BeaconAnchor.objects.get()
    assert (anchor.shipped, bytes(anchor.summaries)) == (665, b"")


@needs_fixtures
def test_a_recorded_block_before_the_merge(configured):
    configured(chain=MAINNET)
    content = b"".join(digest + ssz.integer_leaf(total) for digest, total in recorded_beacon.records())
    JumpLeaves.objects.create(chain_id=1, kind=JumpLeavesKind.EPOCH, number=122, content=content, is_complete=True)
    end = Header.decode(recorded_beacon.header(1_000_001))
    found = jump_branches.branch_to(get_chains().chain(1), None, end, extend_lease=lambda: None)
    assert found == BlockBranch(BLOCK_BEFORE_MERGE, recorded_beacon.branch_before_merge(1_000_001))


def test_a_block_of_a_period_that_is_not_summarised_is_too_new(world, api):
    found = ask(world, 88)
    assert isinstance(found, NotYet)
    # Slot 96 begins the next period.
    assert found.sentence == (
        "Block 188 of Development chain (31337) is too new for a jump from block 1000: the beacon chain summarises it "
        "from 2023-11-14 22:32:32 UTC on."
    )


def test_an_origin_that_names_no_beacon_block_leads_nowhere(world, api):
    source = get_chains().chain(CHAIN_ID)
    before = Header.decode(headers.encode(headers.SHANGHAI))
    for start in (None, before):
        with pytest.raises(NodeUnavailable, match="names no beacon block"):
            jump_branches.branch_to(source, start, target(50), extend_lease=lambda: None)
    assert api.asked == []


def test_an_origin_of_an_unknown_fork_leads_nowhere(world, node, api, configured):
    """Its state has another shape: what the node says of it isn't even looked at."""
    configured(chain=replace(world.chain, end=ANCHOR), beacon_urls=[api.url])
    with pytest.raises(NodeUnavailable, match=r"state of slot 89.* has no known layout"):
        ask(world, 50)
    assert not any("historical_summaries" in path for path in api.asked)


def test_a_target_that_is_not_on_the_beacon_chain(world, api):
    source = get_chains().chain(CHAIN_ID)
    other = Header.decode(target(50).encode().replace(b"anybody", b"another"))
    missed = target(53)
    between = Header.decode(
        headers.encode(
            headers.PRAGUE, number=150, timestamp=beacon_chains.GENESIS + 50 * beacon_chains.SLOT_SECONDS + 1
        )
    )
    for end, why in ((other, "another block at slot 50"), (missed, "no block at slot 53"), (between, "No slot begins")):
        with pytest.raises(NodeUnavailable, match=why):
            jump_branches.branch_to(source, origin(world.root(ANCHOR)), end, extend_lease=lambda: None)


# --- Lies -------------------------------------------------------------------------------------------------------------


@contextmanager
def two_nodes(
    configured: Callable[..., None], liar: BeaconApi, honest: BeaconNode
) -> Iterator[tuple[BeaconApi, BeaconApi]]:
    """The service with two nodes, the first of which is the one that may lie."""
    with liar, BeaconApi(honest) as other:
        configured(beacon_urls=[liar.url, other.url])
        yield liar, other


class Liar(BeaconApi):
    """A node that changes what it answers to some requests."""

    def __init__(self, node: BeaconNode, about: str, lie: Callable[[Any], object]) -> None:
        super().__init__(node)
        self._about, self._lie = about, lie

    def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
        status, kind, content, told = super().answer(path, accepts_ssz=accepts_ssz)
        if self._about not in path or status != 200:
            return status, kind, content, told
        if kind != "application/json":
            return status, kind, bytes(self._lie(bytearray(content)) or b""), told  # type: ignore[call-overload]
        answer = json.loads(content)
        self._lie(answer["data"])
        return status, kind, json.dumps(answer).encode(), told


def _header_lie(name: str, value: object) -> Callable[[Any], object]:
    return lambda data: data["header"]["message"].update({name: value})


def _flipped(at: int) -> Callable[[bytearray], bytes]:
    def flip(content: bytearray) -> bytes:
        content[at] ^= 1
        return bytes(content)

    return flip


OTHER = "0x" + "17" * 32
LIES: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    "slot": ("/headers/", _header_lie("slot", "88")),
    "proposer": ("/headers/", _header_lie("proposer_index", "1")),
    "parent": ("/headers/", _header_lie("parent_root", OTHER)),
    "state": ("/headers/", _header_lie("state_root", OTHER)),
    "body": ("/headers/", _header_lie("body_root", OTHER)),
    "no number": ("/headers/", _header_lie("slot", 89)),
    "huge number": ("/headers/", _header_lie("slot", str(2**64))),
    "no header": ("/headers/", lambda data: data.pop("header")),
    "one summary": ("summaries", lambda data: data["historical_summaries"][2].update(block_summary_root=OTHER)),
    "state summary": ("summaries", lambda data: data["historical_summaries"][2].update(state_summary_root=OTHER)),
    "fewer summaries": ("summaries", lambda data: data["historical_summaries"].pop()),
    "more summaries": ("summaries", lambda data: data["historical_summaries"].append(data["historical_summaries"][0])),
    "no summaries": ("summaries", lambda data: data.pop("historical_summaries")),
    "sibling": ("summaries", lambda data: data["proof"].reverse()),
    "short proof": ("summaries", lambda data: data["proof"].pop()),
    "long proof": ("summaries", lambda data: data["proof"].append(OTHER)),
    "block's body": ("/v2/beacon/blocks", _flipped(400)),
    "block's slot": ("/v2/beacon/blocks", _flipped(100)),
    "block hash": ("/v2/beacon/blocks", _flipped(-160)),
    "block's offset": ("/v2/beacon/blocks", _flipped(0)),
    "cut block": ("/v2/beacon/blocks", lambda content: content[:-1]),
    "no block": ("/v2/beacon/blocks", lambda _: b""),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_lies_about_what_has_a_root_is_passed_over(world, node, configured, lie):
    """In each case what it says doesn't add up, and the other node is asked for the same."""
    with two_nodes(configured, Liar(node, *LIES[lie]), node) as (_, honest):
        assert holds(world, 50, ask(world, 50))
        assert any(LIES[lie][0] in path for path in honest.asked)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_of_the_only_node_leads_to_nothing(world, node, configured, lie):
    with Liar(node, *LIES[lie]) as liar:
        configured(beacon_urls=[liar.url])
        with pytest.raises(NodeUnavailable) as unavailable:
            ask(world, 50)
        assert "127.0.0.1" in str(unavailable.value)
        assert "http" not in str(unavailable.value).replace("HTTP", "")
    about = LIES[lie][0]
    assert BeaconAnchor.objects.exists() == ("/v2/" in about)


def test_wrong_roots_of_slots_are_thrown_away_and_the_next_node_is_asked_alone(world, node, configured, bit_by_bit):
    """Which node lied can't be told from what came of both."""
    with two_nodes(configured, Liar(node, "blocks/52/root", lambda data: data.update(root=OTHER)), node):
        with pytest.raises(NodeUnavailable, match="of period 6 are not the chain's"):
            ask(world, 50)
        row = JumpLeaves.objects.get()
        assert (row.attempts, row.is_complete, bytes(row.content)) == (1, False, b"")
        # The liar alone, then the other alone.
        with pytest.raises(NodeUnavailable, match="of period 6 are not the chain's"):
            ask(world, 50)
        assert holds(world, 50, ask(world, 50))
    row = JumpLeaves.objects.get()
    assert (row.attempts, row.is_complete) == (0, True)
    assert row.lease_token == ""


def test_an_honest_node_that_is_down_meanwhile_gets_its_turn_again(world, node, configured):
    with Liar(node, "blocks/52/root", lambda data: data.update(root=OTHER)) as liar:
        with BeaconApi(node) as other:
            port = int(other.url.rpartition(":")[2])
            configured(beacon_urls=[liar.url, other.url])
        for _ in range(3):
            with pytest.raises(NodeUnavailable):
                ask(world, 50)
        with BeaconApi(node, port=port):
            forget_chains()
            for _ in range(2):
                try:
                    found = ask(world, 50)
                except NodeUnavailable:
                    continue
                break
            assert holds(world, 50, found)


def test_a_node_that_is_down_is_passed_over_when_each_is_asked_alone(world, node, configured):
    with Liar(node, "blocks/52/root", lambda data: data.update(root=OTHER)) as liar, BeaconApi(node) as honest:
        configured(beacon_urls=[liar.url, "http://127.0.0.1:1", honest.url])
        for _ in range(3):
            with pytest.raises(NodeUnavailable):
                ask(world, 50)
        assert holds(world, 50, ask(world, 50))


def test_a_node_that_lacks_blocks_does_not_pass_them_as_missed(world, node, configured):
    """A pruned node says the same of a block that it hasn't as of a missed slot."""
    pruned = replace(node, roots={slot: root for slot, root in node.roots.items() if slot >= 52})
    with BeaconApi(pruned) as alone:
        configured(beacon_urls=[alone.url])
        with pytest.raises(NodeUnavailable, match="of period 6 are not the chain's"):
            ask(world, 50)
        with pytest.raises(NodeUnavailable, match=r"No beacon node of .* has the blocks of slot 40 and after it"):
            ask(world, 42)
    with two_nodes(configured, BeaconApi(pruned), node):
        assert holds(world, 45, ask(world, 45))


def test_an_empty_or_false_row_is_not_believed(world, api):
    """The database may be damaged, or of another configuration."""
    assert holds(world, 50, ask(world, 50))
    right = bytes(JumpLeaves.objects.get().content)
    for wrong in (bytes(8 * 32), b"", right[:-1], right[:-32], right + b"\0", right + bytes(32)):
        JumpLeaves.objects.update(content=wrong)
        assert holds(world, 50, ask(world, 50))
        assert bytes(JumpLeaves.objects.get().content) == right
    # Also where it isn't complete.
    JumpLeaves.objects.update(content=right + bytes(32), is_complete=False)
    with pytest.raises(NodeUnavailable, match="are not the chain's"):
        ask(world, 50)
    assert holds(world, 50, ask(world, 50))
    for change in ({"state_root": OTHER}, {"slot": 88}, {"summaries": b""}, {"branch": bytes(6 * 32)}, {"branch": b""}):
        BeaconAnchor.objects.update(**change)
        assert holds(world, 50, ask(world, 50))


# --- Nodes that are slow, down or refuse ------------------------------------------------------------------------------


def test_a_node_of_another_chain_is_not_used(world, node, configured):
    with two_nodes(configured, BeaconApi(replace(node, chain_id=7)), node) as (other, honest):
        assert holds(world, 50, ask(world, 50))
        assert set(other.asked) == {"/eth/v1/config/deposit_contract"}
        assert honest.asked


def test_states_are_asked_for_at_every_node(world, node, configured):
    with two_nodes(configured, BeaconApi(replace(node, state_paths=[])), node):
        assert holds(world, 50, ask(world, 50))


def test_without_a_node_that_tells_summaries_there_is_a_sentence(world, node, configured):
    with BeaconApi(replace(node, states={})) as api:
        configured(beacon_urls=[api.url])
        with pytest.raises(NodeUnavailable) as unavailable:
            ask(world, 50)
    assert str(unavailable.value) == (
        "No beacon node of Development chain (31337) has the historical summaries of the state of slot 89, which "
        "Nimbus and Lodestar tell (HTTP status 404)."
    )


class Answering(BeaconApi):
    """A node that answers some requests with this status."""

    def __init__(self, node: BeaconNode, about: str, status: int, times: int = 10**9) -> None:
        super().__init__(node)
        self._about, self._status, self.times = about, status, times

    def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
        if self._about in path and self.times:
            self.times -= 1
            return self._status, "application/json", b"", {}
        return super().answer(path, accepts_ssz=accepts_ssz)


@pytest.mark.parametrize("status", [400, 403, 406, 429, 500, 503, 301])
def test_a_node_that_refuses_is_passed_over(world, node, configured, status):
    for about in ("/headers/", "summaries", "/root", "/v2/beacon/blocks"):
        JumpLeaves.objects.all().delete()
        BeaconAnchor.objects.all().delete()
        with two_nodes(configured, Answering(node, about, status), node):
            assert holds(world, 50, ask(world, 50))


def test_what_a_node_told_before_it_limited_requests_is_kept(world, node, configured, monkeypatch):
    monkeypatch.setattr(beacon_client, "AT_ONCE", 2)
    with Answering(node, "blocks/52/root", 429) as api:
        configured(beacon_urls=[api.url])
        with pytest.raises(NodeUnavailable, match="429"):
            ask(world, 50)
        assert len(JumpLeaves.objects.get().content) == 4 * 32
        api.times = 0
        forget_chains()
        api.asked.clear()
        assert holds(world, 50, ask(world, 50))
        assert sorted(path for path in api.asked if path.endswith("/root")) == [
            f"/eth/v1/beacon/blocks/{slot}/root" for slot in range(52, 56)
        ]


def test_a_node_that_tells_a_little_at_a_time_is_left(world, node, configured, monkeypatch):
    """It would hold a worker for hours, at one root in some seconds. What it told is kept, and asked for no more."""
    monkeypatch.setattr(beacon_client, "AT_ONCE", 1)
    now = [1000.0]

    class Sparing(BeaconApi):
        """A node that answers every other request for a root, after a long time."""

        def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
            if path.endswith("/root"):
                now[0] += 20
                if now[0] % 40 == 0:
                    return 503, "application/json", b"", {}
            return super().answer(path, accepts_ssz=accepts_ssz)

    monkeypatch.setattr(jump_leaves, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Sparing(node) as api:
        configured(beacon_urls=[api.url])
        for count in (2, 4, 6):
            with pytest.raises(NodeUnavailable, match="answers too slowly"):
                ask(world, 50)
            assert len(JumpLeaves.objects.get().content) == count * 32
        assert holds(world, 50, ask(world, 50))
        roots = [path for path in api.asked if path.endswith("/root")]
        assert len(roots) < 20


def test_a_node_that_limits_requests_is_sent_fewer_at_a_time(node):
    now = [0.0]
    with Answering(node, "/root", 429) as api:
        endpoint = BeaconEndpoint(CHAIN_ID, api.url, "host", timeout_seconds=5, clock=lambda: now[0])
        requests = {slot: beacon_client._json(f"/eth/v1/beacon/blocks/{slot}/root") for slot in range(50)}

        def answers() -> Sequence[object]:
            return list(endpoint.ask(requests, ends=100, least=50, check_node=lambda: None))

        with pytest.raises(NodeUnavailable):
            answers()
        assert endpoint.at_once == 16
        api.times = 0
        assert len(answers()) == 50
        now[0] = 61.0
        assert endpoint.at_once == 32


@pytest.mark.parametrize("about", ["/headers/", "summaries", "/v2/beacon/blocks", "blocks/51/root"])
def test_answers_that_are_too_long_are_not_read(world, node, configured, about):
    class Long(BeaconApi):
        def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
            if about in path:
                return 200, "application/json", b" " * (era_files.MOST_BLOCK + 1), {}
            return super().answer(path, accepts_ssz=accepts_ssz)

    with Long(node) as api:
        configured(beacon_urls=[api.url])
        with pytest.raises(NodeUnavailable, match="sent more than"):
            ask(world, 50)


def test_what_comes_with_a_refusal_is_not_read(world, node, configured):
    """A slot is missed also where a node says so at length."""

    class Wordy(BeaconApi):
        def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
            status, kind, content, told = super().answer(path, accepts_ssz=accepts_ssz)
            return status, kind, content if status == 200 else b" " * 100_000, told

    with Wordy(node) as api:
        configured(beacon_urls=[api.url])
        assert holds(world, 50, ask(world, 50))


def test_an_answer_that_is_nested_too_deeply_is_no_answer(world, node, configured):
    class Deep(BeaconApi):
        def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
            if "/headers/" in path:
                return 200, "application/json", b"[" * 10_000, {}
            return super().answer(path, accepts_ssz=accepts_ssz)

    with two_nodes(configured, Deep(node), node):
        assert holds(world, 50, ask(world, 50))


def test_an_answer_of_too_many_values_is_not_read(world, node, configured):
    values = [0] * 260_000
    with Liar(node, "summaries", lambda data: data.update(more=values)) as api:
        configured(beacon_urls=[api.url])
        with pytest.raises(NodeUnavailable, match="too many values"):
            ask(world, 50)


# --- Era files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def eras(world, tmp_path):
    """A folder with the era files of all periods since Bellatrix."""
    folder = tmp_path / "eras"
    folder.mkdir()
    for period, roots in enumerate(world.periods):
        if period:
            first, second = (ssz.tree_root(each, world.chain.period_depth) for each in roots)
            beacon_chains.write_era(folder, world.chain, period, ssz.merge(first, second), roots, world.encoded)
    return folder


@pytest.fixture
def as_mainnet(world, monkeypatch, tmp_path) -> Iterator[EncodedWorld]:
    """The world's lists are shipped instead of mainnet's."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / shipped.HISTORICAL_ROOTS).write_bytes(b"".join(world._historical_roots))
    summaries = world.anchor(ANCHOR).summaries[:3]
    (folder / shipped.SUMMARIES).write_bytes(b"".join(b"".join(each) for each in summaries))
    monkeypatch.setattr(shipped, "FOLDER", folder)
    monkeypatch.setattr(shipped, "MAINNET", world.chain)
    monkeypatch.setattr(shipped, "SUMMARIES_ROOT", shipped.summaries_root(summaries))
    shipped._shipped.cache_clear()
    yield world
    shipped._shipped.cache_clear()


def test_roots_and_blocks_come_from_era_files_of_a_folder(world, node, eras, configured):
    """The node tells the anchor alone."""
    node.roots.clear()
    for root, block in node.blocks.items():
        node.blocks[root] = replace(block, encoded=b"")
    with BeaconApi(node) as api:
        configured(beacon_urls=[api.url], era_files=["eras"])
        for slot in (33, 41, 50, 79):
            assert holds(world, slot, ask(world, slot))
        assert not any("/root" in path for path in api.asked)


def test_a_false_block_in_an_era_file_is_not_remembered(world, node, tmp_path, configured):
    for root, block in node.blocks.items():
        node.blocks[root] = replace(block, encoded=b"")
    first, second = (ssz.tree_root(each, world.chain.period_depth) for each in world.periods[6])
    with BeaconApi(node) as api:
        configured(beacon_urls=[api.url], era_files=["."])
        for false in (world.encoded[51], world.encoded[50][:-1], b""):
            blocks = {**world.encoded, 50: false}
            beacon_chains.write_era(tmp_path, world.chain, 6, ssz.merge(first, second), world.periods[6], blocks)
            with pytest.raises(NodeUnavailable, match="has another block than that of slot 50"):
                ask(world, 50)
        beacon_chains.write_era(tmp_path, world.chain, 6, ssz.merge(first, second), world.periods[6], world.encoded)
        assert holds(world, 50, ask(world, 50))


@pytest.mark.parametrize("slot", [16, 20, 31])
def test_blocks_before_capella_come_from_era_files(as_mainnet, eras, configured, slot):
    configured(era_files=["eras"])
    end = target(slot)
    source = get_chains().chain(CHAIN_ID)
    assert not jump_branches.needs_origin(source, end)
    for _ in range(2):
        found = jump_branches.branch_to(source, None, end, extend_lease=lambda: None)
        assert found == BlockBranch(BLOCK_BEFORE_CAPELLA, as_mainnet.before_capella(slot))
        assert beacon_model.before_capella(as_mainnet.chain, found.branch) == end.hash
    JumpLeaves.objects.update(content=bytes(9 * 32))
    assert jump_branches.branch_to(source, None, end, extend_lease=lambda: None) == found


def test_a_node_alone_does_not_do_before_capella(as_mainnet, api, eras, configured):
    source, end = get_chains().chain(CHAIN_ID), target(20)
    why = "Development chain (31337) has no era_files, and blocks before Capella are proven by these."
    assert jump_branches.why_not(source, end) == why
    configured(beacon_urls=[api.url], era_files=["nothing"])
    with pytest.raises(NodeUnavailable, match="are in era files alone"):
        jump_branches.branch_to(get_chains().chain(CHAIN_ID), None, end, extend_lease=lambda: None)


def test_later_releases_ship_more_summaries(as_mainnet, api, monkeypatch):
    """What was stored counts from where the shipped list ended then."""
    assert holds(as_mainnet, 50, ask(as_mainnet, 50))
    row = BeaconAnchor.objects.get()
    assert (row.shipped, len(row.summaries)) == (3, 4 * 64)
    summaries = as_mainnet.anchor(ANCHOR).summaries[:5]
    (shipped.FOLDER / shipped.SUMMARIES).write_bytes(b"".join(b"".join(each) for each in summaries))
    monkeypatch.setattr(shipped, "SUMMARIES_ROOT", shipped.summaries_root(summaries))
    shipped._shipped.cache_clear()
    asked = len(api.asked)
    assert holds(as_mainnet, 50, ask(as_mainnet, 50))
    assert len(api.asked) == asked


# --- Before the Merge -------------------------------------------------------------------------------------------------


BEFORE_MERGE = 8192 + 40


@pytest.fixture(scope="module")
def proof_of_work() -> list[Header]:
    """The last blocks before the Merge: those of an epoch that is not full."""
    made: list[Header] = []
    parent = bytes(32)
    for number in range(8192, BEFORE_MERGE):
        fields = {**headers.FRONTIER, "number": number, "parentHash": parent, "difficulty": 1000 + number}
        made.append(Header.decode(headers.encode(fields)))
        parent = made[-1].hash
    return made


@pytest.fixture
def merged(proof_of_work, monkeypatch, tmp_path) -> Iterator[tuple[jumps.BeaconChain, BlockBranch]]:
    """A beacon chain with two epochs before the Merge, and the branch to the block 8200."""
    totals = [777 + sum(8192 + 1000 + each for each in range(place + 1)) for place in range(len(proof_of_work))]
    records = [(header.hash, total) for header, total in zip(proof_of_work, totals, strict=True)]
    epochs = [bytes(range(32)), ssz.list_root(jumps.record_leaves(records), jumps.RECORDS_DEPTH)]
    chain = replace(
        beacon_chains.small_world().chain,
        blocks_before_merge=BEFORE_MERGE,
        accumulator=ssz.list_root(epochs, jumps.EPOCHS_DEPTH),
    )
    (tmp_path / shipped.EPOCHS).write_bytes(b"".join(epochs))
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    monkeypatch.setattr(shipped, "MAINNET", chain)
    shipped._shipped.cache_clear()
    beacon_chains.write_era1(
        tmp_path,
        f"small-00001-{epochs[1][:4].hex()}.era1",
        8192,
        [header.encode() for header in proof_of_work],
        totals,
    )
    yield chain, BlockBranch(BLOCK_BEFORE_MERGE, jumps.before_merge(chain, 8200, records, epochs))
    shipped._shipped.cache_clear()


@contextmanager
def execution_node(proof_of_work: Sequence[Header], change: Callable[[int, dict[str, Any]], object]) -> Iterator[str]:
    """A node that tells headers and, of the first block, the total difficulty; `change` makes it lie."""

    def block(number: int) -> dict[str, Any]:
        header = proof_of_work[number - 8192]
        values = dict(zip(headers.FRONTIER, header.fields, strict=True))
        numbers = {name for name, value in headers.FRONTIER.items() if isinstance(value, int)}
        told = {
            name: hex(int.from_bytes(value)) if name in numbers else f"0x{value.hex()}"
            for name, value in values.items()
        }
        told |= {"hash": f"0x{header.hash.hex()}", "totalDifficulty": hex(777 + 8192 + 1000)}
        change(number, told)
        return told

    def answer(body: Any) -> Any:
        if isinstance(body, list):
            return [answer(one) for one in body]
        if body["method"] == "eth_chainId":
            return result(body, hex(CHAIN_ID))
        return result(body, block(int(body["params"][0], 16)))

    with lying_node(answer) as url:
        yield url


def _before_merge(proof_of_work: Sequence[Header], number: int = 8200) -> BlockBranch | NotYet:
    source = get_chains().chain(CHAIN_ID)
    return jump_branches.branch_to(source, None, proof_of_work[number - 8192], extend_lease=lambda: None)


def test_epochs_before_the_merge_come_from_era_files(merged, proof_of_work, configured):
    chain, expected = merged
    configured(chain=chain, era_files=["."])
    assert _before_merge(proof_of_work) == expected
    assert beacon_model.before_merge(chain, expected.branch) == proof_of_work[8].hash


def test_epochs_before_the_merge_come_from_execution_nodes(merged, proof_of_work, configured, monkeypatch):
    """Bit by bit."""
    monkeypatch.setattr(jump_leaves, "_PER_PART", 16)
    chain, expected = merged
    with execution_node(proof_of_work, lambda *_: None) as url:
        configured(chain=chain, rpc_url=url)
        assert not jump_branches.needs_origin(get_chains().chain(CHAIN_ID), proof_of_work[8])
        assert _before_merge(proof_of_work) == expected


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _, told: told.pop("totalDifficulty"), "doesn't tell total difficulties"),
        (lambda _, told: told.update(totalDifficulty="0x1"), "are not the chain's"),
        (lambda _, told: told.update(totalDifficulty=hex(2**256 - 1)), "beyond all bounds"),
    ],
    ids=["none", "another", "too much"],
)
def test_execution_nodes_that_tell_no_total_difficulty(merged, proof_of_work, configured, change, why):
    with execution_node(proof_of_work, change) as url:
        configured(chain=merged[0], rpc_url=url)
        with pytest.raises(NodeUnavailable, match=why):
            _before_merge(proof_of_work)
    assert not JumpLeaves.objects.get().is_complete


def test_a_false_total_difficulty_is_not_kept(merged, proof_of_work, configured):
    """No header fits behind one near the end of all numbers: what was kept of it would never be completed."""
    chain, expected = merged
    with execution_node(proof_of_work, lambda _, told: told.update(totalDifficulty=hex(2**256 - 1))) as url:
        configured(chain=chain, rpc_url=url)
        with pytest.raises(NodeUnavailable):
            _before_merge(proof_of_work)
    with execution_node(proof_of_work, lambda *_: None) as url:
        configured(chain=chain, rpc_url=url)
        assert _before_merge(proof_of_work) == expected
        right = bytes(JumpLeaves.objects.get().content)
        for wrong in (right + bytes(64 * 8192), right[:-1], right + b"\0", b""):
            JumpLeaves.objects.update(content=wrong)
            assert _before_merge(proof_of_work) == expected


def test_execution_nodes_that_tell_another_chain(merged, proof_of_work, configured):
    def other(number: int, told: dict[str, Any]) -> None:
        if number == 8210:
            header = headers.encode({**headers.FRONTIER, "number": number, "difficulty": 1})
            told.update({"difficulty": "0x1", "parentHash": f"0x{'01' * 32}", "hash": f"0x{keccak(header).hex()}"})

    with execution_node(proof_of_work, other) as url:
        configured(chain=merged[0], rpc_url=url)
        with pytest.raises(NodeUnavailable, match="are not the chain's"):
            _before_merge(proof_of_work)


def test_another_block_before_the_merge_is_not_proven(merged, proof_of_work, configured):
    configured(chain=merged[0], era_files=["."])
    other = Header.decode(headers.encode({**headers.FRONTIER, "number": 8200}))
    with pytest.raises(NodeUnavailable, match="Another block was at this number"):
        jump_branches.branch_to(get_chains().chain(CHAIN_ID), None, other, extend_lease=lambda: None)


# --- What is kept -----------------------------------------------------------------------------------------------------


@pytest.fixture
def bit_by_bit(monkeypatch) -> None:
    monkeypatch.setattr(jump_leaves, "_PER_PART", 2)
    monkeypatch.setattr(jump_leaves, "_PER_WRITE", 64)


@pytest.mark.parametrize("after", [False, True])
def test_what_came_before_a_kill_is_kept(world, api, killer, bit_by_bit, after):  # noqa: F811
    """Wherever it comes, all that was written is used, and nothing is asked for twice that was."""
    kills, kept = 0, set()
    for exchange in itertools.count(1):
        JumpLeaves.objects.all().delete()
        BeaconAnchor.objects.all().delete()
        jump_branches._beacon_block.cache_clear()
        forget_chains()
        api.asked.clear()
        killer.arm(exchange, after=after)
        try:
            found = ask(world, 50)
        except Killed:
            kills += 1
            killer.disarm()
            known = [len(bytes(row.content)) // 32 for row in JumpLeaves.objects.all()]
            kept.update(known)
            # The dead worker's lease expires.
            JumpLeaves.objects.update(leased_until=timezone.now() - timedelta(seconds=1))
            before = len(api.asked)
            found = ask(world, 50)
            again = [path for path in api.asked[before:] if path.endswith("/root")]
            assert not any(f"/{48 + place}/" in path for path in again for place in range(known[0] if known else 0))
        else:
            assert holds(world, 50, found)
            break
        assert holds(world, 50, found)
    # The chain's id, a header, summaries of two forms, four parts and the block.
    assert kills >= 8
    assert kept >= {0, 2, 4, 6}


def test_while_a_worker_fetches_another_waits(world, api):
    """And when that worker has died, the other goes on."""
    row = JumpLeaves.objects.create(chain_id=CHAIN_ID, kind=JumpLeavesKind.PERIOD, number=6)
    lease = leases.claim(JumpLeaves.objects.all(), row.pk)
    assert lease is not None
    found = ask(world, 50)
    assert found == NotYet("Another worker fetches what blocks of period 6 are proven by.")
    assert not any(path.endswith("/root") for path in api.asked)
    # It was taken while a clock was ahead.
    JumpLeaves.objects.update(leased_until=timezone.now() + timedelta(days=1))
    assert holds(world, 50, ask(world, 50))


def test_a_worker_that_slept_writes_nothing(world, api, bit_by_bit, monkeypatch):
    """Another has taken over the row meanwhile, and has filled it."""
    right = b"".join(world.periods[6][0])
    rows = JumpLeaves.objects.all()

    def taken_over() -> None:
        if rows.filter(is_complete=False).exclude(lease_token="").exists() and len(api.asked) > 8:
            rows.update(lease_token="another's", content=right, is_complete=True)

    source = get_chains().chain(CHAIN_ID)
    found = jump_branches.branch_to(source, origin(world.root(ANCHOR)), target(50), extend_lease=taken_over)
    assert isinstance(found, NotYet)
    row = rows.get()
    assert (row.is_complete, bytes(row.content), row.lease_token) == (True, right, "another's")
    assert holds(world, 50, ask(world, 50))


def test_what_is_pruned_while_it_is_filled_is_begun_anew(world, api, bit_by_bit):
    """By a clock that is ahead."""

    def prune() -> None:
        if len(api.asked) > 8:
            JumpLeaves.objects.update(used_at=timezone.now() - timedelta(days=91))
            BeaconAnchor.objects.update(used_at=timezone.now() - timedelta(days=91))
            pruning.prune_now()

    source = get_chains().chain(CHAIN_ID)
    found = jump_branches.branch_to(source, origin(world.root(ANCHOR)), target(50), extend_lease=prune)
    assert isinstance(found, NotYet)
    assert not JumpLeaves.objects.exists()
    assert not BeaconAnchor.objects.exists()
    assert holds(world, 50, ask(world, 50))


def test_two_workers_come_to_the_same(world, node, configured, transactional_db, bit_by_bit):
    """Side by side, from nothing on: all roots are asked for once."""
    with BeaconApi(node) as api:
        configured(beacon_urls=[api.url])

        def work(_: int) -> BlockBranch:
            try:
                while True:
                    found = ask(world, 50)
                    if isinstance(found, BlockBranch):
                        return found
                    time.sleep(0.01)
            finally:
                connections.close_all()

        with ThreadPoolExecutor() as pool:
            assert all(holds(world, 50, found) for found in pool.map(work, range(3)))
        roots = [path for path in api.asked if path.endswith("/root")]
        assert len(roots) == len(set(roots))


def test_the_callers_lease_is_extended_and_its_loss_ends_the_work(world, api, bit_by_bit):
    extended = 0

    def extend() -> None:
        nonlocal extended
        extended += 1
        if extended == 6:
            raise LeaseLost

    source = get_chains().chain(CHAIN_ID)
    with pytest.raises(LeaseLost):
        jump_branches.branch_to(source, origin(world.root(ANCHOR)), target(50), extend_lease=extend)
    # The row of leaves is free for the next.
    assert holds(world, 50, ask(world, 50))


def test_leases_are_extended_while_an_era_file_is_read(as_mainnet, eras, configured, monkeypatch):
    """The server of files may take half a minute for each part."""
    configured(era_files=["eras"])
    source, end = get_chains().chain(CHAIN_ID), target(20)
    extended: list[str] = []
    monkeypatch.setattr(leases.Lease, "extend", lambda lease: extended.append(type(lease.row).__name__))

    def extend() -> None:
        extended.append("the caller's")

    jump_branches.branch_to(source, None, end, extend_lease=extend)
    # The end of the file, and its state.
    assert extended[:4] == ["the caller's", "JumpLeaves"] * 2
    JumpLeaves.objects.all().delete()

    def lose(_: object) -> None:
        raise LeaseLost

    monkeypatch.setattr(leases.Lease, "extend", lose)
    assert isinstance(jump_branches.branch_to(source, None, end, extend_lease=extend), NotYet)


def test_what_nobody_uses_is_pruned(world, api):
    for slot in (50, 60):
        ask(world, slot)
    days = timezone.now() - timedelta(days=89), timezone.now() - timedelta(days=91)
    BeaconAnchor.objects.update(used_at=days[0])
    for number, used_at in zip((6, 7), days, strict=True):
        JumpLeaves.objects.filter(number=number).update(used_at=used_at)
    pruning.prune_now()
    assert BeaconAnchor.objects.count() == 1
    assert JumpLeaves.objects.get().number == 6
    # A use counts.
    assert holds(world, 50, ask(world, 50))
    used = {JumpLeaves.objects.get().used_at, BeaconAnchor.objects.get().used_at}
    assert min(used) > timezone.now() - timedelta(minutes=1)
    with CaptureQueriesContext(connection) as statements:
        ask(world, 50)
    assert [one["sql"][:6] for one in statements] == ["SELECT", "SELECT"]


# --- What can be told without asking ----------------------------------------------------------------------------------


def test_why_there_is_no_jump(world, as_mainnet, configured):
    def why(end: Header | int) -> str:
        return jump_branches.why_not(get_chains().chain(CHAIN_ID), end)

    configured(beacon_urls=["http://127.0.0.1:9"], era_files=["nowhere"])
    assert [why(end) for end in (target(20), target(33), target(80), 20, 10**9)] == [""] * 5
    assert why(target(90)).endswith("can't be proven by the beacon chain: A block of slot 90 has no known layout.")
    assert why(target(10)).endswith("A block of slot 10 has no known layout.")
    configured(beacon_urls=["http://127.0.0.1:9"])
    assert why(target(20)).endswith("has no era_files, and blocks before Capella are proven by these.")
    assert why(target(33)) == ""
    configured(era_files=["nowhere"])
    assert why(target(33)).endswith("has no beacon_urls, which tell what blocks are proven by.")
    configured()
    assert why(1000).endswith("has neither beacon_urls nor era_files, which tell of old blocks.")


def test_lists_of_other_chains_are_not_known(world, configured):
    configured(chain=replace(world.chain, blocks_before_merge=50), era_files=["nowhere"])
    source = get_chains().chain(CHAIN_ID)
    assert jump_branches.why_not(source, 7) == (
        "No list of the epochs of Development chain (31337) before the Merge is known."
    )
    assert jump_branches.why_not(source, target(20)) == (
        "No list of the periods of Development chain (31337) before Capella is known."
    )
    with pytest.raises(NodeUnavailable, match="before Capella is known"):
        jump_branches.branch_to(source, None, target(20), extend_lease=lambda: None)


def test_a_chain_without_a_beacon_chain_has_no_jumps(chain, db, settings, tmp_path):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    forget_chains()
    source = get_chains().chain(CHAIN_ID)
    assert jump_branches.why_not(source, 7) == (
        "Development chain (31337) has no known beacon chain, by which old blocks are proven."
    )
    assert not jump_branches.needs_origin(source, target(50))
