"""Statements of SQL that Django's ORM would make too large, too slowly or one by one; and those that lock rows.

Long lists are split, because databases limit the parameters of a statement, and because long locks hold others up.
Thousands of rows are inserted in a short transaction. What every poll of a status or of a worker asks, and every
submission, is made into SQL once: making a statement takes longer than running it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Generic, TypeVar, cast

from django.db import OperationalError, connection
from django.db.models import AutoField, Expression, Field, Model, QuerySet

logger = logging.getLogger(__name__)

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive pieces of at most `size` items; no piece for an empty sequence."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def by_size(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield the items in order, in lists of at most the size `most` together. A larger item has a list of its own."""
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


Row = TypeVar("Row", bound=tuple[Any, ...])


class Given(Expression):
    """Stand for a value that is given each time the query runs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, *_: object) -> Any:
        return "%s", [self]


class CompiledQuery(Generic[Row]):
    """A query of `values_list` whose values are given by name: `query.first(batch="01...")`."""

    def __init__(self, make: Callable[[], "QuerySet[Any, Row]"]) -> None:
        self._make = make

    def first(self, **given: Any) -> Row | None:
        """Return the first row; None if there is none. The query should select no more."""
        return next(iter(self.all(**given)), None)

    def all(self, **given: Any) -> list[Row]:
        """Return the rows that the query selects."""
        sql, parameters, converters = self._compiled
        with connection.cursor() as cursor:
            cursor.execute(sql, [_value(each, given) for each in parameters])
            rows = [list(row) for row in cursor.fetchall()]
        for row in rows:
            for at, (converts, column) in converters.items():
                for convert in converts:
                    row[at] = convert(row[at], column, connection)
        return [cast("Row", tuple(row)) for row in rows]

    @cached_property
    def _compiled(self) -> tuple[str, tuple[Any, ...], dict[int, tuple[list[Callable[..., Any]], Any]]]:
        """Return the SQL, its parameters, and the converters of the database's values by the column's place."""
        compiler = self._make().query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        return sql, tuple(parameters), compiler.get_converters([column for column, *_ in compiler.select])


def _value(parameter: Any, given: dict[str, Any]) -> Any:
    value = given[parameter.name] if isinstance(parameter, Given) else parameter
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


# --- Locks of rows ----------------------------------------------------------------------------------------------------

# Locks are for databases that run transactions side by side, and last until the transaction ends. SQLite runs
# transactions one after another (`config.settings` says how), so there these functions do nothing. Elsewhere what a
# transaction reads may change until it writes, unless the rows that it depends on are locked.
#
# Nobody may wait in a circle. So everybody locks in the same order: signers, users, blocks, batches, and then what
# belongs to a batch: queries, steps and shares, which nobody writes who hasn't locked the batch or the signer; and
# last webhooks, which are locked for their deliveries too. Rows of one table are locked by primary key. Where new
# rows break the order, the database ends one of the two transactions with an error, and `retried` does that one
# again.

_TRIES = 5
# Before the next one, in which those who waited take what has become free: otherwise it meets them again.
_PAUSE_SECONDS = 0.05
# serialization_failure and deadlock_detected (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_CIRCLES = {"40001", "40P01"}

_M = TypeVar("_M", bound=Model)


def lock(rows: QuerySet[_M]) -> None:
    """Keep these rows from other transactions. What is read after that is as the others have left it."""
    if connection.features.has_select_for_update:
        list(rows.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))


def retried(write: Callable[[], T], *, tries: int = _TRIES) -> T:
    """Return what `write` returns. Call it again where the database ended its transaction because of others.

    Inside a transaction it is called once: that transaction has ended, too.
    """
    is_inside = connection.in_atomic_block
    for _ in range(tries - 1):
        try:
            return write()
        except OperationalError as error:
            if is_inside or getattr(error.__cause__, "sqlstate", None) not in _CIRCLES:
                raise
            logger.warning("a database transaction is done again: %s", error)
            time.sleep(_PAUSE_SECONDS)
    return write()
