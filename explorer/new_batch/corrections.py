"""Where in the form it is what a rejected batch must be changed in."""

import re
from collections.abc import Iterator, Mapping

from explorer.new_batch.drafts import Draft, unix_seconds
from explorer.new_batch.shown_faults import Field
from queries.models import Batch
from queries.rejection_codes import RejectionCode

# By the code: the field, and for fields of rows, how a row that is meant selects its block.
_FIELDS: Mapping[str, tuple[str, str]] = {
    RejectionCode.BLOCK_TOO_OLD: ("block", "block"),
    RejectionCode.BLOCK_TOO_FAR_AHEAD: ("block", "block"),
    RejectionCode.PROOF_UNAVAILABLE: ("block", "block"),
    RejectionCode.TIMESTAMP_TOO_FAR_AHEAD: ("time", "time"),
    RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK: ("time", "time"),
    RejectionCode.FINALIZED_UNKNOWN: ("at", "finalized"),
    RejectionCode.HEADER_PROPERTY_MISSING: ("header", ""),
    RejectionCode.FEE_TOO_LOW: ("fee", ""),
    RejectionCode.NO_SIGNER: ("sender", ""),
}
_NUMBER = re.compile(r"[0-9]+", re.ASCII)


def fields(draft: Draft, batch: Batch) -> list[Field]:
    """None where the code names nothing that is in the form."""
    name, at = _FIELDS.get(batch.rejection_code, ("", ""))
    if name in {"fee", "sender"}:
        return [(None, name)]
    candidates = list(_candidates(draft, name, at)) if name else []
    said = set(_NUMBER.findall(batch.rejection_reason))
    meant = [row for row in candidates if _number(draft, row, name) in said]
    return [(row, name) for row in (meant or candidates)[:1]]


def _candidates(draft: Draft, name: str, at: str) -> Iterator[int]:
    for number, row in enumerate(draft.rows):
        if (not at or row.at == at) and (name != "header" or row.header):
            yield number


def _number(draft: Draft, row: int, name: str) -> str:
    """What a reason calls it by, where it does."""
    where = draft.rows[row]
    return {"block": where.block, "time": unix_seconds(where.time)}.get(name, where.source)
