"""The title of a batch's page: the answer, where one fact was asked for, else how much of it is proven."""

from collections.abc import Sequence
from dataclasses import dataclass

from config.chain_names import ChainName
from explorer.batch.fact_display import ADDRESS_ENDS, InShort, Value
from explorer.batch.query_cards import ShownQuery
from explorer.formatting.utc_times import utc
from proving.batch_waits import StepCounts
from queries.columns import AccountField
from queries.models import BlockTag

_PROPERTIES = {
    AccountField.NONCE.name: "Nonce",
    AccountField.BALANCE.name: "Balance",
    AccountField.STORAGE_ROOT.name: "Storage root",
    AccountField.CODE_HASH.name: "Code hash",
}
_TAGGED = {BlockTag.LATEST: "the newest block", BlockTag.FINALIZED: "the newest final block"}
# A slot with a longer number is only said to be one.
_MOST_OF_SLOT = 12


@dataclass(frozen=True)
class Headline:
    """`about`, of an account if there is one, `where`: and the answer, or how much is proven."""

    about: str
    address: str = ""  # empty: the title is about no account, or about several
    where: str = ""
    answer: InShort | None = None
    state: str = ""  # instead of one answer

    @property
    def text(self) -> str:
        """Return one line, with long values by their ends."""
        address = f"of {_by_its(ADDRESS_ENDS, self.address)}" if self.address else ""
        subject = " ".join(filter(None, (self.about, address, self.where)))
        if self.answer:
            value = _by_its(self.answer.ends, self.answer.text) if self.answer.ends else self.answer.text
            return f"{subject}: {value} {self.answer.unit}".strip()
        return f"{subject}: {self.state}" if self.state else subject


@dataclass(frozen=True)
class HeadlineQuery:
    """The data of a query that a title needs."""

    address: str | None  # None: it is about the header
    source: ChainName
    selector: str  # the request's name of the block
    timestamp: int | None  # unix seconds, where the block was named by a time
    block_number: int | None  # None: not found yet
    fields: Sequence[str]
    slots: Sequence[str]  # the first of them at least
    slot_count: int
    values: Sequence[Value]  # once all its steps are completed


def of_query(query: ShownQuery | HeadlineQuery, *, names_chain: bool = True) -> Headline:
    count = len(query.fields) + query.slot_count
    chain = f" of {query.source.in_words}" if names_chain else ""
    where = f"{'at' if query.address else 'of the header of'} {block_in_words(query)}{chain}"
    if count != 1:
        what = f"{count:,} {'facts' if query.address else 'properties'}"
        return Headline(what, query.address or "", where, state="all proven" if query.values else "")
    answer = next((value.in_short for value in query.values if value.number is not None or value.slot), None)
    return Headline(_fact_in_words(query), query.address or "", where, answer)


def of_batch(total: int, counts: StepCounts, sources: Sequence[ChainName], destination: ChainName) -> Headline:
    """Return the headline of a batch of several queries. `total` is their number."""
    names = [source.in_words for source in sources]
    chains = ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""
    for_whom = destination.in_words
    where = f"about {chains}" + ("" if names == [for_whom] else f", for {for_whom}")
    return of_several(total, counts.at_step.get(None, 0), where)


def of_several(total: int, done: int, where: str, address: str = "") -> Headline:
    """Return the headline of several queries, all of one account if `address` isn't empty."""
    return Headline(f"{total:,} queries", address, where, state="all proven" if done == total else f"{done:,} proven")


def _fact_in_words(query: ShownQuery | HeadlineQuery) -> str:
    if query.fields:
        return _PROPERTIES.get(query.fields[0], query.fields[0]) if query.address else query.fields[0]
    slot = f"{int(query.slots[0], 16):#x}"
    return f"Slot {slot}" if len(slot) <= _MOST_OF_SLOT else "A slot"


def block_in_words(query: ShownQuery | HeadlineQuery) -> str:
    """Return the block that the query is about, a phrase."""
    if query.timestamp is not None:
        return f"the block at {time} UTC" if (time := utc(query.timestamp)) else "the block at a time"
    if query.block_number is not None:
        return f"block {query.block_number}"
    return _TAGGED.get(BlockTag(query.selector), "a block") if query.selector in BlockTag.values else "a block"


def _by_its(ends: tuple[int, int], value: str) -> str:
    start, end = ends
    return f"{value[:start]}…{value[-end:]}"
