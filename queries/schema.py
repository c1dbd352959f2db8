"""Whether the database's tables are those that its migrations say.

Migrations are only appended. A database whose migrations were others, with the same names, lacks columns although
nothing is left to migrate.
"""

from collections.abc import Iterator
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.models import CharField


def problem(connection: BaseDatabaseWrapper) -> str:
    """Return why this version can't work with the database, a sentence; empty where it can."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return difference(connection) or "The database lacks migrations of this version: run manage.py migrate."
    return difference(connection) or ""


def difference(connection: BaseDatabaseWrapper) -> str | None:
    """Return the first difference between the tables and the migrations that are recorded as applied, a sentence.

    None: there is none. Of a database with migrations that this version doesn't know, which is a newer version's, only
    what is lacking is told.
    """
    loader = MigrationLoader(connection)
    if not loader.applied_migrations:
        return None
    known = [key for key in loader.applied_migrations if key in loader.graph.nodes]
    found = next(_differences(connection, loader, known), None)
    return found and (
        f"The database's tables are not those of its migrations: {found}. It was made by a version whose migrations "
        "were others, and can't be migrated: use that version, or begin with an empty database."
    )


def _differences(
    connection: BaseDatabaseWrapper, loader: MigrationLoader, applied: list[tuple[str, str]]
) -> Iterator[str]:
    is_newer = len(applied) < len(loader.applied_migrations)
    tables = set(connection.introspection.table_names())
    for model in loader.project_state(applied).apps.get_models(include_auto_created=True):
        options = model._meta
        if not options.managed or options.proxy or options.swapped:
            continue
        if options.db_table not in tables:
            yield f"there is no table {options.db_table}"
            continue
        with connection.cursor() as cursor:
            columns = {
                column.name: column
                for column in connection.introspection.get_table_description(cursor, options.db_table)
            }
            constraints = connection.introspection.get_constraints(cursor, options.db_table)
        fields = {field.column: field for field in options.local_concrete_fields}
        for name, field in fields.items():
            if name not in columns:
                yield f"{options.db_table} has no column {name}"
            elif not _is_alike(field, columns[name]):
                yield f"{options.db_table}.{name} is another column"
        for name in sorted({one.name for one in [*options.indexes, *options.constraints]} - constraints.keys()):
            yield f"{options.db_table} lacks {name}"
        if not is_newer and (others := sorted(columns.keys() - fields.keys())):
            yield f"{options.db_table} has a column {others[0]} that no migration makes"


def _is_alike(field: Any, column: Any) -> bool:
    """As far as it can be told on every engine."""
    if isinstance(field, CharField) and field.max_length != column.display_size:
        return False
    return bool(field.null) == bool(column.null_ok)
