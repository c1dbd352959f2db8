"""The facts of a batch as a table for spreadsheets, with one line per fact in the order of the request."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from api.fact_schema import log_json
from batch_query_client.stated_words import stated_call
from chains.encoding import hex_data
from explorer.formatting import csv_lines
from proving import facts
from proving.facts import EntryFact, Fact, LogFact, SlotFact
from proving.reading import query_values
from proving.reading.query_values import QueryValues, RequestedEntry
from queries.models import Batch, BatchStatus, Query
from queries.query_rows import from_number

TRANSACTION_COLUMNS = ("source_transaction", "source_transaction_hash", "log", "log_emitter", "log_topics", "log_data")
COLUMNS = (
    *("query", "source_chain_id", "destination_chain_id", "block", "block_hash", "account", "name", "property", "slot"),
    *("state", "value", "word", *TRANSACTION_COLUMNS, "slot_said_to_be"),
)
# Queries that are read at once.
_CHUNK = 500


def lines(batch: Batch) -> Iterator[str]:
    """Yield CSV (RFC 4180), with a header.

    Numbers are decimal, and amounts are in wei. Words are as the registry returns them.

    A fact that isn't proven, or no longer is, has neither value nor word.
    """
    yield csv_lines.line(COLUMNS)
    for first in count(1, _CHUNK):
        queries = from_number(batch, first, _CHUNK)
        if not queries:
            break
        values = query_values.read({query: facts.of(query) for query in queries if facts.may_be_told(batch, query)})
        for query in queries:
            known = values.get(query.pk) or QueryValues.untold(query)
            for fact in facts.of(query):
                cells = _cells(batch, query, fact, known.words.get(fact))
                yield csv_lines.line([*cells, *transaction_cells(fact, known.entry), said_to_be(fact)])


def _cells(batch: Batch, query: Query, fact: Fact, word: bytes | None) -> list[str]:
    block = query.block
    is_header = isinstance(fact, facts.HeaderFact | facts.TimeFact)
    number = None if word is None else facts.number(fact, word)
    unproven = "rejected" if batch.status == BatchStatus.REJECTED else "open"
    return [
        str(query.position + 1),
        str(query.source_chain_id),
        str(batch.destination_chain_id),
        str(block.number) if block else "",
        block.hash if block else "",
        "" if is_header else query.address,
        "" if is_header else query.name,
        facts.name(fact),
        fact.slot if isinstance(fact, SlotFact) else "",
        unproven if word is None else "proven",
        "" if number is None else str(number),
        hex_data(word) if word is not None else "",
    ]


def said_to_be(fact: Fact) -> str:
    """Return the call from which the batch's sender says that a slot's word is the answer."""
    return stated_call(fact.name) if isinstance(fact, SlotFact) else ""


def transaction_cells(fact: Fact, transaction: RequestedEntry | None) -> list[str]:
    """Return the cells of `TRANSACTION_COLUMNS`, which are empty for other facts. Topics are separated by spaces."""
    match fact:
        case EntryFact() if transaction:
            return [str(fact.entry), transaction.hash, "", "", "", ""]
        case LogFact() if transaction:
            told = transaction.log(fact.log)
            log: dict[str, Any] = log_json(told) if told else {}
            content = [log.get("emitter", ""), " ".join(log.get("topics", ())), log.get("data", "")]
            return [str(fact.entry), transaction.hash, str(fact.log), *content]
    return [""] * len(TRANSACTION_COLUMNS)
