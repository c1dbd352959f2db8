"""A batch as it stands in the form: as text, right or wrong. `Draft.request` makes the API's JSON of it.

What is wrong in it only `queries.batch_request` says. `Request.places` says which fields a fault of it is about.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from chains.address_checksum import checksummed
from explorer.formatting.amounts import whole_units
from queries import account_names
from queries.batch_request import AUTO, Fault, InvalidRequest, pointer, too_many
from queries.models import BlockTag
from queries.properties import AccountField

# Of a form. A row holds any number of accounts.
MAX_ROWS = 50
# The form reads this multiple of a batch's maximum: rows that overlap count twice.
MOST_BUILT = 4
# In larger forms, what several rows ask for counts for each.
_MOST_COUNTED_ONCE = 40_000
# Of those where the same slot stands, as far as they are told.
_MOST_LINES = 5
# Commas only between thousands: in many countries, 0,015 is less than one.
_AMOUNT = re.compile(r"([0-9]{1,60}|[1-9][0-9]{0,2}(?:,[0-9]{3}){1,20})(?:\.([0-9]{1,18}))?", re.ASCII)
_WORD = re.compile(r"[^\s,;]+")
# In small letters. The number alone tells slots apart: 0x0A is 0xa.
_SLOT = re.compile(r"(?:0x)?0*([^\s,;]+)")


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

    @cached_property
    def is_blank(self) -> bool:
        """Return whether nothing is asked for."""
        return not (self.accounts.strip() or self.slots.strip() or self.header)

    @property
    def is_complete(self) -> bool:
        """Return whether the row leaves nothing empty that it needs. It may still be wrong."""
        where = {"block": self.block, "time": self.time}.get(self.at, self.at).strip()
        return bool(self.source and where and (self.header or (self.accounts.strip() and (self.props or self.slots))))

    @cached_property
    def selector(self) -> str:
        """Return the selector as the API has it, or a faulty one where what was typed is none."""
        match self.at:
            case "block":
                return "block:" + "".join(self.block.split()).replace(",", "").replace("_", "")
            case "time":
                return f"timestamp:{unix_seconds(self.time)}"
        return self.at

    @property
    def facts(self) -> int:
        """Count the facts that the row names."""
        return (len(set(self.props)) + len(self.slot_keys)) * len(self.account_keys) + len(set(self.header))

    @cached_property
    def size(self) -> int:
        """Return the work of reading it: how much it counts in limits, or how much was typed if that is more.

        What other rows ask for too is counted here as well, and so are properties beyond those that there are.
        """
        words = len(self._lower_accounts) + len(self._lower_slots)
        of_each = 1 + len(self.slot_keys) + max(0, len(self.props) - len(AccountField.names))
        return max(words, len(self.account_keys) * of_each) + len(self.header)

    @property
    def first_accounts(self) -> tuple[list[str], int]:
        """Return the first account, and how many there are."""
        first = _WORD.search(self.accounts)
        return [first[0]] if first else [], len(self.account_keys)

    @property
    def words(self) -> list[str]:
        """Say what is proven, in words."""
        found = list(self.props) if self.account_keys else []
        found += [_counted(len(self.slot_keys), "slot")] if self.slot_keys else []
        return found + ([_counted(len(self.header), "header field")] if self.header else [])

    @cached_property
    def account_keys(self) -> AbstractSet[str]:
        """Return each account once, however it is spelled."""
        return set(self._lower_accounts)

    @cached_property
    def slot_keys(self) -> AbstractSet[str]:
        """Return each slot once, however it is spelled."""
        return set(self._lower_slots)

    @cached_property
    def _lower_accounts(self) -> Sequence[str]:
        """Return the accounts in small letters, as often as they were typed."""
        return _WORD.findall(self.accounts.lower())

    @cached_property
    def _lower_slots(self) -> Sequence[str]:
        """Return the slots in small letters without needless zeros, as often as they were typed."""
        return _SLOT.findall(self.slots.lower())

    @cached_property
    def account_lines(self) -> Mapping[str, Sequence[int]]:
        """Return the lines of each account, by each of its spellings."""
        return _lines(_words(self.accounts))

    @cached_property
    def slot_spellings(self) -> Mapping[str, str]:
        """Return how each slot was spelled first, by its key."""
        found: dict[str, str] = {}
        for word in _WORD.findall(self.slots):
            found.setdefault(_slot_key(word), word)
        return found

    @cached_property
    def slot_lines(self) -> Mapping[str, Sequence[int]]:
        """Return the lines of each slot, by its key."""
        return _lines((_slot_key(word), line) for word, line in _words(self.slots))

    @cached_property
    def empty_fields(self) -> AbstractSet[str]:
        """Return which of the fields for text that is needed are empty."""
        return {name for name in ("block", "time", "accounts") if not getattr(self, name).strip()}

    @cached_property
    def long_fields(self) -> AbstractSet[str]:
        """Return the fields that have several lines."""
        return {name for name in ("accounts", "slots") if "\n" in getattr(self, name).rstrip()}


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
        """Return the fields that a fault is about. It may be about a part of the body whose whole is in one field."""
        path, is_of_name = fault.path, fault.is_of_name
        while path:
            for key in ((path, is_of_name), (path, not is_of_name)):
                if found := self._places.get(key):
                    return found
            path = path.rpartition("/")[0]
        return (Place(None, ""),)

    @cached_property
    def _places(self) -> Mapping[tuple[str, bool], Sequence[Place]]:
        """Find the places of all accounts and slots, for faults only: with 10,000 accounts nothing takes longer."""
        writing = _Writing(notes_places=True)
        for number, row in self.rows:
            writing.add(number, row)
        for name, of_form in (
            ("destinationChainId", "destination"),
            ("fee", "fee"),
            ("sender", "sender"),
            ("webhook", "webhook"),
        ):
            writing.note(Place(None, of_form), pointer(name))
        return writing.places


@dataclass(frozen=True)
class Draft:
    destination: str = ""  # chain id
    sender: str = "service"  # or self
    fee: str = ""  # in whole units of the native currency; empty: the estimate
    webhook: str = ""  # a URL
    rows: tuple[Row, ...] = (Row(),)
    pasted: str = ""

    @property
    def is_blank(self) -> bool:
        return all(row.is_blank for row in self.rows)

    @property
    def length(self) -> int:
        """Return the length of its texts, in characters."""
        return len(self.pasted) + sum(len(row.accounts) + len(row.slots) for row in self.rows)

    @cached_property
    def size(self) -> int:
        """Return the work of reading it."""
        return sum(row.size for row in self.rows)

    @cached_property
    def facts(self) -> int:
        """Count the facts that the form names, each once."""
        if self.size > _MOST_COUNTED_ONCE:
            return sum(row.facts for row in self.rows)
        found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for row in self.rows:
            for account in row.account_keys:
                found[row.source, row.selector, account].update(row.props, row.slot_keys)
            found[row.source, row.selector, ""].update(row.header)
        return sum(map(len, found.values()))

    @property
    def repeats_facts(self) -> bool:
        """Return whether its rows name more facts than there are."""
        return sum(row.facts for row in self.rows) > self.facts

    def request(self, max_queries: int) -> Request:
        """Make the request of the rows that ask for something; of the first if none does.

        Raises `InvalidRequest`: far too many.
        """
        # A few thousand accounts and slots are little as text, and their product is more than fits into memory.
        if self.size > MOST_BUILT * max_queries:
            raise InvalidRequest([too_many(self.size, max_queries)])
        rows = [(number, row) for number, row in enumerate(self.rows) if not row.is_blank] or [(0, self.rows[0])]
        document: dict[str, Any] = {"destinationChainId": self.destination}
        if self.sender != "service":
            document["sender"] = self.sender
        if self.sender != "self":
            document["fee"] = _wei(self.fee)
        writing = _Writing()
        for number, row in rows:
            writing.add(number, row)
        webhook = {"webhook": {"url": self.webhook.strip()}} if self.webhook.strip() else {}
        return Request(document | {"data": writing.data} | webhook, rows)

    def with_row(self, number: int, row: Row) -> "Draft":
        return replace(self, rows=(*self.rows[:number], row, *self.rows[number + 1 :]))


class _Writing:
    """Rows as they become JSON. What several rows ask of one account at one block is asked for together."""

    def __init__(self, *, notes_places: bool = False) -> None:
        self.data: dict[str, Any] = {}
        self.places: dict[tuple[str, bool], list[Place]] = defaultdict(list)
        self._spelled: dict[str, dict[str, str]] = defaultdict(dict)  # by the path of the block
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
        for account, lines in _accounts(row).items():
            spelled = self._spelling(path, account)
            asked = block.setdefault("accounts", {}).setdefault(spelled, {})
            _joined(asked, "props", row.props)
            _join_slots(asked, row)
            if self._notes_places:
                self._note_account(number, row, asked, lines, f"{path}/accounts{pointer(spelled)}")
        indexes = _indexes(_joined(block, "header", row.header))
        for name in row.header:
            self.note(Place(number, "header"), f"{path}/header/{indexes[name]}")

    def _spelling(self, path: str, account: str) -> str:
        """Return the account's first spelling at this block; `account` itself if either has a wrong checksum."""
        first = self._spelled[path].setdefault(account.lower(), account)
        return first if first == account or (_is_account(first) and _is_account(account)) else account

    def _note_account(self, number: int, row: Row, asked: Mapping[str, Any], lines: Iterable[int], path: str) -> None:
        for line in lines:
            self.note(Place(number, "accounts", line), path, is_of_name=True)
        self.note(Place(number, "props"), path)
        indexes = _indexes(asked.get("props", ()))
        for name in row.props:
            self.note(Place(number, "props"), f"{path}/props/{indexes[name]}")
        for index, slot in enumerate(asked.get("slots", ())):
            for line in row.slot_lines.get(_slot_key(slot), ())[:_MOST_LINES]:
                self.note(Place(number, "slots", line), f"{path}/slots/{index}")


def _joined(of: dict[str, Any], name: str, more: Iterable[str]) -> list[str]:
    """Put under the name what is there already, and more, each once."""
    values = list(dict.fromkeys([*of.get(name, ()), *more]))
    if values:
        of[name] = values
    return values


def _indexes(values: Iterable[str]) -> Mapping[str, int]:
    return {value: index for index, value in enumerate(values)}


def _join_slots(of: dict[str, Any], row: Row) -> None:
    """Put under `slots` what is there already, and the row's, each once, in whichever spelling comes first."""
    there = {_slot_key(slot) for slot in of.get("slots", ())}
    if more := [slot for key, slot in row.slot_spellings.items() if key not in there]:
        of["slots"] = [*of.get("slots", ()), *more]


def _accounts(row: Row) -> Mapping[str, Sequence[int]]:
    """Return each account with its lines. An account that is missing is empty, which is a fault."""
    if row.account_lines:
        return row.account_lines
    return {"": [1]} if row.slots.strip() or (row.props and not row.header) else {}


def _is_account(text: str) -> bool:
    """Return whether it is an account in any spelling: an address, or a name, which ENSIP-15 makes lower case."""
    return text.isascii() and (account_names.is_name(text) or checksummed(text) is not None)


def _slot_key(text: str) -> str:
    found = _SLOT.fullmatch(text.lower())
    return found[1] if found else text


def _lines(words: Iterable[tuple[str, int]]) -> Mapping[str, Sequence[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for word, line in words:
        found[word].append(line)
    return found


def _words(text: str) -> Iterator[tuple[str, int]]:
    """Yield each word of the text, with the number of its line."""
    line, end = 1, 0
    for found in _WORD.finditer(text):
        line, end = line + text.count("\n", end, found.start()), found.start()
        yield found[0], line


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def unix_seconds(text: str) -> str:
    """Return a time as the API has it; what is no time stays as it is."""
    try:
        when = datetime.fromisoformat(text.strip().removesuffix("UTC").strip())
    except ValueError:
        return text.strip()
    return str(int(when.replace(tzinfo=when.tzinfo or UTC).timestamp()))


def is_amount(text: str) -> bool:
    """Return whether the text is an amount of whole units, as a fee is typed."""
    return bool(_AMOUNT.fullmatch(text.strip()))


def _wei(text: str) -> str:
    """Return a fee as the API has it; what is no amount stays as it is."""
    text = text.strip()
    amount = _AMOUNT.fullmatch(text)
    if amount is None:
        return text or AUTO
    return str(int(amount[1].replace(",", "") + (amount[2] or "").ljust(18, "0")))


# --- A request that was submitted before ------------------------------------------------------------------------------


def of_document(document: Mapping[str, Any], *, fee_is_kept: bool = True) -> Draft:
    """Fill the form in from a request that was valid. Accounts with the same questions share a row."""
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
    """Return a time as a field for it has it: 2026-11-20T12:00:00."""
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
