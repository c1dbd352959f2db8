"""Types of the API's query parameters. An error names the malformed parameter (`queries.api`).

No validator raises `ValueError`, because pydantic's error would keep its traceback with the whole request for ever. The
garbage collector can't look inside pydantic's errors.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated

from ninja.params import functions
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from chains.encoding import checksummed
from queries import columns
from queries.batch_request import DECIMAL, TRANSACTION
from queries.columns import ULID
from queries.storage_layout import SLOT
from queries.strict_json import invalid

# The largest integer that the databases store.
_MOST = (1 << 63) - 1
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_OFFSET_AFTER_SPACE = re.compile(r" (?=[\d:]+$)", re.ASCII)


def _number(value: object) -> int:
    # The length is compared first, because converting a number of a million digits takes minutes.
    if not isinstance(value, str) or len(value) > len(str(_MOST)) or not re.fullmatch(DECIMAL, value, re.ASCII):
        raise invalid("not a decimal number without sign or leading zeros")
    return int(value)


def _address(value: str) -> str:
    address = checksummed(value)
    if address is None:
        raise invalid("not the right EIP-55 checksum")
    return address


def _transaction(value: object) -> int | str:
    if isinstance(value, str) and value.startswith("0x") and re.fullmatch(TRANSACTION, value, re.ASCII):
        return value.lower()
    return _number(value)


def _time(value: object) -> datetime:
    text = value.upper() if isinstance(value, str) else ""
    if _TIME.fullmatch(re.sub(_OFFSET_AFTER_SPACE, "+", text)) and not _TIME.fullmatch(text):
        raise invalid("its + has arrived as a space, so write + as %2B in a query string")
    with suppress(ValueError):  # such as the month 13
        if _TIME.fullmatch(text):
            return datetime.fromisoformat(text)
    raise invalid("not a time in ISO 8601 with its offset from UTC, such as 2026-01-31T12:00:00Z")


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise invalid("beyond the calendar") from None


def _from_midnight(by: timedelta) -> BeforeValidator:
    def moment(value: object) -> datetime:
        if isinstance(value, str) and _DAY.fullmatch(value):
            with suppress(ValueError, OverflowError):
                return datetime.fromisoformat(f"{value}T00:00:00Z") + by
        raise invalid("not a day such as 2026-01-31")

    return BeforeValidator(moment)


Number = Annotated[
    int, BeforeValidator(_number, json_schema_input_type=Annotated[str, Field(pattern=DECIMAL)]), Field(le=_MOST)
]
"""A chain id or the number of a block, as a decimal string."""

Address = Annotated[str, Field(pattern="^0x[0-9a-fA-F]{40}$"), AfterValidator(_address)]
"""EIP-55, from any case; in mixed case its checksum must be right."""

Slot = Annotated[str, Field(pattern=SLOT), AfterValidator(lambda digits: f"0x{digits.removeprefix('0x').lower():0>64}")]
"""0x and 64 hexadecimal digits, from fewer, with or without 0x."""

TransactionName = Annotated[
    int | str, BeforeValidator(_transaction, json_schema_input_type=Annotated[str, Field(pattern=TRANSACTION)])
]
"""A transaction's index in its block, or its hash (0x…, lower case)."""

Time = Annotated[AwareDatetime, BeforeValidator(_time, json_schema_input_type=AwareDatetime), AfterValidator(_in_utc)]
"""ISO 8601, in its extended form, with an offset from UTC."""

BeforeDay = Annotated[datetime, _from_midnight(-timedelta(microseconds=1))]
"""The last moment before a day such as 2026-01-31, in UTC."""

AfterDay = Annotated[datetime, _from_midnight(timedelta(days=1))]
"""The first moment after a day, in UTC."""

Ulid = Annotated[str, Field(pattern=f"^{ULID}$"), AfterValidator(columns.batch_id)]
"""The identifier of a batch as rows have it, from any case."""

LIMIT = functions.Query(50, ge=1, le=100, description="The maximum length of a list.")
CURSOR = "The `next` of the previous answer. Without it, the first page."
