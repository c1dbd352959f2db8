"""Inserts thousands of similar rows in a short transaction."""

from collections.abc import Sequence

from django.db import connection
from django.db.models import Model

from queries.chunks import chunks

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
    meta = template._meta
    alike = [field for field in meta.local_concrete_fields if not field.primary_key and field.column not in columns]
    values = [field.get_db_prep_save(field.pre_save(template, add=True), connection) for field in alike]
    quote = connection.ops.quote_name
    names = ", ".join(quote(name) for name in (*columns, *(str(field.column) for field in alike)))
    places = f"({', '.join(['%s'] * (len(columns) + len(alike)))})"
    table, unless = quote(meta.db_table), " ON CONFLICT DO NOTHING" if ignore_conflicts else ""
    with connection.cursor() as cursor:
        for chunk in chunks(rows, _ROWS_PER_STATEMENT):
            # Names are the models' own.
            sql = f"INSERT INTO {table} ({names}) VALUES {', '.join([places] * len(chunk))}{unless}"  # noqa: S608
            cursor.execute(sql, [value for row in chunk for value in (*row, *values)])
