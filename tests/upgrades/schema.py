"""The schema of a database, as its engine describes it."""

from typing import Any, NamedTuple

from django.db import connection


def rows(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


class Column(NamedTuple):
    """One column as the database describes it."""

    table: str
    name: str
    type: str
    may_be_null: bool
    default: str | None


COLUMNS = {
    "sqlite": """
        SELECT tables.name, columns.name, columns.type, NOT columns."notnull", columns.dflt_value
        FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
        WHERE tables.type = 'table' AND tables.name <> 'sqlite_sequence'
    """,
    "postgresql": """
        SELECT relname, attname, format_type(atttypid, atttypmod), NOT attnotnull,
            coalesce(pg_get_expr(adbin, adrelid), nullif(attidentity::text, ''))
        FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
    """,
}
# Keys of PostgreSQL refer to columns, whose names when they were created are in the keys' own names.
REST = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'sqlite_sequence'",
    "postgresql": """
        SELECT tablename || indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' UNION ALL
        SELECT conrelid::regclass || CASE contype WHEN 'f' THEN '' ELSE conname END, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
    """,
}


def columns() -> dict[tuple[str, str], Column]:
    return {(column.table, column.name): column for row in rows(COLUMNS[connection.vendor]) if (column := Column(*row))}


def schema() -> set[tuple[Any, ...]]:
    """Return the columns, the indexes and the constraints. Columns of a table may have any order."""
    statements = [(name, sql.replace("(", ", ", 1)) for name, sql in rows(REST[connection.vendor])]
    parts = {(name, part.rstrip(" )")) for name, sql in statements for part in sql.split(", ")}
    return parts | set(columns().values())
