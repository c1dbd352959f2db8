"""Facts as pages show them: the word, what it says, and the calls that read it.

However many queries are asked for, the number of statements is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chains.address_checksum import checksummed
from chains.encoding import hex_data
from chains.header import Header
from chains.packed import HASHED_HEADER_FIELDS
from explorer.pages.amounts import whole_units
from explorer.pages.code_snippets import Snippet, is_number
from explorer.pages.utc_times import utc
from proving import facts
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact
from proving.models import AccountProof, SlotProof
from queries.models import AccountField, HeaderField, Query

# So many slots of one account are on one page.
SLOTS_PAGE = 50


@dataclass(frozen=True)
class Meaning:
    label: str
    text: str


@dataclass(frozen=True)
class Value:
    """A fact: its word as the registry answers it, what the word says, and the calls that read it."""

    field: str  # name of the property; SLOT, BLOCK_AT_TIMESTAMP
    number: int | None  # of a property, as the registry numbers it
    slot: str  # of a slot, 0x and 64 hexadecimal digits
    word: str
    note: str  # what the word is, where its name says something else
    meanings: tuple[Meaning, ...]
    registry: str
    snippets: tuple[Snippet, ...]  # of slots and of a header's properties, only the first has them

    @property
    def label(self) -> str:
        return label(self.field, self.slot)

    @property
    def copied(self) -> str:
        """What the button that copies the word is called."""
        return f"the word of {self.label}"


def shown(query: Query, first_slot: int | None) -> list[Fact]:
    """The facts that a query asks for; of its slots one page, from this number on, or all with None."""
    slots = set(shown_slots(query, first_slot))
    return [fact for fact in facts.of(query) if not isinstance(fact, SlotFact) or fact.slot in slots]


def shown_slots(query: Query, first_slot: int | None) -> Sequence[str]:
    found: list[str] = query.slots if first_slot is None else query.slots[first_slot - 1 : first_slot - 1 + SLOTS_PAGE]
    return found


def proven(queries: Sequence[Query], first_slot: int | None) -> dict[int, dict[Fact, bytes]]:
    """The 32-byte words of the shown facts of each query (by its id) whose proofs are stored here."""
    accounts = _accounts(queries)
    slots = _slots(queries, accounts, first_slot)
    found: dict[int, dict[Fact, bytes]] = {}
    for query in queries:
        account = accounts.get((query.block_id, query.address))
        block = query.block
        header = (
            facts.header_words(Header.decode(bytes(block.header_rlp)))
            if query.header_fields and block and block.header_rlp
            else {}
        )
        properties = facts.account_words(account) if account else {}
        words = found[query.pk] = {}
        for fact in shown(query, first_slot):
            match fact:
                case AccountFact():
                    word = properties.get(fact.field)
                case SlotFact():
                    value = slots.get((account.pk, fact.slot)) if account else None
                    word = None if value is None else value.to_bytes(32)
                case HeaderFact():
                    word = header.get(fact.field)
                case TimeFact():
                    word = block.number.to_bytes(32) if block else None
            if word is not None:
                words[fact] = word
    return found


def _accounts(queries: Sequence[Query]) -> dict[tuple[int | None, str], AccountProof]:
    """By (block's primary key, address). The proofs of other pairs of the same blocks and addresses do no harm."""
    proofs = AccountProof.objects.defer("nodes").filter(
        block__in={query.block_id for query in queries}, address__in={query.address for query in queries}
    )
    return {(proof.block_id, proof.address): proof for proof in proofs}


def _slots(
    queries: Sequence[Query], accounts: dict[tuple[int | None, str], AccountProof], first_slot: int | None
) -> dict[tuple[int, str], int]:
    """By (account proof's primary key, slot)."""
    asking = [query for query in queries if query.slots]
    proofs = [accounts[key].pk for query in asking if (key := (query.block_id, query.address)) in accounts]
    rows = SlotProof.objects.filter(account__in=proofs)
    if first_slot is not None:
        rows = rows.filter(slot__in={slot for query in asking for slot in shown_slots(query, first_slot)})
    return {(account, slot): value for account, slot, value in rows.values_list("account", "slot", "value")}


# --- What words say ---------------------------------------------------------------------------------------------------


def label(field: str, slot: str) -> str:
    return f"slot {int(slot, 16):#x}" if slot else field


def name(fact: Fact) -> str:
    match fact:
        case AccountFact() | HeaderFact():
            return fact.field.name
        case SlotFact():
            return "SLOT"
        case TimeFact():
            return "BLOCK_AT_TIMESTAMP"


def note(fact: Fact) -> str:
    if isinstance(fact, HeaderFact) and fact.field in HASHED_HEADER_FIELDS:
        return "keccak-256 of its bytes, which don't fit one word"
    if isinstance(fact, TimeFact):
        when = utc(fact.timestamp)
        return f"the latest block at {f'{when} UTC, ' if when else ''}{fact.timestamp} s"
    return ""


def meanings(fact: Fact, word: bytes, currency: str) -> tuple[Meaning, ...]:
    """What a fact's word says, in the spellings that people look for. A root's or a hash's word is what it says."""
    number = int.from_bytes(word)
    plain = (Meaning("decimal", str(number)), Meaning("hex", hex(number)))
    match fact:
        case AccountFact(field=AccountField.BALANCE):
            return (Meaning(currency, whole_units(number)), Meaning("wei, decimal", str(number)), plain[1])
        case HeaderFact(field=HeaderField.COINBASE):
            return (Meaning("address", str(checksummed(hex_data(word[12:])))),)
        case HeaderFact(field=HeaderField.TIMESTAMP) if when := utc(number):
            return (Meaning("UTC", when), Meaning("seconds, decimal", str(number)), plain[1])
        case HeaderFact(field=HeaderField.BASE_FEE_PER_GAS):
            return (Meaning("wei, decimal", str(number)), plain[1])
    return plain if is_number(fact) else ()
