"""What is wrong with a draft, beside its fields and in a list that leads to them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from config.configured_chains import get_chains
from explorer.new_batch.drafts import Draft, Place, Request, is_amount
from explorer.new_batch.forms import BatchForm, RowForm, destination
from queries.batch_request import ADDRESS_FAULT, Fault
from queries.request_faults import UNSUPPORTED

# Of one field, and in the list.
_MOST_OF_FIELD, _MOST_LISTED = 5, 20
# Fields of several controls: links lead to the first of them.
_GROUPS = frozenset({"sender", "at", "props", "header"})

# Of fields in which only one thing can be wrong.
_SENTENCES = {
    "destination": "No facts can be made readable on this chain here. Choose another one.",
    "sender": "The service has no signer on this chain, so it pays for nothing there. Choose “I pay myself”.",
    "block": "A block number has decimal digits, such as 26,441,180, and is below 2^63.",
    "time": "A time is as 2026-11-20 12:00:00, in UTC.",
}

Field = tuple[int | None, str]
"""The row, None for what is no row's, and the name of the field."""


@dataclass(frozen=True)
class Listed:
    where: str  # such as "Row 2, accounts"; empty: the whole form
    sentence: str
    target: str  # the id of the control; empty for the whole form


@dataclass(frozen=True)
class ShownFaults:
    by_field: Mapping[Field, Sequence[str]] = field(default_factory=dict)
    listed: Sequence[Listed] = ()
    more: int = 0  # that are not listed

    @property
    def count(self) -> int:
        return len(self.listed) + self.more

    @property
    def rows(self) -> frozenset[int]:
        """Return the rows with faults."""
        return frozenset(row for row, _ in self.by_field if row is not None)


def shown(draft: Draft, request: Request, faults: Iterable[Fault]) -> ShownFaults:
    sentences: dict[Field, list[str]] = defaultdict(list)
    for fault in faults:
        for place in request.places(fault):
            sentence = _sentence(draft, place, fault)
            if sentence not in sentences[place.row, place.field]:
                sentences[place.row, place.field].append(sentence)
    return of_fields(sentences)


def of_fields(sentences: Mapping[Field, Sequence[str]]) -> ShownFaults:
    places = sorted(sentences, key=lambda place: (place[0] is not None, place[0] or 0))
    every = [(place, sentence) for place in places for sentence in sentences[place]]
    listed = [Listed(_where(row, name), sentence, control(row, name)) for (row, name), sentence in every]
    return ShownFaults(
        {place: _shortened(sentences[place]) for place in places if place[1]},
        listed[:_MOST_LISTED],
        max(0, len(listed) - _MOST_LISTED),
    )


def control(row: int | None, name: str) -> str:
    """Return the id of a field's control."""
    if not name:
        return ""
    prefix = "" if row is None else f"rows-{row}-"
    return f"id_{prefix}{name}{'_0' if name in _GROUPS else ''}"


def _sentence(draft: Draft, place: Place, fault: Fault) -> str:
    sentence = in_words(draft, place, fault)
    if place.row is None:
        return sentence
    row = draft.rows[place.row]
    if place.field in row.empty_fields:
        return "It is empty."
    return f"Line {place.line}: {sentence}" if place.line and place.field in row.long_fields else sentence


def in_words(draft: Draft, place: Place, fault: Fault) -> str:
    """Say what is wrong in the words of the form, which offers other things than the API's JSON."""
    if fault.message.startswith("Nothing to prove"):
        return "Tick a property, or name a slot."
    if of_field := {"fee": _of_fee, "source": _of_source}.get(place.field):
        return of_field(draft)
    return _of_accounts(fault) if place.field == "accounts" else _SENTENCES.get(place.field, fault.message)


def _of_accounts(fault: Fault) -> str:
    if fault.code == UNSUPPORTED and get_chains().ens is None:
        return "This service resolves no ENS names. Type the address instead."
    return fault.message.removeprefix(f"{ADDRESS_FAULT}: ")


def _of_source(draft: Draft) -> str:
    chains = get_chains()
    chosen = destination(draft, chains)
    if chosen is None:
        return "It can't be proven on the chosen destination."
    names = ", ".join(chain.name for chain in chains.sources(chosen.id))
    return f"It can't be proven on {chosen.name} here. These can: {names}."


def _of_fee(draft: Draft) -> str:
    """Say what is wrong with the fee as it is typed, which is not in wei."""
    if is_amount(draft.fee):
        return "The fee cap is too large."
    chain = destination(draft, get_chains())
    unit = chain.native_currency if chain else "whole units"
    return f"The fee cap must be an amount in {unit}, such as 0.002 or 1,500.25, and have at most 18 decimal places."


def _shortened(sentences: Sequence[str]) -> Sequence[str]:
    rest = len(sentences) - _MOST_OF_FIELD
    return sentences if rest <= 0 else [*sentences[:_MOST_OF_FIELD], f"And {rest} more like these."]


def _where(row: int | None, name: str) -> str:
    if not name:
        return ""
    label = str((BatchForm if row is None else RowForm).base_fields[name].label)
    return label if row is None else f"Row {row + 1}, {label.lower()}"
