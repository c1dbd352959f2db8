"""Whether the database's tables are those that its migrations say.

Migrations are only appended. A database whose migrations were others, with the same names, lacks columns although
nothing is left to migrate.
"""

import fcntl
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.models import CharField, Field

# Of PostgreSQL's advisory locks, which each database has for itself.
_LOCK = 7_117_310


@contextmanager
def lock(connection: BaseDatabaseWrapper, *, shared: bool = False) -> Iterator[bool]:
    """Keep migrations from running meanwhile, if none runs now. Yield whether none does.

    The lock ends with the process. Tables that are being migrated are not what they will be.
    """
    if connection.vendor == "postgresql":
        kind = "_shared" if shared else ""
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_try_advisory_lock{kind}({_LOCK})")
            (is_held,) = cursor.fetchone()
            try:
                yield is_held
            finally:
                # A connection that was lost has lost its locks.
                if is_held and connection.is_usable():
                    cursor.execute(f"SELECT pg_advisory_unlock{kind}({_LOCK})")
        return
    # The folder's: to close a second handle of the file would end SQLite's own locks of this process.
    folder = os.open(Path(connection.settings_dict["NAME"]).parent, os.O_RDONLY)
    try:
        yield _is_locked(folder, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    finally:
        os.close(folder)


def _is_locked(folder: int, kind: int) -> bool:
    try:
        fcntl.flock(folder, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def problem(connection: BaseDatabaseWrapper) -> str:
    """Return why this version can't work with the database, a sentence; empty where it can."""
    # Where there is no database, this says it.
    with connection.cursor():
        pass
    with lock(connection, shared=True) as is_held:
        if not is_held:
            return "The database is being migrated: wait until manage.py migrate has ended."
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


@dataclass
class _Table:
    """A table that is there: its columns, and the names of its indexes and constraints."""

    columns: dict[str, "_Column"] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Column:
    length: int | None  # of texts, in characters
    is_nullable: bool

    def is_alike(self, model_field: "Field[object, object]") -> bool:
        """Return whether it is the field's, as far as every engine tells."""
        if isinstance(model_field, CharField) and model_field.max_length != self.length:
            return False
        return bool(model_field.null) == self.is_nullable


def _differences(
    connection: BaseDatabaseWrapper, loader: MigrationLoader, applied: list[tuple[str, str]]
) -> Iterator[str]:
    is_newer = len(applied) < len(loader.applied_migrations)
    tables = _sqlite_tables(connection) if connection.vendor == "sqlite" else _tables(connection)
    for model in loader.project_state(applied).apps.get_models(include_auto_created=True):
        options = model._meta
        if not options.managed or options.proxy or options.swapped:
            continue
        if options.db_table not in tables:
            yield f"there is no table {options.db_table}"
            continue
        table = tables[options.db_table]
        fields = {field.column: field for field in options.local_concrete_fields}
        for name, model_field in fields.items():
            if name not in table.columns:
                yield f"{options.db_table} has no column {name}"
            elif not table.columns[name].is_alike(model_field):
                yield f"{options.db_table}.{name} is another column"
        for name in sorted({each.name for each in [*options.indexes, *options.constraints]} - table.names):
            yield f"{options.db_table} lacks {name}"
        if not is_newer and (others := sorted(table.columns.keys() - fields.keys())):
            yield f"{options.db_table} has a column {others[0]} that no migration makes"


def _tables(connection: BaseDatabaseWrapper) -> dict[str, _Table]:
    introspection = connection.introspection
    tables = {}
    with connection.cursor() as cursor:
        for name in introspection.table_names(cursor):
            described = introspection.get_table_description(cursor, name)
            columns = {each.name: _Column(each.display_size, bool(each.null_ok)) for each in described}
            tables[name] = _Table(columns, set(introspection.get_constraints(cursor, name)))
    return tables


def _sqlite_tables(connection: BaseDatabaseWrapper) -> dict[str, _Table]:
    """Read what `_tables` does. Django parses each table's SQL for it: half a second of each process's start."""
    tables: dict[str, _Table] = defaultdict(_Table)
    with connection.cursor() as cursor:
        cursor.execute(
            'SELECT each.name, own.name, own.type, own."notnull" FROM sqlite_master AS each '
            "JOIN pragma_table_xinfo(each.name) AS own WHERE each.type = 'table'"
        )
        for table, name, kind, is_required in cursor.fetchall():
            length = re.search(r"\((\d+)\)", kind)
            tables[table].columns[name] = _Column(int(length[1]) if length else None, not is_required)
        cursor.execute("SELECT tbl_name, name, sql FROM sqlite_master")
        for table, name, sql in cursor.fetchall():
            tables[table].names |= {name, *re.findall(r'CONSTRAINT "([^"]+)"', sql or "")}
    return dict(tables)
