"""Logs of proven transactions for pages, decoded by an event's signature: a reader's, or a known one."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

from eth_abi.decoding import ContextFramesBytesIO, TupleDecoder
from eth_abi.exceptions import ABITypeError, DecodingError, ParseError
from eth_abi.grammar import normalize, parse
from eth_abi.registry import registry
from eth_utils.crypto import keccak

from chains.encoding import checksummed, hex_data
from chains.nodes.receipts import ReceiptLog

MOST_OF_SIGNATURE = 500
"""Maximum characters of a signature."""
# Maximum bytes of data that a page decodes, of all its logs. An item of a list has a word of 32 bytes.
_MOST_DECODED = 32 * 1024
# Maximum bytes of a log's data, and characters of a value, that a page shows.
_MOST_SHOWN = 1024
_EVENT_SENTENCES = {
    "another_event": "This log comes from another event, or an anonymous one: its topic 0 differs.",
    "bad_signature": (
        "This is not an event's signature with types that pages decode: elementary ones, and lists of these. Write it "
        "as in Solidity, such as Transfer(address indexed from, address indexed to, uint256 value)."
    ),
    "not_its_data": "The log's data doesn't fit this event.",
    "other_topics": "This event has {named} indexed values, and this log has {held}: check the word indexed.",
    "too_long": "A page decodes at most 32,768 bytes of its logs' data.",
}
KNOWN_EVENTS: tuple[str, ...] = tuple(
    tomllib.loads((Path(__file__).parent / "known_events.toml").read_text("utf-8"))["events"]
)
# The emitter of the logs that the chain itself writes where ETH moves (EIP-7708).
_ETH = bytes.fromhex("ff" * 19 + "fe")
_ETH_TRANSFER = "ETH transfer"
# Each is matched in time proportional to a text whose white space is single spaces. There are few types, so that the
# library's caches of types and decoders stay small. Lists of lists would cost it more than the data is long.
_SIGNATURE = re.compile(r"(?:event )?([A-Za-z_$][\w$]*) ?\((.*)\) ?(anonymous)?(?: ?;| ?)", re.ASCII)
_PARAMETER = re.compile(
    r" ?((?:address|bool|string|(?:u?int|bytes)[0-9]{0,3})(?:\[\])?)( indexed)?(?: ([A-Za-z_$][\w$]*))? ?", re.ASCII
)


@dataclass(frozen=True)
class _Parameter:
    type: str
    is_indexed: bool
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a parameter of a signature. Raises `_NotDecoded`."""
        match = _PARAMETER.fullmatch(text)
        if match is None:
            raise _NotDecoded("bad_signature")
        kind = normalize(match[1])  # type: ignore[no-untyped-call]  # the library's
        try:
            parse(kind).validate()
        except (ABITypeError, ParseError):
            raise _NotDecoded("bad_signature") from None
        return cls(kind, bool(match[2]), match[3] or "")

    @property
    def is_hashed(self) -> bool:
        """Return whether a topic has the keccak-256 of the value, because the value may be longer."""
        return self.is_indexed and self.type.endswith(("[]", "string", "bytes"))


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
    try:
        tried = [_Event.parse(signature)] if signature else _known_events()
    except _NotDecoded as why:
        return {number: LogDisplay(log, str(why)) for number, log in logs.items()}
    displays, bytes_left = dict[int, LogDisplay](), _MOST_DECODED
    for number, log in logs.items():
        events = [event for event in tried if event.is_of(log)]
        if not events:
            display = LogDisplay(log, _EVENT_SENTENCES["another_event"] if signature else "")
        elif (needed := max(event.cost(log) for event in events)) > bytes_left:
            display = LogDisplay(log, _EVENT_SENTENCES["too_long"])
        else:
            bytes_left -= needed
            all_displays = [event.shown(log) for event in events]
            # Known events share their topic 0 if other values are indexed.
            otherwise = all_displays[0] if signature else LogDisplay(log)
            display = next((each for each in all_displays if not each.problem), otherwise)
        displays[number] = _named(display)
    return displays


def _named(display: LogDisplay) -> LogDisplay:
    """Call a transfer of ETH so, whatever event its form is of."""
    return replace(display, event=_ETH_TRANSFER, signature="") if display.is_eth_transfer else display


class _NotDecoded(ValueError):
    def __init__(self, code: str, **values: int) -> None:
        super().__init__(_EVENT_SENTENCES[code].format(**values))


@dataclass(frozen=True)
class _Event:
    name: str
    parameters: tuple[_Parameter, ...]
    is_anonymous: bool
    signature: str = ""
    """The signature of a known event, which no reader has typed."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a signature as in Solidity, which may leave out names. Raises `_NotDecoded`."""
        match = _SIGNATURE.fullmatch(" ".join(text.split()))
        if match is None:
            raise _NotDecoded("bad_signature")
        parameters = map(_Parameter.parse, match[2].split(",") if match[2].strip() else ())
        return cls(match[1], tuple(parameters), bool(match[3]))

    @cached_property
    def topic(self) -> bytes:
        return keccak(f"{self.name}({','.join(each.type for each in self.parameters)})".encode())

    def is_of(self, log: ReceiptLog) -> bool:
        return self.is_anonymous or log.topics[:1] == (self.topic,)

    def cost(self, log: ReceiptLog) -> int:
        """Return how many bytes a page decodes of a log at most. Several lists may lead to the same bytes."""
        return len(log.data) * max(1, sum(each.type.endswith("[]") for each in self.parameters))

    def shown(self, log: ReceiptLog) -> LogDisplay:
        """Return a log of this event with its values, or with the reason that they can't be decoded."""
        try:
            return LogDisplay(log, event=self.name, values=tuple(self._values(log)), signature=self.signature)
        except _NotDecoded as why:
            return LogDisplay(log, problem=str(why))

    def _values(self, log: ReceiptLog) -> Iterator[DecodedValue]:
        """Yield the values of a log in the order of the signature. Raises `_NotDecoded`."""
        topics = log.topics if self.is_anonymous else log.topics[1:]
        plain = [each.type for each in self.parameters if not each.is_indexed]
        if (named := len(self.parameters) - len(plain)) != len(topics):
            raise _NotDecoded("other_topics", named=named, held=len(topics))
        of_topics, of_data = iter(topics), iter(_decoded(plain, log.data))
        for each in self.parameters:
            if each.is_hashed:
                text = hex_data(next(of_topics))
            elif each.is_indexed:
                (text,) = _decoded([each.type], next(of_topics))
            else:
                text = next(of_data)
            yield DecodedValue(each.type, each.name, text, each.is_hashed)


@cache
def _known_events() -> list[_Event]:
    return [replace(_Event.parse(text), signature=text) for text in KNOWN_EVENTS]


def _decoded(types: Sequence[str], data: bytes) -> list[str]:
    """Return values as texts. Raises `_NotDecoded`."""
    if not types:
        return []
    # A decoder of all types together would stay in the library's cache, and strings that aren't UTF-8 would be errors.
    decoders = [registry.get_decoder(kind.replace("string", "bytes")) for kind in types]
    decode = TupleDecoder(decoders=decoders)  # type: ignore[no-untyped-call]  # the library's
    try:
        values = decode(ContextFramesBytesIO(data))  # type: ignore[no-untyped-call]  # the library's
    except (DecodingError, OverflowError):
        raise _NotDecoded("not_its_data") from None
    texts = [_text(kind, value) for kind, value in zip(types, values, strict=True)]
    return [text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…" for text in texts]


def _text(kind: str, value: Any) -> str:
    if kind.endswith("[]"):
        return f"[{', '.join(_text(kind[:-2], item) for item in value)}]"
    match kind:
        case "address":
            return str(checksummed(value))
        case "bool":
            return "true" if value else "false"
        case "string":
            return str(value.decode(errors="replace"))
    return hex_data(value) if kind.startswith("bytes") else str(value)
