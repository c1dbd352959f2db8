"""Branches to old blocks: their sources, stored parts, and the effects of lies."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from eth_utils.crypto import keccak

from chains.beacon import era_files, jumps, shipped, ssz
from chains.beacon.blocks import MINIMAL_PRESET
from chains.nodes.node_errors import NodeUnavailable
from chains.tries.header import Header
from chains.tries.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, OLD_BLOCK, BlockBranch
from config.configured_chains import get_chains
from devnet.beacon_api import BeaconApi, BeaconNode, Reply
from proving.models import BeaconAnchor, JumpLeaves
from proving.paths import beacon_fetching, jumping
from proving.registries import deployments
from proving.sources import NotYet
from proving.working import lanes, pruning, worker
from proving.working.lanes import LaneKind, LaneName
from queries.waits import wait
from tests import headers
from tests.contracts import beacon_model
from tests.proving import beacon_chains
from tests.proving.beacon_chains import CHAIN_ID, EncodedWorld

ANCHOR = 89
# These include a period's first slot and another period's last slot.
MISSED = (40, 44, 53, 71)
ONLY_BY_FILES = "Development chain (31337) has no era_files, which are necessary for blocks before Capella."


@pytest.fixture(scope="module")
def world() -> EncodedWorld:
    return beacon_chains.small_world(MISSED)


@pytest.fixture
def node(world) -> BeaconNode:
    return beacon_chains.node_of(world, [ANCHOR])


@pytest.fixture
def configured(world, db, settings, tmp_path) -> Callable[..., None]:
    """Return a function that configures the service like `beacon_chains.configure`."""

    def configure(**options: Any) -> None:
        beacon_chains.configure(settings, tmp_path, options.pop("chain", world.chain), **options)
        beacon_fetching.block.cache_clear()

    return configure


@pytest.fixture
def api(node, configured) -> Iterator[BeaconApi]:
    """Configure the service with one beacon node that has all data. Yield the node."""
    with BeaconApi(node) as api:
        configured(beacon_urls=[api.url])
        yield api


def target(slot: int) -> Header:
    return Header.decode(beacon_chains.target(slot))


def origin(root: bytes, number: int = 1000) -> Header:
    """Return a newer header that names a beacon block."""
    return Header.decode(headers.encode(headers.PRAGUE, number=number, parentBeaconBlockRoot=root))


def branch_to(start: Header | None, end: Header, *, accepts_roots: bool = False) -> BlockBranch | NotYet:
    """Return the answer about a block, after a worker has fetched missing parts."""
    source = get_chains().chain(CHAIN_ID)
    ask = partial(jumping.branch_to, source, start, end, accepts_roots=accepts_roots)
    with suppress(NodeUnavailable):
        answer = ask()
        if not (isinstance(answer, NotYet) and answer.reason.code == "beacon_data"):
            return answer
    worker.turn_of_all(LaneName(LaneKind.HISTORY))
    return ask()


def ask(world: EncodedWorld, slot: int, anchor: int = ANCHOR) -> BlockBranch | NotYet:
    return branch_to(origin(world.root(anchor)), target(slot))


def holds(world: EncodedWorld, slot: int, answer: object, anchor: int = ANCHOR) -> bool:
    return answer == BlockBranch(OLD_BLOCK, world.old(slot, anchor))


# --- Results ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_branch_leads_from_the_origin_to_the_target(world, api):
    for slot in (33, 41, 50, 55, 60, 72, 79):
        answer = ask(world, slot)
        assert holds(world, slot, answer)
        assert isinstance(answer, BlockBranch)
        assert beacon_model.old(world.chain, world.root(ANCHOR), answer.branch) == target(slot).hash


def test_blocks_without_a_beacon_root_begin_no_jump(world, node, api, configured):
    for start in (None, Header.decode(headers.encode(headers.SHANGHAI))):
        with pytest.raises(NodeUnavailable, match="names no beacon block"):
            branch_to(start, target(50))
    assert api.requested_paths == []
    # Slot 88's period ends before slot 96.
    too_new = ask(world, 88)
    assert isinstance(too_new, NotYet)
    assert str(too_new.reason) == (
        "Block 188 of Development chain (31337) is too new for a jump from block 1000: the beacon chain summarises it "
        "from 2023-11-14 22:32:32 UTC on."
    )
    BeaconAnchor.objects.all().delete()
    # A state of an unknown fork has another layout, so its summaries aren't requested.
    configured(chain=replace(world.chain, end=ANCHOR), beacon_urls=[api.url])
    api.requested_paths.clear()
    with pytest.raises(NodeUnavailable, match=r"state of slot 89.* has no known layout"):
        ask(world, 50)
    assert not any("historical_summaries" in path for path in api.requested_paths)


def test_a_target_that_is_not_on_the_beacon_chain(world, api):
    other = Header.decode(target(50).encode().replace(b"anybody", b"another"))
    missed = target(53)
    between = Header.decode(
        headers.encode(
            headers.PRAGUE, number=150, timestamp=beacon_chains.GENESIS + 50 * beacon_chains.SLOT_SECONDS + 1
        )
    )
    for end, why in ((other, "another block at slot 50"), (missed, "no block at slot 53"), (between, "No slot begins")):
        with pytest.raises(NodeUnavailable, match=why):
            branch_to(origin(world.root(ANCHOR)), end)


# --- Lies -------------------------------------------------------------------------------------------------------------


@contextmanager
def two_nodes(
    configured: Callable[..., None], liar: BeaconApi, honest: BeaconNode
) -> Iterator[tuple[BeaconApi, BeaconApi]]:
    """Configure the service with two nodes, the first of which may lie."""
    with liar, BeaconApi(honest) as other:
        configured(beacon_urls=[liar.url, other.url])
        yield liar, other


class Liar(BeaconApi):
    """A node that changes some answers or their status."""

    def __init__(self, node: BeaconNode, about: str, lie: Callable[[bytes], bytes | int]) -> None:
        super().__init__(node)
        self._about, self._lie = about, lie

    def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
        status, kind, content, told = super().answer(path, accepts_ssz=accepts_ssz)
        if self._about in path and status == 200:
            changed = self._lie(content)
            return (changed, kind, b"", told) if isinstance(changed, int) else (status, kind, changed, told)
        return status, kind, content, told


def _telling(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    def lie(content: bytes) -> bytes:
        answer = json.loads(content)
        change(answer["data"])
        return json.dumps(answer).encode()

    return lie


def _header(**lie: object) -> Callable[[bytes], bytes]:
    return _telling(lambda data: data["header"]["message"].update(lie))


def _summaries(lie: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    return _telling(lambda data: lie(data["historical_summaries"]))


def _flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:at] + bytes([content[at] ^ 1]) + content[at:][1:]


OTHER = "0x" + "17" * 32
LIES: Mapping[str, Mapping[str, Callable[[bytes], bytes]]] = {
    "/headers/": {
        "state": _header(state_root=OTHER),
        "no number": _header(slot=89),
        "huge number": _header(slot=str(2**64)),
        "none": _telling(lambda data: data.pop("header")),
    },
    "summaries": {
        "one": _summaries(lambda all_: all_[2].update(block_summary_root=OTHER)),
        "fewer": _summaries(lambda all_: all_.pop()),
        "none": _telling(lambda data: data.pop("historical_summaries")),
        "siblings": _telling(lambda data: data["proof"].reverse()),
        "short proof": _telling(lambda data: data["proof"].pop()),
        "many values": _telling(lambda data: data.update(more=[0] * 260_000)),
    },
    "blocks/52/root": {"another": _telling(lambda data: data.update(root=OTHER)), "short": lambda _: b"{}"},
    "/v2/beacon/blocks": {
        "body": _flipped(400),
        "offset": _flipped(0),
        "cut": lambda content: content[:-1],
        "none": lambda _: b"",
    },
}


@pytest.mark.long("blocks/52/root long")
@pytest.mark.parametrize(
    ("about", "lie"),
    [
        pytest.param(about, lie, id=f"{about} {name}")
        for about, lies in LIES.items()
        for name, lie in {
            **lies,
            "long": lambda _: b" " * (era_files.MOST_BLOCK + 1),
            "nested": lambda _: b"[" * 10_000,
        }.items()
    ],
)
def test_a_lie_leads_to_nothing_and_the_next_node_is_asked(world, node, configured, about, lie):
    """Each lie contradicts other data, so none is stored as complete."""
    with two_nodes(configured, Liar(node, about, lie), node) as (liar, honest):
        configured(beacon_urls=[liar.url])
        with pytest.raises(NodeUnavailable, match=r"127\.0\.0\.1") as unavailable:
            ask(world, 50)
        assert "http" not in str(unavailable.value).replace("HTTP", "")
        assert BeaconAnchor.objects.exists() == ("/blocks" in f"/{about}")
        assert JumpLeaves.objects.filter(is_complete=True).exists() == ("/v2/" in about)
        configured(beacon_urls=[liar.url, honest.url])
        assert holds(world, 50, ask(world, 50))
        assert any(about in path for path in honest.requested_paths)


@pytest.mark.long
def test_wrong_roots_of_slots_are_passed_over(world, node, configured):
    """Wrong roots are not stored. A node without blocks answers as for missed slots, and one node is down."""
    liar = Liar(node, "blocks/52/root", LIES["blocks/52/root"]["another"])
    pruned = BeaconApi(replace(node, roots={slot: root for slot, root in node.roots.items() if slot < 48}))
    empty = BeaconApi(replace(node, roots={}))
    with liar, pruned, empty, BeaconApi(node) as honest:
        urls = ["http://127.0.0.1:1", liar.url, pruned.url, empty.url]
        configured(beacon_urls=urls)
        with pytest.raises(NodeUnavailable) as unavailable:
            ask(world, 50)
        # The node that could not be reached is asked last.
        dead, lying, lacking, last = (url.removeprefix("http://") for url in urls)
        wrong = "lacks blocks, or tells roots that are not the chain's"
        assert str(unavailable.value) == (
            "No beacon node in beacon_urls of Development chain (31337) has the block roots of period 6: "
            f"{lying} {wrong}; {lacking} {wrong}; {last} has no block of slots 16 to 47; {dead} can't be reached."
        )
        row = JumpLeaves.objects.get()
        assert (row.is_complete, bytes(row.content)) == (False, b"")
        configured(beacon_urls=[*urls, honest.url])
        assert holds(world, 50, ask(world, 50))


@pytest.mark.long
def test_an_empty_or_false_row_is_not_believed(world, api):
    """A damaged database, or one of another configuration, may have such rows."""
    assert holds(world, 50, ask(world, 50))
    right = bytes(JumpLeaves.objects.get().content)
    for wrong in (bytes(8 * 32), b"", right[:-1], right[:-32], right + b"\0", right + bytes(32)):
        JumpLeaves.objects.update(content=wrong)
        assert holds(world, 50, ask(world, 50))
        assert bytes(JumpLeaves.objects.get().content) == right
    # An earlier version may have stored parts. An incomplete row is fetched again as a whole.
    for unfinished in (right[:96], right[:64] + bytes(32), right):
        JumpLeaves.objects.update(content=unfinished, is_complete=False, attempts=2)
        earlier = len(api.requested_paths)
        assert holds(world, 50, ask(world, 50))
        assert sum(path.endswith("/root") for path in api.requested_paths[earlier:]) == 40
        assert (JumpLeaves.objects.get().is_complete, bytes(JumpLeaves.objects.get().content)) == (True, right)
    for change in ({"state_root": OTHER}, {"slot": 88}, {"summaries": b""}, {"branch": bytes(6 * 32)}, {"branch": b""}):
        BeaconAnchor.objects.update(**change)
        assert holds(world, 50, ask(world, 50))


# --- Through the last block roots in a state --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gloas_world() -> EncodedWorld:
    return beacon_chains.small_world((40, 44, 53, 83, 88), gloas=74, end=100, preset=MINIMAL_PRESET)


@pytest.fixture
def of_roots(gloas_world, configured) -> Iterator[BeaconApi]:
    with BeaconApi(beacon_chains.node_of(gloas_world, [86, 89])) as api:
        configured(chain=gloas_world.chain, beacon_urls=[api.url])
        yield api


def by_roots(world: EncodedWorld, slot: int, anchor: int, *, accepts_roots: bool = True) -> BlockBranch | NotYet:
    return branch_to(origin(world.root(anchor)), target(slot), accepts_roots=accepts_roots)


def states_read(api: BeaconApi) -> int:
    return sum("/debug/beacon/states/" in path and path.startswith("/eth/v2") for path in api.requested_paths)


@pytest.mark.long
def test_where_there_is_no_summary_the_branch_leads_through_block_roots(gloas_world, of_roots):
    """Slot 83 was missed."""
    for slot, naming in ((80, 81), (82, 84), (84, 85)):
        answer = by_roots(gloas_world, slot, 86)
        assert answer == BlockBranch(OLD_BLOCK, gloas_world.recent(naming, 86), by_roots=True)
        assert beacon_model.old(gloas_world.chain, gloas_world.root(86), answer.branch) == target(slot).hash
    # Slots 72 and 79 are of a summarised period, but slot 79 is named in the next one.
    assert by_roots(gloas_world, 72, 86) == BlockBranch(OLD_BLOCK, gloas_world.old(72, 86))
    assert by_roots(gloas_world, 79, 86) == BlockBranch(OLD_BLOCK, gloas_world.recent(80, 86), by_roots=True)
    assert states_read(of_roots) == 1
    # A row that was damaged is read again.
    JumpLeaves.objects.filter(kind="state").update(content=bytes(8 * 32))
    assert by_roots(gloas_world, 79, 86) == BlockBranch(OLD_BLOCK, gloas_world.recent(80, 86), by_roots=True)
    assert states_read(of_roots) == 2


@pytest.mark.long
def test_what_neither_summaries_nor_block_roots_reach_waits_without_reading_a_state(gloas_world, of_roots):
    too_new = by_roots(gloas_world, 85, 86)
    # The state has the block root of slot 85, but the next block names it. The registry accepts only summaries.
    for answer in (too_new, by_roots(gloas_world, 82, 86, accepts_roots=False)):
        assert isinstance(answer, NotYet)
        assert "is too new for a jump from block 1000: the beacon chain summarises it from" in str(answer.reason)
    assert states_read(of_roots) == 0
    # Slot 88 was missed, so slot 87 is named by the anchor itself.
    assert isinstance(by_roots(gloas_world, 87, 89), NotYet)
    other = Header.decode(target(84).encode().replace(b"anybody", b"another"))
    with pytest.raises(NodeUnavailable, match="another block at slot 85"):
        branch_to(origin(gloas_world.root(86)), other, accepts_roots=True)


# --- Era files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def eras(world, tmp_path):
    """Return a folder with era files of all periods since Bellatrix."""
    folder = tmp_path / "eras"
    folder.mkdir()
    for period, roots in enumerate(world.periods):
        if period:
            first, second = (ssz.tree_root(each, world.chain.period_depth) for each in roots)
            beacon_chains.write_era(folder, world.chain, period, ssz.merge(first, second), roots, world.encoded)
    return folder


@pytest.fixture
def as_mainnet(world, monkeypatch, tmp_path) -> Iterator[EncodedWorld]:
    """Make the world's lists the shipped ones, instead of mainnet's."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / shipped.HISTORICAL_ROOTS).write_bytes(b"".join(world._historical_roots))
    monkeypatch.setattr(shipped, "FOLDER", folder)
    monkeypatch.setattr(shipped, "MAINNET", world.chain)
    shipped._shipped.cache_clear()
    yield world
    shipped._shipped.cache_clear()


def test_roots_and_blocks_come_from_era_files_of_a_folder(world, node, eras, configured):
    """The node serves only the anchor. A node that has all data gets no request for roots or blocks either."""
    with BeaconApi(node) as api:
        configured(beacon_urls=[api.url], era_files=["eras"])
        assert holds(world, 50, ask(world, 50))
        assert not any("/root" in path or "/v2/beacon/blocks" in path for path in api.requested_paths)
    JumpLeaves.objects.all().delete()
    node.roots.clear()
    for root, block in node.blocks.items():
        node.blocks[root] = replace(block, encoded=b"")
    with BeaconApi(node) as api:
        configured(beacon_urls=[api.url], era_files=["nothing"])
        with pytest.raises(
            NodeUnavailable, match=r"No era file small-00007.* No beacon node in beacon_urls of .* of period 6"
        ):
            ask(world, 50)
        api.requested_paths.clear()
        configured(beacon_urls=[api.url], era_files=["eras"])
        for slot in (33, 41, 50, 79):
            assert holds(world, slot, ask(world, slot))
        assert not any("/root" in path for path in api.requested_paths)


@pytest.mark.parametrize("slot", [16, 31])
def test_blocks_before_capella_come_from_era_files(as_mainnet, eras, configured, slot):
    configured(era_files=["eras"])
    end = target(slot)
    for _ in range(2):
        answer = branch_to(None, end)
        assert answer == BlockBranch(BLOCK_BEFORE_CAPELLA, as_mainnet.before_capella(slot))
        assert beacon_model.before_capella(as_mainnet.chain, answer.branch) == end.hash
    JumpLeaves.objects.update(content=bytes(9 * 32))
    assert branch_to(None, end) == answer
    JumpLeaves.objects.all().delete()
    configured(beacon_urls=["http://127.0.0.1:9"], era_files=["nothing"])
    with pytest.raises(NodeUnavailable, match=r"No era file small-0000\d-.* A folder of era_files has none"):
        branch_to(None, end)


# --- Before the Merge -------------------------------------------------------------------------------------------------


@pytest.fixture
def merged(monkeypatch, tmp_path) -> Iterator[tuple[jumps.BeaconChain, Header, BlockBranch]]:
    """Yield a beacon chain with two epochs before the Merge, a block of the last one, and its branch."""
    fields = [{**headers.FRONTIER, "number": number, "difficulty": number} for number in range(8192, 8192 + 40)]
    encoded, totals = (
        [headers.encode(header_fields) for header_fields in fields],
        list(accumulate(range(8192, 8192 + 40), initial=777))[1:],
    )
    records = [(keccak(header), total) for header, total in zip(encoded, totals, strict=True)]
    epochs = [bytes(range(32)), ssz.list_root(jumps.record_leaves(records), jumps.RECORDS_DEPTH)]
    accumulator = ssz.list_root(epochs, jumps.EPOCHS_DEPTH)
    chain = replace(beacon_chains.small_world().chain, blocks_before_merge=8192 + 40, accumulator=accumulator)
    (tmp_path / shipped.EPOCHS).write_bytes(b"".join(epochs))
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    monkeypatch.setattr(shipped, "MAINNET", chain)
    shipped._shipped.cache_clear()
    beacon_chains.write_era1(tmp_path, f"small-00001-{epochs[1][:4].hex()}.era1", 8192, encoded, totals)
    branch = BlockBranch(BLOCK_BEFORE_MERGE, jumps.before_merge(chain, 8200, records, epochs))
    yield chain, Header.decode(encoded[8]), branch
    shipped._shipped.cache_clear()


def test_epochs_before_the_merge_come_from_era_files_alone(merged, configured):
    chain, end, expected = merged

    branch = partial(branch_to, None)
    configured(chain=chain, beacon_urls=["http://127.0.0.1:9"])
    with pytest.raises(NodeUnavailable, match=re.escape(ONLY_BY_FILES)):
        branch(end)
    configured(chain=chain, era_files=["nothing"])
    with pytest.raises(NodeUnavailable, match=r"No era file small-00001-.* A folder of era_files has none"):
        branch(end)
    configured(chain=chain, era_files=["."])
    assert branch(end) == expected
    assert beacon_model.before_merge(chain, expected.branch) == end.hash
    right = bytes(JumpLeaves.objects.get().content)
    for wrong in (right + bytes(64), right[:-1], b"", right[64:] + right[:64]):
        JumpLeaves.objects.update(content=wrong)
        assert branch(end) == expected
        assert bytes(JumpLeaves.objects.get().content) == right
    with pytest.raises(NodeUnavailable, match="This number had another block"):
        branch(Header.decode(headers.encode({**headers.FRONTIER, "number": 8200})))


# --- Stored rows ------------------------------------------------------------------------------------------------------


def test_while_a_worker_fetches_another_waits(world, api):
    """If the first worker dies, the other one fetches the data."""
    with lanes.hold(LaneName(LaneKind.HISTORY)):
        assert ask(world, 50) == NotYet(wait("beacon_data", kind="period", number=6))
    assert not any(path.endswith("/root") for path in api.requested_paths)
    assert holds(world, 50, ask(world, 50))


def test_unused_anchors_and_leaves_are_pruned(world, api):
    for slot in (50, 60):
        ask(world, slot)
    days = timezone.now() - timedelta(days=89), timezone.now() - timedelta(days=91)
    BeaconAnchor.objects.update(used_at=days[0])
    for number, used_at in zip((6, 7), days, strict=True):
        JumpLeaves.objects.filter(number=number).update(used_at=used_at)
    pruning.prune_now()
    assert BeaconAnchor.objects.count() == 1
    assert JumpLeaves.objects.get().number == 6
    # The use of the stored data is recorded.
    assert holds(world, 50, ask(world, 50))
    used = {JumpLeaves.objects.get().used_at, BeaconAnchor.objects.get().used_at}
    assert min(used) > timezone.now() - timedelta(minutes=1)
    with CaptureQueriesContext(connection) as statements:
        ask(world, 50)
    assert [statement["sql"][:6] for statement in statements] == ["SELECT", "SELECT"]


class LaggingNode:
    """A client of a node that has the contract only at the second call."""

    def __init__(self) -> None:
        self.answers = [b"", (36).to_bytes(32)]

    def eth_calls(self, _: object) -> list[bytes]:
        return [self.answers.pop(0)]


def test_a_node_that_lags_behind_the_history_does_not_decide_for_long_that_it_takes_no_block_roots():
    rpc: Any = LaggingNode()
    history = "0x" + "12" * 20
    assert [deployments.proves_by_roots(rpc, history) for _ in range(3)] == [False, True, True]
