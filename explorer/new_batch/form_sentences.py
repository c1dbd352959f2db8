"""Sentences about faults of the form, by code: of pasted lines, fields, slots and the whole form, and refusals."""

from collections.abc import Sequence

from django.core.exceptions import ValidationError

MOST_FAULTS = 20

FORM_SENTENCES = {
    "missing_row": "The form has row {last} but not row {missing}. Number its rows without gaps.",
    "more_faults": "There are {count:,} more faults like these.",
    "more_words": "{words} and {more:,} more",
    "slots_too_large": "The names of slots have more than {most:,} characters, counted for each account.",
    "too_many_rows": "The form holds {most} rows. A row holds any number of accounts.",
}
_WORD_SENTENCES = {
    "log": "Not the index of a log: {words}. Write it in decimal digits, up to 65535.",
    "transaction": "Not a transaction: {words}. Name it by its hash, or by its index in the block, up to 65535.",
}
LINE_SENTENCES = {
    "above_columns": "Line {number} names an account above the columns, which line {columns_at} names.",
    "bad_csv": "Line {number} can't be read as CSV: look at its quotation marks.",
    "bad_account": "Line {number}: Neither an address nor a name: {words}.",
    "bad_block": (
        "Line {number}: {word!r} is not a block. Name it by its number, by a time such as 2026-11-20 12:00:00 in UTC, "
        "or as latest or finalized."
    ),
    "bad_logs": "Line {number}: " + _WORD_SENTENCES["log"],
    "bad_name": "Line {number}: No such name: {words}. The names are {names}.",
    "bad_transaction": "Line {number}: " + _WORD_SENTENCES["transaction"],
    "column_twice": "Line {number} names the column {name} twice.",
    "faulty_line": "Line {numbers}: {sentence}",
    "faulty_lines": "Lines {numbers}: {sentence}",
    "faulty_lines_and_more": "Lines {numbers} and {more:,} more: {sentence}",
    "nameless_column": "Line {number}: In a column without a name: {words}.",
    "no_address": "Line {number} has no address. One about a transaction or a header needs none.",
    "no_lines": "No line asks for anything.",
    "no_table": "Line {number} names neither an account nor a column: {cells}.",
    "no_table_at_all": "Line {number} names neither an account nor a column: {cells}. The columns are {names}.",
    "too_many_cells": "Line {number} has {count} cells, and there are {columns} columns.",
    "too_many_lines": "It has more than {most:,} lines. Add them in parts.",
    "too_many_rows": (
        "It asks for {count:,} different things: blocks, or what is proven at them. The form holds {most} rows. Add "
        "them in parts, or use the API."
    ),
    "wrong_address": "Line {number}: {word!r} {why}.",
    "unknown_column": "{name!r} is not a column. Line {number} may name {names}.",
    "value_above_columns": (
        "Line {number} says {cells} above the columns, which line {columns_at} names: put it into a column."
    ),
}
FIELD_SENTENCES = {
    "absent_chain": "Chain {chain}, not connected here",
    "block_logs": _WORD_SENTENCES["log"],
    "block_of": "The hash of a transaction is 0x and 64 hexadecimal digits.",
    "block": "A block number has decimal digits, such as 26,441,180.",
    "empty": "It is empty.",
    "fee": "The fee cap is an amount such as 0.002 or 1500.25, with up to 18 decimal places.",
    "fee_too_large": "The fee cap is too large.",
    "file": "The file is not UTF-8 text.",
    "logs": _WORD_SENTENCES["log"],
    "nothing_asked": "Name an account or a transaction, or tick a header field.",
    "pasted_too_many_rows": "The form holds {most} rows, and would have {count}.",
    "props": "Tick a property, or name a slot.",
    "slots_too_long": "The name of a slot has at most {most:,} characters. This one has {count:,}.",
    "slots_twice": "The key {key!r} appears twice in one object.",
    "transactions": _WORD_SENTENCES["transaction"],
    "tx_props": "Tick a property, or name a log.",
    "time": "Write the time as 2026-11-20 12:00:00, in UTC.",
}
# Sentences by field, for fields with a single possible error. The API's own sentences are about its JSON.
API_FAULT_SENTENCES = {
    "destination": "This service can't make facts readable on this chain.",
    "sender": "The service has no signer on this chain, so it can't pay there. Choose “I pay myself”.",
    "source": "This chain can't be proven on the destination that you chose.",
    "time": "Name a time after 1970.",
}
# Sentences by field. The field of accounts has two.
HINT_SENTENCES = {
    "addresses": "Addresses, as many as you like. Separate several with spaces or line breaks.",
    "addresses_or_names": "Addresses or ENS names, as many as you like. Separate several with spaces or line breaks.",
    "block_logs": "Indexes within the block, as eth_getLogs and explorers count. Separate them with spaces.",
    "block_of": "The block that holds it.",
    "logs": "Indexes within the receipt of each of these transactions, from 0. Separate them with spaces.",
    "slots": "For each of these accounts: hexadecimal, separated with spaces or line breaks; or named, each on a line.",
    "time": "The latest block at or before this time.",
    "transactions": "Hashes, or indexes in the block, from 0. Separate several with spaces or line breaks.",
}
SLOT_SENTENCES = {
    "base": "This slot is a number below 2^256: decimal, or hexadecimal with 0x.",
    "key": "{reason}",
}
REFUSAL_SENTENCES = {
    "csrf_failed": "This form is from an earlier session, or from another site. Check it, then submit it again.",
    "no_api_key": "You have no API key with full access. Create one on the page of your keys.",
    "not_signed_in": "You are signed out. Sign in in another tab, then go on here.",
}


def quoted(words: Sequence[str]) -> str:
    """Return the first words in quotes, and the number of the others."""
    shown, more = ", ".join(repr(word[:80]) for word in words[:MOST_FAULTS]), len(words) - MOST_FAULTS
    return FORM_SENTENCES["more_words"].format(words=shown, more=more) if more > 0 else shown


def bounded(sentences: Sequence[str]) -> list[str]:
    """Return the first sentences, and one that counts the others."""
    more = len(sentences) - MOST_FAULTS
    return [*sentences[:MOST_FAULTS], *([FORM_SENTENCES["more_faults"].format(count=more)] if more > 0 else ())]


def slot_fault(field: str, code: str, **values: object) -> ValidationError:
    return ValidationError({field: SLOT_SENTENCES[code].format(**values)}, code)
