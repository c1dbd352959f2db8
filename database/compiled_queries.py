"""Queries of Django's ORM that are made into SQL once: making a statement takes longer than running it.

They are for what every status poll and every submission asks.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from django.db import connection
from django.db.models import Expression, QuerySet

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
        sql, parameters, converters = self._compiled
        with connection.cursor() as cursor:
            cursor.execute(sql, [_value(each, given) for each in parameters])
            row = cursor.fetchone()
        if row and converters:
            row = list(row)
            for at, (converts, column) in converters.items():
                for convert in converts:
                    row[at] = convert(row[at], column, connection)
        return cast("Row", tuple(row)) if row else None

    @cached_property
    def _compiled(self) -> tuple[str, tuple[Any, ...], dict[int, tuple[list[Callable[..., Any]], Any]]]:
        """Return the SQL, its parameters, and the converters of the database's values by the column's place."""
        compiler = self._make().query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        return sql, tuple(parameters), compiler.get_converters([column for column, *_ in compiler.select])


def _value(parameter: Any, given: dict[str, Any]) -> Any:
    value = given[parameter.name] if isinstance(parameter, Given) else parameter
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value
