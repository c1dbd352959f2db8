"""Types of the API's query parameters. A malformed one is told by name (`queries.api`).

No validator raises `ValueError`: pydantic's error would keep it, with its traceback and all of the request, for ever,
because the garbage collector can't see into pydantic's errors.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

from ninja.params import functions
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from chains.address_checksum import checksummed
from queries.request_faults import invalid

# What a database takes.
_MOST = (1 << 63) - 1
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_SLOT = re.compile(r"(?:0x)?([0-9a-fA-F]{1,64})", re.ASCII)


def _number(value: object) -> int:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value) or int(value) > _MOST:
        raise invalid("not a decimal number without sign or leading zeros")
    return int(value)


def _address(value: str) -> str:
    address = checksummed(value)
    if address is None:
        raise invalid("not 0x and 40 hexadecimal digits")
    return address


def _slot(value: str) -> str:
    digits = _SLOT.fullmatch(value)
    if digits is None:
        raise invalid("not up to 64 hexadecimal digits")
    return f"0x{digits[1].lower():0>64}"


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise invalid("beyond the calendar") from None


Number = Annotated[int, BeforeValidator(_number, json_schema_input_type=str)]
"""A chain id or the number of a block, as a decimal string."""

Address = Annotated[str, AfterValidator(_address)]
"""EIP-55, from any case; in mixed case its checksum must be right."""

Slot = Annotated[str, AfterValidator(_slot)]
"""0x and 64 hexadecimal digits, from fewer, with or without 0x."""

Time = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""ISO 8601 with an offset from UTC."""

Ulid = Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{26}$")]

LIMIT = functions.Query(50, ge=1, le=100, description="The most that one answer lists.")
CURSOR = "The `next` of the answer before. Without it, the first page."
