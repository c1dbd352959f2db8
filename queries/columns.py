"""Types of columns: identifiers, wide integers, codes of rejections, and numbers of properties."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models

from queries.waits import WaitReason

# --- Identifiers of batches and deliveries ----------------------------------------------------------------------------

# The letters of a ULID may have any case (https://github.com/ulid/spec). Rows have upper case.
ULID = "[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}"
ULID_PREFIX = ULID.replace("{26}", "{8,26}")
_MESSAGE = re.compile(f"[Mm][Ss][Gg]_({ULID})")


def batch_id(text: str) -> str:
    """Return a batch's identifier as it is stored. Return an empty string, which no batch has, if it isn't a ULID."""
    return text.upper() if re.fullmatch(ULID, text) else ""


def batch_id_prefix(text: str) -> str:
    """Return the beginning of a batch's identifier as it is stored. Empty: the text is none, or too short."""
    return "" if not re.fullmatch(ULID_PREFIX, text) or text[:2] in {"0x", "0X"} else text.upper()


def batches_with_prefix(prefix: str) -> models.Q:
    """Select the batches whose identifier begins with a `batch_id_prefix`, by an index."""
    return models.Q(pk__range=(prefix.ljust(26, "0"), prefix.ljust(26, "Z")))


def message_id(text: str) -> str:
    """Return a delivery's identifier as it is stored: `msg_` and capitals. Return an empty string for other texts."""
    message = _MESSAGE.fullmatch(text)
    return f"msg_{message[1].upper()}" if message else ""


# --- Integers of 256 bits ---------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    _IntegerField = models.Field[int, int]
else:
    _IntegerField = models.Field  # not subscriptable at run time


class Uint256Field(_IntegerField):
    """An unsigned 256-bit integer, such as an amount of wei.

    Stored as 64 hexadecimal digits. That is exact in every database, while SQLite keeps a DecimalField as a float. The
    fixed width keeps the order of the values.
    """

    description = "Unsigned 256-bit integer"

    def get_internal_type(self) -> str:
        return "CharField"

    def db_type(self, connection: Any) -> str:
        # To insert many rows, Django makes an array of the type's name without its length. An array of PostgreSQL's
        # "char" holds one character per row.
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


# --- Choices ----------------------------------------------------------------------------------------------------------


class RejectionCode(models.TextChoices):
    """Reasons of rejections. The API returns these words, so they never change."""

    BLOCK_TOO_OLD = "block_too_old"
    BLOCK_TOO_NEW = "block_too_new"
    BLOCK_TOO_FAR_AHEAD = "block_too_far_ahead"
    TIMESTAMP_TOO_FAR_AHEAD = "timestamp_too_far_ahead"
    TIMESTAMP_BEFORE_FIRST_BLOCK = "timestamp_before_first_block"
    FINALIZED_UNKNOWN = "finalized_unknown"
    HEADER_PROPERTY_MISSING = "header_property_missing"
    NO_SIGNER = "no_signer"
    FEE_TOO_LOW = "fee_too_low"
    BUDGET_EXCEEDED = "budget_exceeded"
    TOO_LARGE_FOR_BUDGET = "too_large_for_budget"
    PROOF_UNAVAILABLE = "proof_unavailable"
    # About transactions. The waits of these reasons have the same codes.
    TRANSACTION_NOT_FOUND = "transaction_not_found"
    TRANSACTION_NOT_IN_BLOCK = "transaction_not_in_block"
    TRANSACTION_INDEX_BEYOND = "transaction_index_beyond"
    LOG_INDEX_BEYOND = "log_index_beyond"
    STATUS_MISSING = "status_missing"
    RECEIPT_TYPE_UNKNOWN = "receipt_type_unknown"
    RECEIPT_TOO_LARGE = "receipt_too_large"
    TRANSACTION_TOO_LONG = "transaction_too_long"
    ROOT_NOT_MADE = "root_not_made"
    REGISTRY_LACKS_LOGS = "registry_lacks_logs"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED_BY_OPERATOR = "cancelled_by_operator"
    CANCELLED_BY_USER = "cancelled_by_user"


PASSING_CODES = frozenset(
    {RejectionCode.TRANSACTION_NOT_IN_BLOCK, RejectionCode.ROOT_NOT_MADE, RejectionCode.REGISTRY_LACKS_LOGS}
)
"""Codes about transactions with which submitting the batch again can succeed."""

LASTING_REASONS = frozenset({"genesis_not_proven", "other_accounts"})
"""Codes of waits for a proof that no later try gets: the chain began with another state, or has other accounts."""


@dataclass(frozen=True)
class AdmissionRejection:
    """The reason why a batch is or would be rejected, or why its submission is refused."""

    code: str  # a `RejectionCode`, or the code of a submission's error
    reason: WaitReason | str  # text for a submission's error
    retryable: bool  # whether submitting the same batch again can succeed
    source: int | None = None  # None: the reason isn't about a single source chain
    is_certain: bool = False  # no node of the chain could say otherwise, see `SelectedBlocks.is_certain`


EarlyCheck = Callable[[int, int | None, int | None], AdmissionRejection | None]
"""Returns why a batch would be rejected that names this block, or time, of a source chain (its id). It asks no node."""

early_checks: list[Callable[[], EarlyCheck]] = []
"""Called when a request is read, to get its checks. `proving` adds to the list, because it knows the heads."""


class AccountField(models.IntegerChoices):
    """The properties of an account, with their numbers in the facts registry."""

    NONCE = 0
    BALANCE = 1
    STORAGE_ROOT = 2
    CODE_HASH = 3


class EntryField(models.IntegerChoices):
    """The properties of a transaction: those of its receipt, with their numbers in the facts registry, and its hash."""

    STATUS = 0
    TYPE = 1
    CUMULATIVE_GAS_USED = 2
    LOG_COUNT = 3
    HASH = 5  # The registry has a function of its own for it. EXISTS has the number 4 there.


class HeaderField(models.IntegerChoices):
    """The properties of a header, numbered by position in its RLP (Yellow Paper, section 4.3, and later EIPs)."""

    PARENT_HASH = 0
    UNCLES_HASH = 1
    COINBASE = 2
    STATE_ROOT = 3
    TRANSACTIONS_ROOT = 4
    RECEIPTS_ROOT = 5
    LOGS_BLOOM = 6  # the fact is the keccak-256 of the property's bytes
    DIFFICULTY = 7
    BLOCK_NUMBER = 8
    GAS_LIMIT = 9
    GAS_USED = 10
    TIMESTAMP = 11
    EXTRA_DATA = 12  # like LOGS_BLOOM
    MIX_HASH = 13
    NONCE = 14
    BASE_FEE_PER_GAS = 15
    WITHDRAWALS_ROOT = 16
    BLOB_GAS_USED = 17
    EXCESS_BLOB_GAS = 18
    PARENT_BEACON_BLOCK_ROOT = 19
    REQUESTS_HASH = 20
    BLOCK_ACCESS_LIST_HASH = 21
    SLOT_NUMBER = 22
