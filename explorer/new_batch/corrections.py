"""The field of the form that a rejected batch must be changed in, by the code of its rejection."""

from collections.abc import Mapping

from config.chain_names import chain_name
from explorer.formatting.sentences import first_and_rest, in_words
from explorer.new_batch.drafts import Draft
from explorer.new_batch.shown_faults import Field
from queries.models import Batch
from queries.rejection_codes import RejectionCode

# By the code: the field, and for fields of rows, how a row that is meant selects its block.
_FIELDS: Mapping[str, tuple[str, str]] = {
    RejectionCode.BLOCK_TOO_OLD: ("block", "block"),
    RejectionCode.BLOCK_TOO_NEW: ("block", "block"),
    RejectionCode.BLOCK_TOO_FAR_AHEAD: ("block", "block"),
    RejectionCode.PROOF_UNAVAILABLE: ("block", "block"),
    RejectionCode.TIMESTAMP_TOO_FAR_AHEAD: ("time", "time"),
    RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK: ("time", "time"),
    RejectionCode.FINALIZED_UNKNOWN: ("at", "finalized"),
    RejectionCode.HEADER_PROPERTY_MISSING: ("header", ""),
    RejectionCode.FEE_TOO_LOW: ("fee", ""),
    RejectionCode.NO_SIGNER: ("sender", ""),
}


def fields(draft: Draft, batch: Batch) -> list[Field]:
    """Return the field that the rejection is about; none where several rows may be meant, or none is."""
    name, at = _FIELDS.get(batch.rejection_code, ("", ""))
    if name in {"fee", "sender"}:
        return [(None, name)]
    rows = [
        number
        for number, row in enumerate(draft.rows)
        if name and (not at or row.at == at) and (name != "header" or row.header)
    ]
    return [(row, name) for row in rows] if len(rows) == 1 else []


def reason(batch: Batch) -> str:
    """Return why the batch was rejected, as people read it."""
    return in_words(batch.rejection_reason, chain_name(batch.destination_chain_id).currency)


def reason_in_short(batch: Batch) -> str:
    """Return the same in one sentence, as the page of the batch is titled. What can be done is said beside it."""
    return first_and_rest(reason(batch))[0]
