"""A database field for unsigned 256-bit integers, such as amounts of wei."""

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models

if TYPE_CHECKING:
    _IntegerField = models.Field[int, int]
else:
    _IntegerField = models.Field  # not subscriptable at run time


class Uint256Field(_IntegerField):
    """An unsigned 256-bit integer, such as an amount of wei.

    Stored as 64 hexadecimal digits: exact in every database (SQLite keeps a DecimalField as a float), and ordered by
    value because the width is fixed.
    """

    description = "Unsigned 256-bit integer"

    def get_internal_type(self) -> str:
        return "CharField"

    def db_type(self, connection: Any) -> str:
        # To insert many rows, Django makes an array of the type's name without its length: of PostgreSQL's "char" each
        # would hold one character.
        return "varchar(64)" if connection.vendor == "postgresql" else "char(64)"

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> int | None:
        return None if value is None else int(value, 16)

    def to_python(self, value: Any) -> int | None:
        if value is None or isinstance(value, int):
            return value
        try:
            return int(value)
        except (TypeError, ValueError):
            raise ValidationError("Not a whole number.") from None

    def get_prep_value(self, value: Any) -> str | None:
        number = self.to_python(value)
        if number is None:
            return None
        if not 0 <= number < 1 << 256:
            raise ValueError(f"{number} does not fit 256 bits")
        return f"{number:064x}"
