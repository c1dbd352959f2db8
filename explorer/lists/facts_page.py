"""Facts that registries hold of an account or a block: by whom they were asked for is told nowhere.

`proving.fact_search` finds them, for the API too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.http import QueryDict

from chains.encoding import hex_data
from config.chain_names import ChainName, chain_name
from explorer.batch import code_snippets, fact_display
from explorer.batch.fact_display import Value
from explorer.formatting import csv_lines
from explorer.lists.searched_account import SearchedAccount
from proving import fact_search, facts
from proving.fact_search import FactFilters, FoundFact, Place
from proving.facts import SlotFact
from proving.models import SignedTransaction, Transaction
from queries.models import Block, Query

PAGE_SIZE = 25
_NUMBER, _HASH = re.compile(r"[0-9]{1,18}", re.ASCII), re.compile(r"0x[0-9a-f]{64}", re.IGNORECASE | re.ASCII)
# How many lines a file has at most, and how many facts are read at once for it.
MOST_IN_FILE, _CHUNK = 1000, 100
COLUMNS = (
    *("source_chain_id", "destination_chain_id", "block", "block_hash", "account", "property", "slot", "value", "word"),
    *("registry", "calldata", "transaction"),
)


@dataclass(frozen=True)
class FactRow:
    address: str  # EIP-55; empty: it is a fact of the block
    block: int
    source: ChainName
    destination: ChainName
    value: Value
    transaction_hash: str  # empty: it is not known
    transaction_url: str  # on the destination's own explorer; empty: it has none

    @property
    def reads_itself(self) -> bool:
        """Return whether the fact is read on the chain that it is about."""
        return self.source.id == self.destination.id


@dataclass(frozen=True)
class FactsPage:
    rows: Sequence[FactRow]
    next: str  # where the next page begins; empty: there is none
    address: str  # of a page that begins with the first of them


def read(filters: FactFilters, limit: int, cursor: str = fact_search.START) -> FactsPage:
    found, following = fact_search.search(filters, Place.of(cursor), limit)
    parts = QueryDict(mutable=True)
    parts.update({name: str(value) for name, value in filters if value is not None})
    return FactsPage(list(map(_row, found)), str(following) if following else "", f"/facts?{parts.urlencode()}")


def searched(text: str, account: SearchedAccount | None) -> FactFilters | None:
    """Return what a search finds facts by: an account, or a block, by its number, its hash or that of a transaction.

    None: it can't find any.
    """
    if account:
        return FactFilters(account=account.address) if account.address else None
    if _NUMBER.fullmatch(text):
        return FactFilters.model_validate({"block": str(int(text))})
    block = _with_hash(text.lower()) if _HASH.fullmatch(text) else None
    if block is None:
        return None
    return FactFilters.model_validate({"block": str(block.number), "sourceChainId": str(block.source_chain_id)})


def _with_hash(text: str) -> Block | None:
    """Return the block that has this hash; else the first of those that a transaction with this hash is about."""
    sent = SignedTransaction.objects.filter(hash=text).values("transaction")
    queries = Transaction.queries.through.objects.filter(transaction__in=sent).values("query")
    about = Block.objects.filter(pk__in=Query.objects.filter(pk__in=queries).values("block")).order_by("pk")
    return Block.objects.filter(hash=text).first() or about.first()


def csv(filters: FactFilters, cursor: str) -> tuple[list[str], str]:
    """Return the lines of a file, and where the next file begins; empty: all of it is in this one."""
    lines, place = [csv_lines.line(COLUMNS)], cursor
    for _ in range(MOST_IN_FILE // _CHUNK):
        found, following = fact_search.search(filters, Place.of(place), _CHUNK)
        lines += [csv_lines.line(_cells(one)) for one in found]
        place = str(following) if following else ""
        if not place:
            break
    return lines, place


def _row(one: FoundFact) -> FactRow:
    source, destination = chain_name(one.block.source_chain_id), chain_name(one.block.destination_chain_id)
    snippets = code_snippets.reading(one.registry, one.block.number, one.fact)
    has_url = bool(one.transaction_hash and destination.explorer_url)
    return FactRow(
        address=one.address,
        block=one.block.number,
        source=source,
        destination=destination,
        value=fact_display.value(one.fact, one.word, source.currency, one.registry, snippets),
        transaction_hash=one.transaction_hash,
        transaction_url=f"{destination.explorer_url}/tx/{one.transaction_hash}" if has_url else "",
    )


def _cells(one: FoundFact) -> Iterator[str]:
    block = one.block
    yield from map(str, (block.source_chain_id, block.destination_chain_id, block.number, block.hash, one.address))
    yield facts.name(one.fact)
    yield one.fact.slot if isinstance(one.fact, SlotFact) else ""
    yield str(int.from_bytes(one.word)) if facts.is_number(one.fact) else ""
    yield from (hex_data(one.word), one.registry, facts.calldata(block.number, one.fact), one.transaction_hash)
