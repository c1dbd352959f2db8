"""Every code of an error that the API answers, for its description (docs/specification.md, "Errors")."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorCode:
    """`needs_body`: only requests with a body get it. `of_proofs`: only those for proofs."""

    status: int
    code: str
    when: str
    needs_body: bool = False
    of_proofs: bool = False


ERROR_CODES = (
    ErrorCode(400, "invalid_request", "the body or a query parameter is wrong"),
    ErrorCode(
        400, "unsupported", "all that is wrong is that it asks for what this service doesn't do", needs_body=True
    ),
    ErrorCode(400, "incomplete", "the body ended early", needs_body=True),
    ErrorCode(400, "invalid_idempotency_key", "the header Idempotency-Key is malformed", needs_body=True),
    ErrorCode(401, "unauthorized", "the key is missing, unknown, expired or revoked, or its owner may not sign in"),
    ErrorCode(403, "too_large_for_limit", "no wait makes room for a batch of this size", needs_body=True),
    ErrorCode(404, "not_found", "there is none of yours with this identifier"),
    ErrorCode(409, "already_finished", "the batch has ended"),
    ErrorCode(409, "paid_by_operator", "the service sends the transactions of this batch"),
    ErrorCode(411, "length_required", "the body comes without Content-Length", needs_body=True),
    ErrorCode(413, "too_large", "the body is too large", needs_body=True),
    ErrorCode(415, "unsupported_encoding", "the body is compressed", needs_body=True),
    ErrorCode(422, "idempotency_key_reused", "the Idempotency-Key came with another body before", needs_body=True),
    ErrorCode(429, "too_many_requests", "go on after Retry-After seconds"),
    ErrorCode(429, "too_many_open_batches", "more of your batches would be open than may be", needs_body=True),
    ErrorCode(429, "too_many_open_queries", "the same of accounts, slots and headers", needs_body=True),
    ErrorCode(503, "storage_unavailable", "the database can't store or tell anything just now"),
    ErrorCode(503, "busy", "others have the service store large batches just now"),
    ErrorCode(503, "chain_unavailable", "the nodes don't tell what is asked just now"),
    ErrorCode(503, "names_unavailable", "no node tells what names stand for", needs_body=True),
)

FILE_ERROR_CODES = (
    ErrorCode(400, "invalid_request", "a query parameter is wrong"),
    ErrorCode(404, "not_found", "there is no such batch or query"),
    ErrorCode(404, "not_done", "the query, or one of the batch, is not completed yet", of_proofs=True),
    ErrorCode(404, "rejected", "the batch was rejected", of_proofs=True),
    ErrorCode(404, "no_proof", "the proof is not kept here", of_proofs=True),
    ErrorCode(410, "proofs_pruned", "the proofs of the batch were removed", of_proofs=True),
    ErrorCode(429, "too_many_requests", "go on after Retry-After seconds"),
)
"""The error codes of the explorer's files."""

OTHER_ERROR_CODES = (
    ErrorCode(400, "bad_request", "the request as such is malformed"),
    ErrorCode(405, "method_not_allowed", "the path doesn't take this method"),
    ErrorCode(414, "uri_too_long", "the request line is too long"),
    ErrorCode(415, "unsupported_media_type", "the body is multipart/form-data"),
    ErrorCode(431, "header_too_large", "the header is too large"),
    ErrorCode(500, "internal_error", "a defect of the service"),
    ErrorCode(502, "unavailable", "the proxy answers, and the service behind it doesn't"),
)
"""The error codes that any request may get."""


def described(codes: Collection[ErrorCode]) -> str:
    """Return a list of the codes, in Markdown."""
    return "\n".join(f"- `{each.code}`: {each.when}" for each in codes)
