"""The title of a batch's page: the answer if one fact was requested, otherwise the progress."""

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
# A title leaves out longer slot numbers, and only says that the fact is a slot.
_MOST_OF_SLOT = 12


@dataclass(frozen=True)
class Headline:
    """A title such as "balance of <address> at <block>: <answer>", from `about`, `address`, `where` and the answer."""

    about: str
    address: str = ""  # or the hash of a transaction; empty: about neither, or several
    where: str = ""
    answer: InShort | None = None
    state: str = ""  # the progress, if there isn't a single answer
    of: str = "of"  # the words before the address

    @property
    def text(self) -> str:
        """Return the title as one line with long values shortened."""
        address = f"{self.of} {_by_its(ADDRESS_ENDS, self.address)}" if self.address else ""
        subject = " ".join(filter(None, (self.about, address, self.where)))
        if self.answer:
            value = _by_its(self.answer.ends, self.answer.text) if self.answer.ends else self.answer.text
            return f"{subject}: {value} {self.answer.unit}".strip()
        return f"{subject}: {self.state}" if self.state else subject


@dataclass(frozen=True)
class HeadlineQuery:
    """The data of a query that a title needs."""

    address: str | None  # None: the query is about no account
    transaction_name: str  # empty: about no transaction
    source: ChainName
    selector: str  # how the request selects the block
    timestamp: int | None  # unix seconds if a time selects the block
    block_number: int | None  # None: unknown yet
    fields: Sequence[str]
    slots: Sequence[str]  # at least the first one
    slot_count: int
    logs: Sequence[str]
    values: Sequence[Value]  # empty until all the query's steps are completed


def of_query(query: ShownQuery | HeadlineQuery, *, names_chain: bool = True) -> Headline:
    count = len(query.fields) + query.slot_count + len(query.logs)
    chain = f" of {query.source.in_words}" if names_chain else ""
    is_of_header = not query.address and not query.transaction_name
    where = f"{'of the header of' if is_of_header else 'at'} {block_in_words(query)}{chain}"
    about = _fact_in_words(query) if count == 1 else f"{count:,} {'properties' if is_of_header else 'facts'}"
    address, of = query.address or query.transaction_name, "of transaction" if query.transaction_name else "of"
    if query.transaction_name.isdecimal():  # an index, which isn't shortened
        about, address = f"{about} of transaction {query.transaction_name}", ""
    if count != 1:
        return Headline(about, address, where, state="all proven" if query.values else "", of=of)
    answers = (value.in_short for value in query.values if value.number is not None or value.slot or value.is_log)
    return Headline(about, address, where, next(answers, None), of=of)


def of_batch(total: int, counts: StepCounts, sources: Sequence[ChainName], destination: ChainName) -> Headline:
    """Return the headline of a batch with several queries. `total` is the number of queries."""
    names = [source.in_words for source in sources]
    chains = ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""
    for_whom = destination.in_words
    where = f"about {chains}" + ("" if names == [for_whom] else f", for {for_whom}")
    return of_several(total, counts.at_step.get(None, 0), where)


def of_several(total: int, done: int, where: str, address: str = "") -> Headline:
    """Return the headline of several queries. They are all about one account if `address` isn't empty."""
    return Headline(f"{total:,} queries", address, where, state="all proven" if done == total else f"{done:,} proven")


def _fact_in_words(query: ShownQuery | HeadlineQuery) -> str:
    if query.fields:
        return _PROPERTIES.get(query.fields[0], query.fields[0]) if query.address else query.fields[0]
    if query.logs:
        return f"Log {query.logs[0]}" if query.logs[0].isdecimal() else "A log"
    slot = f"{int(query.slots[0], 16):#x}"
    return f"Slot {slot}" if len(slot) <= _MOST_OF_SLOT else "A slot"


def block_in_words(query: ShownQuery | HeadlineQuery) -> str:
    """Return a phrase for the query's block."""
    if query.timestamp is not None:
        return f"the block at {time} UTC" if (time := utc(query.timestamp)) else "the block at a time"
    if query.block_number is not None:
        return f"block {query.block_number}"
    if query.selector.startswith("transaction:"):
        return "the block of a transaction"
    return _TAGGED.get(BlockTag(query.selector), "a block") if query.selector in BlockTag.values else "a block"


def _by_its(ends: tuple[int, int], value: str) -> str:
    start, end = ends
    return f"{value[:start]}…{value[-end:]}"
