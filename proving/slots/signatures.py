"""View functions by their signature, and calls of them with arguments as texts."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eth_abi.abi import decode, encode, is_encodable
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak

from chains.encoding import checksummed, fault, hex_data, read_data
from queries.storage_layout import ANSWER_TYPE, ARGUMENT_TYPE, FUNCTION_NAME
from queries.strict_json import shown

SIGNATURE = rf"^({FUNCTION_NAME})\(([a-z0-9, ]{{0,200}})\) ?(\([a-z0-9 ]{{1,20}}\))?$"
"""Pattern for the API's description too."""
MOST_ARGUMENTS = 4
MOST_CHARACTERS = 2048
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,64}|-?[0-9]{1,78}", re.ASCII)
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


class InvalidCall(ValueError):
    """The signature, or one of the arguments, is wrong. `argument` is its place. None: the signature."""

    def __init__(self, sentence: str, argument: int | None = None) -> None:
        super().__init__(sentence)
        self.argument = argument


@dataclass(frozen=True)
class Argument:
    type: str
    value: Any
    """An int, a bool, bytes or text, or an address (EIP-55)."""

    @property
    def key(self) -> str | dict[str, str]:
        """Return the argument as a key of a `NamedSlot`."""
        if self.type == "bytes32":
            return hex_data(self.value)
        if self.type == "string":
            return {"key": self.value, "type": "string"}
        if self.type.startswith("bytes"):
            return {"key": hex_data(self.value), "type": self.type}
        return str(int(self.value)) if self.type != "address" else str(self.value)

    @property
    def number(self) -> int | None:
        """Return the argument as an index of an array."""
        return int(self.value) if self.type.startswith("uint") else None

    def made_up(self, step: int) -> Any:
        """Return another value of the type: one that no contract knows, a boolean, or a number that is near."""
        made = secrets.token_bytes(32)
        match self.value:
            case bool():
                return not self.value
            case int():
                nearby = (self.value + step, self.value + 1, self.value - 1)
                return next(number for number in nearby if is_encodable(self.type, number))
            case bytes():
                return made if self.type == "bytes" else made[: len(self.value)]
        return made.hex() if self.type == "string" else checksummed(hex_data(made[:20]))


@dataclass(frozen=True)
class FunctionCall:
    """A call of a view function."""

    signature: str
    """Canonical: without names and spaces, with full types."""
    arguments: tuple[Argument, ...]
    answer_type: str = ""
    """Empty: the sender doesn't name it."""

    @classmethod
    def parse(cls, signature: str, arguments: Sequence[str]) -> "FunctionCall":
        """Read a call. Raises `InvalidCall`."""
        if (match := re.fullmatch(SIGNATURE, signature, re.ASCII)) is None:
            raise InvalidCall(f"A signature has a name and types, such as balanceOf(address), not {shown(signature)}.")
        name, inner, returned = match.groups(default="")
        types = [_full(each) for each in inner.split(",")] if inner.strip() else []
        answer_type = _full(returned.strip("()"))
        if returned and not re.fullmatch(ANSWER_TYPE, answer_type, re.ASCII):
            why = "A return type is address, bool, bytes1 to bytes32, or uint8 to int256"
            raise InvalidCall(f"{why}, not {shown(answer_type)}.")
        for each in types:
            if not re.fullmatch(ARGUMENT_TYPE, each, re.ASCII):
                why = "Types are address, bool, string, bytes, bytes1 to bytes32, and uint8 to int256"
                raise InvalidCall(f"{why}, not {shown(each)}.")
        if len(types) > MOST_ARGUMENTS:
            raise InvalidCall(f"A call has at most {MOST_ARGUMENTS} arguments.")
        if len(arguments) != len(types):
            plural = "s" * (len(types) != 1)
            raise InvalidCall(f"The signature has {len(types)} argument{plural}, not {len(arguments)}.")
        read = [_read(*both, place) for place, both in enumerate(zip(types, arguments, strict=True))]
        return cls(f"{name}({','.join(types)})", tuple(read), answer_type)

    @cached_property
    def data(self) -> bytes:
        """Return the calldata."""
        types, values = [each.type for each in self.arguments], [each.value for each in self.arguments]
        return keccak(text=self.signature)[:4] + bytes(encode(types, values))

    @property
    def words(self) -> Sequence[int]:
        """Return the words of the calldata's arguments, for text and bytes where they begin."""
        return [int.from_bytes(self.data[at : at + 32]) for at in range(4, 4 + 32 * len(self.arguments), 32)]

    @property
    def stated(self) -> str:
        """Return the signature with the type of the answer, if the sender names it."""
        return f"{self.signature}({self.answer_type})" if self.answer_type else self.signature

    def text(self, answer: int) -> str:
        """Return an answer of one word as its type says. Without a type it is a number. Raises `ValueError`."""
        try:
            (value,) = decode([self.answer_type or "uint256"], answer.to_bytes(32))
        except DecodingError:
            raise ValueError(f"The call answers {answer:#x}, which is no {self.answer_type}.") from None
        match value:
            case bool():
                return str(value).lower()
            case bytes():
                return hex_data(value)
        return str(checksummed(value) if self.answer_type == "address" else value)

    @property
    def in_words(self) -> str:
        """Return the function with its arguments, for sentences."""
        keys = [key["key"] if isinstance(key, dict) else key for key in (each.key for each in self.arguments)]
        return f"{self.signature.partition('(')[0]}({', '.join(shown(key)[1:-1] for key in keys)})"

    @cached_property
    def made_up(self) -> "FunctionCall":
        """Return a call with other arguments, which nobody has stored anything for."""
        # The last argument may be an index, so that it gets no larger.
        steps = [*range(1, len(self.arguments)), -1]
        others = [replace(each, value=each.made_up(step)) for each, step in zip(self.arguments, steps, strict=False)]
        return replace(self, arguments=tuple(others))


def _full(kind: str) -> str:
    return {"uint": "uint256", "int": "int256"}.get(kind.strip(), kind.strip())


def _read(kind: str, text: str, place: int) -> Argument:
    """Read an argument. Raises `InvalidCall`."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidCall(f"An argument has at most {MOST_CHARACTERS} characters.", place)
    try:
        return Argument(kind, _value(kind, text))
    except ValueError as why:
        raise InvalidCall(f"{shown(text)} {why}.", place) from None


def _value(kind: str, text: str) -> Any:
    """Return an argument's value. Raises `ValueError`, whose words stand after the text."""
    if kind == "address":
        if (address := checksummed(text)) is None:
            raise ValueError(fault(text))
        return address
    if kind == "string":
        if "\0" in text:
            raise ValueError("has a zero byte")
        return text
    if kind == "bool":
        if text not in _BOOLEANS:
            raise ValueError("is neither true nor false")
        return _BOOLEANS[text]
    if kind.startswith("bytes"):
        try:
            return read_data(text, None if kind == "bytes" else int(kind.removeprefix("bytes")))
        except ValueError:
            raise ValueError(f"is no {kind}: write 0x and two digits for each byte") from None
    number = int(text, 16 if text.startswith("0x") else 10) if _NUMBER.fullmatch(text) else None
    if number is None or not is_encodable(kind, number):
        raise ValueError(f"is no {kind}: write a number in decimal, or in hexadecimal with 0x")
    return number
