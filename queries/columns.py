"""Choices of columns: codes of rejections, and numbers of properties."""

from dataclasses import dataclass

from django.db import models

from queries.waits import WaitReason


class RejectionCode(models.TextChoices):
    """The API sends these words, so they never change."""

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
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED_BY_OPERATOR = "cancelled_by_operator"
    CANCELLED_BY_USER = "cancelled_by_user"


@dataclass(frozen=True)
class Rejection:
    """The reason why a batch is, or would be, rejected, or refused when it is submitted."""

    code: str  # a `RejectionCode`, or that of the error which a submission gets
    reason: WaitReason | str  # text: of an error which a submission gets
    retryable: bool  # whether sending the same batch again can help
    source: int | None = None  # None: it is not about one source chain


class AccountField(models.IntegerChoices):
    """The properties of an account, numbered as in the facts registry."""

    NONCE = 0
    BALANCE = 1
    STORAGE_ROOT = 2
    CODE_HASH = 3


class HeaderField(models.IntegerChoices):
    """The properties of a header, numbered by their place in its RLP (Yellow Paper, section 4.3, and later EIPs)."""

    PARENT_HASH = 0
    UNCLES_HASH = 1
    COINBASE = 2
    STATE_ROOT = 3
    TRANSACTIONS_ROOT = 4
    RECEIPTS_ROOT = 5
    LOGS_BLOOM = 6  # its fact is the keccak-256 of its bytes
    DIFFICULTY = 7
    BLOCK_NUMBER = 8
    GAS_LIMIT = 9
    GAS_USED = 10
    TIMESTAMP = 11
    EXTRA_DATA = 12  # as LOGS_BLOOM
    MIX_HASH = 13
    NONCE = 14
    BASE_FEE_PER_GAS = 15
    WITHDRAWALS_ROOT = 16
    BLOB_GAS_USED = 17
    EXCESS_BLOB_GAS = 18
    PARENT_BEACON_BLOCK_ROOT = 19
    REQUESTS_HASH = 20
