"""Choices of what a row proves. Each shows its own fields, and the request has nothing of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer.new_batch.form_sentences import KIND_SENTENCES


@dataclass(frozen=True)
class RowKind:
    name: str
    contents: Sequence[str] = ()
    """The fields of the row from which the request is made."""
    subject: str = ""
    """The field that names what the row is about."""
    call: str = ""
    """The signature of a token's view function whose slot is searched for."""

    @property
    def texts(self) -> Mapping[str, str]:
        return KIND_SENTENCES[self.name]


BALANCE = RowKind("balance", ("accounts", "props"), "accounts")
SLOT = RowKind("slot", ("accounts", "slots"), "accounts")
EVENT = RowKind("event", ("transactions", "tx_props", "logs", "block_logs"), "transactions")
HEADER = RowKind("header", ("header",), "header")
SEVERAL = RowKind("several", (*BALANCE.contents, "slots", *EVENT.contents, "header"), "accounts")
"""A row that a link or a program fills in with contents of several kinds."""

KINDS = {
    kind.name: kind
    for kind in (
        BALANCE,
        RowKind("token", subject="token", call="balanceOf(address)"),
        RowKind("votes", subject="token", call="getVotes(address)"),
        *(SLOT, EVENT, HEADER, SEVERAL),
    )
}


def kind_of(words: Mapping[str, Sequence[str]]) -> RowKind:
    """Return the kind of a row that names none, by what its fields contain."""
    named = [
        kind
        for kind, fields in (
            (SLOT, ("slots",)),
            (EVENT, ("transactions", "logs", "block_logs")),
            (HEADER, ("header",)),
        )
        if any(words[field] for field in fields)
    ]
    if words["accounts"] and (words["props"] or SLOT not in named):
        named.append(BALANCE)
    return SEVERAL if len(named) > 1 else named[0] if named else BALANCE
