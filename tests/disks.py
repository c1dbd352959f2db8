"""A database that takes no writes: its disk is full, or another process has its lock."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from django.db import connection


@contextmanager
def full_disk() -> Iterator[None]:
    """The database may have no page more than it has: SQLite answers as on a full disk (SQLITE_FULL)."""
    with connection.cursor() as cursor:
        # What is free inside the file would still be filled.
        cursor.execute("VACUUM")
        (pages,) = cursor.execute("PRAGMA page_count").fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA max_page_count = 1073741823")


@contextmanager
def locked_database() -> Iterator[None]:
    """Another process writes for longer than anybody waits."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 10")
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    connection.close()


def bytes_used() -> int:
    """How large the database is, without what is free in it."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        (used,) = cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
    return int(used)


def file_size() -> int:
    """How large the database's file is, with all that was committed."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(connection.settings_dict["NAME"]).stat().st_size
