"""The lists of mainnet that the service ships."""

import pytest

from chains.beacon import shipped
from chains.beacon.jumps import MAINNET
from chains.beacon.shipped import EPOCHS, FOLDER, HISTORICAL_ROOTS, WrongList
from tests.contracts.beacon_worlds import SMALL


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Return a folder with a copy of the shipped lists."""
    copy = tmp_path / "mainnet"
    copy.mkdir()
    for path in FOLDER.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(shipped, "FOLDER", copy)
    shipped._shipped.cache_clear()
    yield copy
    shipped._shipped.cache_clear()


def test_they_are_mainnets():
    """The lists have the lengths that the contract's constants need."""
    assert len(shipped.historical_roots(MAINNET)) == MAINNET.periods_before_capella
    assert len(shipped.epochs(MAINNET)) == -(-MAINNET.blocks_before_merge // 8192)
    assert not shipped.historical_roots(SMALL)
    assert not shipped.epochs(SMALL)


@pytest.mark.parametrize("name", [HISTORICAL_ROOTS, EPOCHS])
def test_a_damaged_list_is_refused(folder, name):
    path = folder / name
    read = {HISTORICAL_ROOTS: shipped.historical_roots, EPOCHS: shipped.epochs}[name]
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
