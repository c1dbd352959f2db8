"""A connection to the database that a thread keeps leads to the database that is there."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from accounts.models import ApiKey
from queries.models import Batch
from tests.disks import full_disk, locked_database
from tests.service import ALICE, a_key, header, request

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside, pytest.mark.usefixtures("kept_connection")]


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


def test_a_defect_of_a_view_closes_nothing(client):
    key = a_key()
    assert submitted(client, key) == 200
    kept = connection.connection

    def fail(execute: Any, sql: str, *how: Any) -> Any:
        if "queries_query" in sql:
            raise ZeroDivisionError("a defect")
        return execute(sql, *how)

    with connection.execute_wrapper(fail):
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
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_file_that_is_gone_is_an_outage_and_what_was_stored_is_there_when_it_is_back(
    client, tmp_path, monkeypatch, is_kept
):
    a_key()
    path = tmp_path / "db.sqlite3"
    copy_to(path)
    monkeypatch.setitem(connection.settings_dict, "NAME", str(path))
    connection.close()
    key = ApiKey.objects.get()
    # Another process, so that the log isn't emptied.
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT 1 FROM queries_batch").fetchall()
        for _ in range(16):
            assert submitted(client, key) == 200
        kept = connection.connection
        asked = header(key)
        path.rename(tmp_path / "away")
        if not is_kept:
            connection.close()
        body = json.dumps(request(ALICE, block=5))
        for _ in range(2):
            answer = client.post("/submit-batch-query", body, content_type="application/json", headers=asked)
            assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        assert Client().get("/readyz").status_code == 503
        assert not path.exists()
        assert (connection.connection is kept) == is_kept
        (tmp_path / "away").rename(path)
        assert submitted(client, key) == 200
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT COUNT(*) FROM queries_batch").fetchone() == (17,)


@pytest.mark.sqlite_only(reason="PostgreSQL's databases are made by its own commands")
def test_migrate_makes_a_file_but_not_beside_the_log_of_one_that_is_gone(tmp_path, monkeypatch):
    path = tmp_path / "db.sqlite3"
    monkeypatch.setitem(connection.settings_dict, "NAME", str(path))
    connection.close()
    log = tmp_path / "db.sqlite3-wal"
    log.write_bytes(b"batches")
    with pytest.raises(CommandError, match=r"db\.sqlite3-wal has what was written last"):
        call_command("migrate", verbosity=0)
    assert not path.exists()
    log.unlink()
    call_command("migrate", verbosity=0)
    assert not Batch.objects.exists()
    assert path.stat().st_size
    monkeypatch.setitem(connection.settings_dict, "NAME", str(tmp_path / "none" / "db.sqlite3"))
    connection.close()
    with pytest.raises(CommandError, match=r"none/db\.sqlite3 can't be made: No such file or directory"):
        call_command("migrate", verbosity=0)
