"""Fixtures for tests of the service on a real development chain."""

import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.db.models.signals import post_migrate
from django.test import override_settings
from django.test.client import MULTIPART_CONTENT, RequestFactory
from django.test.signals import setting_changed
from django.utils.http import urlencode

from accounts import keys
from accounts.models import ApiKey
from api import find_slots, health
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.health.service_metrics import ServiceMetrics
from proving.working import heads
from queries import database_check
from tests.chain_fixtures import chain_fixture
from tests.deployed import deploy_on
from tests.service import a_key, chains_toml


@pytest.fixture
def search_seconds() -> None:
    """Let a search for slots end as soon as users have it end."""


@pytest.fixture(autouse=True)
def patient_searches(request, monkeypatch) -> None:
    """Give a search for slots more time, because a loaded machine takes longer."""
    if "search_seconds" not in request.fixturenames:
        monkeypatch.setattr(find_slots, "_MOST_SECONDS", 60)


@pytest.fixture
def limit_exchanges(monkeypatch) -> Callable[[int], None]:
    """Return a function that limits the exchanges of a search for slots."""
    return lambda most: monkeypatch.setattr(find_slots, "_MOST_EXCHANGES", most)


def pytest_configure() -> None:
    """Restore Ctrl-C. Shells ignore it for background jobs, and child processes inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Disable garbage collection during collection of tests, where it took a fifth of the time."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the documentation's examples first. They keep one process busy for minutes, while others run
    the other tests.
    """
    items.sort(key=lambda item: item.path.name != "test_examples.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which took a tenth of the time of database tests."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix) -> Iterator[None]:
    """Store SQLite's database in a file. pytest-django calls this before it creates the database."""
    if connection.vendor != "sqlite":
        yield
        return
    memory = Path("/dev/shm")  # commits are faster in memory than on a disk
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30
    folder = Path(tempfile.mkdtemp(prefix="batch-query-service-test-", dir=memory if has_room else None))
    # Workers in other processes must see the same database, so it can't be in memory.
    connection.settings_dict["TEST"]["NAME"] = folder / "db.sqlite3"
    yield
    shutil.rmtree(folder)


@pytest.fixture(scope="session", autouse=True)
def no_permissions_of_models() -> None:
    """Don't create permissions. Django would create them after each test that commits, and the admin uses none."""
    assert post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")


@pytest.fixture(scope="session", autouse=True)
def forms_as_browsers_send_them() -> Iterator[None]:
    """Send forms as browsers do. Django's test client would send each form as multipart/form-data."""
    post = RequestFactory.post

    def post_as_browser(
        client: RequestFactory, path: str, data: Any = None, content_type: str = MULTIPART_CONTENT, **others: Any
    ) -> Any:
        if content_type is MULTIPART_CONTENT and path.partition("?")[0] not in django_settings.LARGE_FORM_PATHS:
            data, content_type = urlencode(data or {}, doseq=True), "application/x-www-form-urlencoded"
        return post(client, path, data, content_type, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestFactory, "post", post_as_browser)
        yield


@pytest.fixture(scope="session", autouse=True)
def login_of_the_user() -> Iterator[None]:
    """Fail if a test or an example changes whom `bqs` is logged in as on this machine."""
    folder = Path(click.get_app_dir("bqs"))

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.glob("*") if path.is_file()}

    before = content()
    yield
    assert content() == before


@pytest.fixture(autouse=True)
def forget_configured_chains() -> Iterator[None]:
    """Forget the chains of earlier tests, and read the chains file again when a test changes the setting."""
    setting_changed.connect(_read_chains_anew)
    forget_chains()
    yield
    setting_changed.disconnect(_read_chains_anew)
    forget_chains()


def _read_chains_anew(*, setting: str, **_: object) -> None:
    if setting == "CHAINS_FILE":
        forget_chains()


@pytest.fixture(autouse=True)
def no_head_of_before(request, monkeypatch) -> None:
    """Read the newest block each time, because a test of the inside may have mined one.

    In tests marked `outside`, `runworker --once` observes each chain first.
    """
    if request.node.get_closest_marker("outside") is None:
        monkeypatch.setattr(heads, "recent", heads.read)


@pytest.fixture(autouse=True)
def forget_what_was_found_of_storage(monkeypatch) -> None:
    """Forget earlier tests' results of storage checks."""
    monkeypatch.setattr(health, "service_metrics", ServiceMetrics())
    monkeypatch.setattr(keys, "_noting_from", 0.0)
    monkeypatch.setattr(database_check, "_last_check", (float("-inf"), ""))


@pytest.fixture
def pass_time(monkeypatch) -> Callable[[float], None]:
    """Return a function that advances the clock of `time.monotonic`."""
    monotonic = time.monotonic

    def pass_time(seconds: float) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)

    return pass_time


@pytest.fixture(scope="session")
def no_collected_files(tmp_path_factory) -> str:
    """Return an empty folder. A folder for each test would cost more than most tests take."""
    return str(tmp_path_factory.mktemp("static"))


@pytest.fixture(scope="session", autouse=True)
def empty_static_root(no_collected_files) -> Iterator[None]:
    """Make the folder of collected static files. A live server warns at its start if the folder is missing, although
    it serves the sources.
    """
    with override_settings(STATIC_ROOT=no_collected_files):
        yield


@pytest.fixture(autouse=True)
def pages_without_collected_files(settings, no_collected_files) -> None:
    settings.STATIC_ROOT = no_collected_files
    settings.STORAGES = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}


# A new chain of a few blocks that mines a block for each transaction.
chain = chain_fixture(lambda chain: chain.mine(5), scope="function")


# A chain that all tests of a module share.
devchain = chain_fixture()


@pytest.fixture
def service(chain: DevChain, db, settings, tmp_path) -> DevChain:
    """Return `chain`, connected to the service, with a deployed facts registry."""
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    deploy_on(chain)
    return chain


@pytest.fixture
def unreachable_chain(settings, tmp_path) -> None:
    """Connect chain 31337 to itself without a node. Nothing listens on port 1."""
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1")


@pytest.fixture
def key(db) -> ApiKey:
    """Return an API key of Alice."""
    return a_key()


@pytest.fixture
def two_signers(chain: DevChain, db, settings, tmp_path) -> DevChain:
    """Return `chain` like `service`, with two signers."""
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, signers=2)
    deploy_on(chain)
    return chain
