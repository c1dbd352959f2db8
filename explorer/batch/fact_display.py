"""Facts for pages: the word, its meanings, and calls that read it.

The number of SQL statements doesn't grow with the number of queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chains.encoding import checksummed, hex_data
from chains.packed import HASHED_HEADER_FIELDS
from explorer.batch.code_snippets import Snippet
from explorer.formatting.amounts import shortened, whole_units
from explorer.formatting.utc_times import utc
from proving import facts
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact
from proving.models import FactsRegistry
from queries.columns import AccountField, HeaderField
from queries.models import Query

# Slots of one account on a page.
SLOTS_PAGE = 50
# Characters shown at both ends of long values, such as 0x7099…79C8 and 0xb15fd088…74143c.
ADDRESS_ENDS, WORD_ENDS = (6, 4), (10, 6)
# A longer number is shown as a shortened word.
_MOST_DIGITS = 18


@dataclass(frozen=True)
class Meaning:
    label: str
    text: str


@dataclass(frozen=True)
class InShort:
    """A fact's value in a title or a table, which may be shortened."""

    text: str
    unit: str = ""
    ends: tuple[int, int] | None = None  # characters shown at the start and the end of a long value
    exact: str = ""  # the exact amount if the text is cut off

    @classmethod
    def of_amount(cls, amount: int, unit: str, decimals: int = 18) -> "InShort":
        """Return an amount, given in the smallest units, in whole units."""
        text = shortened(amount, decimals)
        return cls(text, unit, exact=whole_units(amount, decimals) if text.endswith("…") else "")


@dataclass(frozen=True)
class Value:
    """A proven fact: its word as the registry returns it, its meanings, and code that reads it."""

    field: str  # name of the property, or SLOT or BLOCK_AT_TIMESTAMP
    number: int | None  # the property's number in the registry
    slot: str  # 0x and 64 hexadecimal digits; empty for other facts
    word: str
    is_hash: bool  # the word is the hash of a property that is longer than a word
    timestamp: int | None  # the requested time in unix seconds, for BLOCK_AT_TIMESTAMP
    meanings: tuple[Meaning, ...]
    registry: FactsRegistry
    snippets: tuple[Snippet, ...]  # only for the first slot or header property

    @property
    def label(self) -> str:
        return label(self.field, self.slot)

    @property
    def is_root_for_proofs(self) -> bool:
        """Return whether anyone can read slots under this word by proof."""
        return bool(self.registry.reader) and self.field == AccountField.STORAGE_ROOT.name

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
        match [(meaning.label, meaning.text) for meaning in self.meanings[:1]]:
            case [("decimal", text)]:
                return InShort(f"{number:,}") if len(text) <= _MOST_DIGITS else word
            case [("address", text)]:
                return InShort(text, ends=ADDRESS_ENDS)
            case [("UTC", text)]:
                return InShort(text, "UTC")
            case [(_, _)] if self.field == HeaderField.BASE_FEE_PER_GAS.name:
                return InShort.of_amount(number, "gwei", decimals=9)
            case [(currency, _)]:
                return InShort.of_amount(number, currency)
        return word


def shown(query: Query, first_slot: int | None, most_slots: int = SLOTS_PAGE) -> list[Fact]:
    """Return the facts that a query requests, with one page of its slots from `first_slot` on. None: all slots."""
    slots = set(shown_slots(query, first_slot)[:most_slots] if first_slot is not None else query.slots)
    return [fact for fact in facts.of(query) if not isinstance(fact, SlotFact) or fact.slot in slots]


def shown_slots(query: Query, first_slot: int | None) -> Sequence[str]:
    slots: list[str] = query.slots
    return slots if first_slot is None else slots[first_slot - 1 : first_slot - 1 + SLOTS_PAGE]


def proven(
    queries: Sequence[Query], first_slot: int | None, most_slots: int = SLOTS_PAGE
) -> dict[int, dict[Fact, bytes]]:
    """Return the 32-byte words of shown facts whose proofs are stored, by query id."""
    return facts.proven_for({query: shown(query, first_slot, most_slots) for query in queries})


def value(fact: Fact, word: bytes, currency: str, registry: FactsRegistry, snippets: tuple[Snippet, ...] = ()) -> Value:
    """Return the fact of a registry for pages."""
    return Value(
        field=facts.name(fact),
        number=int(fact.field) if isinstance(fact, AccountFact | HeaderFact) else None,
        slot=fact.slot if isinstance(fact, SlotFact) else "",
        word=hex_data(word),
        is_hash=isinstance(fact, HeaderFact) and fact.field in HASHED_HEADER_FIELDS,
        timestamp=fact.timestamp if isinstance(fact, TimeFact) else None,
        meanings=meanings(fact, word, currency),
        registry=registry,
        snippets=snippets,
    )


# --- Meanings of words ------------------------------------------------------------------------------------------------


def label(field: str, slot: str) -> str:
    return f"slot {int(slot, 16):#x}" if slot else field


def meanings(fact: Fact, word: bytes, currency: str) -> tuple[Meaning, ...]:
    """Return the meanings of a fact's word in forms that readers expect. The word itself is hexadecimal.

    Roots and hashes have no other form.
    """
    number = int.from_bytes(word)
    match fact:
        case AccountFact(field=AccountField.BALANCE):
            return (Meaning(currency, whole_units(number)), Meaning("wei, decimal", str(number)))
        case HeaderFact(field=HeaderField.COINBASE):
            return (Meaning("address", str(checksummed(hex_data(word[12:])))),)
        case HeaderFact(field=HeaderField.TIMESTAMP) if when := utc(number):
            return (Meaning("UTC", when), Meaning("seconds, decimal", str(number)))
        case HeaderFact(field=HeaderField.BASE_FEE_PER_GAS):
            return (Meaning("wei, decimal", str(number)),)
    return (Meaning("decimal", str(number)),) if facts.is_number(fact) else ()
