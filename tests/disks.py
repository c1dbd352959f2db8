"""A database that accepts no writes, because its disk is full or another process holds its lock."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest
from django.apps import apps
from django.db import OperationalError, connection
from django.db.backends.utils import CursorWrapper

from tests.databases import same_database


@contextmanager
def full_disk() -> Iterator[None]:
    """Make the database fail as on a full disk whenever it needs more room."""
    with _few_pages() if connection.vendor == "sqlite" else _no_room():
        yield


@contextmanager
def _few_pages() -> Iterator[None]:
    """Limit SQLite's file to its present number of pages (error SQLITE_FULL)."""
    with connection.cursor() as cursor:
        # VACUUM removes free pages, which SQLite would fill first.
        cursor.execute("VACUUM")
        (pages,) = cursor.execute("PRAGMA page_count").fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA max_page_count = 1073741823")


@contextmanager
def _no_room() -> Iterator[None]:
    """Make PostgreSQL's inserts fail with the error of a full disk (disk_full)."""
    tables = [model._meta.db_table for model in apps.get_models(include_auto_created=True)]
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
        )
        for table in tables:
            cursor.execute(f"CREATE TRIGGER is_full BEFORE INSERT ON {table} EXECUTE FUNCTION is_full()")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION is_full CASCADE")


@contextmanager
def locked_database() -> Iterator[None]:
    """Let another process hold the database's write lock longer than the service waits."""
    with _locked_file() if connection.vendor == "sqlite" else _locked_tables():
        yield


@contextmanager
def _locked_file() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 10")
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    connection.close()


@contextmanager
def _locked_tables() -> Iterator[None]:
    """Lock all tables. Rows can be read, but not locked or written."""
    tables = ", ".join(model._meta.db_table for model in apps.get_models(include_auto_created=True))
    with psycopg.connect(same_database()["DATABASE_URL"]) as other:
        other.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
        with _reconnected("TIME_LIMITS", lock_timeout="10ms"):
            yield
            other.rollback()


@contextmanager
def locked_table(table: str) -> Iterator[None]:
    """Let another PostgreSQL session lock a table. The table can still be read."""
    with psycopg.connect(same_database()["DATABASE_URL"]) as other:
        other.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
        yield
        other.rollback()


@contextmanager
def table_without_insert(table: str) -> Iterator[None]:
    """Make the service a PostgreSQL role that may insert into all tables but this one."""
    role = f"clerk_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role}")
        for what in ("TABLES", "SEQUENCES"):
            cursor.execute(f"GRANT ALL ON ALL {what} IN SCHEMA public TO {role}")
        cursor.execute(f"REVOKE INSERT ON {table} FROM {role}")
    try:
        with _reconnected("OPTIONS", options=f"-c role={role}"):
            yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP OWNED BY {role}")
            cursor.execute(f"DROP ROLE {role}")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount an empty disk. Skip the test unless root runs it, because only root can mount a disk."""
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def full_tablespace() -> Iterator[None]:
    """Move PostgreSQL's tables to a disk of 8 MiB, and fill the disk."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as at_end:
        at_end.enter_context(small_disk(Path(folder), "8m"))
        (small := Path(folder, "small")).mkdir()
        shutil.chown(small, "nobody")
        name, cursor = f"small_{os.getpid()}", at_end.enter_context(connection.cursor())
        cursor.execute(f"CREATE TABLESPACE {name} LOCATION '{small}'")
        at_end.callback(cursor.execute, f"DROP TABLESPACE {name}")
        for kind in ("TABLE", "INDEX"):
            cursor.execute(f"ALTER {kind} ALL IN TABLESPACE pg_default SET TABLESPACE {name}")
            at_end.callback(cursor.execute, f"ALTER {kind} ALL IN TABLESPACE {name} SET TABLESPACE pg_default")
        cursor.execute(f"CREATE TABLE filler (line text) TABLESPACE {name}")
        at_end.callback(cursor.execute, "DROP TABLE filler")
        for lines in (1000, 1):
            with pytest.raises(OperationalError, match="No space left"):
                _insert_for_ever(cursor, f"INSERT INTO filler SELECT repeat('x', 100) FROM generate_series(1, {lines})")
        yield


def _insert_for_ever(cursor: CursorWrapper, sql: str) -> NoReturn:
    while True:
        cursor.execute(sql)


@contextmanager
def _reconnected(setting: str, **changed: str) -> Iterator[None]:
    """Connect to PostgreSQL anew with these changes of a setting, and with the former ones at the end."""
    before = connection.settings_dict[setting]
    _reconnect(setting, before | changed)
    try:
        yield
    finally:
        _reconnect(setting, before)


def _reconnect(setting: str, values: dict[str, Any]) -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # what is special of PostgreSQL
    connection.settings_dict[setting] = values
