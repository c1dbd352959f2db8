"""Storage slots by name: the slot of a variable, and the keys that lead from it to the slot of a value.

Sources: the Solidity documentation, "Layout of State Variables in Storage", and what Vyper's compilers do. The tests
compare both with compiled contracts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from eth_utils.crypto import keccak
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from batch_query_client.amounts import answer_type, typed
from batch_query_client.stated_words import MOST_DECIMALS, SYMBOL
from chains import encoding
from queries.strict_json import invalid, shown, text_type

# Maximum keys of a slot, and bytes of one key.
_MOST_KEYS, _MOST_BYTES = 16, 1024
# Numbers of slots, and of slots that a struct may have.
_WORDS, _MEMBERS = 1 << 256, 1 << 64
ALL = _WORDS - 1
"""A word with all bits."""
_NUMBER, _KEY = "(0x[0-9a-fA-F]{1,64}|[0-9]{1,78})", "(0x[0-9a-fA-F]{1,64}|-?[0-9]{1,78})"
_KEY_TYPE = "^(string|bytes([1-9]|[12][0-9]|3[0-2])?)$"
# Digits that an address has when some are missing, or are too many.
_NEARLY_ADDRESS = re.compile("0x([0-9a-fA-F]{37,39}|[0-9a-fA-F]{41,43})")
MOST_OF_NAME = _MOST_KEYS * (6 * _MOST_BYTES + 100) + 700
"""More characters than a name has as JSON, where each byte of a text may be escaped as `\\u0001` is."""
# Patterns for the API's description too.
SLOT = "^(0x)?[0-9a-fA-F]{1,64}$"
_BITS = "|".join(str(bits) for bits in range(8, 257, 8))
ARGUMENT_TYPE = rf"(address|bool|string|bytes([1-9]|[12][0-9]|3[0-2])?|u?int({_BITS}))"
"""Canonical type of a call's argument that is no list or struct."""
FUNCTION_NAME = "[A-Za-z_$][A-Za-z0-9_$]{0,63}"
ANSWER_TYPE = rf"(address|bool|bytes([1-9]|[12][0-9]|3[0-2])|u?int({_BITS}))"
"""Canonical type of an answer that is one word."""
_CALL = rf"^{FUNCTION_NAME}\(({ARGUMENT_TYPE}(,{ARGUMENT_TYPE}){{0,3}})?\)(\({ANSWER_TYPE}\))?$"


def slot_hex(value: object) -> str:
    """Return a slot in hexadecimal digits as 0x and 64 digits."""
    if not isinstance(value, str) or not re.fullmatch(SLOT, value, re.ASCII):
        raise invalid(f"A storage slot is up to 64 hexadecimal digits, not {shown(value)}.")
    return f"0x{int(value, 16):064x}"


def integer(text: str) -> int:
    """Return a number that is written as in keys."""
    return int(text, 16 if text.startswith("0x") else 10)


def read_number(value: object) -> int | None:
    """Return a number of 256 bits that is written as in keys; None for anything else."""
    if not isinstance(value, str) or not re.fullmatch(_NUMBER, value, re.ASCII):
        return None
    return number if (number := integer(value)) < _WORDS else None


def _number(value: object) -> str:
    if not isinstance(value, str) or read_number(value) is None:
        raise invalid(f"A number is up to 256 bits in decimal, or in hexadecimal with 0x, not {shown(value)}.")
    return value


def _value(value: object) -> str:
    """Check a key of one word: an address, a number, or 32 bytes."""
    if (
        not isinstance(value, str)
        or not re.fullmatch(_KEY, value, re.ASCII)
        or not -_WORDS // 2 <= integer(value) < _WORDS
    ):
        raise invalid(
            "A key is a number in decimal, or up to 64 hexadecimal digits with 0x, or an object with key and type, "
            f"index or member, not {shown(value)}."
        )
    if _NEARLY_ADDRESS.fullmatch(value):
        raise invalid(
            f"An address has 40 digits after 0x, and {shown(value)} has {len(value) - 2}: write such a number in "
            "decimal, or with 64 digits."
        )
    is_checked = len(value) == len("0x") + 40 and value.startswith("0x") and value != value.lower()
    if is_checked and encoding.checksummed(value) is None:
        raise invalid(f"{shown(value)} {encoding.fault(value)}.")
    return value


def _integer(least: int, most: int) -> Any:
    """Return a type of integers."""

    def check(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise invalid(f"It is an integer from {least} to {most}.")
        return value

    return BeforeValidator(check, json_schema_input_type=Annotated[int, Field(ge=least, le=most)])


_Number = Annotated[str, BeforeValidator(_number, json_schema_input_type=Annotated[str, Field(pattern=f"^{_NUMBER}$")])]
_Value = Annotated[str, BeforeValidator(_value, json_schema_input_type=Annotated[str, Field(pattern=f"^{_KEY}$")])]
_KeyType = Annotated[
    str,
    text_type(
        _KEY_TYPE,
        "The type of a key is string, bytes, or bytes1 to bytes32, not {}: write an address, a number or a bool as a "
        "string instead of an object.",
    ),
]
_Call = Annotated[
    str,
    text_type(
        _CALL,
        "A call is a view function's name and full types without spaces, such as balanceOf(address) or "
        "pnl(address)(int256), not {}.",
    ),
]
_Symbol = Annotated[
    str,
    text_type(
        SYMBOL,
        "A symbol is up to 20 letters and digits, two letters first, also with ₮ _ + / -, not {}.",
    ),
]
_SlotText = Annotated[str, BeforeValidator(slot_hex, json_schema_input_type=Annotated[str, Field(pattern=SLOT)])]


class _StrictKey(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class MappingKey(_StrictKey):
    """A mapping's key whose type can't be seen from its text."""

    key: str = Field(description="Text, or bytes in hexadecimal with 0x.")
    type: _KeyType

    @model_validator(mode="after")
    def _is_of_type(self) -> "MappingKey":
        # PostgreSQL stores no zero byte in JSON.
        if self.type == "string" and "\0" in self.key:
            raise invalid("Write a text with a zero byte as bytes.")
        try:
            size = len(self.content)
        except ValueError:
            raise invalid(f"A key of the type {self.type} is 0x and two hexadecimal digits for each byte.") from None
        if size > _MOST_BYTES:
            raise invalid(f"A key has at most {_MOST_BYTES} bytes.")
        if not self.is_hashed and size != (most := int(self.type.removeprefix("bytes"))):
            raise invalid(f"A key of the type {self.type} has {most} bytes, not {size}.")
        return self

    @property
    def is_hashed(self) -> bool:
        """Return whether the key may be longer than a word."""
        return self.type in {"string", "bytes"}

    @property
    def content(self) -> bytes:
        return self.key.encode() if self.type == "string" else encoding.read_data(self.key)


class ArrayElement(_StrictKey):
    """An element of an array. The content of a long string, or of long bytes, is a dynamic array of words."""

    index: _Number
    size: _Number = Field(default="32", description="Bytes of an element, like solc's `numberOfBytes`.")
    length: _Number | None = Field(default=None, description="The length of a fixed array.")

    @model_validator(mode="after")
    def _is_within(self) -> "ArrayElement":
        if not integer(self.size):
            raise invalid("An element has at least one byte.")
        if self.length is not None and integer(self.index) >= integer(self.length):
            raise invalid("The index is not below the length.")
        return self


class StructMember(_StrictKey):
    """A member of a struct."""

    member: _Number = Field(
        description="The member's slot in the struct, like solc's `slot` of a member. In `vyper-0.2.12`, the number "
        "of members before it. Below 2^64."
    )

    @model_validator(mode="after")
    def _is_small(self) -> "StructMember":
        if integer(self.member) >= _MEMBERS:
            raise invalid("The place of a member is below 2^64.")
        return self


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "[element]" if "index" in value else "[member]" if "member" in value else "[mapping]"
    return "[value]"


SlotKey = Annotated[
    Annotated[_Value, Tag("[value]")]
    | Annotated[MappingKey, Tag("[mapping]")]
    | Annotated[ArrayElement, Tag("[element]")]
    | Annotated[StructMember, Tag("[member]")],
    Discriminator(_kind),
]


class SlotPart(_StrictKey):
    """A part of a slot's word."""

    offset: Annotated[int, _integer(0, 255)] = Field(description="In bits, counted from the lowest.")
    size: Annotated[int, _integer(1, 256)] = Field(description="In bits.")
    form: Literal["unsigned", "signed", "left", "bool"] = Field(
        description="How the call returns this part: padded with zeros, with its sign, or on the right; or as 1 "
        "unless it is 0."
    )

    @model_validator(mode="after")
    def _is_within(self) -> "SlotPart":
        if self.offset + self.size > 256:
            raise invalid("A part ends within the 256 bits of its word.")
        return self


@dataclass(frozen=True)
class Part:
    """The part of a slot's word that is the answer of a call."""

    offset: int = 0
    """In bits, counted from the lowest."""
    size: int = 256
    """In bits."""
    form: Literal["unsigned", "signed", "left", "bool"] = "unsigned"
    """The form of the answer: padded by zeros, or by the sign, or on the right; or 1 unless the part is 0."""

    @classmethod
    def stated(cls, name: Mapping[str, Any] | None) -> "Part":
        """Return the part that a slot's name states, as the stated type of the answer reads it.

        The whole word, if it states none.
        """
        part = cls(**((name and name.get("part")) or {}))
        return cls(*typed(part.offset, part.size, part.form, answer_type(name)))  # type: ignore[arg-type]

    @property
    def is_whole(self) -> bool:
        return self.size == 256

    @property
    def mask(self) -> int:
        """Return a word with the bits of the part."""
        return ((1 << self.size) - 1) << self.offset

    def number(self, word: int, *, is_amount: bool) -> int:
        """Return the answer as a number. Bytes on the left are the number that they are, unless it `is_amount`."""
        content = (word >> self.offset) & ((1 << self.size) - 1)
        match self.form:
            case "bool":
                return int(content != 0)
            case "left" if is_amount:
                return content << (256 - self.size)
            case "signed" if content >> (self.size - 1):
                return content - (1 << self.size)
        return content

    def answer(self, word: int) -> int:
        """Return the word that the call answers if the slot holds `word`."""
        return self.number(word, is_amount=True) & ALL


class NamedSlot(_StrictKey):
    """A value's storage slot by the slot of its variable.

    `call`, `part`, `decimals` and `symbol` are for readers: the sender states them, and nothing checks or proves them.
    """

    slot: _SlotText = Field(description="The variable's slot, in hexadecimal.")
    keys: list[SlotKey] = Field(
        max_length=_MOST_KEYS,
        description="From the variable to the value, the outermost first. None with `call`, `part`, `decimals` or "
        "`symbol`: the slot is the variable's. A mapping's key is a string: a number in decimal, or an address or word "
        "with 0x, padded on the left.",
    )
    layout: Literal["solidity", "vyper", "vyper-0.2.12"] = Field(
        default="solidity", description="The compiler. `vyper-0.2.12`: Vyper 0.2.0 to 0.2.12."
    )
    call: _Call | None = Field(
        default=None,
        description="The view function that answers it, such as `balanceOf(address)` or `pnl(address)(int256)`, as you "
        "state.",
    )
    part: SlotPart | None = Field(default=None, description="The part of the word that is the answer, as you state.")
    decimals: Annotated[int, _integer(0, MOST_DECIMALS)] | None = Field(
        default=None, description="The answer's decimal places, as you state."
    )
    symbol: _Symbol | None = Field(default=None, description="The token's symbol, such as `USDC`, as you state.")

    @model_validator(mode="after")
    def _leads_somewhere(self) -> "NamedSlot":
        if not self.keys and not self._stated:
            raise invalid("'keys' is empty: nothing to prove.")
        return self

    @property
    def _stated(self) -> dict[str, Any]:
        return self.model_dump(include={"call", "part", "decimals", "symbol"}, exclude_none=True)

    @cached_property
    def number(self) -> str:
        """Return the value's slot: 0x and 64 digits."""
        slot = int(self.slot, 16)
        for key in self.keys:
            slot = slot_after(slot, key, self.layout)
        return f"0x{slot:064x}"

    @property
    def name(self) -> dict[str, Any]:
        """Return the name as JSON."""
        keys = [key if isinstance(key, str) else key.model_dump(exclude_unset=True) for key in self.keys]
        return {"slot": f"{int(self.slot, 16):#x}", "keys": keys, "layout": self.layout, **self._stated}


def slot_after(slot: int, key: str | MappingKey | ArrayElement | StructMember, layout: str) -> int:
    """Return the slot to which a key leads from the slot of a variable, or of a value that contains others."""
    word, is_solidity, is_old = slot.to_bytes(32), layout == "solidity", layout == "vyper-0.2.12"
    if isinstance(key, str):
        content = (integer(key) % _WORDS).to_bytes(32)
        return _hash(content + word if is_solidity else word + content)
    if isinstance(key, MappingKey):
        content = key.content if key.is_hashed else key.content.ljust(32, b"\0")
        if is_solidity:
            return _hash(content + word)
        return _hash(word + (keccak(content) if key.is_hashed else content))
    if isinstance(key, StructMember):
        return ((_hash(word) if is_old else slot) + integer(key.member)) % _WORDS
    index, size, is_dynamic = integer(key.index), integer(key.size), key.length is None
    first = _hash(word) if is_old or (is_solidity and is_dynamic) else slot
    if is_old:
        slots = index
    elif is_solidity and size <= 32:
        slots = index // (32 // size)
    else:
        slots = index * -(-size // 32)
    # Vyper keeps the length before the elements.
    return (first + slots + (is_dynamic and not is_solidity)) % _WORDS


def _hash(content: bytes) -> int:
    return int.from_bytes(keccak(content))


Slot = Annotated[
    Annotated[_SlotText, Tag("[slot]")] | Annotated[NamedSlot, Tag("[named]")],
    Discriminator(lambda value: "[named]" if isinstance(value, dict | NamedSlot) else "[slot]"),
]
