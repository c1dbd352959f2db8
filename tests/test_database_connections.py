"""A connection to the database that a thread keeps leads to the database that is there."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.core.signals import got_request_exception, request_started
from django.db import connection
from django.db.backends.signals import connection_created
from django.test import Client

from accounts.models import ApiKey
from config import database_connections
from config.configured_chains import get_chains
from queries.models import Batch
from tests.disks import full_disk, locked_database
from tests.service import ALICE, a_key, chains_toml, header, request

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def configured(settings, tmp_path) -> None:
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1")
    get_chains.cache_clear()


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    """As in a process that answers requests."""
    connection.close()
    database_connections.watch()
    yield
    connection_created.disconnect(database_connections._note_file)
    request_started.disconnect(database_connections._close_if_replaced)
    got_request_exception.disconnect(database_connections._close_after_error)
    connection.close()


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


def submitted(client: Client, key: ApiKey, accounts: int = 1) -> int:
    body = json.dumps(request(*(f"0x{number:040x}" for number in range(1, accounts + 1)), block=5))
    answer = client.post("/submit-batch-query", body, content_type="application/json", headers=header(key))
    return answer.status_code


def test_a_connection_is_kept_while_it_leads_to_the_database(client):
    key = a_key()
    assert submitted(client, key) == 200
    kept = connection.connection
    assert kept is not None
    assert submitted(client, key) == 200
    assert client.get("/batch-query-status", headers=header(key)).status_code == 400
    assert connection.connection is kept


@pytest.mark.sqlite_only(reason="PostgreSQL's connections are those of a pool")
def test_after_a_lock_the_next_request_has_a_connection_of_its_own(client):
    key = a_key()
    with locked_database():
        kept = connection.connection
        assert submitted(client, key) == 503
        assert connection.connection is not kept
    assert submitted(client, key) == 200


def test_after_a_full_disk_the_next_request_has_a_connection_of_its_own(client):
    key = a_key()
    with full_disk():
        kept = connection.connection
        assert submitted(client, key, accounts=3000) == 503
        assert connection.connection is not kept
    assert not Batch.objects.exists()
    assert submitted(client, key, accounts=3000) == 200


def test_a_defect_of_a_view_closes_nothing(client, monkeypatch):
    key = a_key()
    assert submitted(client, key) == 200
    kept = connection.connection
    monkeypatch.setattr("queries.submission.store", lambda *_: 1 // 0)
    assert submitted(client, key) == 500
    assert connection.connection is kept


@pytest.mark.sqlite_only(reason="PostgreSQL's connections are those of a pool")
def test_another_file_in_the_place_of_the_database_is_the_database(client, settings, tmp_path, monkeypatch):
    a_key()
    path = tmp_path / "db.sqlite3"
    copy_to(path)
    monkeypatch.setitem(connection.settings_dict, "NAME", str(path))
    connection.close()
    key = ApiKey.objects.get()
    assert submitted(client, key) == 200
    restored = tmp_path / "restored"
    with closing(sqlite3.connect(restored)) as other, closing(sqlite3.connect(path)) as whole:
        whole.backup(other)
        other.execute("UPDATE accounts_apikey SET revoked_at = '2026-01-01 00:00:00'")
        other.commit()
    asked = header(key)
    for name in ("db.sqlite3-wal", "db.sqlite3-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    restored.rename(path)
    body = json.dumps(request(ALICE, block=5))
    answer = client.post("/submit-batch-query", body, content_type="application/json", headers=asked)
    assert answer.status_code == 401
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT COUNT(*) FROM queries_batch").fetchone() == (1,)


def copy_to(path: Path) -> None:
    connection.ensure_connection()
    with closing(sqlite3.connect(path)) as other:
        connection.connection.backup(other)


@pytest.mark.sqlite_only(reason="PostgreSQL's connections are those of a pool")
def test_a_database_that_is_no_file_is_not_looked_for(monkeypatch):
    assert database_connections._file(connection) is not None
    monkeypatch.setattr(connection, "vendor", "another")
    assert database_connections._file(connection) is None
