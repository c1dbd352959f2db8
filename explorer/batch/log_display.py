"""Logs of proven transactions for pages, decoded by an event's signature: a reader's, or a known one."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Self

from eth_abi.exceptions import ParseError
from eth_abi.grammar import ABIType, BasicType, NodeVisitor, TupleType, normalize
from eth_utils.crypto import keccak

from chains.encoding import checksummed, hex_data
from chains.nodes.receipts import ReceiptLog

MOST_OF_SIGNATURE = 500
"""Maximum characters of a signature."""
# Maximum depth of tuples in a signature, and of arrays.
_MOST_DEPTH = 8
# Maximum values, lists among them, that a page decodes. Several pointers in a log's data may lead to the same bytes.
_MOST_VALUES = 1000
# An address counts as several values, because its checksum takes as long.
_VALUES_OF_AN_ADDRESS = 4
# Maximum bytes of a log's data, and characters of a value, that a page shows.
_MOST_SHOWN = 1024
_EVENT_SENTENCES = {
    "another_event": "This log comes from another event, or an anonymous one: its topic 0 differs.",
    "bad_signature": (
        "This is not an event's signature. Write it as in Solidity, such as "
        "Transfer(address indexed from, address indexed to, uint256 value)."
    ),
    "not_its_data": "The log's data doesn't fit this event.",
    "other_topics": "This event has {named} indexed values, and this log has {held}: check the word indexed.",
}
KNOWN_EVENTS: tuple[str, ...] = tuple(
    tomllib.loads((Path(__file__).parent / "known_events.toml").read_text("utf-8"))["events"]
)
# The emitter of the logs that the chain itself writes where ETH moves (EIP-7708).
_ETH = bytes.fromhex("ff" * 19 + "fe")
_ETH_TRANSFER = "ETH transfer"
# Each is matched in time proportional to a text whose white space is single spaces.
_SIGNATURE = re.compile(r"(?:event )?([A-Za-z_$][\w$]*) ?\((.*)\) ?(anonymous)?(?: ?;| ?)", re.ASCII)
_NAME = re.compile(r"(?<=[\w\])]) [A-Za-z_$][\w$]*", re.ASCII)
_INNERMOST = re.compile(r"\([^()]*\)")
_TOO_DEEP = re.compile(rf"(?:\[[0-9]*\]){{{_MOST_DEPTH + 1}}}")
_BASIC = re.compile(r"(?:u?int|u?fixed|bytes)[0-9x]*|address|bool|string")
_WORD = 32  # bytes
_ALL_DIGITS = Context(prec=78)  # of 256 bits


@dataclass(frozen=True)
class _Type:
    kind: ABIType
    name: str
    is_dynamic: bool
    size: int
    """Bytes of a value, or of the pointer to a dynamic value, in a list."""
    parts: "tuple[_Type, ...]"
    """Types of a tuple's values, or the only type of an array's."""

    @classmethod
    def of(cls, kind: ABIType) -> Self:
        inner = [kind.item_type] if kind.is_array else kind.components if isinstance(kind, TupleType) else ()
        parts, name = tuple(map(cls.of, inner)), str(kind.to_type_str())  # type: ignore[no-untyped-call]  # the library's
        if kind.is_dynamic or not parts:
            return cls(kind, name, kind.is_dynamic, _WORD, parts)
        (length,) = kind.arrlist[-1] if kind.is_array else (1,)
        return cls(kind, name, is_dynamic=False, size=length * sum(part.size for part in parts), parts=parts)


@dataclass(frozen=True)
class _Parameter:
    type: _Type
    name: str
    is_indexed: bool

    @property
    def is_hashed(self) -> bool:
        """Return whether a topic has the keccak-256 of the value, because the value may be longer."""
        return self.is_indexed and (self.type.is_dynamic or bool(self.type.parts))


@dataclass(frozen=True)
class DecodedValue:
    type: str
    name: str
    text: str
    is_hashed: bool = False


@dataclass(frozen=True)
class LogDisplay:
    """A log, and its values if an event's signature fits it."""

    log: ReceiptLog
    problem: str = ""
    event: str = ""
    values: tuple[DecodedValue, ...] = ()
    values_left_out: int = 0
    signature: str = ""
    """The signature of a known event, which no reader has typed."""

    @property
    def is_eth_transfer(self) -> bool:
        """Return whether the chain itself wrote the log. A token can't write one with this emitter."""
        return self.log.emitter == _ETH and bool(self.event)

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


def shown(logs: Mapping[int, ReceiptLog], signature: str) -> dict[int, LogDisplay]:
    """Return a page's logs, with their values by an event's signature. If that is empty, known events are tried."""
    if not signature:
        most_of_one = _MOST_VALUES // max(1, len(logs))
        return {number: _by_known_events(log, most_of_one) for number, log in logs.items()}
    try:
        event = _Event.parse(signature)
    except _NotDecoded as why:
        return {number: LogDisplay(log, str(why)) for number, log in logs.items()}
    most_values = _MOST_VALUES // max(1, sum(map(event.is_of, logs.values())))
    return {number: _named(event.shown(log, most_values)) for number, log in logs.items()}


def _by_known_events(log: ReceiptLog, most_values: int) -> LogDisplay:
    """Return a log with its values by the first known event that fits it, if there is one."""
    tried = ((text, event.shown(log, most_values)) for text, event in _known_events() if event.is_of(log))
    fits = (replace(fit, signature=text) for text, fit in tried if not fit.problem)
    return next((_named(fit) for fit in fits), LogDisplay(log))


def _named(display: LogDisplay) -> LogDisplay:
    """Call a transfer of ETH so, whatever event its form is of."""
    return replace(display, event=_ETH_TRANSFER, signature="") if display.is_eth_transfer else display


class _NotDecoded(ValueError):
    def __init__(self, code: str, **values: int) -> None:
        super().__init__(_EVENT_SENTENCES[code].format(**values))


class _EnoughValues(Exception):
    """A page may decode no more values of this log."""


@dataclass(frozen=True)
class _Event:
    name: str
    parameters: tuple[_Parameter, ...]
    is_anonymous: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a signature as in Solidity, which may leave out names. Raises `_NotDecoded`."""
        match = _SIGNATURE.fullmatch(" ".join(text.split()))
        if match is None:
            raise _NotDecoded("bad_signature")
        try:
            return cls(match[1], tuple(_parameters(match[2])), bool(match[3]))
        except (ParseError, ValueError):
            raise _NotDecoded("bad_signature") from None

    @cached_property
    def topic(self) -> bytes:
        return keccak(f"{self.name}({','.join(each.type.name for each in self.parameters)})".encode())

    def is_of(self, log: ReceiptLog) -> bool:
        return self.is_anonymous or log.topics[:1] == (self.topic,)

    def shown(self, log: ReceiptLog, most_values: int) -> LogDisplay:
        try:
            values = tuple(self._values(log, most_values))
        except _NotDecoded as why:
            return LogDisplay(log, problem=str(why))
        return LogDisplay(log, "", self.name, values, values_left_out=len(self.parameters) - len(values))

    def _values(self, log: ReceiptLog, most_values: int) -> Iterator[DecodedValue]:
        """Yield the values of a log in the order of the signature. Raises `_NotDecoded`."""
        if not self.is_of(log):
            raise _NotDecoded("another_event")
        topics = log.topics if self.is_anonymous else log.topics[1:]
        plain = [each.type for each in self.parameters if not each.is_indexed]
        if (named := len(self.parameters) - len(plain)) != len(topics):
            raise _NotDecoded("other_topics", named=named, held=len(topics))
        of_topics, of_data = iter(topics), _LogData(log.data, most_values).values(plain, 0)
        for each in self.parameters:
            if each.is_hashed:
                text = hex_data(next(of_topics))
            elif each.is_indexed:
                text = _text_of_word(each.type.kind, next(of_topics))
            else:
                try:
                    text = _cut(next(of_data))
                except _EnoughValues:
                    return
            yield DecodedValue(each.type.name, each.name, text, each.is_hashed)


@cache
def _known_events() -> list[tuple[str, _Event]]:
    return [(text, _Event.parse(text)) for text in KNOWN_EVENTS]


def _parameters(text: str) -> Iterator[_Parameter]:
    """Yield the parameters between the brackets of a signature. Raises `ParseError` and `ValueError`."""
    if not text.strip():
        return
    flat = text
    for _ in range(_MOST_DEPTH):
        flat = _INNERMOST.sub("tuple", flat)
    types = re.sub(r" ?([(),[\]]) ?", r"\1", _NAME.sub("", re.sub(r"\btuple ?\(", "(", text))).strip()
    basic = filter(None, re.split(r"[(),]|\[[0-9]*\]", types := normalize(types)))  # type: ignore[no-untyped-call]  # the library's
    if "(" in flat or _TOO_DEEP.search(types) or not all(map(_BASIC.fullmatch, basic)):
        raise ValueError
    # A parser keeps all that it has parsed, so that each signature gets its own.
    all_types = NodeVisitor().parse(f"({types})")  # type: ignore[no-untyped-call]  # the library's
    for kind, words in zip(all_types.components, map(str.split, flat.split(",")), strict=True):
        kind.validate()
        name = words[-1] if words[1:] and words[-1] != "indexed" else ""
        yield _Parameter(_Type.of(kind), name, "indexed" in words[1:])


# --- Values -----------------------------------------------------------------------------------------------------------


class _LogData:
    """The data of a log. Only what is shown of it is decoded."""

    def __init__(self, data: bytes, most_values: int) -> None:
        self._data, self._values_left = data, most_values

    def values(self, types: Iterable[_Type], start: int) -> Iterator[Iterator[str]]:
        """Yield the values of a list that begins at `start`, each as pieces of text.

        It and the pieces raise `_NotDecoded` and `_EnoughValues`.
        """
        at = start
        for of_value in types:
            if self._values_left <= 0:
                raise _EnoughValues
            self._values_left -= _VALUES_OF_AN_ADDRESS if of_value.name == "address" else 1
            yield self._pieces(of_value, start + self._number(at) if of_value.is_dynamic else at)
            at += of_value.size

    def _pieces(self, of_value: _Type, at: int) -> Iterator[str]:
        if of_value.kind.is_array:
            (item,), length = of_value.parts, of_value.kind.arrlist[-1]
            items = (item for _ in range(*length or [self._number(at)]))
            yield from self._list("[]", items, at if length else at + _WORD)
        elif of_value.parts:
            yield from self._list("()", of_value.parts, at)
        elif of_value.is_dynamic:
            length, first = self._number(at), at + _WORD
            if first + length > len(self._data):
                raise _NotDecoded("not_its_data")
            # A character has four bytes at most. One more than is shown says that the text is cut.
            content = self._data[first : first + min(length, 4 * (_MOST_SHOWN + 1))]
            yield content.decode(errors="replace") if of_value.name == "string" else hex_data(content)
        else:
            yield _text_of_word(of_value.kind, self._word(at))

    def _list(self, brackets: str, types: Iterable[_Type], start: int) -> Iterator[str]:
        yield brackets[0]
        for place, pieces in enumerate(self.values(types, start)):
            yield ", " if place else ""
            yield from pieces
        yield brackets[1]

    def _number(self, at: int) -> int:
        return int.from_bytes(self._word(at))

    def _word(self, at: int) -> bytes:
        word = self._data[at : at + _WORD]
        if len(word) < _WORD:
            raise _NotDecoded("not_its_data")
        return word


def _cut(texts: Iterator[str]) -> str:
    shown = ""
    try:
        for text in texts:
            shown += text
            if len(shown) > _MOST_SHOWN:
                return f"{shown[:_MOST_SHOWN]}…"
    except _EnoughValues:
        return f"{shown}…"
    return shown


def _text_of_word(kind: ABIType, word: bytes) -> str:
    """Return the text of a value that has one word. Raises `_NotDecoded`."""
    number, is_signed = int.from_bytes(word), isinstance(kind, BasicType) and kind.base in {"int", "fixed"}
    if is_signed and word[0] >= 0x80:
        number -= 2**256
    match kind:
        case BasicType(base="address") if number < 2**160:
            return str(checksummed(hex_data(word[12:])))
        case BasicType(base="bool") if number < 2:
            return "true" if number else "false"
        case BasicType(base="bytes", sub=size) if not any(word[size:]):
            return hex_data(word[:size])
        case BasicType(base="int" | "uint", sub=bits) if number >> (bits - is_signed) in {0, -is_signed}:
            return str(number)
        case BasicType(base="fixed" | "ufixed", sub=(bits, places)) if number >> (bits - is_signed) in {0, -is_signed}:
            return str(_ALL_DIGITS.divide(Decimal(number), Decimal(10**places)))
    raise _NotDecoded("not_its_data")
