"""SQL statements that Django's ORM would make too large or too slowly, and statements that lock rows.

Long lists are split, because databases limit the parameters of a statement, and because long locks delay other
transactions. The queries of every poll and every submission are compiled to SQL once, because compiling takes longer
than running them.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast

from django.db import OperationalError, connection
from django.db.models import AutoField, Expression, Field, JSONField, Model, QuerySet

logger = logging.getLogger(__name__)

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive slices of at most `size` items. Yield nothing for an empty sequence."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def by_size(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Group the items in order, so that each list has a total size of at most `most`.

    A larger item is alone in its list.
    """
    several: list[T] = []
    used = 0
    for item in items:
        more = size(item)
        if several and used + more > most:
            yield several
            several, used = [], 0
        several.append(item)
        used += more
    if several:
        yield several


# SQLite allows 32,766 values in a statement. Fewer rows also let other threads run between two statements that lock the
# database.
_ROWS_PER_STATEMENT = 500


def insert(
    template: Model,
    columns: Sequence[str],
    rows: Sequence[Sequence[int | str | None]],
    *,
    ignore_conflicts: bool = False,
    returning: str = "",
) -> list[tuple[Any, ...]]:
    """Insert rows that have the values of `template`, except for `columns`. `rows` has the values of these columns.

    The values are in the database's form. `bulk_create` would prepare each value of each row, so that a submission of
    100 queries would take three to five times as long. The database assigns the keys. Return the columns `returning` of
    the inserted rows.
    """
    same = _same_columns(template, columns)
    table, names = _table(template), ", ".join((*columns, *same.names))
    returned: list[tuple[Any, ...]] = []
    fields = {field.column: field for field in type(template)._meta.local_concrete_fields}
    with connection.cursor() as cursor:
        for chunk in chunks(rows, _ROWS_PER_STATEMENT):
            if columns and connection.vendor == "postgresql":
                given = ", ".join(("given.*", *same.places))
                source = f"SELECT {given} FROM {_unnest([fields[name] for name in columns])} AS given"  # noqa: S608
                parameters = [*same.parameters, *_arrays(chunk)]
            else:
                row = f"({', '.join((*['%s'] * len(columns), *same.places))})"
                source = f"VALUES {', '.join([row] * len(chunk))}"
                parameters = [value for row in chunk for value in (*row, *same.parameters)]
            # The names come from models, not from users.
            sql = f"INSERT INTO {table} ({names}) {source}{' ON CONFLICT DO NOTHING' if ignore_conflicts else ''}"
            cursor.execute(f"{sql} RETURNING {returning}" if returning else sql, parameters)
            returned += cursor.fetchall() if returning else ()
    return returned


def insert_all(rows: Sequence[Model]) -> None:
    """Insert unsaved rows of one model, whose values are texts, integers, JSON or null. The database assigns the keys.

    A column in which all rows have the same value is prepared once, and merged as a literal where it is the default.
    """
    fields = [field for field, *_ in _fields(type(rows[0]), ())]
    columns = zip(*map(attrgetter(*(field.attname for field in fields)), rows), strict=True)
    differing = {
        str(field.column): [json.dumps(value) for value in values] if isinstance(field, JSONField) else values
        for field, values in zip(fields, columns, strict=True)
        if values.count(values[0]) < len(values)
    }
    insert(rows[0], list(differing), list(zip(*differing.values(), strict=True)) or [()] * len(rows))


def insert_for_each(template: Model, column: str, selection: str, parameters: Sequence[int | str]) -> None:
    """Insert a row like `template` for each row that `selection` selects.

    `selection` is the part of an SQL statement from FROM on. `column` gets the id of the selected row.
    """
    same = _same_columns(template, (column,))
    names = ", ".join((column, *same.names))
    with connection.cursor() as cursor:
        sql = f"INSERT INTO {_table(template)} ({names}) SELECT {', '.join(('id', *same.places))} {selection}"
        cursor.execute(sql, (*same.parameters, *parameters))


def update_each(rows: Sequence[Model], columns: Sequence[str]) -> None:
    """Write these columns of stored rows of one model, with the values that the objects have.

    `bulk_update` writes an expression for each value, which takes twenty times as long.
    """
    if not rows:
        return
    model = type(rows[0])
    key = model._meta.pk
    fields = [cast("Field[Any, Any]", model._meta.get_field(column)) for column in columns]
    quote = connection.ops.quote_name
    table, pk = quote(model._meta.db_table), quote(str(key.column))
    names = [quote(str(field.column)) for field in fields]
    values = [
        [field.get_db_prep_save(getattr(row, field.attname), connection) for field in (*fields, key)] for row in rows
    ]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            sets = ", ".join(f"{name} = changed.{name}" for name in names)
            changed = f"{_unnest([*fields, key])} AS changed({', '.join((*names, pk))})"
            sql = f"UPDATE {table} SET {sets} FROM {changed} WHERE {table}.{pk} = changed.{pk}"  # noqa: S608
            cursor.execute(sql, _arrays(values))
        else:
            sets = ", ".join(f"{name} = %s" for name in names)
            cursor.executemany(f"UPDATE {table} SET {sets} WHERE {pk} = %s", values)  # noqa: S608


def _unnest(fields: "Sequence[Field[Any, Any]]") -> str:
    """Return a table of one array for each field, which takes less time to merge and to parse than single values."""
    return f"unnest({', '.join(f'%s::{field.db_type(connection)}[]' for field in fields)})"


def _arrays(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(values) for values in zip(*rows, strict=True)]


def _table(template: Model) -> str:
    return connection.ops.quote_name(template._meta.db_table)


@dataclass(frozen=True)
class _SameColumns:
    """Columns in which all inserted rows have the same value."""

    names: list[str]
    places: list[str]
    """Each value as SQL: a literal, or the place of a parameter."""
    parameters: list[Any]


def _same_columns(template: Model, excluded: Sequence[str]) -> _SameColumns:
    """Return the columns of `template` except `excluded`, with its values."""
    same = _SameColumns([], [], [])
    for field, name, default, literal in _fields(type(template), tuple(excluded)):
        value = getattr(template, field.attname)
        # Most columns have their default, which takes longer to prepare and to merge than the other values.
        is_default = literal and value is default
        same.names.append(name)
        same.places.append(literal if is_default else "%s")
        if not is_default:
            same.parameters.append(field.get_db_prep_save(value, connection))
    return same


@cache
def _fields(model: type[Model], excluded: tuple[str, ...]) -> "list[tuple[Field[Any, Any], str, Any, str]]":
    """Return the fields with their columns, defaults, and the defaults as SQL. Empty: another default at each call."""
    fields = model._meta.local_concrete_fields
    is_assigned = isinstance(model._meta.pk, AutoField)
    used = [
        field
        for field in fields
        if not field.generated and field.column not in excluded and not (field.primary_key and is_assigned)
    ]
    defaults = [None if callable(field.default) else field.get_default() for field in used]
    return [
        (field, connection.ops.quote_name(str(field.column)), default, _literal(field, default))
        for field, default in zip(used, defaults, strict=True)
    ]


def _literal(field: "Field[Any, Any]", default: Any) -> str:
    value = None if default is None else field.get_db_prep_save(default, connection)
    if value is None or isinstance(value, int):
        return "NULL" if value is None else str(value)
    return f"'{value}'" if isinstance(value, str) and not set("'%\\") & set(value) else ""


Row = TypeVar("Row", bound=tuple[Any, ...])


class QueryParameter(Expression):
    """A value in a compiled query that each run provides."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, *_: object) -> Any:
        return "%s", [self]


@dataclass(frozen=True)
class _CompiledSql:
    sql: str
    parameters: Sequence[Any]
    converters: Mapping[int, tuple[list[Callable[..., Any]], Any]]
    """Functions that convert the database's values, and the column, by its index."""


class CompiledQuery(Generic[Row]):
    """A `values_list` query that is compiled once. Its parameters are given by name: `query.first(batch="01...")`."""

    def __init__(self, make: Callable[[], "QuerySet[Any, Row]"]) -> None:
        self._make = make

    def first(self, **values: Any) -> Row | None:
        """Return the first row. None if there is none. The query should select a single row."""
        return next(iter(self.all(**values)), None)

    def all(self, **values: Any) -> list[Row]:
        """Return the rows that the query selects."""
        compiled = self._compiled
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, [_value(parameter, values) for parameter in compiled.parameters])
            rows = [list(row) for row in cursor.fetchall()]
        for row in rows:
            for at, (converts, column) in compiled.converters.items():
                for convert in converts:
                    row[at] = convert(row[at], column, connection)
        return [cast("Row", tuple(row)) for row in rows]

    @cached_property
    def _compiled(self) -> _CompiledSql:
        compiler = self._make().query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        return _CompiledSql(sql, parameters, compiler.get_converters([column for column, *_ in compiler.select]))


def _value(parameter: Any, values: dict[str, Any]) -> Any:
    value = values[parameter.name] if isinstance(parameter, QueryParameter) else parameter
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


# --- Locks of rows ----------------------------------------------------------------------------------------------------

# PostgreSQL runs transactions in parallel, so rows that a transaction has read may change before it writes. A lock
# prevents that until the transaction ends. SQLite runs transactions one after another (see `config.settings`), so it
# needs no locks, and these functions do nothing there.
#
# A fixed order of locks prevents deadlocks: signers, lanes, users, blocks, batches, a batch's queries and steps, and
# last webhooks. A transaction locks the batch before it writes queries or steps, the signer before it writes shares,
# and the webhook before it writes deliveries. Rows of one table are locked by primary key. If new rows break the order,
# the database ends one of two transactions with an error, and `retried` runs that transaction again.

_TRIES = 5
# Pause before the next try. Waiting transactions take the freed locks during it; otherwise the conflict would recur.
_PAUSE_SECONDS = 0.05
# serialization_failure and deadlock_detected (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_CIRCLES = {"40001", "40P01"}

_M = TypeVar("_M", bound=Model)


def lock(rows: QuerySet[_M]) -> None:
    """Lock these rows until the transaction ends. Later reads in this transaction see what others have committed."""
    if connection.features.has_select_for_update:
        list(rows.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))


def is_deadlock(error: Exception) -> bool:
    """Return whether the database ended a transaction because transactions waited in a circle."""
    return isinstance(error, OperationalError) and getattr(error.__cause__, "sqlstate", None) in _CIRCLES


def retried(work: Callable[[], T]) -> T:
    """Return the result of `work`. Call it again if the database ended its transaction because of a deadlock.

    Inside a transaction it is called only once, because the outer transaction has ended too.
    """
    is_inside = connection.in_atomic_block
    for _ in range(_TRIES - 1):
        try:
            return work()
        except OperationalError as error:
            if is_inside or not is_deadlock(error):
                raise
            logger.warning("a database transaction runs again, %s: %s", type(error.__cause__).__name__, error)
            time.sleep(_PAUSE_SECONDS)
    return work()
