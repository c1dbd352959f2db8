"""Era files of a small beacon chain in a folder and behind URLs, some of them damaged or false."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
import rlp
from eth_utils.crypto import keccak

from chains.beacon import era_files, jumps, shipped, ssz
from chains.beacon.era_files import EraFiles, NoEraFile, PeriodRoots
from chains.beacon.jumps import MAINNET
from chains.nodes.node_errors import NodeUnavailable
from tests import fixtures_folder, headers
from tests.chains.era_site import Site, served
from tests.contracts import recorded_beacon
from tests.proving import beacon_chains

# Slots 48 to 55.
PERIOD = 6


@pytest.fixture(scope="module")
def world() -> beacon_chains.EncodedWorld:
    return beacon_chains.small_world([49, 53])


@pytest.fixture(scope="module")
def roots(world) -> PeriodRoots:
    first, second = world.periods[PERIOD]
    return PeriodRoots(b"".join(first), b"".join(second))


@pytest.fixture(scope="module")
def root(world, roots) -> bytes:
    return era_files.period_root(world.chain, roots)


@pytest.fixture
def path(world, root, tmp_path) -> Path:
    return beacon_chains.write_era(tmp_path, world.chain, PERIOD, root, world.periods[PERIOD], world.encoded)


def _headers(count: int) -> list[bytes]:
    made, parent = [], bytes(32)
    for number in range(count):
        fields = {**headers.FRONTIER, "number": number, "parentHash": parent, "difficulty": 1000 + number}
        made.append(headers.encode(fields))
        parent = keccak(made[-1])
    return made


@dataclass
class Epoch:
    encoded: Sequence[bytes] = field(default_factory=lambda: _headers(40))

    @property
    def totals(self) -> list[int]:
        return [17 + sum(1000 + number for number in range(index + 1)) for index in range(len(self.encoded))]

    @property
    def records(self) -> list[tuple[bytes, int]]:
        return [(keccak(header), total) for header, total in zip(self.encoded, self.totals, strict=True)]

    @property
    def root(self) -> bytes:
        return ssz.list_root(jumps.record_leaves(self.records), jumps.RECORDS_DEPTH)

    def write(self, folder: Path) -> Path:
        name = f"small-00003-{self.root[:4].hex()}.era1"
        return beacon_chains.write_era1(folder, name, 3 * 8192, self.encoded, self.totals)


@pytest.fixture(scope="module")
def epoch() -> Epoch:
    return Epoch()


# --- Content ----------------------------------------------------------------------------------------------------------


def _of_folder_and_site(world: beacon_chains.EncodedWorld, folder: Path, url: str) -> list[EraFiles]:
    several: Sequence[Sequence[Path | str]] = ([folder], [url], [folder / "nothing", url])
    return [EraFiles(world.chain, places) for places in several]


def test_roots_and_blocks_of_a_period(world, path, root, roots):
    with served(Site(path.parent)) as url:
        for files in _of_folder_and_site(world, path.parent, url):
            assert files.roots(PERIOD, root) == roots
            for slot in (48, 50, 52, 55):
                assert files.block(slot, root, world.root(slot)) == world.blocks[slot]


@pytest.mark.long
def test_a_block_of_gloas_is_read_by_its_own_slots_layout_and_one_of_another_fork_is_refused(
    world, path, root, tmp_path
):
    """The fork is at slot 50 of the period 48 to 55. The file has promises of execution blocks, and none of these."""
    forked = beacon_chains.small_world([49, 53], electra=48, gloas=50)
    roots = PeriodRoots(*(b"".join(each) for each in forked.periods[PERIOD]))
    name = era_files.period_root(forked.chain, roots)
    folder = tmp_path / "forked"
    folder.mkdir()
    beacon_chains.write_era(folder, forked.chain, PERIOD, name, forked.periods[PERIOD], forked.encoded)
    files = EraFiles(forked.chain, [folder])
    for slot in (48, 50, 51, 55):
        assert files.block(slot, name, forked.root(slot)) == forked.blocks[slot]
    for chain in (world.chain, replace(forked.chain, gloas=51)):
        with pytest.raises(NodeUnavailable, match="has a wrong"):
            EraFiles(chain, [folder]).block(50, name, forked.root(50))


@pytest.mark.long
def test_records_of_an_epoch(world, tmp_path, epoch):
    epoch.write(tmp_path)
    site = Site(tmp_path)
    with served(site) as url:
        for files in _of_folder_and_site(world, tmp_path, url):
            assert files.records(3, epoch.root) == epoch.records
        # The service reads the index and the total difficulty once, and each header once.
        assert len(site.asked) == 2 * (2 + len(epoch.encoded))


@fixtures_folder.needs_fixtures
def test_the_recorded_roots_of_a_period_of_mainnet(tmp_path):
    hashes, historical = recorded_beacon.roots(15539558), recorded_beacon.historical_roots()
    both = hashes[:8192], hashes[8192:]
    expected = PeriodRoots(*(b"".join(each) for each in both))
    period = historical.index(era_files.period_root(MAINNET, expected))
    path = beacon_chains.write_era(tmp_path, MAINNET, period, historical[period], both, {})
    assert path.name == f"mainnet-00575-{historical[574][:4].hex()}.era"
    assert EraFiles(MAINNET, [tmp_path]).roots(period, historical[period]) == expected
    site = Site(tmp_path)
    with served(site) as url:
        assert EraFiles(MAINNET, [url]).roots(period, historical[period]) == expected
    assert len(site.asked) == 2


def test_names_are_those_of_published_files():
    """The names come from the format's specification and from other projects' tests."""
    files, epochs = EraFiles(MAINNET, []), shipped.epochs(MAINNET)
    assert files.era_name(0, shipped.historical_roots(MAINNET)[0]) == "mainnet-00001-40cf2f3c.era"
    names = [files.era1_name(epoch, epochs[epoch]) for epoch in (0, 1, 151, 1896)]
    assert names[:3] == ["mainnet-00000-5ec1ffb8.era1", "mainnet-00001-a5364e9a.era1", "mainnet-00151-e322efe1.era1"]
    assert names[3] == "mainnet-01896-e6ebe562.era1"


def test_era_files_missing_everywhere_raise_no_era_file(world, tmp_path, root, epoch):
    with served(Site(tmp_path)) as url:
        for files in (*_of_folder_and_site(world, tmp_path, url), EraFiles(world.chain, [])):
            with pytest.raises(NoEraFile):
                files.roots(PERIOD, root)
            with pytest.raises(NoEraFile):
                files.block(50, root, bytes(32))
            with pytest.raises(NoEraFile):
                files.records(3, epoch.root)


def test_a_slot_without_a_block(world, path, root):
    with pytest.raises(NodeUnavailable, match="no block of slot 49"):
        EraFiles(world.chain, [path.parent]).block(49, root, bytes(32))


# --- Damage and lies --------------------------------------------------------------------------------------------------


def _damages(good: bytes, step: int) -> Iterator[bytes]:
    for offset in [*range(40), *range(0, len(good), step), *range(len(good) - 180, len(good))]:
        yield good[:offset] + bytes([good[offset] ^ 0x41]) + good[offset + 1 :]
    for size in (0, 1, 8, 100, len(good) - 100, len(good) - 1):
        yield good[:size]
    yield good + b"\0"
    yield bytes(len(good))


@pytest.mark.long
def test_a_damaged_period_is_no_period(world, path, root, roots):
    """Damage to an unneeded part has no effect. All other damage gives this sentence."""
    files, good = EraFiles(world.chain, [path.parent]), path.read_bytes()
    errors = []
    for content in _damages(good, 4999):
        path.write_bytes(content)
        try:
            assert files.roots(PERIOD, root) == roots
        except NodeUnavailable as unavailable:
            errors.append(str(unavailable))
        with suppress(NodeUnavailable):
            assert files.block(50, root, world.root(50)) == world.blocks[50]
    assert len(errors) > 30
    assert all(why.startswith(f"No era file {path.name} can be read: ") for why in errors)


@pytest.mark.long
def test_a_damaged_epoch_is_no_epoch(world, tmp_path, epoch):
    path = epoch.write(tmp_path)
    files, good, wrong = EraFiles(world.chain, [tmp_path]), path.read_bytes(), 0
    for content in _damages(good, 29_989):
        path.write_bytes(content)
        try:
            assert files.records(3, epoch.root) == epoch.records
        except NodeUnavailable:
            wrong += 1
    assert wrong > 30


def test_roots_and_records_are_those_of_the_name(world, path, root, roots, tmp_path, epoch):
    good = path.read_bytes()
    for roots_of_kind in (roots.blocks[-32:], roots.states[:32]):
        assert good.count(roots_of_kind) == 1
        path.write_bytes(good.replace(roots_of_kind, bytes(32)))
        with pytest.raises(NodeUnavailable, match="Its roots belong to another period"):
            EraFiles(world.chain, [tmp_path]).roots(PERIOD, root)
    other = Epoch([epoch.encoded[0].replace(b"anybody", b"another"), *epoch.encoded[1:]])
    other.write(tmp_path).rename(epoch.write(tmp_path))
    with pytest.raises(NodeUnavailable, match="Its blocks belong to another epoch"):
        EraFiles(world.chain, [tmp_path]).records(3, epoch.root)


@pytest.mark.parametrize("to", [-(10**9), 8, 2**62, 0])
def test_an_index_that_leads_nowhere(world, path, root, to):
    good = path.read_bytes()
    path.write_bytes(good[:-16] + to.to_bytes(8, "little", signed=True) + good[-8:])
    with pytest.raises(NodeUnavailable, match="Its index points beyond its end" if to else "It has no state"):
        EraFiles(world.chain, [path.parent]).roots(PERIOD, root)


def test_a_false_block_is_no_block(world, path, root, tmp_path):
    """The next folder has the right file."""
    (tmp_path / "right").mkdir()
    (tmp_path / "right" / path.name).write_bytes(path.read_bytes())
    for false in (world.encoded[51], world.encoded[50][:-1], b""):
        blocks = {**world.encoded, 50: false}
        beacon_chains.write_era(tmp_path, world.chain, PERIOD, root, world.periods[PERIOD], blocks)
        with pytest.raises(NodeUnavailable, match=f"has a wrong {path.name}"):
            EraFiles(world.chain, [tmp_path]).block(50, root, world.root(50))
        files = EraFiles(world.chain, [tmp_path, tmp_path / "right"])
        assert files.block(50, root, world.root(50)) == world.blocks[50]


def test_no_more_is_read_or_unpacked_than_may_be(world, path, root, monkeypatch):
    files, size = EraFiles(world.chain, [path.parent]), len(world.encoded[50])
    packed = 8 + len(beacon_chains.framed(world.encoded[50]))
    for name, most, why in (
        ("_MOST_PACKED_BLOCK", packed, "An entry has more than"),
        ("MOST_BLOCK", size, "compressed data of at most"),
    ):
        monkeypatch.setattr(era_files, name, most)
        assert files.block(50, root, world.root(50)) == world.blocks[50]
        monkeypatch.setattr(era_files, name, most - 1)
        with pytest.raises(NodeUnavailable, match=why):
            files.block(50, root, world.root(50))
        monkeypatch.undo()


@pytest.mark.parametrize("count", [0, 39, 41, 8193, 2**40])
def test_an_index_of_another_length(world, tmp_path, epoch, count):
    path = epoch.write(tmp_path)
    path.write_bytes(path.read_bytes()[:-8] + count.to_bytes(8, "little"))
    with pytest.raises(NodeUnavailable, match="has a wrong small-00003"):
        EraFiles(world.chain, [tmp_path]).records(3, epoch.root)
    path.write_bytes(beacon_chains.index(b"f2", 3 * 8192, [], 0))
    with pytest.raises(NodeUnavailable, match="It has no blocks"):
        EraFiles(world.chain, [tmp_path]).records(3, epoch.root)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shift": 1}, "127.0.0.1"),
        ({"shift": -8}, "127.0.0.1"),
        ({"more": 1}, "sent more than"),
        ({"understands_ranges": False}, "doesn't serve parts of files"),
        ({"status": 500}, "answered with HTTP status 500"),
        ({"status": 403}, "answered with HTTP status 403"),
        ({"status": 302}, "answered with HTTP status 302"),
        ({"told_range": "bytes 0-9/10"}, "Its index points beyond its end"),
        ({"told_range": "bytes 0-9/*"}, "doesn't report a file's size"),
        ({"told_range": "none"}, "doesn't report a file's size"),
    ],
    ids=str,
)
def test_a_server_that_sends_something_else(world, path, root, change, why):
    with served(replace(Site(path.parent), **change)) as url:
        files = EraFiles(world.chain, [f"{url}?key=secret"])
        with pytest.raises(NodeUnavailable, match=why) as unavailable:
            files.roots(PERIOD, root)
    assert "secret" not in str(unavailable.value)
    assert "/some/" not in str(unavailable.value)


def test_era_files_are_read_elsewhere_if_one_place_is_slow(world, path, root, roots):
    times = count(step=301)
    with served(Site(path.parent)) as url:
        files = EraFiles(world.chain, [url], clock=lambda: next(times))
        with pytest.raises(NodeUnavailable, match=r"127\.0\.0\.1:\d+ is too slow"):
            files.roots(PERIOD, root)
        files = EraFiles(world.chain, [url, path.parent], clock=lambda: next(times))
        assert files.roots(PERIOD, root) == roots


def test_headers_that_unpack_to_more_than_any_are_refused(tmp_path, epoch, world):
    """8,192 small frames, each of 64 kB when decompressed, would take 512 MB."""
    long = headers.encode({**headers.FRONTIER, "number": 5, "extraData": bytes(700)})
    other = Epoch([*epoch.encoded[:5], long])
    other.write(tmp_path)
    with pytest.raises(NodeUnavailable, match="has no valid compressed data of at most 1024 bytes"):
        EraFiles(world.chain, [tmp_path]).records(3, other.root)


def test_a_malformed_header_in_an_era_file_is_refused():
    fields: list[bytes | list[bytes]] = [bytes(32)] * 15
    assert era_files._hash_and_difficulty(_entry_of(fields))[0] == keccak(rlp.encode(fields))
    for wrong in ([*fields[:7], [b"\1"], *fields[8:]], fields[:7], bytes(40), b""):
        with pytest.raises(era_files.InvalidEra, match="One of its headers can't be read"):
            era_files._hash_and_difficulty(_entry_of(wrong))


def _entry_of(item: object) -> bytes:
    return beacon_chains.entry(b"\3\0", beacon_chains.framed(rlp.encode(item)))


def test_total_difficulties_stay_within_256_bits(tmp_path, epoch, world):
    path = epoch.write(tmp_path)
    path.write_bytes(path.read_bytes().replace(epoch.totals[0].to_bytes(32, "little"), b"\xff" * 32, 1))
    with pytest.raises(NodeUnavailable, match="is too large"):
        EraFiles(world.chain, [tmp_path]).records(3, epoch.root)
