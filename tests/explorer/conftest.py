import pytest
from django.test import Client

from api import health
from explorer.batch import fragment
from tests.explorer.batches import DEAD_NODE
from tests.factories import client_of
from tests.service import ALICE, chains_toml


@pytest.fixture(autouse=True)
def one_chain_whose_node_is_down(settings, tmp_path) -> None:
    """Configure a chain without a node. Pages make no request to a node."""
    settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE, chain='explorer_url = "https://scan.example"')


@pytest.fixture(autouse=True)
def a_process_that_has_just_started(monkeypatch) -> None:
    """Forget that the tables were complete, as in a new process."""
    monkeypatch.setattr(health, "_migrated", False)


@pytest.fixture(autouse=True)
def pages_are_kept_for_nobody(monkeypatch) -> None:
    monkeypatch.setattr(fragment, "_KEPT_SECONDS", 0)


@pytest.fixture
def alice(db) -> Client:
    """Return a program in which Alice is signed in."""
    return client_of(ALICE)
