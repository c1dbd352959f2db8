"""Fast creation of many rows: copies of one row, by a statement for SQLite and PostgreSQL."""

from collections.abc import Callable
from typing import Any

# SQL that makes batch identifiers of 26 characters. They sort in the order of the copies.
BATCH_ID = "'0{}00000000000000' || CAST(1000000000 + i AS TEXT)"


def multiply(execute: Callable[[str], Any], table: str, columns: str, where: str, count: int, **changed: str) -> None:
    """Copy the row that `where` selects. `changed` has SQL for columns, in which `i` is the copy's number from 1.

    If a column `id` isn't in `changed`, the database fills it. `columns` has all columns of the table, separated by
    commas.
    """
    names = [name for name in columns.split(",") if name != "id" or name in changed]
    values = ", ".join(changed.get(name, f'"{name}"') for name in names)
    execute(
        f'INSERT INTO {table} ({", ".join(f""""{name}" """ for name in names)}) '
        f"WITH RECURSIVE copies(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM copies WHERE i < {count}) "
        f"SELECT {values} FROM {table}, copies WHERE {where}"
    )
