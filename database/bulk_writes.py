"""Inserts thousands of rows in a short transaction."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import connection
from django.db.models import AutoField, Field, Model

from database.chunks import chunks

# Other threads of the process run between two statements, while the database is locked. SQLite takes 32766 values in a
# statement.
_ROWS_PER_STATEMENT = 500


def insert(
    template: Model,
    columns: Sequence[str],
    rows: Sequence[Sequence[int | str | None]],
    *,
    ignore_conflicts: bool = False,
) -> None:
    """Insert rows like `template`, except for `columns`, whose values are given as the database stores them.

    The database assigns the keys. `bulk_create` prepares each value of each row, and takes ten times as long.
    """
    table, alike, values = _alike(template, columns)
    names = ", ".join((*columns, *alike))
    places = f"({', '.join(['%s'] * (len(columns) + len(alike)))})"
    unless = " ON CONFLICT DO NOTHING" if ignore_conflicts else ""
    with connection.cursor() as cursor:
        for chunk in chunks(rows, _ROWS_PER_STATEMENT):
            # Names are the models' own.
            sql = f"INSERT INTO {table} ({names}) VALUES {', '.join([places] * len(chunk))}{unless}"  # noqa: S608
            cursor.execute(sql, [value for row in chunk for value in (*row, *values)])


def insert_for_each(template: Model, column: str, found: str, parameters: Sequence[int | str]) -> None:
    """Insert a row like `template` for each row that the statement `found`, whose first words are FROM, finds.

    `column` becomes the id of what was found.
    """
    table, alike, values = _alike(template, (column,))
    names, places = ", ".join((column, *alike)), ", ".join(("id", *["%s"] * len(alike)))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({names}) SELECT {places} {found}", (*values, *parameters))


def _alike(template: Model, others: Sequence[str]) -> tuple[str, list[str], list[Any]]:
    """Return the table, and its columns besides `others` with the values of `template` as the database stores them."""
    quote = connection.ops.quote_name
    fields = _fields(type(template), tuple(others))
    values = [field.get_db_prep_save(field.pre_save(template, add=True), connection) for field in fields]
    return quote(template._meta.db_table), [quote(str(field.column)) for field in fields], values


@cache
def _fields(model: type[Model], others: tuple[str, ...]) -> "list[Field[Any, Any]]":
    fields = model._meta.local_concrete_fields
    is_assigned = isinstance(model._meta.pk, AutoField)
    return [field for field in fields if field.column not in others and not (field.primary_key and is_assigned)]
