"""`manage.py backup` writes a usable, private copy, and never overwrites a file."""

import os
import sqlite3
import stat
import threading
from contextlib import closing

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from accounts.models import User
from tests.service import ALICE, BOB

pytestmark = [pytest.mark.sqlite_only(reason="PostgreSQL has programs of its own for backups"), pytest.mark.outside]


@pytest.fixture
def committed(transactional_db):
    User.objects.for_address(ALICE)


@pytest.fixture
def folder(tmp_path):
    """Return an empty folder."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def addresses(path) -> list[str]:
    with closing(sqlite3.connect(path)) as copy:
        return [row[0] for row in copy.execute("SELECT address FROM accounts_user")]


def test_the_copy_is_private_and_has_what_was_committed(committed, tmp_path, capsys):
    umask = os.umask(0)
    try:
        call_command("backup", str(tmp_path / "copies" / "one.sqlite3"))
    finally:
        os.umask(umask)
    (copy,) = (tmp_path / "copies").iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    assert addresses(copy) == [ALICE]
    output = capsys.readouterr().out
    assert str(connection.settings_dict["NAME"]) in output
    assert "the copy is sound" in output


def test_a_backup_has_the_writes_of_another_process_only_once_committed(committed, tmp_path):
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE accounts_user SET address = ?", [BOB])
        copying = threading.Thread(target=call_command, args=["backup", str(tmp_path / "during")])
        copying.start()
        copying.join()
        writer.execute("COMMIT")
    call_command("backup", str(tmp_path / "after"))
    assert addresses(tmp_path / "during") == [ALICE]
    assert addresses(tmp_path / "after") == [BOB]


@pytest.mark.parametrize("content", [None, b"no database" * 100, b""])
def test_a_file_that_is_no_database_of_the_service_is_neither_copied_nor_made(committed, folder, monkeypatch, content):
    if content is not None:
        (folder / "db.sqlite3").write_bytes(content)
    before = list(folder.iterdir())
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "NAME", folder / "db.sqlite3")
        with pytest.raises(CommandError, match="There is no database at " if content is None else "not a database"):
            call_command("backup", str(folder / "copy"))
    assert list(folder.iterdir()) == before


@pytest.mark.parametrize("make", [lambda path: path.write_text("thesis"), lambda path: path.symlink_to("nowhere")])
def test_no_file_is_replaced(committed, tmp_path, make):
    make(tmp_path / "copy")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CommandError, match=r"exists already\. The command does not replace it"):
        call_command("backup", str(tmp_path / "copy"))
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "copy").is_symlink() or (tmp_path / "copy").read_text() == "thesis"


def test_a_damaged_copy_is_not_kept(committed, folder, monkeypatch):
    with closing(sqlite3.connect(folder / "db.sqlite3")) as database:
        database.executescript(
            """
            CREATE TABLE one (a, b); CREATE INDEX by_a ON one (a); INSERT INTO one VALUES (1, 2);
            PRAGMA writable_schema = ON;
            UPDATE sqlite_master SET sql = 'CREATE INDEX by_a ON one (b)' WHERE name = 'by_a';
            """
        )
    monkeypatch.setitem(connection.settings_dict, "NAME", folder / "db.sqlite3")
    with pytest.raises(CommandError, match="damaged, and was removed: row 1 missing"):
        call_command("backup", str(folder / "copy"))
    assert [path.name for path in folder.iterdir()] == ["db.sqlite3"]
