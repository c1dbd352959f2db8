"""Fast creation of many rows: copies of one row, by a statement for SQLite and PostgreSQL alike."""

from collections.abc import Callable
from typing import Any

# Prefix of batch identifiers: 26 characters that sort in the order of the copies.
BATCH_ID = "'0{}00000000000000' || CAST(1000000000 + i AS TEXT)"


def multiply(execute: Callable[[str], Any], table: str, columns: str, where: str, count: int, **changed: str) -> None:
    """Copy the row that `where` selects. `changed` has SQL by column, in which `i` is the copy's number from 1.

    The database fills a column `id` that isn't in `changed`. `columns` are all columns of the table, with commas.
    """
    names = [name for name in columns.split(",") if name != "id" or name in changed]
    values = ", ".join(changed.get(name, f'"{name}"') for name in names)
    execute(
        f'INSERT INTO {table} ({", ".join(f""""{name}" """ for name in names)}) '
        f"WITH RECURSIVE copies(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM copies WHERE i < {count}) "
        f"SELECT {values} FROM {table}, copies WHERE {where}"
    )
