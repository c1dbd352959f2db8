"""Moves an installation from SQLite into an empty PostgreSQL, and proves that nothing was lost.

Every table is read from the file and written in one transaction, a part at a time. Then it is read back from PostgreSQL
and compared: the count of its rows, and a checksum of their values as Python has them, whichever engine they came from.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.apps import apps
from django.core.management.color import no_style
from django.db import connection, connections, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Field, Max, Model
from django.utils import timezone

from queries.models import Batch, StorageCheck

_SOURCE = "moved"
_PER_READ = 500
# What `migrate` writes into an empty database. It is replaced by what the file has.
_WRITTEN_BY_MIGRATE = {"django_migrations", "django_content_type", "auth_permission"}
# Tables that only the engine needs.
_OF_SQLITE = {"sqlite_sequence"}
# A process that has written so lately may write again. Workers write every few seconds, and `/healthz` does too.
_LATELY = timedelta(seconds=30)


class MoveRefused(Exception):
    """Nothing was moved. The message is a sentence that says why."""


@dataclass(frozen=True)
class Contents:
    """The content of a table: its rows' number and checksum."""

    rows: int
    checksum: str
    """The checksum of all values, whatever the order of the rows; hex."""


@dataclass(frozen=True)
class Moved:
    table: str
    before: Contents
    after: Contents

    @property
    def is_same(self) -> bool:
        return self.before == self.after


def move(file: Path) -> list[Moved]:
    """Move the content of the file, and return what was moved, by table. Where one differs, nothing was.

    Raises `MoveRefused`, `django.db.Error`.
    """
    with _opened(file), transaction.atomic(), transaction.atomic(using=_SOURCE):
        models = _models()
        _check_migrations()
        _check_that_all_is_known(models)
        _check_that_it_is_empty(models)
        _check_that_nobody_writes()
        before = [_copy(model) for model in models]
        with connection.cursor() as cursor:
            for sql in connection.ops.sequence_reset_sql(no_style(), models):
                cursor.execute(sql)
            # What refers to nothing is found here, and not when it is too late to say so.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        moved = [
            Moved(model._meta.db_table, contents, _contents(_rows(model, connection.alias)))
            for model, contents in zip(models, before, strict=True)
        ]
        if not all(one.is_same for one in moved):
            transaction.set_rollback(True)
        return moved


@contextmanager
def _opened(file: Path) -> Iterator[None]:
    """Open the file as a connection of Django. Nobody else writes beside it: a transaction takes SQLite's one lock."""
    if not file.is_file():
        raise MoveRefused(f"There is no file {file}.")
    settings = {
        "ENGINE": "django.db.backends.sqlite3",
        # By a URI, which makes no new database where there is none.
        "NAME": f"file:{quote(str(file.absolute()))}?mode=rw",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 5},
    }
    completed = connections.configure_settings({"default": {}, _SOURCE: settings})[_SOURCE]
    connections[_SOURCE] = DatabaseWrapper(completed, _SOURCE)
    try:
        yield
    finally:
        connections[_SOURCE].close()
        del connections[_SOURCE]


def _models() -> list[type[Model]]:
    found = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    return [MigrationRecorder.Migration, *(model for model in found if not model._meta.proxy)]


def _check_migrations() -> None:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise MoveRefused("The database to move to is not migrated: run manage.py migrate first.")
    here, there = (set(MigrationRecorder(connections[at]).applied_migrations()) for at in (connection.alias, _SOURCE))
    if here != there:
        names = ", ".join(sorted(".".join(one) for one in here ^ there)[:5])
        raise MoveRefused(
            f"The two databases are not migrated to the same version: {names}. Run manage.py migrate of this version "
            "with the file first."
        )


def _check_that_all_is_known(models: Iterable[type[Model]]) -> None:
    unknown = set(connections[_SOURCE].introspection.table_names()) - _OF_SQLITE
    unknown -= {model._meta.db_table for model in models}
    if unknown:
        raise MoveRefused(f"The file has tables that are not this service's: {', '.join(sorted(unknown))}.")


def _check_that_it_is_empty(models: Iterable[type[Model]]) -> None:
    full = [
        model._meta.db_table
        for model in models
        if model._meta.db_table not in _WRITTEN_BY_MIGRATE and model._base_manager.exists()
    ]
    if full:
        raise MoveRefused(f"The database to move to is not empty: there are rows in {', '.join(full)}.")


def _check_that_nobody_writes() -> None:
    heartbeat = apps.get_model("proving", "WorkerHeartbeat")
    written: list[datetime | None] = [
        model._base_manager.using(_SOURCE).aggregate(at=Max(column))["at"]
        for model, column in ((heartbeat, "beat_at"), (StorageCheck, "at"), (Batch, "created_at"))
    ]
    if any(at is not None and abs(timezone.now() - at) < _LATELY for at in written):
        raise MoveRefused(
            f"The service has written to the file in the last {_LATELY.total_seconds():.0f} seconds. Stop the web "
            "server and the workers, wait that long, and run this again."
        )


def _columns(model: type[Model]) -> "list[Field[Any, Any]]":
    return list(model._meta.concrete_fields)


def _rows(model: type[Model], database: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows' values as Python has them. They are read a few rows at a time."""
    names = [field.attname for field in _columns(model)]
    return model._base_manager.using(database).order_by("pk").values_list(*names).iterator(chunk_size=_PER_READ)


def _copy(model: type[Model]) -> Contents:
    fields = _columns(model)
    table = connection.ops.quote_name(model._meta.db_table)
    names = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    copied = _Sum()
    with connection.cursor() as cursor:
        if model._meta.db_table in _WRITTEN_BY_MIGRATE:
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608 (names of this project)
        with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
            for row in _rows(model, _SOURCE):
                copied.add(row)
                copy.write_row(
                    [field.get_db_prep_save(value, connection) for field, value in zip(fields, row, strict=True)]
                )
    return copied.contents


def _contents(rows: Iterable[Sequence[Any]]) -> Contents:
    read = _Sum()
    for row in rows:
        read.add(row)
    return read.contents


class _Sum:
    """The sum of the hashes of rows, in which equal rows count each."""

    def __init__(self) -> None:
        self._rows, self._sum = 0, 0

    def add(self, row: Sequence[Any]) -> None:
        text = json.dumps([_canonical(value) for value in row], sort_keys=True)
        self._rows += 1
        self._sum += int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())

    @property
    def contents(self) -> Contents:
        return Contents(self._rows, f"{self._sum % 2**256:064x}")


def _canonical(value: Any) -> Any:
    """Return the same for equal values of any engine, and another value for values of other types."""
    match value:
        case None | bool() | int() | str() | list() | dict():
            return value
        case bytes() | memoryview() | bytearray():
            return {"bytes": bytes(value).hex()}
        case datetime():
            return {"time": value.astimezone(UTC).isoformat()}
        case _:
            raise TypeError(f"{type(value)} can't be compared")
