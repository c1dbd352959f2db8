"""A database that accepts no writes: its disk is full, or another process holds its lock."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from django.apps import apps
from django.db import connection

from tests.databases import same_database


@contextmanager
def full_disk() -> Iterator[None]:
    """Make the database answer as on a full disk when it needs more room."""
    with _few_pages() if connection.vendor == "sqlite" else _no_room():
        yield


@contextmanager
def _few_pages() -> Iterator[None]:
    """Limit SQLite's file to its present pages (SQLITE_FULL)."""
    with connection.cursor() as cursor:
        # Free pages inside the file would still be filled.
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
    """Make PostgreSQL itself report a full disk (disk_full)."""
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
    """Let another process write for longer than anybody waits."""
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
    """Lock tables, so that they can be read, and no row can be locked or written."""
    tables = ", ".join(model._meta.db_table for model in apps.get_models(include_auto_created=True))
    options = connection.settings_dict["OPTIONS"]
    before = options["options"]
    with psycopg.connect(same_database()["DATABASE_URL"]) as other:
        other.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
        _reopen(options, "-c lock_timeout=10ms")
        try:
            yield
        finally:
            other.rollback()
            _reopen(options, before)


def _reopen(options: dict[str, Any], given: str) -> None:
    """Reopen connections with these options."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # what is special of PostgreSQL
    options["options"] = given
