"""Queries of Django's ORM that are made into SQL once: making a statement takes longer than running it.

`make bench-parts` measures both ways (campaigns/benchmarks/test_compiled_queries.py).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar, cast

from django.db import connection
from django.db.models import Expression, Model, QuerySet
from django.db.models.functions import Now
from django.db.models.query import ModelIterable

Row = TypeVar("Row")


class Given(Expression):
    """Stand for a value that is given each time the query runs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, *_: object) -> Any:
        return "%s", [self]

    def values(self, value: Any) -> list[Any]:
        return [connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value]


class GivenList(Given):
    """Stand for the values of an `__in`. There must be at least one."""

    @property
    def _place(self) -> str:
        return f"/*{self.name}*/"

    def as_sql(self, *_: object) -> Any:
        return self._place, [self]

    def values(self, value: Any) -> list[Any]:
        return list(value)

    def put_into(self, sql: str, value: Sequence[Any]) -> str:
        return sql.replace(self._place, ", ".join(["%s"] * len(value)))


class _Compiled(NamedTuple):
    sql: str
    parameters: tuple[Any, ...]
    clock: str
    """The SQL by which it asks the database's clock; empty if it doesn't."""
    model: type[Model]
    fields: Sequence[str]
    """The fields of an object, by the columns. Empty: rows are tuples."""
    converters: Mapping[int, tuple[Sequence[Callable[..., Any]], Any]]
    """Converters of the database's values, by the column's place."""


class CompiledQuery(Generic[Row]):
    """A query whose values are given by name: `query.every(batch="01...")`."""

    def __init__(self, make: Callable[[], "QuerySet[Any, Row]"]) -> None:
        self._make = make
        self._kept: _Compiled | None = None

    def every(self, **given: Any) -> list[Row]:
        """Return all rows: objects, or tuples of `values_list`."""
        query = self._compiled()
        sql, values = query.sql, []
        for parameter in query.parameters:
            if isinstance(parameter, Given):
                values += parameter.values(given[parameter.name])
                if isinstance(parameter, GivenList):
                    sql = parameter.put_into(sql, given[parameter.name])
            else:
                values.append(parameter)
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            rows = cursor.fetchall()
        if query.converters:
            rows = [_converted(row, query) for row in rows]
        if query.fields:
            rows = [query.model.from_db(connection.alias, query.fields, row) for row in rows]
        return cast("list[Row]", rows)

    def first(self, **given: Any) -> Row | None:
        """Return the first row; None if there is none. The query should select no more."""
        rows = self.every(**given)
        return rows[0] if rows else None

    def _compiled(self) -> _Compiled:
        kept = self._kept
        # Tests and attacks put the database's clock by changing how it is asked.
        if kept is None or (kept.clock and kept.clock != _clock()):
            rows = self._make()
            compiler = rows.query.get_compiler(connection=connection)
            sql, parameters = compiler.as_sql()
            is_of_objects = issubclass(rows._iterable_class, ModelIterable)  # noqa: SLF001 (nothing else tells)
            described = compiler.klass_info if is_of_objects else None
            self._kept = kept = _Compiled(
                sql=sql,
                parameters=tuple(parameters),
                clock=clock if (clock := _clock()) in sql else "",
                model=rows.model,
                fields=[compiler.select[at][0].target.attname for at in (described or {}).get("select_fields", ())],
                converters=compiler.get_converters([column for column, *_ in compiler.select]),
            )
        return kept


def _converted(row: Sequence[Any], query: _Compiled) -> tuple[Any, ...]:
    converted = list(row)
    for at, (converters, column) in query.converters.items():
        for convert in converters:
            converted[at] = convert(converted[at], column, connection)
    return tuple(converted)


def _clock() -> str:
    now = Now()
    in_sql: Callable[..., tuple[str, Any]] = getattr(now, f"as_{connection.vendor}", now.as_sql)
    return in_sql(None, connection)[0]
