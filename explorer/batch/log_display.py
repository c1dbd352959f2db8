"""Logs of proven transactions for pages, decoded by the signature of an event that a reader types."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from eth_abi.abi import is_encodable_type
from eth_abi.codec import ABIDecoder
from eth_abi.decoding import ContextFramesBytesIO
from eth_abi.exceptions import DecodingError, ParseError
from eth_abi.grammar import ABIType, TupleType, normalize, parse
from eth_abi.registry import registry
from eth_utils.crypto import keccak

from chains.encoding import checksummed, hex_data
from chains.receipts import Log

MOST_OF_SIGNATURE = 500
"""Maximum characters of a signature."""
# Maximum depth of tuples in a signature, and maximum product of its fixed lengths of arrays.
_MOST_DEPTH, _MOST_ITEMS = 8, 1000
# Several pointers in a log's data may lead to the same bytes. The bytes are read this often in all.
_MOST_READINGS = 16
# Maximum bytes of a log's data, and characters of a value, that a page shows.
_MOST_SHOWN = 1024
_EVENT_SENTENCES = {
    "another_event": "Topic 0 of this log isn't that of this event. It is of another event, or of an anonymous one.",
    "bad_signature": (
        "This is no event's signature. Write it as in Solidity, such as "
        "Transfer(address indexed from, address indexed to, uint256 value)."
    ),
    "not_its_data": "The data of this log isn't that of this event.",
    "other_topics": "This event has {named} indexed values, and this log has {held}: look where it says indexed.",
}
_SIGNATURE = re.compile(r"\s*(?:event\s+)?([A-Za-z_$][\w$]*)\s*\((.*)\)\s*(anonymous)?\s*;?\s*", re.ASCII | re.DOTALL)
_NAME = re.compile(r"(?<=[\w\])])\s+[A-Za-z_$][\w$]*", re.ASCII)
_INNERMOST = re.compile(r"\([^()]*\)")


class _LogData(ContextFramesBytesIO):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)  # type: ignore[no-untyped-call]  # the library's
        self._left = _MOST_READINGS * len(data)

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self._left -= len(content)
        if self._left < 0:
            raise DecodingError
        return content


class _LogDecoder(ABIDecoder):
    stream_class = _LogData


_DECODER = _LogDecoder(registry)


@dataclass(frozen=True)
class _Parameter:
    type: ABIType
    name: str
    is_indexed: bool

    @property
    def is_hashed(self) -> bool:
        """Return whether a topic has the keccak-256 of the value, because the value may be longer."""
        return self.is_indexed and (self.type.is_array or self.type.is_dynamic or isinstance(self.type, TupleType))


@dataclass(frozen=True)
class DecodedValue:
    type: str
    name: str
    text: str
    is_hashed: bool = False


@dataclass(frozen=True)
class ShownLog:
    """A log, and its values if a reader's signature of an event fits it."""

    log: Log
    problem: str = ""
    event: str = ""
    values: tuple[DecodedValue, ...] = ()

    @property
    def emitter(self) -> str:
        return str(checksummed(hex_data(self.log.emitter)))

    @property
    def topics(self) -> list[str]:
        return list(map(hex_data, self.log.topics))

    @property
    def data(self) -> str:
        return hex_data(self.log.data[:_MOST_SHOWN])

    @property
    def bytes_left_out(self) -> int:
        return max(0, len(self.log.data) - _MOST_SHOWN)


def shown(log: Log, signature: str) -> ShownLog:
    """Return the log for a page, with its values by an event's signature unless that is empty."""
    if not signature:
        return ShownLog(log)
    try:
        event = _Event.parse(signature)
        return ShownLog(log, event=event.name, values=tuple(event.values(log)))
    except _NotDecoded as why:
        return ShownLog(log, problem=str(why))


class _NotDecoded(ValueError):
    def __init__(self, code: str, **values: int) -> None:
        super().__init__(_EVENT_SENTENCES[code].format(**values))


@dataclass(frozen=True)
class _Event:
    name: str
    parameters: tuple[_Parameter, ...]
    is_anonymous: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a signature as in Solidity, which may leave out names. Raises `_NotDecoded`."""
        match = _SIGNATURE.fullmatch(text)
        if match is None:
            raise _NotDecoded("bad_signature")
        try:
            return cls(match[1], tuple(_parameters(match[2])), bool(match[3]))
        except (ParseError, ValueError):
            raise _NotDecoded("bad_signature") from None

    @property
    def topic(self) -> bytes:
        return keccak(f"{self.name}({','.join(_name(each.type) for each in self.parameters)})".encode())

    def values(self, log: Log) -> Iterator[DecodedValue]:
        """Yield the values of a log in the order of the signature. Raises `_NotDecoded`."""
        if not self.is_anonymous and log.topics[:1] != (self.topic,):
            raise _NotDecoded("another_event")
        topics = log.topics if self.is_anonymous else log.topics[1:]
        plain = [each for each in self.parameters if not each.is_indexed]
        if (named := len(self.parameters) - len(plain)) != len(topics):
            raise _NotDecoded("other_topics", named=named, held=len(topics))
        of_topics, of_data = iter(topics), iter(_decoded([each.type for each in plain], log.data))
        for each in self.parameters:
            if each.is_hashed:
                text = hex_data(next(of_topics))
            else:
                (value,) = _decoded([each.type], next(of_topics)) if each.is_indexed else (next(of_data),)
                text = _text(each.type, value)
            short = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
            yield DecodedValue(_name(each.type), each.name, short, each.is_hashed)


def _parameters(text: str) -> Iterator[_Parameter]:
    """Yield the parameters between the brackets of a signature. Raises `ParseError` and `ValueError`."""
    if not text.strip():
        return
    # A product of lengths takes memory as the same number of values does.
    if math.prod(int(length) for length in re.findall(r"\[([0-9]+)", text)) > _MOST_ITEMS:
        raise ValueError
    flat = text
    for _ in range(_MOST_DEPTH):
        flat = _INNERMOST.sub("tuple", flat)
    if "(" in flat:
        raise ValueError
    types = re.sub(r"\s*([(),[\]])\s*", r"\1", _NAME.sub("", re.sub(r"\btuple\s*\(", "(", text))).strip()
    all_types = parse(normalize(f"({types})"))  # type: ignore[no-untyped-call]  # the library's
    assert isinstance(all_types, TupleType)
    for kind, words in zip(all_types.components, map(str.split, flat.split(",")), strict=True):
        kind.validate()
        if not is_encodable_type(_name(kind)):
            raise ValueError
        yield _Parameter(kind, words[-1] if words[1:] and words[-1] != "indexed" else "", "indexed" in words[1:])


def _name(kind: ABIType) -> str:
    return str(kind.to_type_str())  # type: ignore[no-untyped-call]  # the library's


def _decoded(types: list[ABIType], data: bytes) -> tuple[Any, ...]:
    # A string in a log may be no UTF-8. As bytes it is decoded all the same.
    names = [_name(kind).replace("string", "bytes") for kind in types]
    try:
        return _DECODER.decode(names, data, strict=False)
    except (DecodingError, ValueError, OverflowError):
        raise _NotDecoded("not_its_data") from None


def _text(kind: ABIType, value: Any) -> str:
    if kind.is_array:
        return f"[{', '.join(_text(kind.item_type, item) for item in value)}]"
    if isinstance(kind, TupleType):
        return f"({', '.join(map(_text, kind.components, value))})"
    if isinstance(value, bytes):
        return value.decode(errors="replace") if _name(kind) == "string" else hex_data(value)
    return str(checksummed(value)) if isinstance(value, str) else str(value).lower()
