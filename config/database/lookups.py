"""`__in` with a long list as one array, on PostgreSQL.

A parameter for each value takes longer to merge into the SQL, and to parse there, than the query itself.
"""

from typing import Any, cast

from django.db.models import Field
from django.db.models.fields.related import ForeignObject
from django.db.models.fields.related_lookups import RelatedIn
from django.db.models.lookups import In

# Shorter lists stay as they are, so that the planner still matches them with partial indexes.
_LEAST_VALUES = 10


class _OneParameter(In):
    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        values = list(self.rhs) if self.rhs_is_direct_value() else []
        if len(values) < _LEAST_VALUES or not all(map(_fits, values)):
            return self.as_sql(compiler, connection)
        column, parameters = self.process_lhs(compiler, connection)
        _, array = self.get_db_prep_lookup(cast("Any", values), connection)
        return f"{column} = ANY(%s)", (*parameters, list(array))


def _fits(value: object) -> bool:
    """Return whether each type of column can be compared with the value in an array: none has more than 64 bits."""
    return isinstance(value, str) or (isinstance(value, int) and -(2**63) <= value < 2**63)


class InArray(_OneParameter):
    """The lookup of plain columns."""


class RelatedInArray(_OneParameter, RelatedIn):
    """The lookup of foreign keys."""


def register() -> None:
    """Make these the lookups of `__in`."""
    Field.register_lookup(InArray)
    ForeignObject.register_lookup(RelatedInArray)
