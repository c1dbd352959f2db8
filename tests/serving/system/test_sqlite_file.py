"""SQLite uses only an existing file. `migrate` alone creates one."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from accounts.models import ApiKey
from queries.models import Batch
from tests.service import ALICE, a_key, header, request

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.outside,
    pytest.mark.usefixtures("unreachable_chain"),
    pytest.mark.sqlite_only(reason="PostgreSQL has a server"),
]


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """Return the database's path in the settings. The file doesn't exist yet."""
    path: Path = tmp_path / "db.sqlite3"
    monkeypatch.setitem(connection.settings_dict, "NAME", f"file:{path}?mode=rw")
    connection.close()
    return path


@pytest.mark.long
def test_a_file_that_is_gone_is_an_outage_and_what_was_stored_is_there_when_it_is_back(file, tmp_path):
    call_command("migrate", verbosity=0)
    request_headers, body = header(a_key()), json.dumps(request(ALICE, block=5))

    def submit() -> tuple[int, str | None]:
        # Connections older than a second are closed as well.
        connection.close()
        client = Client(raise_request_exception=False)
        answer = client.post("/submit-batch-query", body, content_type="application/json", headers=request_headers)
        return answer.status_code, answer.json().get("code")

    # SQLite can't empty the write-ahead log while another process has the database open.
    with closing(sqlite3.connect(file)) as other:
        other.execute("SELECT 1 FROM queries_batch").fetchall()
        assert submit() == (200, None)
        file.rename(tmp_path / "away")
        assert submit() == (503, "storage_unavailable")
        assert Client().get("/readyz").status_code == 503
        with pytest.raises(CommandError, match=r"db\.sqlite3-wal has the last changes"):
            call_command("migrate", verbosity=0)
        assert not file.exists()
        (tmp_path / "away").rename(file)
        assert submit() == (200, None)
    assert Batch.objects.count() == 2
    assert ApiKey.objects.count() == 1


@pytest.mark.long
def test_migrate_makes_a_file_that_its_owner_alone_can_read(file, tmp_path, monkeypatch):
    umask = os.umask(0)
    try:
        call_command("migrate", verbosity=0)
    finally:
        os.umask(umask)
    assert not Batch.objects.exists()
    assert file.stat().st_size
    files = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("db.*")}
    assert files == dict.fromkeys(("db.sqlite3", "db.sqlite3-shm", "db.sqlite3-wal"), "0o600")
    monkeypatch.setitem(connection.settings_dict, "NAME", str(tmp_path / "none" / "db.sqlite3"))
    connection.close()
    with pytest.raises(CommandError, match=r"none/db\.sqlite3 can't be made: No such file or directory"):
        call_command("migrate", verbosity=0)
