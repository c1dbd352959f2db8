"""The fields of the form. They take what was typed as it is: what is wrong with it `queries.batch_request` says."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from django import forms
from django.forms.widgets import ChoiceWidget
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from chains.chains_file import Chain, Chains
from explorer.new_batch.drafts import MAX_ROWS, Draft, Row
from explorer.new_batch.storage_slots import KEYS
from queries.properties import AccountField, HeaderField

Choices = Sequence[tuple[str, str]]

_WHEN = (("latest", "Latest"), ("finalized", "Final"), ("block", "Block"), ("time", "Time"))
_SLOT_OF = (*((kind, f"mapping by {kind}") for kind in KEYS), ("array", "array"))
ARRAY = "array"


class _Names(forms.MultipleChoiceField):
    """Several of the names, or any other text."""

    widget = forms.CheckboxSelectMultiple

    def validate(self, value: Any) -> None:
        pass


# What is typed there is no part of the batch yet.
_NOT_ASKED = "not-asked"


def _text(label: str, **attributes: str) -> forms.CharField:
    attrs = {"autocomplete": "off", "spellcheck": "false", **attributes}
    return forms.CharField(label=label, required=False, widget=forms.TextInput(attrs))


def _lines(label: str, rows: int, help_text: str, **attributes: str) -> forms.CharField:
    attrs = {"class": "mono", "rows": str(rows), "autocomplete": "off", "spellcheck": "false", **attributes}
    return forms.CharField(label=label, required=False, strip=False, widget=forms.Textarea(attrs), help_text=help_text)


def _one_of(label: str, choices: Iterable[tuple[str, str]], widget: type[ChoiceWidget]) -> forms.CharField:
    return forms.CharField(label=label, required=False, widget=widget(choices=list(choices)))


_OF_BATCH = ("destination", "sender", "fee", "webhook", "pasted")


class BatchForm(forms.Form):
    """The fields for all rows, and the text that is pasted to become rows."""

    destination = _one_of("Destination chain", (), forms.Select)
    sender = _one_of("Who pays", (("service", "The service"), ("self", "I pay myself")), forms.RadioSelect)
    fee = _text("Fee cap", inputmode="decimal")
    webhook = _text("Webhook", inputmode="url", placeholder="https://…")
    pasted = _lines("Addresses or CSV", 4, "", **{"class": f"mono {_NOT_ASKED}"})
    token = forms.CharField(required=False, widget=forms.HiddenInput)


class RowForm(forms.Form):
    """A row, as `drafts.Row`."""

    source = _one_of("Source chain", (), forms.Select)
    at = _one_of("At", _WHEN, forms.RadioSelect)
    block = _text("Block number", inputmode="numeric")
    time = forms.CharField(
        label="Time, in UTC",
        required=False,
        widget=forms.DateTimeInput({"type": "datetime-local", "step": "1"}),
        help_text="The latest block that is not after it.",
    )
    accounts = _lines("Accounts", 2, "")
    props = _Names(label="Properties", required=False, choices=[(name, name) for name in AccountField.names])
    slots = _lines("Slots", 2, "Of each of these accounts. Hexadecimal, one a line.")
    header = _Names(label="Header fields of this block", required=False, choices=[(n, n) for n in HeaderField.names])
    slot_of = _one_of("Where it is", _SLOT_OF, forms.Select)
    slot_base = _text("Its own slot", placeholder="0", **{"class": _NOT_ASKED})
    slot_key = _text("Key or index", **{"class": _NOT_ASKED})


def sent_rows(data: Iterable[str]) -> int:
    """Return the number of rows that the names in `data` are of, up to the first that is missing."""
    numbers = {parts[1] for name in data if len(parts := name.split("-", 2)) == 3 and parts[0] == "rows"}
    return next(number for number in count() if str(number) not in numbers)


class _SentRows(forms.BaseFormSet):  # type: ignore[type-arg]  # generic in the stubs alone
    """Holds no more rows than were sent. Each takes 5 ms to show, and the number alone takes no bytes to send."""

    def total_form_count(self) -> int:
        return min(super().total_form_count(), sent_rows(self.data))

    def clean(self) -> None:
        if self.total_form_count() < super().total_form_count():
            raise forms.ValidationError("Rows are missing.")


_Rows = forms.formset_factory(RowForm, _SentRows, extra=0, max_num=MAX_ROWS, absolute_max=MAX_ROWS)


class DraftForm:
    """The form and its rows, always bound: to what was posted, or to a draft."""

    def __init__(self, data: Mapping[str, Any], chains: Chains) -> None:
        self.batch = BatchForm(data, label_suffix="")
        self.rows = _Rows(data, prefix="rows", form_kwargs={"label_suffix": ""})
        kinds = "Addresses or ENS names" if chains.ens else "Addresses"
        for row in self.rows:
            row.fields["accounts"].help_text = f"{kinds}, as many as you like: one a line."
        # Both are cleaned, whatever the other is.
        self.is_valid = all([self.batch.is_valid(), self.rows.is_valid()])
        _offer(self.batch, "destination", chains.destinations())
        sources = {one.source_id for one in chains.connections}
        for row in self.rows:
            _offer(row, "source", [chain for chain in chains.chains if chain.id in sources])

    @property
    def token(self) -> str:
        return str(_typed(self.batch, "token"))

    def draft(self) -> Draft:
        """Return what was typed, right or wrong."""
        rows = tuple(_row(form) for form in self.rows) or (Row(),)
        return Draft(**{name: _typed(self.batch, name) or "" for name in _OF_BATCH}, rows=rows)


def _row(form: forms.Form) -> Row:
    typed = {name: value for name in form.fields if (value := _typed(form, name)) is not None}
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in typed.items()}
    return Row(**values)


def _typed(form: forms.Form, name: str) -> Any:
    """Return the field's value, None if there is none.

    What can't be cleaned has a NUL, which no text has: another sign replaces it.
    """
    if name in form.cleaned_data:
        return form.cleaned_data[name]
    value = form[name].value()
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def destination(draft: Draft, chains: Chains) -> Chain | None:
    return next((one for one in chains.destinations() if str(one.id) == draft.destination), None)


def _offer(form: forms.Form, name: str, chains: Iterable[Chain]) -> None:
    """Offer the chains, and what was chosen before if it is none of them any more."""
    choices = [(str(chain.id), f"{chain.name} ({chain.id})") for chain in chains]
    chosen = str(form[name].value() or "")
    if chosen and chosen not in dict(choices):
        choices.append((chosen, f"Chain {chosen}, not connected here"))
    widget = form.fields[name].widget
    assert isinstance(widget, forms.Select)
    widget.choices = choices


def posted(draft: Draft, token: str) -> MultiValueDict[str, str]:
    """Return the draft as a browser posts it."""
    data = QueryDict(mutable=True)
    for name in _OF_BATCH:
        data[name] = getattr(draft, name)
    data["token"] = token
    data["rows-TOTAL_FORMS"] = data["rows-INITIAL_FORMS"] = str(len(draft.rows))
    for number, row in enumerate(draft.rows):
        for name in RowForm.base_fields:
            value = getattr(row, name)
            data.setlist(f"rows-{number}-{name}", list(value) if isinstance(value, tuple) else [value])
    return data
