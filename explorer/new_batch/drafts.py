"""A batch as it stands in the form: as text, right or wrong. `Draft.request` makes the API's JSON of it.

What is wrong in it only `queries.batch_request` says. `Request.places` says which fields a fault of it is about.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from explorer.pages.amounts import whole_units
from queries.batch_request import AUTO, Fault, InvalidRequest, pointer, too_many
from queries.models import BlockTag

# Of a form. A row holds any number of accounts.
MAX_ROWS = 50
# So many times the most that a batch may name is looked at: rows that overlap count twice.
_MOST_BUILT = 4
_AMOUNT = re.compile(r"[0-9]{1,60}(\.[0-9]{1,18})?", re.ASCII)
_SEPARATORS = re.compile(r"[\s,;]+")


@dataclass(frozen=True)
class Row:
    """Accounts of one source chain at one block, and what is proven of each; or of the block's header."""

    source: str = ""  # chain id
    at: str = BlockTag.LATEST.value  # a `BlockTag`, block or time
    block: str = ""
    time: str = ""  # UTC, as ISO 8601 or unix seconds
    accounts: str = ""  # addresses and names, apart by line breaks, blanks or commas
    props: tuple[str, ...] = ("BALANCE",)
    slots: str = ""  # as accounts
    header: tuple[str, ...] = ()
    # The helper that finds the slot of a value in a mapping or an array.
    slot_of: str = "address"
    slot_key: str = ""
    slot_base: str = ""

    @property
    def is_blank(self) -> bool:
        """Whether nothing is asked for."""
        return not (self.accounts.strip() or self.slots.strip() or self.header)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left empty that it needs. It may still be wrong."""
        where = {"block": self.block, "time": self.time}.get(self.at, self.at).strip()
        return bool(self.source and where and (self.header or (self.accounts.strip() and (self.props or self.slots))))

    @property
    def selector(self) -> str:
        """As the API has it, or a faulty one where what was typed is none."""
        match self.at:
            case "block":
                return "block:" + re.sub(r"[\s,_]", "", self.block)
            case "time":
                return f"timestamp:{unix_seconds(self.time)}"
        return self.at

    @property
    def facts(self) -> int:
        """How many it names."""
        return (len(set(self.props)) + self._slot_count) * self._account_count + len(set(self.header))

    @property
    def size(self) -> int:
        """How much it counts in limits; what other rows ask for too is counted here as well."""
        return self._account_count * (1 + self._slot_count) + bool(self.header)

    @property
    def first_accounts(self) -> tuple[list[str], int]:
        """The first one, and how many there are."""
        return [account for account, _ in self.account_words[:1]], self._account_count

    @property
    def words(self) -> list[str]:
        """What is proven, in words."""
        found = list(self.props) if self.account_words else []
        found += [_counted(self._slot_count, "slot")] if self.slot_words else []
        return found + ([_counted(len(self.header), "header field")] if self.header else [])

    @cached_property
    def account_words(self) -> Sequence[tuple[str, int]]:
        """Each with its line, as often as it was typed."""
        return list(_words(self.accounts))

    @cached_property
    def slot_words(self) -> Sequence[tuple[str, int]]:
        """As `account_words`."""
        return list(_words(self.slots))

    @cached_property
    def _account_count(self) -> int:
        return len({account for account, _ in self.account_words})

    @cached_property
    def _slot_count(self) -> int:
        return len({slot for slot, _ in self.slot_words})


@dataclass(frozen=True)
class Place:
    """A field of the form. `row` is None: of the form itself, or the whole form where `field` is empty."""

    row: int | None
    field: str
    line: int = 0  # of a field that has one value a line, from 1; 0: all of it


@dataclass(frozen=True)
class Request:
    """The API's JSON, and where each part of it stands in the form."""

    document: dict[str, Any]
    rows: Sequence[tuple[int, Row]] = field(repr=False)  # that it was made of

    @cached_property
    def body(self) -> bytes:
        return json.dumps(self.document, ensure_ascii=False).encode()

    def places(self, fault: Fault) -> Sequence[Place]:
        """The fields that a fault is about. It may be about a part of the body whose whole is in one field."""
        path, is_of_name = fault.path, fault.is_of_name
        while path:
            for key in ((path, is_of_name), (path, not is_of_name)):
                if found := self._places.get(key):
                    return found
            path = path.rpartition("/")[0]
        return (Place(None, ""),)

    @cached_property
    def _places(self) -> Mapping[tuple[str, bool], Sequence[Place]]:
        """Only where there are faults: for 10,000 accounts it takes longer than all else."""
        writing = _Writing(notes_places=True)
        for number, row in self.rows:
            writing.add(number, row)
        for name, of_form in (("destinationChainId", "destination"), ("fee", "fee"), ("sender", "sender")):
            writing.note(Place(None, of_form), pointer(name))
        return writing.places


@dataclass(frozen=True)
class Draft:
    destination: str = ""  # chain id
    sender: str = "service"  # or self
    fee: str = ""  # in whole units of the native currency; empty: the estimate
    rows: tuple[Row, ...] = (Row(),)
    pasted: str = ""

    @property
    def is_blank(self) -> bool:
        return all(row.is_blank for row in self.rows)

    @property
    def facts(self) -> int:
        return sum(row.facts for row in self.rows)

    def request(self, max_queries: int) -> Request:
        """Of the rows that ask for something; of the first if none does. Raises `InvalidRequest`: far too many."""
        # A few thousand accounts and slots are little as text, and their product is more than fits into memory.
        if (size := sum(row.size for row in self.rows)) > _MOST_BUILT * max_queries:
            raise InvalidRequest([too_many(size, max_queries)])
        rows = [(number, row) for number, row in enumerate(self.rows) if not row.is_blank] or [(0, self.rows[0])]
        document: dict[str, Any] = {"destinationChainId": self.destination}
        if self.sender == "self":
            document["sender"] = "self"
        else:
            document["fee"] = _wei(self.fee)
        writing = _Writing()
        for number, row in rows:
            writing.add(number, row)
        return Request(document | {"data": writing.data}, rows)

    def with_row(self, number: int, row: Row) -> "Draft":
        return replace(self, rows=(*self.rows[:number], row, *self.rows[number + 1 :]))


class _Writing:
    """Rows as they become JSON. What several rows ask of one account at one block is asked for together."""

    def __init__(self, *, notes_places: bool = False) -> None:
        self.data: dict[str, Any] = {}
        self.places: dict[tuple[str, bool], list[Place]] = defaultdict(list)
        self._notes_places = notes_places

    def note(self, place: Place, path: str, *, is_of_name: bool = False) -> None:
        self.places[path, is_of_name].append(place)

    def add(self, number: int, row: Row) -> None:
        at = row.at if row.at in {"block", "time"} else "at"
        path = pointer("data", row.source, row.selector)
        block = self.data.setdefault(row.source, {}).setdefault(row.selector, {})
        self.note(Place(number, "source"), pointer("data", row.source), is_of_name=True)
        self.note(Place(number, at), path, is_of_name=True)
        self.note(Place(number, "accounts"), path)
        for account, line in _accounts(row):
            asked = block.setdefault("accounts", {}).setdefault(account, {})
            _joined(asked, "props", row.props)
            _joined(asked, "slots", [slot for slot, _ in row.slot_words])
            if self._notes_places:
                self._note_account(number, row, asked, line, f"{path}/accounts{pointer(account)}")
        header = _joined(block, "header", row.header)
        for name in row.header:
            self.note(Place(number, "header"), f"{path}/header/{header.index(name)}")

    def _note_account(self, number: int, row: Row, asked: Mapping[str, Any], line: int, path: str) -> None:
        self.note(Place(number, "accounts", line), path, is_of_name=True)
        self.note(Place(number, "props"), path)
        for name in row.props:
            self.note(Place(number, "props"), f"{path}/props/{asked['props'].index(name)}")
        indexes = {slot: index for index, slot in enumerate(asked.get("slots", ()))}
        for slot, line_of_slot in row.slot_words:
            self.note(Place(number, "slots", line_of_slot), f"{path}/slots/{indexes[slot]}")


def _joined(of: dict[str, Any], name: str, more: Iterable[str]) -> list[str]:
    """Under the name what is there already, and more, each once."""
    values = list(dict.fromkeys([*of.get(name, ()), *more]))
    if values:
        of[name] = values
    return values


def _accounts(row: Row) -> Iterable[tuple[str, int]]:
    """Each with its line. An account that is missing is empty, which is a fault."""
    if row.account_words:
        return row.account_words
    return [("", 1)] if row.slots.strip() or (row.props and not row.header) else []


def _words(text: str) -> Iterator[tuple[str, int]]:
    """Each word of the text, with the number of its line."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in _SEPARATORS.split(line):
            if word:
                yield word, number


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def unix_seconds(text: str) -> str:
    """As the API has a time; what is none stays as it is."""
    try:
        when = datetime.fromisoformat(text.strip().removesuffix("UTC").strip())
    except ValueError:
        return text.strip()
    return str(int(when.replace(tzinfo=when.tzinfo or UTC).timestamp()))


def _wei(text: str) -> str:
    """As the API has a fee; what is no amount stays as it is."""
    text = text.strip()
    amount = text.replace(",", "")
    if not amount:
        return AUTO
    # Not by `Decimal`'s arithmetic, which rounds to 28 digits.
    return str(int(Decimal(amount).scaleb(18))) if _AMOUNT.fullmatch(amount) and len(amount) < 28 else text


# --- A request that was submitted before ------------------------------------------------------------------------------


def of_document(document: Mapping[str, Any], *, fee_is_kept: bool = True) -> Draft:
    """The form filled in from a request that was valid. Accounts of which the same is asked share a row."""
    fee = document.get("fee", AUTO)
    return Draft(
        destination=document["destinationChainId"],
        sender=document.get("sender", "service"),
        fee=whole_units(int(fee)) if fee_is_kept and fee.isdecimal() and "sender" not in document else "",
        rows=tuple(
            row
            for source, blocks in document["data"].items()
            for selector, block in blocks.items()
            for row in _rows_at(block, _where(source, selector))
        ),
    )


def _where(source: str, selector: str) -> Row:
    kind, _, number = selector.partition(":")
    match kind:
        case "block":
            return Row(source, "block", block=number)
        case "timestamp":
            return Row(source, "time", time=iso_time(number))
    return Row(source, kind)


def iso_time(seconds: str) -> str:
    """As a field for a time has it: 2026-11-20T12:00:00."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # further away than a year has digits
        return seconds


def _rows_at(block: Mapping[str, Any], where: Row) -> Iterator[Row]:
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for account, asked in (block.get("accounts") or {}).items():
        alike[tuple(asked.get("props", ())), tuple(asked.get("slots", ()))].append(account)
    header = tuple(block.get("header", ()))
    if not alike:
        yield replace(where, props=(), header=header)
    for (props, slots), accounts in alike.items():
        yield replace(where, accounts="\n".join(accounts), props=props, slots="\n".join(slots), header=header)
        header = ()
