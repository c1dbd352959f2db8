"""The form of facts in the API: the word, and the call that reads the word from the facts registry."""

from dataclasses import dataclass
from typing import Annotated, Any

from ninja import Schema
from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from chains.encoding import checksummed, hex_data
from chains.nodes.receipts import ReceiptLog
from proving import facts
from proving.facts import EntryFact, LogFact, SlotFact
from proving.reading.query_values import RequestedEntry
from queries.models import Block
from queries.storage_layout import NamedSlot


@dataclass(frozen=True)
class _DescribedAs:
    """A schema of the API's description, for values that are stored in its form."""

    model: type[BaseModel]

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self.model.__pydantic_core_schema__)


SlotName = Annotated[dict[str, Any], _DescribedAs(NamedSlot)]
"""A slot as the request has named it, with what its sender has stated."""


class Call(Schema):
    to: str = Field(description="The facts registry.")
    data: str = Field(description="Calldata. The call returns the word, and reverts while nothing is proven.")


class ShownTransaction(Schema):
    index: str | None = Field(description="The index in the block, decimal. null: not known yet.")
    hash: str | None = Field(description="null: not known. The proof of a receipt doesn't show it.")


class ShownLog(Schema):
    index: str = Field(description="Within the receipt, decimal.")
    emitter: str
    topics: list[str]
    data: str


class Fact(Schema):
    property: str = Field(description="The name of a property, SLOT, LOG, or BLOCK_AT_TIMESTAMP.")
    slot: str | None = Field(description="Of SLOT: 0x and 64 hexadecimal digits.")
    slotName: SlotName | None = Field(description="Of a SLOT that the request has named.")
    transaction: ShownTransaction | None = Field(description="null: it is not about a transaction.")
    log: ShownLog | None = Field(description="Of LOG, as soon as `word`, which is its hash, is shown.")
    word: str | None = Field(description="32 bytes. null: its query is not completed.")
    value: str | None = Field(
        description="The word, or the part that `slotName` states, as a decimal number. null: it isn't a number, or is "
        "not known."
    )
    registry: str | None = Field(description="The facts registry on the destination chain. null: there is none yet.")
    call: Call | None = Field(
        description="How to read the fact there. null: the registry or the block isn't known yet."
    )


def fact_json(
    fact: facts.Fact,
    word: bytes | None,
    registry: str | None,
    block: Block | None,
    transaction: RequestedEntry | None,
) -> dict[str, Any]:
    """Return the fact as a `Fact`."""
    number = None if word is None else facts.number(fact, word)
    log = transaction.log(fact.log) if transaction and isinstance(fact, LogFact) else None
    return {
        "property": facts.name(fact),
        "slot": fact.slot if isinstance(fact, SlotFact) else None,
        "slotName": fact.name if isinstance(fact, SlotFact) else None,
        "transaction": transaction_json(transaction) if isinstance(fact, EntryFact | LogFact) else None,
        "log": {"index": str(fact.log), **log_json(log)} if log and isinstance(fact, LogFact) else None,
        "word": None if word is None else hex_data(word),
        "value": None if number is None else str(number),
        "registry": registry,
        "call": {"to": registry, "data": facts.calldata(block.number, fact)} if registry and block else None,
    }


def transaction_json(transaction: RequestedEntry | None) -> dict[str, str | None] | None:
    """Return the transaction as a `ShownTransaction`."""
    if transaction is None:
        return None
    index = None if transaction.index is None else str(transaction.index)
    return {"index": index, "hash": transaction.hash or None}


def log_json(log: ReceiptLog) -> dict[str, Any]:
    """Return the content of a log: a `ShownLog` without its index."""
    topics = list(map(hex_data, log.topics))
    return {"emitter": checksummed(hex_data(log.emitter)), "topics": topics, "data": hex_data(log.data)}
