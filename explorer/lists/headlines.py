"""The title of a batch's page: the answer if one fact was requested, otherwise the progress."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from config.chain_names import ChainName, chain_name
from explorer.batch import fact_display
from explorer.batch.fact_display import InShort, Value
from explorer.formatting import slot_words
from explorer.formatting.slot_words import ADDRESS_ENDS
from explorer.formatting.utc_times import utc
from proving.reading.batch_waits import StepCounts
from queries.columns import AccountField
from queries.models import BlockTag, Query, QueryKind

_PROPERTIES = {
    AccountField.NONCE.name: "Nonce",
    AccountField.BALANCE.name: "Balance",
    AccountField.STORAGE_ROOT.name: "Storage root",
    AccountField.CODE_HASH.name: "Code hash",
}
_TAGGED = {BlockTag.LATEST: "the newest block", BlockTag.FINALIZED: "the newest final block"}


@dataclass(frozen=True)
class Headline:
    """A title such as "balance of <address> at block <number>: <answer>"."""

    about: str
    address: str = ""  # empty: about no account, or several
    before_address: str = "of"
    transaction: str = ""  # its hash
    where: str = ""
    block: int | None = None  # the number that follows `where`
    of_chain: str = ""  # the words after the block
    source: ChainName | None = None  # the chain of the account, the transaction and the block
    answer: InShort | None = None
    state: str = ""  # the progress, if there isn't a single answer

    @property
    def text(self) -> str:
        """Return the title as one line with long values shortened."""
        address = f"{self.before_address} {_by_its(ADDRESS_ENDS, self.address)}" if self.address else ""
        transaction = f"of transaction {_by_its(ADDRESS_ENDS, self.transaction)}" if self.transaction else ""
        block = "" if self.block is None else f"{self.block:,}"
        parts = (self.about, address, transaction, self.where, block, self.of_chain)
        subject = " ".join(filter(None, parts))
        if self.answer:
            value = _by_its(self.answer.ends, self.answer.text) if self.answer.ends else self.answer.text
            return f"{subject}: {value} {self.answer.unit_and_note}".strip()
        return f"{subject}: {self.state}" if self.state else subject


def of_query(query: Query, count: int, values: Sequence[Value], *, names_chain: bool = True) -> Headline:
    """Return the headline of a query with this number of facts. `values` are those that are known."""
    is_of_header, source = query.kind == QueryKind.HEADER, chain_name(query.source_chain_id)
    about = _fact_in_words(query) if count == 1 else f"{count:,} {'properties' if is_of_header else 'facts'}"
    is_index = query.transaction_name.isdecimal()  # which isn't shortened
    answers = (value.in_short for value in values if value.number is not None or value.slot or value.is_log)
    line = Headline(
        f"{about} of transaction {query.transaction_name}" if is_index else about,
        query.address,
        # The holder comes before the token, as in `LEND balance of 0x7099…79C8 in 0x5FbD…0aa3`.
        "in" if " of " in about else "of",
        "" if is_index else query.transaction_name,
        of_chain=f"of {source.in_words}" if names_chain else "",
        source=source,
        answer=next(answers, None) if count == 1 else None,
        state="all proven" if values and count != 1 else "",
    )
    return at_block(line, query, "of the header of" if is_of_header else "at")


def of_batch(total: int, counts: StepCounts, sources: Sequence[ChainName], destination: ChainName) -> Headline:
    """Return the headline of a batch with several queries. `total` is the number of queries."""
    names = [source.in_words for source in sources]
    chains = ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""
    for_whom = destination.in_words
    where = f"about {chains}" + ("" if names == [for_whom] else f", to read on {for_whom}")
    return Headline(f"{total:,} queries", where=where, state=progress(total, counts.at_step.get(None, 0)))


def progress(total: int, done: int) -> str:
    return "all proven" if done == total else f"{done:,} proven"


def _fact_in_words(query: Query) -> str:
    if fields := query.property_names:
        return _PROPERTIES.get(fields[0], fields[0]) if query.kind == QueryKind.ACCOUNT else fields[0]
    if logs := fact_display.log_names(query):
        return f"Log {logs[0]}" if logs[0].isdecimal() else "A log"
    return slot_words.title(query.slots[0], query.slot_names.get(query.slots[0]))


def at_block(line: Headline, query: Query, where: str = "at") -> Headline:
    """Return the headline with the query's block after the words `where`."""
    if query.timestamp is None and query.block:
        return replace(line, where=f"{where} block", block=query.block.number)
    return replace(line, where=f"{where} {_block_in_words(query)}")


def _block_in_words(query: Query) -> str:
    if query.timestamp is not None:
        return f"the block at {time} UTC" if (time := utc(query.timestamp)) else "the block of a given time"
    if query.selector.startswith("transaction:"):
        return "the block of a transaction"
    return _TAGGED.get(BlockTag(query.selector), "a block") if query.selector in BlockTag.values else "a block"


def _by_its(ends: tuple[int, int], value: str) -> str:
    start, end = ends
    return f"{value[:start]}…{value[-end:]}"
