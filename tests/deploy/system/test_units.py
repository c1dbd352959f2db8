"""Units in deploy/systemd at work: a restart, reload or migration, and its effects on requests and other units."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from gunicorn.config import Config

from demo.installation import CHAINS_TOML
from devnet.devchain import PROJECT
from tests.deploy.units import Unit, Units
from tests.factories import until
from tests.fresh_installation import fresh_installation
from tests.service import SIGNER_KEY
from tests.serving.load import GET, Load
from tests.serving.process import NO_NODE, ask, connect

WEB, APP = "batch-query-web", "tests.serving.app:application"
FILES = (PROJECT / "deploy" / "systemd").glob("*.service")
SERVICES = [f"{path.stem}1" if path.stem.endswith("@") else path.stem for path in FILES]
# Seconds that gunicorn gives requests to end.
GRACEFUL_SECONDS = Config().graceful_timeout


@pytest.fixture
def units(tmp_path) -> Iterator[Units]:
    (tmp_path / "chains.toml").write_text(CHAINS_TOML % NO_NODE)
    (tmp_path / "secret").write_text("x" * 64)
    fresh = fresh_installation(tmp_path)
    fresh.copy_database(tmp_path)
    (tmp_path / "static").symlink_to(fresh.static)
    environment = {
        "STATE_DIR": str(tmp_path),
        "CHAINS_FILE": str(tmp_path / "chains.toml"),
        "SECRET_KEY_FILE": str(tmp_path / "secret"),
        "BASE_URL": "http://127.0.0.1",
    }
    with ExitStack() as running:
        yield Units(running, PROJECT, tmp_path, environment)


def wait_until_it_serves(units: Units) -> None:
    deadline = time.monotonic() + 120
    while not answers(units):
        assert time.monotonic() < deadline, units.log(WEB).read_text()
        time.sleep(0.1)


def answers(units: Units) -> bool:
    try:
        return ask(units.port, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").status == 200
    except OSError:
        return False


@pytest.mark.long
@pytest.mark.parametrize("way", [Units.restart, Units.reload], ids=["restarted", "reloaded"])
def test_the_web_server_refuses_no_request_and_loses_none(units, way):
    units.start(WEB, APP)
    wait_until_it_serves(units)
    load = Load(partial(connect, units.port), GET % b"/mine")
    with load:
        time.sleep(1)
        answered = len(load.took)
        if way is Units.reload:
            assert units.reload(WEB)
        else:
            units.restart(WEB, APP)
        wait_until_it_serves(units)
        time.sleep(5)
    assert (load.refused, load.lost) == (0, [])
    assert 0 < answered < len(load.took)


@pytest.mark.long
def test_a_worker_starts_and_ends(units, tmp_path):
    (tmp_path / "signer.key").write_text(SIGNER_KEY)
    name = "batch-query-worker@1"
    units.start(name)
    until(lambda: " starts" in units.log(name).read_text(), "the start", says=units.log(name).read_text)
    units.stop(name)


@pytest.mark.long
def test_a_reload_changes_nothing_where_a_file_is_wrong(units, tmp_path):
    """gunicorn would end if a new process couldn't start. It would keep running without chains."""
    units.start(WEB)
    wait_until_it_serves(units)
    for name, wrong, fault in (
        ("chains.toml", "[", "chains.toml"),
        ("secret", "", "is unreadable or empty."),
    ):
        (tmp_path / name).write_text(wrong)
        assert not units.reload(WEB)
        assert fault in units.log(WEB).read_text()
    time.sleep(3)
    assert answers(units)
    assert "Handling signal" not in units.log(WEB).read_text()


@pytest.mark.parametrize("name", SERVICES)
def test_a_migration_comes_first_and_neither_stops_nor_holds_up_others(name):
    """With `Requires=` or a similar key, systemd would stop dependent units before the migration runs again."""
    unit, migrate = Unit(name), "batch-query-migrate.service"
    if unit.path.name == migrate:
        # A unit that stays active after its end isn't run again when another unit starts.
        assert (unit.values("Type"), unit.values("RemainAfterExit")) == (["oneshot"], ["true"])
        return
    assert migrate in unit.words("Wants")
    assert migrate in unit.words("After")
    for key in ("Requires", "Requisite", "BindsTo", "PartOf", "PropagatesStopTo"):
        assert migrate not in unit.words(key)


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "batch-query-migrate"])
def test_a_stopped_service_has_the_time_to_finish(name):
    """Only the main process gets the signal, and it ends the others. gunicorn would replace a process that got a signal
    itself.
    """
    unit = Unit(name)
    assert unit.values("KillMode") == ["mixed"]
    assert unit.stop_seconds() > GRACEFUL_SECONDS


def test_containers_that_are_stopped_have_the_time_to_finish():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((PROJECT / "deploy" / "compose.yml").read_text())["services"]
    for name in ("web", "worker"):
        period = services[name]["stop_grace_period"]
        assert int(period[:-1]) * {"s": 1, "m": 60}[period[-1]] > GRACEFUL_SECONDS
