"""Every code of an error that the service answers, for its description (docs/specification.md, "Errors")."""

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


ERROR_CODES = (
    (400, "invalid_request", "the body or a query parameter is wrong"),
    (400, "unsupported", "all that is wrong is that it asks for what this service doesn't do"),
    (400, "incomplete", "the body ended early"),
    (400, "invalid_idempotency_key", "the header Idempotency-Key is malformed"),
    (400, "bad_request", "the request as such is malformed"),
    (401, "unauthorized", "the key is missing, unknown, expired or revoked, or its owner may not sign in"),
    (403, "too_large_for_limit", "no wait makes room for a batch of this size"),
    (404, "not_found", "there is none with this identifier, or it is another's"),
    (404, "not_done", "the query, or one of the batch, is not completed yet"),
    (404, "rejected", "the batch was rejected"),
    (404, "no_proof", "the proof is not kept here"),
    (405, "method_not_allowed", "the path doesn't take this method"),
    (409, "already_finished", "the batch has ended"),
    (409, "paid_by_operator", "the service sends the transactions of this batch"),
    (410, "proofs_pruned", "the proofs of the batch were removed"),
    (411, "length_required", "the body comes without Content-Length"),
    (413, "too_large", "the body is too large"),
    (414, "uri_too_long", "the request line is too long"),
    (415, "unsupported_encoding", "the body is compressed"),
    (415, "unsupported_media_type", "the body is multipart/form-data"),
    (422, "idempotency_key_reused", "the Idempotency-Key came with another body before"),
    (429, "too_many_requests", "go on after Retry-After seconds"),
    (429, "too_many_open_batches", "more of your batches would be open than may be"),
    (429, "too_many_open_queries", "the same of accounts, slots and headers"),
    (431, "header_too_large", "the header is too large"),
    (500, "internal_error", "a defect of the service"),
    (502, "unavailable", "the proxy answers, and the service behind it doesn't"),
    (503, "storage_unavailable", "the database can't store or tell anything just now"),
    (503, "busy", "others have the service store large batches just now"),
    (503, "chain_unavailable", "the nodes don't tell what is asked just now"),
    (503, "names_unavailable", "no node tells what names stand for"),
)
"""The status, the code, and when it is answered."""
