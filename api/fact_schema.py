"""The form of facts in the API: the word, and the call that reads the word from the facts registry."""

from typing import Any

from ninja import Schema
from pydantic import Field

from chains.encoding import hex_data
from proving import facts
from proving.facts import SlotFact
from queries.models import Block


class Call(Schema):
    to: str = Field(description="The facts registry.")
    data: str = Field(description="Calldata. The call returns the word, and reverts while nothing is proven.")


class Fact(Schema):
    property: str = Field(description="The name of a property, SLOT, or BLOCK_AT_TIMESTAMP.")
    slot: str | None = Field(description="Of SLOT: 0x and 64 hexadecimal digits.")
    word: str | None = Field(description="32 bytes. null: its query is not completed.")
    value: str | None = Field(description="The word as a number, decimal. null: it isn't one, or is not known.")
    registry: str | None = Field(description="The facts registry on the destination chain. null: there is none yet.")
    call: Call | None = Field(description="How to read it there. null: the registry or the block isn't known yet.")


def fact_json(fact: facts.Fact, word: bytes | None, registry: str | None, block: Block | None) -> dict[str, Any]:
    """Return the fact as a `Fact`."""
    return {
        "property": facts.name(fact),
        "slot": fact.slot if isinstance(fact, SlotFact) else None,
        "word": None if word is None else hex_data(word),
        "value": str(int.from_bytes(word)) if word is not None and facts.is_number(fact) else None,
        "registry": registry,
        "call": {"to": registry, "data": facts.calldata(block.number, fact)} if registry and block else None,
    }
