"""Lists of mainnet that are shipped, and the command that makes them."""

import pytest

from chains.beacon import jumps, shipped, ssz
from chains.beacon.jumps import MAINNET
from chains.beacon.shipped import EPOCHS, FOLDER, HISTORICAL_ROOTS, SUMMARIES, WrongList
from devnet.beacon_api import BeaconApi
from tests.contracts import recorded_beacon
from tests.contracts.beacon_worlds import SMALL
from tests.fixtures_folder import needs_fixtures
from tests.proving import beacon_chains


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A copy of what is shipped."""
    copy = tmp_path / "mainnet"
    copy.mkdir()
    for path in FOLDER.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(shipped, "FOLDER", copy)
    shipped._shipped.cache_clear()
    yield copy
    shipped._shipped.cache_clear()


def test_they_are_mainnets():
    """By the constants of the contract; the summaries by one of their own."""
    assert len(shipped.historical_roots(MAINNET)) == MAINNET.periods_before_capella
    assert len(shipped.epochs(MAINNET)) == -(-MAINNET.blocks_before_merge // 8192)
    assert len(shipped.summaries(MAINNET)) >= 665
    assert not shipped.historical_roots(SMALL)
    assert not shipped.epochs(SMALL)
    assert not shipped.summaries(SMALL)


@needs_fixtures
def test_the_summaries_lead_to_the_recorded_state():
    anchor = recorded_beacon.anchor()
    first = shipped.summaries(MAINNET)[: len(anchor.summaries)]
    root = shipped.summaries_root(first)
    assert ssz.climb(root, anchor.branch, jumps.HISTORICAL_SUMMARIES) == anchor.header.state_root


@pytest.mark.parametrize("name", [HISTORICAL_ROOTS, EPOCHS, SUMMARIES])
def test_a_damaged_list_is_refused(folder, name):
    path = folder / name
    read = {
        HISTORICAL_ROOTS: shipped.historical_roots,
        EPOCHS: shipped.epochs,
        SUMMARIES: shipped.summaries,
    }[name]
    good = path.read_bytes()
    for content in (good[:-32], good[:-1], good + bytes(32), good + bytes(64), b"", b"\1" + good[1:], bytes(len(good))):
        path.write_bytes(content)
        with pytest.raises(WrongList, match="is not what was shipped"):
            read(MAINNET)
    path.unlink()
    with pytest.raises(WrongList, match="can't be read"):
        read(MAINNET)
    path.write_bytes(good)
    assert read(MAINNET)


def test_the_command_checks_them(folder, capsys):
    assert shipped.main([]) == 0
    assert "758 historical roots, 1,897 epochs and 665 summaries are as known." in capsys.readouterr().out
    (folder / EPOCHS).write_bytes(bytes(32))
    shipped._shipped.cache_clear()
    assert shipped.main([]) == 1
    assert capsys.readouterr().err == "epochs.ssz is not what was shipped.\n"


def test_the_command_makes_them_of_files(folder, tmp_path, capsys):
    for name in (HISTORICAL_ROOTS, EPOCHS):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
        (folder / name).write_bytes(b"")
    assert shipped.main([str(tmp_path / name) for name in (HISTORICAL_ROOTS, EPOCHS)]) == 0
    good = {name: (folder / name).read_bytes() for name in (HISTORICAL_ROOTS, EPOCHS, SUMMARIES)}
    for name, content in (
        (EPOCHS, bytes(64)),
        (EPOCHS, good[EPOCHS] + b"\0"),
        (HISTORICAL_ROOTS, b"\1"),
        ("other.ssz", bytes(32)),
        (SUMMARIES, bytes(64)),
        (SUMMARIES, good[SUMMARIES] + bytes(32)),
    ):
        (tmp_path / name).write_bytes(content)
        assert shipped.main([str(tmp_path / name)]) == 1
        assert {name: (folder / name).read_bytes() for name in good} == good
    assert shipped.main([str(tmp_path / "nothing")]) == 1


@needs_fixtures
def test_the_command_makes_the_summaries_of_a_node(folder, capsys, monkeypatch):
    node = beacon_chains.mainnets_node([])
    [header] = node.blocks.values()
    node.roots[header.slot] = next(iter(node.blocks))
    content = (folder / SUMMARIES).read_bytes()
    (folder / SUMMARIES).write_bytes(content[:-64])
    with BeaconApi(node) as api:
        monkeypatch.setenv("BEACON_URL", api.url)
        assert shipped.main(["--node", "${BEACON_URL}"]) == 0
        assert (folder / SUMMARIES).read_bytes() == content
        assert f'SUMMARIES_ROOT = bytes.fromhex("{shipped.SUMMARIES_ROOT.hex()}")' in capsys.readouterr().out
        # A list that doesn't begin with what is shipped is another chain's.
        (folder / SUMMARIES).write_bytes(bytes(64))
        assert shipped.main(["--node", api.url]) == 1
    assert shipped.main(["--node", "nonsense"]) == 1
    assert "can't be used" in capsys.readouterr().err
