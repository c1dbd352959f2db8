"""Sentences about faults of the form, by code: of pasted lines, fields, slots and the whole form, and refusals."""

from django.core.exceptions import ValidationError

FORM_SENTENCES = {
    "missing_row": "The form has row {last} but not row {missing}. Number its rows without gaps.",
    "more_faults": "There are {count:,} more faults like these.",
    "slots_too_large": "The names of slots have more than {most:,} characters, counted for each account.",
    "too_many_rows": "The form holds {most} rows. A row holds any number of accounts.",
}
LINE_SENTENCES = {
    "bad_account": "{word!r} {why}.",
    "faulty_line": "Line {numbers}: {sentence}",
    "faulty_lines": "Lines {numbers}: {sentence}",
    "faulty_lines_and_more": "Lines {numbers} and {more:,} more: {sentence}",
    "no_lines": "No line asks for anything.",
    "too_many_lines": "It has more than {most:,} lines. Add them in parts.",
    "too_many_rows": (
        "It asks for {count:,} different things: blocks, or what is proven at them. The form holds {most} rows. Add "
        "them in parts, or use the API."
    ),
}
FIELD_SENTENCES = {
    "absent_chain": "Chain {chain}, not connected here",
    "empty": "It is empty.",
    "nothing_asked": "Name an account or a transaction, or tick a header field.",
    "pasted_too_many_rows": "The form holds {most} rows, and would have {count}.",
    "slots_too_long": "The name of a slot has at most {most:,} characters. This one has {count:,}.",
    "slots_twice": "The key {key!r} appears twice in one object.",
}
# Sentences by field, for fields with a single possible error, or without a word in it. The API's are about its JSON.
API_FAULT_SENTENCES = {
    "block": "A block number has decimal digits, such as 26,441,180.",
    "block_of": "The hash of a transaction is 0x and 64 hexadecimal digits.",
    "destination": "This service can't make facts readable on this chain.",
    "fee": "The fee cap is an amount such as 0.002 or 1500.25, with up to 18 decimal places.",
    "props": "Tick a property, or name a slot.",
    "sender": "The service has no signer on this chain, so it can't pay there. Choose “I pay myself”.",
    "source": "This chain can't be proven on the destination that you chose.",
    "time": "Write a time after 1970 as 2026-11-20 12:00:00, in UTC.",
    "tx_props": "Tick a property, or name a log.",
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


def slot_fault(field: str, code: str, **values: object) -> ValidationError:
    return ValidationError({field: SLOT_SENTENCES[code].format(**values)}, code)
