"""Statements written by hand, for what each request asks: Django takes longer to make such a statement than it runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection


def first(sql: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row. A time in it is text, as SQLite has it."""
    with connection.cursor() as cursor:
        row: tuple[Any, ...] | None = cursor.execute(sql, values).fetchone()
        return row


def run(sql: str, values: Sequence[Any]) -> int:
    """How many rows it wrote."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def stored(at: datetime) -> str:
    """A time as the database has it, which orders times as text."""
    return str(connection.ops.adapt_datetimefield_value(at))


def read(at: str | None) -> datetime | None:
    """A time of a row."""
    return None if at is None else datetime.fromisoformat(f"{at}+00:00")
