"""Why batches are rejected: one stable word for each reason, for programs.

`templates/explorer/_what_happened.html` and `_what_to_do.html` explain each code to people.
"""

from dataclasses import dataclass

from django.db import models


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
    """The reason why a batch is, or would be, rejected."""

    code: RejectionCode
    reason: str  # a sentence
    retryable: bool  # whether sending the same batch again can help
