"""Statements written by hand, for what each request asks: Django takes longer to make such a statement than it runs.

They are written for any database that Django knows. Where databases differ, the difference is here.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model
from django.db.models.functions import Now

Values = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]
M = TypeVar("M", bound=Model)
Made = TypeVar("Made")


def first(sql: str, values: Values) -> Row | None:
    """Return the first row. Its times and booleans are for `read` and `read_boolean`."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        row: Row | None = cursor.fetchone()
        return row


def every(sql: str, values: Values) -> list[Row]:
    """Return all rows, as `first` does one."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def objects(model: type[M], rest: str, values: Values, without: tuple[str, ...] = ()) -> list[M]:
    """Return the rows of a model's table that `rest` selects, SQL from WHERE or ORDER BY on.

    Fields `without` are deferred.
    """
    columns, names, converters = _columns(model, without)
    found = []
    for row in every(f"SELECT {columns} FROM {model._meta.db_table} {rest}", values):  # noqa: S608 (names of this project)
        converted = list(row)
        for at, convert, column in converters:
            converted[at] = convert(converted[at], column, connection)
        found.append(model.from_db(connection.alias, names, converted))
    return found


@cache
def _columns(model: type[Model], without: tuple[str, ...]) -> tuple[str, list[str], list[tuple[int, Any, Any]]]:
    """Return the columns in SQL, their names in the model, and the converters of the database's values, by place."""
    fields = [field for field in model._meta.concrete_fields if field.attname not in without]
    columns = [field.get_col(model._meta.db_table) for field in fields]
    converters = [
        (at, convert, column)
        for at, column in enumerate(columns)
        for convert in (*connection.ops.get_db_converters(column), *column.get_db_converters(connection))
    ]
    names = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    return names, [field.attname for field in fields], converters


def join_rows(rows: Sequence[Row], name: str, on: Mapping[int, str]) -> tuple[str, list[Any]]:
    """Return SQL that joins these rows, and its values. It keeps a table's rows that have one of these combinations.

    `on` has columns of the table by the places of their values in each row, from 1. The database reads such rows by an
    index, where lists of each column's values would name all combinations.
    """
    places = ", ".join([f"({', '.join(['%s'] * len(rows[0]))})"] * len(rows))
    condition = " AND ".join(f"{name}.column{at} = {column}" for at, column in on.items())
    return f"JOIN (VALUES {places}) AS {name} ON {condition}", [value for row in rows for value in row]


def run(sql: str, values: Values) -> int:
    """Run the statement, and return how many rows it wrote."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def lock(table: str, row_id: int) -> None:
    """Keep the row from other transactions until this one ends.

    It is a statement of its own: where rows are locked, only a later one reads what others have written until then.
    """
    # As `row_locks.lock`.
    if connection.features.has_select_for_update:
        first(f"SELECT id FROM {table} WHERE id = %s FOR NO KEY UPDATE", (row_id,))  # noqa: S608 (a name of this project)


def of_now(make: Callable[[], Made]) -> Callable[[], Made]:
    """Keep what `make` has made, a statement that asks the database's clock, as long as that is asked in the same way.

    Tests and attacks put clocks by changing the way.
    """
    kept: dict[str, Made] = {}

    def made() -> Made:
        now = Now()
        in_sql: Callable[..., tuple[str, Any]] = getattr(now, f"as_{connection.vendor}", now.as_sql)
        way, _ = in_sql(None, connection)
        if way not in kept:
            kept.clear()
            kept[way] = make()
        return kept[way]

    return made


def stored(at: datetime) -> Any:
    """Return a time as the database is given it."""
    return connection.ops.adapt_datetimefield_value(at)


def read(at: str | datetime | None) -> datetime | None:
    """Return a time of a row. From SQLite it comes without a zone, in UTC; where it was computed, as text."""
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return at.replace(tzinfo=UTC) if at and at.tzinfo is None else at


def read_boolean(value: int | bool | None) -> bool:  # noqa: FBT001 (it is the value)
    """Return a boolean of a row, which is 0 or 1 from SQLite. Unknown is false."""
    return bool(value)


def day_of(column: str) -> str:
    """Return SQL of the day in UTC, as `2026-01-31`, of a column of times."""
    if connection.vendor == "postgresql":
        return f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
    return f"substr({column}, 1, 10)"


def json_of(columns: str) -> str:
    """Return SQL of one text with all these columns, whatever their types."""
    if connection.vendor == "postgresql":
        return f"CAST(json_build_array({columns}) AS text)"
    return f"json_array({columns})"


def json_of_rows(column: str) -> str:
    """Return SQL that makes one text of a column of all rows."""
    if connection.vendor == "postgresql":
        # It returns rows in any order, and the text must not change by that.
        return f"string_agg({column}, ',' ORDER BY {column})"
    return f"json_group_array({column})"
