"""The form of a batch: fields for the whole batch, and a formset of rows. Faults that the API finds show at fields."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from django import forms
from django.conf import settings
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.http import QueryDict

from accounts.models import User
from chains import encoding
from chains.chains_file import Chain
from config.configured_chains import get_chains
from config.error_answers import Refused
from explorer.formatting.wait_words import in_words
from explorer.new_batch import storage_slots, token_slots
from explorer.new_batch.form_sentences import (
    API_FAULT_SENTENCES,
    FIELD_SENTENCES,
    FORM_SENTENCES,
    HINT_SENTENCES,
    LINE_SENTENCES,
)
from explorer.new_batch.row_kinds import KINDS, SEVERAL, SLOT, RowKind, kind_of
from explorer.new_batch.token_slots import TokenQuestion, TokenSlots
from queries import submission
from queries.api_endpoint import ApiError, status_of
from queries.batch_request import ADDRESS_FAULT, AUTO, BatchRequest, BodyFault, InvalidRequest, pointer, too_many
from queries.columns import AccountField, EntryField, HeaderField
from queries.submission import ESTIMATES

MAX_ROWS = 50
"""A row holds any number of accounts."""

MOST_FAULTS = 20
"""Number of faults that are told. The others are counted."""

# Longer words are cut. A slot of a megabyte for each of a thousand accounts would exceed the memory.
_WORD = re.compile(r"[^\s,;]{1,300}")
_WHEN = (
    *(("latest", "Latest"), ("finalized", "Final"), ("block", "Block"), ("time", "Time")),
    ("transaction", "Transaction"),
)
# Characters within numbers, because people group digits.
_GROUPING = re.compile(r"[\s,_]")
# An amount in whole units.
_AMOUNT = re.compile(r"(?=.*[0-9])([0-9]{0,78})\.?([0-9]{0,18})", re.ASCII)
_HASH = re.compile("0x[0-9a-fA-F]{64}", re.ASCII)
# Fields of a row by names of the request, and by choices of the block.
_FIELDS_OF = {
    "accounts": {"props": "props", "slots": "slots"},
    "transactions": {"props": "tx_props", "logs": "logs", "blockLogs": "block_logs"},
}
_FIELDS_OF_WHEN = {"block": "block", "time": "time", "transaction": "block_of"}
_OF_BATCH = {"destinationChainId": "destination"} | {name: name for name in ("fee", "sender", "webhook", "label")}


def _text(**attributes: str) -> forms.TextInput:
    return forms.TextInput({"autocomplete": "off", "spellcheck": "false", **attributes})


def _word() -> forms.TextInput:
    return _text(placeholder="0x…", **{"class": "mono"})


def _area(rows: int, **attributes: str) -> forms.Textarea:
    return forms.Textarea({"class": "mono", "rows": str(rows), "spellcheck": "false", **attributes})


def _properties(label: str, names: Iterable[str], *initial: str) -> forms.MultipleChoiceField:
    choices = [(name, name) for name in names]
    widget = forms.CheckboxSelectMultiple
    return forms.MultipleChoiceField(label=label, required=False, choices=choices, widget=widget, initial=initial)


class BatchForm(forms.Form):
    """The fields for all rows, and the pasted text that is converted to rows."""

    destination = forms.ChoiceField(label="Destination chain")
    sender = forms.ChoiceField(
        label="Who pays", choices=(("service", "The service"), ("self", "I pay myself")), widget=forms.RadioSelect
    )
    fee = forms.CharField(label="Fee cap", required=False, widget=_text(inputmode="decimal"))
    webhook = forms.CharField(required=False, widget=_text(inputmode="url", placeholder="https://…"))
    label = forms.CharField(required=False, widget=_text(maxlength="100"))
    pasted = forms.CharField(label="Addresses or CSV", required=False, widget=_area(4, **{"class": "mono not-asked"}))
    token = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _offer(self, "destination", get_chains().destinations())


@dataclass(frozen=True)
class RowEntries:
    """Accounts or transactions of a row at the same block, at least one, and what is asked of each."""

    selector: str
    kind: str
    keys: Sequence[str]
    values: Mapping[str, Sequence[str]]
    """Words by the names of the request."""

    @property
    def size(self) -> int:
        return len(self.keys) * (1 + sum(len(words) for name, words in self.values.items() if name != "props"))


class RowForm(forms.Form):
    """A row of the form: what it proves, a source chain, a block, and the fields of what it proves."""

    kind = forms.ChoiceField(
        label="What you want to prove",
        required=False,
        choices=[(name, kind.texts["label"]) for name, kind in KINDS.items()],
        widget=forms.RadioSelect,
    )
    source = forms.ChoiceField(label="Source chain")
    at = forms.ChoiceField(label="At", choices=_WHEN, widget=forms.RadioSelect, initial="latest")
    block = forms.CharField(label="Block number", required=False, widget=_text(inputmode="numeric"))
    time = forms.CharField(
        label="Time, in UTC",
        required=False,
        widget=forms.DateTimeInput({"type": "datetime-local", "step": "1"}),
        help_text=HINT_SENTENCES["time"],
    )
    block_of = forms.CharField(
        label="Hash of a transaction",
        required=False,
        widget=_word(),
        help_text=HINT_SENTENCES["block_of"],
    )
    accounts = forms.CharField(required=False, strip=False, widget=_area(2))
    props = _properties("Properties", AccountField.names, "BALANCE")
    slots = forms.CharField(required=False, strip=False, widget=_area(2), help_text=HINT_SENTENCES["slots"])
    token = forms.CharField(label="Token", required=False, widget=_word(), help_text=HINT_SENTENCES["token"])
    holder = forms.CharField(label="Holder", required=False, widget=_word())
    base = forms.CharField(
        label="Base slot, a hint",
        required=False,
        widget=_text(**{"class": "mono not-asked"}),
        help_text=HINT_SENTENCES["base"],
    )
    found = forms.CharField(required=False, widget=forms.HiddenInput)
    transactions = forms.CharField(
        required=False, strip=False, widget=_area(2), help_text=HINT_SENTENCES["transactions"]
    )
    tx_props = _properties("Properties of these transactions", EntryField.names, "STATUS")
    logs = forms.CharField(label="Logs", required=False, widget=_text(), help_text=HINT_SENTENCES["logs"])
    block_logs = forms.CharField(
        label="Logs as the block counts", required=False, widget=_text(), help_text=HINT_SENTENCES["block_logs"]
    )
    header = _properties("Header fields of this block", HeaderField.names)
    # The helper that names the slot of a value in a mapping or an array. The request doesn't contain its fields.
    slot_of = forms.ChoiceField(label="Where it is", required=False, choices=storage_slots.KINDS)
    slot_layout = forms.ChoiceField(label="Compiler", required=False, choices=storage_slots.LAYOUTS)
    slot_base = forms.CharField(
        label="Its own slot", required=False, widget=_text(placeholder="0", **{"class": "not-asked"})
    )
    slot_key = forms.CharField(label="Keys or index", required=False, widget=_text(**{"class": "not-asked"}))

    meant: tuple[int, int] | None = None
    """The number of the block that the row means, and by how many it is before the newest, if they are known."""
    has_focus = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chains = get_chains()
        sources = {connection.source_id for connection in chains.connections}
        self.chain = _offer(self, "source", [chain for chain in chains.chains if chain.id in sources])
        self.fields["accounts"].help_text = HINT_SENTENCES["addresses_or_names" if chains.ens else "addresses"]
        self.fields["holder"].help_text = HINT_SENTENCES["address_or_name" if chains.ens else "address"]

    def clean(self) -> None:
        """Add the faults of what the request leaves out, which the API can't see."""
        if self.proves.call and not self.is_blank:
            for name in self.question.empty_fields:
                self.add_error(name, FIELD_SENTENCES["empty"])
            if self.is_to_be_searched:
                self.add_error("holder", FIELD_SENTENCES["not_searched"])
            elif self.found_slots and not self.found_slots.serves_others:
                self.add_error("holder", FIELD_SENTENCES["of_one_holder"])
            for word in self.other_holders:
                if encoding.checksummed(word) is None:
                    self.add_error("holder", LINE_SENTENCES["bad_account"].format(word=word, why=encoding.fault(word)))
        if self.contents["slots"] and not self.contents["accounts"]:
            self.add_error("accounts", FIELD_SENTENCES["empty"])
        for sentence in storage_slots.faults(self.contents["slots"]):
            self.add_error("slots", sentence)
        if self.logs_count and not self.contents["transactions"]:
            self.add_error("transactions", FIELD_SENTENCES["empty"])

    def focus(self, control: str) -> None:
        """Set the page's focus to this control if it belongs to this row."""
        for field in self:
            if field.auto_id == control:
                self.has_focus = True
                # The findings of a search are shown beside their hidden field.
                if not field.is_hidden:
                    field.field.widget.attrs["autofocus"] = True

    @cached_property
    def _words(self) -> Mapping[str, Sequence[str]]:
        """Return the words of all fields without duplicates, valid or not."""
        typed = {name: self[name].value() or [] for name in SEVERAL.contents}
        # Texts in names of slots may hold what else ends a line in Unicode.
        lines = [line.strip() for line in str(typed["slots"] or "").split("\n")]
        typed["slots"] = "\n".join(line for line in lines if not storage_slots.is_name(line))
        words = {name: _WORD.findall(value) if isinstance(value, str) else value for name, value in typed.items()}
        words["slots"] = [*words["slots"], *filter(storage_slots.is_name, lines)]
        return {name: _unique(value) for name, value in words.items()}

    @cached_property
    def proves(self) -> RowKind:
        return KINDS.get(self["kind"].value() or "") or kind_of(self._words)

    @cached_property
    def contents(self) -> Mapping[str, Sequence[str]]:
        """Return what the row asks for, valid or not. What was typed for another kind stays typed."""
        return {name: words if name in self.proves.contents else [] for name, words in self._words.items()}

    @property
    def shown(self) -> dict[str, Any]:
        """Return the values of its fields, as initial values of another row, without those of another kind."""
        hidden = {*SEVERAL.contents} - {*self.proves.contents}
        return {
            name: ([] if isinstance(value, list) else "") if name in hidden else value
            for name, value in typed(self).items()
        }

    @cached_property
    def question(self) -> TokenQuestion:
        """Return the question for a token's slot. Its block is one at which nodes can be asked."""
        block = self.selector if self.selector.startswith("block:") or self.at_newest else "latest"
        source, token, base = (str(self[name].value() or "").strip() for name in ("source", "token", "base"))
        return TokenQuestion(source, token, next(iter(self._holders), ""), self.proves.call, block, base)

    @property
    def _holders(self) -> Sequence[str]:
        return _unique(_WORD.findall(self["holder"].value() or ""))

    @property
    def other_holders(self) -> Sequence[str]:
        """Return the holders whose slots follow from that of the first one."""
        return self._holders[1:]

    @property
    def at_newest(self) -> bool:
        return self.selector in {"latest", "finalized"}

    @cached_property
    def found_slots(self) -> TokenSlots | None:
        """Return the slots that were found for the present question, if any were."""
        if not self.proves.call:
            return None
        return token_slots.read(self["found"].value() or "", self.question, self.other_holders)

    @property
    def proves_words_only(self) -> bool:
        """Return whether the batch proves words from which the token's answer follows, and not the answer."""
        return self.found_slots is not None and not self.found_slots.has_answer

    @property
    def is_to_be_searched(self) -> bool:
        return bool(self.proves.call) and not self.question.empty_fields and self.found_slots is None

    @property
    def is_blank(self) -> bool:
        if self.proves.call:
            return not (self.question.token or self.question.holder)
        return not any(words for name, words in self.contents.items() if name not in {"props", "tx_props"})

    @cached_property
    def entries(self) -> Sequence[RowEntries]:
        """Return what the row asks of accounts and transactions."""
        if slots := self.found_slots:
            return [
                RowEntries(self.selector, "accounts", [key], {"slots": _unique(names)})
                for key, names in slots.accounts.items()
            ]
        contents = self.contents
        values = {kind: {name: contents[field] for name, field in of.items()} for kind, of in _FIELDS_OF.items()}
        accounts, transactions = contents["accounts"], contents["transactions"]
        of_accounts = [RowEntries(self.selector, "accounts", accounts, values["accounts"])] if accounts else []
        return of_accounts + [
            RowEntries(self._selector_of(key), "transactions", [key], values["transactions"]) for key in transactions
        ]

    def _selector_of(self, transaction: str) -> str:
        """Return the block of a transaction. A hash alone names it."""
        names_none = self.at_newest or self.selector == "transaction:"
        return f"transaction:{transaction.lower()}" if names_none and _HASH.fullmatch(transaction) else self.selector

    @property
    def is_at_own_blocks(self) -> bool:
        """Return whether the row is about blocks that its transactions name."""
        return self.selectors != [self.selector]

    @property
    def logs_count(self) -> int:
        return len(self.contents["logs"]) + len(self.contents["block_logs"])

    @cached_property
    def size(self) -> int:
        """Return the row's size, as limits count it."""
        return sum(entries.size for entries in self.entries) + bool(self.contents["header"])

    @cached_property
    def characters_of_slots(self) -> int:
        """Return the characters of its slots, for each of its accounts."""
        return sum(len(each.keys) * sum(map(len, each.values.get("slots", ()))) for each in self.entries)

    @cached_property
    def selectors(self) -> Sequence[str]:
        """Return the selectors of its blocks, at least one."""
        others = {entries.selector: None for entries in self.entries}
        return [*({self.selector: None} if self.contents["header"] or not others else {}) | others]

    @cached_property
    def selector(self) -> str:
        """Return the block's selector in the API's request. The API refuses what is typed wrongly."""
        at = self["at"].value()
        typed = str(self[_FIELDS_OF_WHEN[at]].value() or "").strip().lower() if at in _FIELDS_OF_WHEN else ""
        match at:
            case "block":
                digits = _GROUPING.sub("", typed)
                return f"block:{digits.lstrip('0') or digits[:1]}"
            case "time":
                with suppress(ValidationError):
                    return f"timestamp:{int(forms.DateTimeField().clean(typed).timestamp())}"
                return "timestamp:"
            case "transaction":
                return f"transaction:{typed}"
        return "finalized" if at == "finalized" else "latest"

    def field_of(self, fault: BodyFault) -> str:
        """Return the field that a fault of the API's request is about; empty if this row has no such field."""
        chain = pointer("data", self["source"].value() or "")
        if fault.path == chain:
            return "source"
        for selector in self.selectors:
            block = chain + pointer(selector)
            if fault.path == block:
                of_block = _FIELDS_OF_WHEN.get(self["at"].value(), "") if selector == self.selector else "transactions"
                # A token without slots has its own fault already.
                subject = next(iter(self.errors), "token") if self.proves.call else self.proves.subject
                return of_block if fault.is_of_name else subject
            if fault.path.startswith(f"{block}/"):
                return self._field_within(fault, fault.path.removeprefix(f"{block}/").split("/"))
        return ""

    def _field_within(self, fault: BodyFault, names: Sequence[str]) -> str:
        """Return the field that a fault below a block is about. `names` lead there from the block."""
        kind, key, name, *_ = (*names, "", "")
        if kind in _FIELDS_OF and key and key.lower() not in self._pointers[kind]:
            return ""
        if self.proves.call:
            return "token"
        fields = _FIELDS_OF.get(kind, {})
        if fields and key and not name and not fault.is_of_name:
            return "slots" if self.proves is SLOT else fields["props"]
        field = fields.get(name, kind)
        return field if self.contents.get(field) else ""

    @cached_property
    def _pointers(self) -> Mapping[str, AbstractSet[str]]:
        """Return the accounts and transactions in lower case, as in the paths of faults."""
        return {
            kind: {pointer(key)[1:].lower() for entries in self.entries if entries.kind == kind for key in entries.keys}
            for kind in _FIELDS_OF
        }


_Rows = forms.formset_factory(RowForm, extra=0, max_num=MAX_ROWS, absolute_max=MAX_ROWS)
_OF_ROW = re.compile(r"rows-([0-9]{1,3})-")


class RowFault(NamedTuple):
    row: int  # its number, from 0
    place: str  # the pointer within the block, up to an account or a transaction, in lower case
    sentence: str


class FormFault(NamedTuple):
    label: str  # the field's label; empty: the whole form or row
    row: int  # number of the first row with this fault, from 1; 0: not about a row
    more_rows: int  # number of further rows with the same fault
    sentence: str
    control: str  # the id of the control; empty for the whole form


class NewBatchForm:
    """A batch with its rows, either posted by `user` or given by `batch` and `rows`."""

    status = 400
    """The HTTP status of an answer with faults."""

    def __init__(
        self,
        data: QueryDict | None = None,
        user: User | None = None,
        *,
        batch: Mapping[str, Any] | None = None,
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.user = user
        self.batch = BatchForm(data, initial=batch, label_suffix="")
        self.rows = _Rows(
            None if data is None else _counted(data),
            initial=rows,
            prefix="rows",
            form_kwargs={"label_suffix": ""},
            error_messages={"too_many_forms": FORM_SENTENCES["too_many_rows"].format(most=MAX_ROWS)},
        )
        # Both are always validated, so that each shows its own errors.
        self._is_well_typed = all([self.batch.is_valid(), self.rows.is_valid()])

    @property
    def is_blank(self) -> bool:
        return all(row.is_blank for row in self.rows)

    @property
    def destination(self) -> Chain | None:
        """Return the chosen chain; None if it isn't connected."""
        chosen = self.batch["destination"].value()
        return next((chain for chain in get_chains().destinations() if str(chain.id) == chosen), None)

    @cached_property
    def facts(self) -> int:
        """Count the facts that the rows request, each once. 0: there are too many to count."""
        if self._excess:
            return 0
        blocks = [block for chain in self.document["data"].values() for block in chain.values()]
        entries = (entry for block in blocks for kind in _FIELDS_OF for entry in block.get(kind, {}).values())
        headers = sum(len(block.get("header", ())) for block in blocks)
        return headers + sum(len(words) for entry in entries for words in entry.values())

    @property
    def size(self) -> int:
        return sum(row.size for row in self.rows)

    @property
    def _excess(self) -> BodyFault | None:
        """Return the fault of a form that is too large to be made a request."""
        # A few thousand accounts and slots are a short text, but their product would exceed the memory.
        if self.size > (most := settings.MAX_QUERIES_PER_BATCH):
            return too_many(self.size, most)
        if sum(row.characters_of_slots for row in self.rows) > (most := settings.DATA_UPLOAD_MAX_MEMORY_SIZE):
            return BodyFault("/data", FORM_SENTENCES["slots_too_large"].format(most=most))
        return None

    @property
    def is_valid(self) -> bool:
        """Return whether the API takes the form's request. Add the faults to their fields. Raises `Refused`."""
        if self.is_blank:
            self._add_nothing_asked()
            return False
        return self.request is not None and self._is_well_typed

    def _add_nothing_asked(self) -> None:
        if not self.rows.forms:
            self.batch.add_error(None, FIELD_SENTENCES["nothing_asked"])
            return
        subject = self.rows[0].proves.subject
        self.rows[0].add_error(subject, FIELD_SENTENCES["nothing_asked" if subject == "accounts" else "empty"])

    @property
    def row_to_search(self) -> int | None:
        """Return the number of the first row whose slot is to be searched for, from 0."""
        return next((number for number, row in enumerate(self.rows) if row.is_to_be_searched), None)

    @property
    def rows_of_words(self) -> Sequence[int]:
        """Return the numbers of the rows that prove words only, from 1."""
        return [number for number, row in enumerate(self.rows, 1) if row.proves_words_only]

    @cached_property
    def request(self) -> BatchRequest | None:
        """Read the request as the API does, counted as an estimate. None: it is invalid. Raises `Refused`."""
        assert self.user is not None
        try:
            return submission.read(self.user, self.body, ESTIMATES)
        except InvalidRequest as invalid:
            self.add_faults(invalid)
            return None

    def add_faults(self, invalid: InvalidRequest) -> None:
        self.status = status_of(invalid) if self._is_well_typed else 400
        places = dict.fromkeys(place for fault in invalid.faults for place in self._places(fault))
        different = list(dict.fromkeys((name, sentence) for _, name, sentence in places))
        shown = set(different[:MOST_FAULTS])
        for form, name, sentence in places:
            if (name, sentence) in shown:
                form.add_error(name, sentence)
        if more := len(different) - len(shown):
            self.batch.add_error(None, FORM_SENTENCES["more_faults"].format(count=more))

    def row_faults(self) -> Iterator[RowFault]:
        """Yield the faults that the API finds in rows. Names that can't be resolved now are none."""
        assert self.user is not None
        try:
            submission.read(self.user, self.body, ESTIMATES)
        except Refused:
            return
        except InvalidRequest as invalid:
            for row in self.rows:
                row.errors.clear()  # The API finds the same.
            for fault in invalid.faults:
                place = "".join(f"/{name}" for name in fault.path.lower().split("/")[4:6])
                for form, field, sentence in self._places(fault):
                    if isinstance(form, RowForm) and form.is_to_be_searched:
                        continue
                    # A block that is typed wrongly may be corrected later.
                    if form is not self.batch and (fault.reason or field not in _FIELDS_OF_WHEN.values()):
                        yield RowFault(int(str(form.prefix).removeprefix("rows-")), place, sentence)

    def _places(self, fault: BodyFault) -> Iterator[tuple[forms.Form, str | None, str]]:
        """Yield the fields without another fault that this fault is about, with a sentence."""
        sentence = in_words(fault.reason) if fault.reason else fault.message.removeprefix(f"{ADDRESS_FAULT}: ")
        sentence = sentence[:1].upper() + sentence[1:]
        of_batch = _OF_BATCH.get(fault.path[1:].partition("/")[0])
        places: list[tuple[forms.Form, str | None]] = [
            (row, name) for row in self.rows if not row.is_blank and (name := row.field_of(fault))
        ]
        for form, field in places or [(self.batch, of_batch)]:
            # The form's own faults of slots are those that the API can't see.
            if (field or NON_FIELD_ERRORS) not in form.errors or field == "slots":
                is_of_word = isinstance(form, RowForm) and bool(form.contents.get(field or ""))
                own = "" if fault.reason or is_of_word else API_FAULT_SENTENCES.get(field or "", "")
                yield form, field, own or sentence

    @property
    def faults(self) -> Iterator[FormFault]:
        """Yield each fault once, with the first of its rows and the number of others."""
        places: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for number, form in enumerate([self.batch, *self.rows]):
            for name, sentences in form.errors.items():
                field = form[name] if name in form.fields else None
                control = (field.id_for_label or f"{field.auto_id}_0") if field else ""
                for sentence in sentences:
                    places.setdefault((field.label if field else "", str(sentence)), []).append((number, control))
        for (label, sentence), ((number, control), *others) in places.items():
            yield FormFault(label, number, len(others), sentence, control)
        for sentence in self.rows.non_form_errors():
            yield FormFault("", 0, 0, str(sentence), "")

    # --- The API's request

    @cached_property
    def body(self) -> bytes:
        """Return the API's request. Raises `InvalidRequest` if it is too large."""
        return json.dumps(self.document).encode()

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return the API's request. Rows about the same account at the same block are merged.

        Raises `InvalidRequest` if it is too large.
        """
        if fault := self._excess:
            raise InvalidRequest([fault])
        data: dict[str, Any] = {}
        asked_of: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in self.rows:
            if row.is_blank:
                continue
            source = row["source"].value() or ""
            blocks = data.setdefault(source, {})
            for selector in row.selectors:
                blocks.setdefault(selector, {})
            for entries in row.entries:
                of_kind = blocks[entries.selector].setdefault(entries.kind, {})
                for key in entries.keys:
                    place = (source, entries.selector, entries.kind, key.lower())
                    if place not in asked_of:
                        asked_of[place] = of_kind[key] = {}
                    _join(asked_of[place], entries.values)
            if header := row.contents["header"]:
                _join(blocks[row.selector], {"header": header})
        for asked in (each for each in asked_of.values() if "slots" in each):
            asked["slots"] = list(storage_slots.as_requested(asked["slots"]))
        values = {name: str(self.batch[name].value() or "").strip() for name in _OF_BATCH.values()}
        paid = {"sender": "self"} if values["sender"] == "self" else {"fee": _wei(values["fee"])}
        webhook = {"webhook": {"url": values["webhook"]}} if values["webhook"] else {}
        label = {"label": values["label"]} if values["label"] else {}
        return {"destinationChainId": values["destination"], **paid, "data": data, **webhook, **label}


def _wei(typed: str) -> str:
    """Return an amount in whole units as the API takes it. It refuses what is no amount."""
    amount = _AMOUNT.fullmatch(typed)
    return str(int(amount[1] + amount[2].ljust(18, "0"))) if amount else typed or AUTO


def _unique(words: Iterable[str]) -> list[str]:
    """Remove words that differ only in case from an earlier word. Addresses, ENS names and slots ignore the case."""
    spellings: dict[str, str] = {}
    for word in words:
        spellings.setdefault(word if storage_slots.is_name(word) else word.lower(), word)
    return [*spellings.values()]


def _join(there: dict[str, Any], values: Mapping[str, Sequence[str]]) -> None:
    """Add values to those of the request."""
    for name, words in values.items():
        if words:
            there[name] = _unique([*there[name], *words]) if name in there else [*words]


def _offer(form: forms.Form, name: str, chains: Iterable[Chain]) -> str:
    """Offer the chains, and the chosen one if it is no longer among them. Return the label of the choice."""
    choices = [(str(chain.id), f"{chain.name} ({chain.id})") for chain in chains]
    chosen = str(form[name].value() or "")
    if chosen and chosen not in dict(choices):
        choices.append((chosen, FIELD_SENTENCES["absent_chain"].format(chain=chosen)))
    field = form.fields[name]
    assert isinstance(field, forms.ChoiceField)
    field.choices = choices
    return dict(choices).get(chosen, "")


def _counted(data: QueryDict) -> QueryDict:
    """Return the data with the number of rows that a formset requires. A reader couldn't correct a wrong number.

    Raises `ApiError` if row numbers have gaps. Otherwise a few bytes could create many rows.
    """
    numbers = {int(row[1]) for name in data if (row := _OF_ROW.match(name))}
    if missing := set(range(max(numbers, default=-1))) - numbers:
        sentence = FORM_SENTENCES["missing_row"].format(last=max(numbers) + 1, missing=min(missing) + 1)
        raise ApiError(400, "invalid_request", sentence)
    counted = data.copy()
    counted["rows-TOTAL_FORMS"] = str(len(numbers))
    counted["rows-INITIAL_FORMS"] = "0"
    return counted


def typed(form: forms.Form) -> dict[str, Any]:
    """Return the values of the fields, as initial values for another form."""
    return {field.name: field.value() for field in form}


def posted(batch: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> QueryDict:
    """Return the form's data with these initial values, as a browser would post it."""
    data = QueryDict(mutable=True)
    for beginning, values in [("", batch), *((f"rows-{number}-", row) for number, row in enumerate(rows))]:
        for name, value in values.items():
            data.setlist(f"{beginning}{name}", value if isinstance(value, list) else [value or ""])
    return data
