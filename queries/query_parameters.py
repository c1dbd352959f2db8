"""Types of the API's query parameters. A malformed one is told by name (`queries.api`).

No validator raises `ValueError`: pydantic's error would keep it, with its traceback and all of the request, for ever,
because the garbage collector can't see into pydantic's errors.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

from ninja.params import functions
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from chains.encoding import checksummed
from queries.batch_request import DECIMAL, SLOT
from queries.strict_json import invalid

# What a database takes.
_MOST = (1 << 63) - 1


def _number(value: object) -> int:
    # Compared by length first: converting a number of a million digits takes minutes.
    if not isinstance(value, str) or len(value) > len(str(_MOST)) or not re.fullmatch(DECIMAL, value, re.ASCII):
        raise invalid("not a decimal number without sign or leading zeros")
    return int(value)


def _address(value: str) -> str:
    address = checksummed(value)
    if address is None:
        raise invalid("not the right EIP-55 checksum")
    return address


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise invalid("beyond the calendar") from None


Number = Annotated[
    int, BeforeValidator(_number, json_schema_input_type=Annotated[str, Field(pattern=DECIMAL)]), Field(le=_MOST)
]
"""A chain id or the number of a block, as a decimal string."""

Address = Annotated[str, Field(pattern="^0x[0-9a-fA-F]{40}$"), AfterValidator(_address)]
"""EIP-55, from any case; in mixed case its checksum must be right."""

Slot = Annotated[str, Field(pattern=SLOT), AfterValidator(lambda digits: f"0x{digits.removeprefix('0x').lower():0>64}")]
"""0x and 64 hexadecimal digits, from fewer, with or without 0x."""

Time = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""ISO 8601 with an offset from UTC."""

Ulid = Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{26}$")]

LIMIT = functions.Query(50, ge=1, le=100, description="The most that one answer lists.")
CURSOR = "The `next` of the answer before. Without it, the first page."
