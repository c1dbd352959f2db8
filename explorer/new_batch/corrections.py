"""Where in the form it is what a rejected batch must be changed in, and what that is where it is known."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from config.chain_names import chain_name
from explorer.formatting.amounts import whole_units
from explorer.formatting.sentences import first_and_rest, in_words
from explorer.new_batch.drafts import Draft, Row, unix_seconds
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
# Sentences begin with what they are about. What follows names limits, heads, and what nodes said.
_SUBJECT = re.compile(r"[^.]*?\b(?:[Bb]lock|time) ([0-9]+)\b", re.ASCII)
_CHAIN = re.compile(r"[^.]*?\bchain ([0-9]+)\b", re.ASCII)
_NEEDED = re.compile(r"[^.]*?\bcost ([0-9,]+) wei\b", re.ASCII)


def fields(draft: Draft, batch: Batch) -> list[Field]:
    """Return the fields that the rejection is about. There are none where it is about nothing that the form holds."""
    name, at = _FIELDS.get(batch.rejection_code, ("", ""))
    if name in {"fee", "sender"}:
        return [(None, name)]
    number, chain = (_first(pattern, batch.rejection_reason) for pattern in (_SUBJECT, _CHAIN))
    rows = [row for row in _candidates(draft, name, at) if chain in {draft.rows[row].source, ""}] if name else []
    if number:
        numbers = {row: _number(draft.rows[row], name) for row in rows}
        # Which block a tag or a time means, the form doesn't know.
        rows = [row for row in rows if numbers[row] == number] or [row for row in rows if not numbers[row]]
    return [(row, name) for row in rows[:1]]


def reason(batch: Batch) -> str:
    """Return why the batch was rejected, as people read it."""
    return in_words(batch.rejection_reason, chain_name(batch.destination_chain_id).currency)


def reason_in_short(batch: Batch) -> str:
    """Return the same in one sentence, as the page of the batch is titled. What can be done is said beside it."""
    return first_and_rest(reason(batch))[0]


def with_fee(draft: Draft, batch: Batch) -> Draft:
    """Return the draft with the fee cap that the batch would have needed, if it was rejected because of its own."""
    needed = _first(_NEEDED, batch.rejection_reason).replace(",", "")
    if batch.rejection_code != RejectionCode.FEE_TOO_LOW or not (draft.fee and needed):
        return draft
    return replace(draft, fee=whole_units(int(needed)))


def _first(pattern: re.Pattern[str], sentence: str) -> str:
    found = pattern.match(sentence)
    return found[1] if found else ""


def _candidates(draft: Draft, name: str, at: str) -> Iterator[int]:
    for number, row in enumerate(draft.rows):
        if (not at or row.at == at) and (name != "header" or row.header):
            yield number


def _number(row: Row, name: str) -> str:
    """Return the number by which a reason names the row's block; empty where the row doesn't say it."""
    if name == "time":
        return unix_seconds(row.time)
    return row.block if row.at == "block" else ""
