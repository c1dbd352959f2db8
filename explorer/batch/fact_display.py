"""Facts for pages: the word, its meanings, and calls that read it.

The number of SQL statements doesn't grow with the number of queries.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chains.encoding import checksummed, hex_data
from chains.tries.packed import HASHED_HEADER_FIELDS
from explorer.batch.code_snippets import Snippet
from explorer.batch.log_display import LogDisplay
from explorer.formatting import slot_words
from explorer.formatting.amounts import in_groups, whole_units
from explorer.formatting.slot_words import ADDRESS_ENDS, WORD_ENDS
from explorer.formatting.stated_part import StatedPart
from explorer.formatting.utc_times import utc
from proving import facts
from proving.facts import AccountFact, EntryFact, Fact, HeaderFact, LogFact, SlotFact, TimeFact
from proving.models import FactsRegistry
from queries.columns import AccountField, EntryField, HeaderField
from queries.models import Query

# Slots of one account, or logs of one transaction, on a page.
SLOTS_PAGE = 50
_STATUS_MEANINGS = {0: "= failure", 1: "= success"}
# A longer number is shown as a shortened word. There is room for amounts of tokens.
_MOST_DIGITS = 31


@dataclass(frozen=True)
class Meaning:
    label: str
    text: str


@dataclass(frozen=True)
class InShort:
    """A fact's value in a title or a table. A number has all its digits, and other long values may be shortened."""

    text: str
    unit: str = ""
    ends: tuple[int, int] | None = None  # characters shown at the start and the end of a long value
    note: str = ""  # how the text follows from the word, where there is room for it

    @property
    def unit_and_note(self) -> str:
        return ", ".join(filter(None, [self.unit, self.note]))


@dataclass(frozen=True)
class Value:
    """A proven fact: its word as the registry returns it, its meanings, and code that reads it."""

    field: str  # name of the property, or SLOT, LOG or BLOCK_AT_TIMESTAMP
    label: str
    number: int | None  # the property's number in the registry
    slot: str  # 0x and 64 hexadecimal digits; empty for other facts
    slot_name: Mapping[str, Any] | None  # of a slot that the request has named
    word: str
    is_hash: bool  # the word is the hash of a property that is longer than a word
    timestamp: int | None  # the requested time in unix seconds, for BLOCK_AT_TIMESTAMP
    meanings: tuple[Meaning, ...]
    registry: FactsRegistry
    snippets: tuple[Snippet, ...]  # only for the first slot, log or header property
    is_log: bool  # the word is the hash of a log
    log: LogDisplay | None  # on the page of a batch, the log whose hash the word is

    @property
    def is_root_for_proofs(self) -> bool:
        """Return whether anyone can read slots under this word by proof."""
        return bool(self.registry.reader) and self.field == AccountField.STORAGE_ROOT.name

    @property
    def is_of_header(self) -> bool:
        return self.number is not None and self.field in HeaderField.__members__

    @property
    def stated(self) -> str:
        """Return the amount or the answer that the word is said to be. Empty: nobody says any."""
        return slot_words.stated(self.slot_name)

    @property
    def has_note(self) -> bool:
        """Return whether the word isn't the value that the fact's name suggests."""
        return self.is_hash or self.timestamp is not None

    @property
    def time(self) -> str:
        """Return the requested time in UTC; empty if the calendar has no such year."""
        return utc(self.timestamp) if self.timestamp is not None else ""

    @property
    def in_short(self) -> InShort:
        number, word = int(self.word, 16), InShort(self.word, ends=WORD_ENDS)
        if self.slot_name:
            return _named_slot_in_short(self.slot_name, number) or word
        match [(meaning.label, meaning.text) for meaning in self.meanings[:1]]:
            case [("decimal", text)]:
                return InShort(f"{number:,}") if len(text) <= _MOST_DIGITS else word
            case [("address", text)]:
                return InShort(text, ends=ADDRESS_ENDS)
            case [("UTC" | "= success" | "= failure" as unit, text)]:
                return InShort(text, unit)
            case [(currency, text)]:
                return InShort(in_groups(text), currency)
        return word


def shown(query: Query, first_slot: int, most_slots: int = SLOTS_PAGE) -> list[Fact]:
    """Return the facts that a query requests, with one page of its slots or logs from `first_slot` on."""
    all_facts = facts.of(query)
    # Slots and logs are consecutive.
    first = next((at for at, fact in enumerate(all_facts) if isinstance(fact, SlotFact | LogFact)), 0) + first_slot - 1
    page = range(first, first + min(most_slots, SLOTS_PAGE))
    return [fact for at, fact in enumerate(all_facts) if not isinstance(fact, SlotFact | LogFact) or at in page]


def listed(query: Query) -> Sequence[object]:
    """Return the slots or logs of a query, of which a page shows a part."""
    return query.slots or query.known_logs


def log_names(query: Query) -> list[str]:
    """Return the indexes of the requested logs within the receipt, or as requested while these are unknown."""
    is_known = query.first_log is not None or not query.block_logs
    of_block = [] if is_known else [f"{index} of the block" for index in dict.fromkeys(query.block_logs)]
    return [*map(str, query.known_logs), *of_block]


def value(
    fact: Fact,
    word: bytes,
    currency: str,
    registry: FactsRegistry,
    *,
    snippets: tuple[Snippet, ...] = (),
    log: LogDisplay | None = None,
) -> Value:
    """Return the fact of a registry for pages."""
    return Value(
        field=facts.name(fact),
        label=label(fact),
        number=int(fact.field) if isinstance(fact, AccountFact | HeaderFact | EntryFact) else None,
        slot=fact.slot if isinstance(fact, SlotFact) else "",
        slot_name=fact.name if isinstance(fact, SlotFact) else None,
        word=hex_data(word),
        is_hash=isinstance(fact, HeaderFact) and fact.field in HASHED_HEADER_FIELDS,
        timestamp=fact.timestamp if isinstance(fact, TimeFact) else None,
        meanings=meanings(fact, word, currency),
        registry=registry,
        snippets=snippets,
        is_log=isinstance(fact, LogFact),
        log=log,
    )


# --- Meanings of words ------------------------------------------------------------------------------------------------


def label(fact: Fact) -> str:
    match fact:
        case SlotFact():
            return f"slot {int(fact.slot, 16):#x}"
        case LogFact():
            return f"log {fact.log}"
    return facts.name(fact)


def meanings(fact: Fact, word: bytes, currency: str) -> tuple[Meaning, ...]:
    """Return the meanings of a fact's word in forms that readers expect. The word itself is hexadecimal.

    Roots and hashes have no other form.
    """
    number = int.from_bytes(word)
    if isinstance(fact, SlotFact) and fact.name:
        return tuple(_slot_meanings(fact.name, number))
    match fact:
        case AccountFact(field=AccountField.BALANCE) | HeaderFact(field=HeaderField.BASE_FEE_PER_GAS):
            unit, decimals = (currency, 18) if isinstance(fact, AccountFact) else ("gwei", 9)
            return (Meaning(unit, whole_units(number, decimals)), Meaning("wei, decimal", str(number)))
        case EntryFact(field=EntryField.STATUS):
            return (Meaning(_STATUS_MEANINGS.get(number, "decimal"), str(number)),)
        case HeaderFact(field=HeaderField.COINBASE):
            return (Meaning("address", str(checksummed(hex_data(word[12:])))),)
        case HeaderFact(field=HeaderField.TIMESTAMP) if when := utc(number):
            return (Meaning("UTC", when), Meaning("seconds, decimal", str(number)))
    return (Meaning("decimal", str(number)),) if facts.is_number(fact) else ()


def _slot_meanings(name: Mapping[str, Any], word: int) -> Iterator[Meaning]:
    stated = StatedPart.of(name)
    yield Meaning(stated.bits or "decimal", stated.text(word))
    if stated.decimals or stated.symbol:
        yield Meaning(stated.division, stated.divided(word))


def _named_slot_in_short(name: Mapping[str, Any], word: int) -> InShort | None:
    """Return the number of a slot that the request has named. None: it is long."""
    stated = StatedPart.of(name)
    text, divided = stated.text(word), stated.divided(word)
    if (stated.decimals or stated.symbol) and sum(map(str.isdigit, divided)) <= _MOST_DIGITS:
        return InShort(in_groups(divided), stated.symbol or stated.bits, note=stated.claim or stated.division)
    if not stated.bits and len(text) > _MOST_DIGITS:
        return None
    if text.removeprefix("-").isdecimal():
        return InShort(in_groups(text), stated.bits)
    return InShort(text, stated.bits, ends=ADDRESS_ENDS if len(text) > slot_words.MOST_OF_KEY else None)
