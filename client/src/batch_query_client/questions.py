"""Queries for the service: accounts, headers, transactions and withdrawals of blocks, as the body of a request."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from operator import index
from typing import Any, Literal

AccountProperty = Literal["BALANCE", "NONCE", "STORAGE_ROOT", "CODE_HASH"]
TransactionProperty = Literal["STATUS", "TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT", "HASH"]

HEADER_PROPERTIES = (
    *("PARENT_HASH", "UNCLES_HASH", "COINBASE", "STATE_ROOT", "TRANSACTIONS_ROOT", "RECEIPTS_ROOT", "LOGS_BLOOM"),
    *("DIFFICULTY", "BLOCK_NUMBER", "GAS_LIMIT", "GAS_USED", "TIMESTAMP", "EXTRA_DATA", "MIX_HASH", "NONCE"),
    *("BASE_FEE_PER_GAS", "WITHDRAWALS_ROOT", "BLOB_GAS_USED", "EXCESS_BLOB_GAS", "PARENT_BEACON_BLOCK_ROOT"),
    *("REQUESTS_HASH", "BLOCK_ACCESS_LIST_HASH", "SLOT_NUMBER"),
)
"""The fields of a header in the order of its RLP (Yellow Paper, section 4.3, and later EIPs)."""

ACCOUNT_PROPERTIES = ("NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH")
"""The properties of an account in the order of the facts registry's enum."""

RECEIPT_PROPERTIES = ("STATUS", "TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT")
"""The properties of a receipt in the order of the facts registry's enum."""

TRANSACTION_PROPERTIES = (*RECEIPT_PROPERTIES, "HASH")
"""The properties of a transaction: those of its receipt, and its hash."""

NUMBERS = {
    *("NONCE", "BALANCE", "BLOCK_AT_TIMESTAMP", "DIFFICULTY", "BLOCK_NUMBER", "GAS_LIMIT", "GAS_USED", "TIMESTAMP"),
    *("BASE_FEE_PER_GAS", "BLOB_GAS_USED", "EXCESS_BLOB_GAS", "SLOT_NUMBER"),
    *RECEIPT_PROPERTIES,
}
"""Properties whose words are numbers. BLOCK_AT_TIMESTAMP is the result of a query by time."""
assert NUMBERS - {"BLOCK_AT_TIMESTAMP"} <= {*ACCOUNT_PROPERTIES, *HEADER_PROPERTIES, *RECEIPT_PROPERTIES}

Block = int | str
"""A number, `"latest"`, `"finalized"`, or a selector of the API: `"block:15"`, `"timestamp:1700000000"`, or
`"transaction:0x..."`, the block that holds the transaction of this hash."""

Slot = int | str | bytes | Mapping[str, Any]
"""A storage slot: a number, up to 64 hexadecimal digits with or without 0x, 32 bytes, or a name as the API takes it:
`{"slot": "0x2", "keys": ["0x..."], "layout": "solidity"}`."""

_NAMED_BLOCKS = {"latest", "finalized"}
_SELECTOR = re.compile(r"(block|timestamp):[0-9]+|transaction:0x[0-9a-fA-F]{64}", re.ASCII)
_TRANSACTION = re.compile(r"[0-9]+|0x[0-9a-fA-F]{64}", re.ASCII)
_HEX = re.compile(r"(0x)?[0-9a-fA-F]{1,64}", re.ASCII)


_Bytes = bytes | bytearray | memoryview


def _whole(value: Any, what: str) -> int:
    """Return an integer of any type that is one, such as numpy's. Raises `ValueError`."""
    if not isinstance(value, bool):
        with suppress(TypeError):
            return index(value)
    raise _wrong(f"{what} is an integer", value)


def _items(value: Any, what: str, of: type = object) -> tuple[Any, ...]:
    """Return the items of a list or of something like it, all of this type. Raises `ValueError`."""
    is_list = isinstance(value, Iterable) and not isinstance(value, str | _Bytes | Mapping)
    items = tuple(value) if is_list else ()
    if not is_list or not all(isinstance(item, of) for item in items):
        raise _wrong(f"{what} are a list{' of strings' if of is str else ''}", value)
    return items


def _wrong(sentence: str, value: Any) -> ValueError:
    return ValueError(f"{sentence}, not {value!r:.100}.")


@dataclass(frozen=True, kw_only=True)
class _AtBlock:
    chain: int
    """The id of the source chain."""
    block: Block | None = None
    time: float | datetime | None = None
    """Instead of a block: a time at which it was the latest, in seconds since 1970 or with a time zone."""

    @property
    def selector(self) -> str:
        """Return the block in the API's spelling."""
        if self.time is not None:
            seconds = self.time.timestamp() if isinstance(self.time, datetime) else self.time
            return f"timestamp:{int(seconds)}"
        # That of a member of an enumeration is its value.
        return str.__str__(self.block) if isinstance(self.block, str) else f"block:{self.block}"

    def _set(self, name: str, value: object) -> None:
        """Replace a field of this frozen object by what was read from it."""
        object.__setattr__(self, name, value)

    def _check(self) -> None:
        self._set("chain", _whole(self.chain, "A chain id"))
        if (self.block is None) == (self.time is None):
            raise ValueError("Name either a block or a time.")
        if isinstance(self.time, datetime) and self.time.tzinfo is None:
            raise ValueError("A time needs its time zone.")
        if isinstance(self.time, float) and math.isfinite(self.time):
            self._set("time", int(self.time))
        if self.time is not None and not isinstance(self.time, datetime):
            self._set("time", _whole(self.time, "A time in seconds"))
        if self.block is not None and not isinstance(self.block, str):
            self._set("block", _whole(self.block, "A block that isn't named in text"))
        if not (self.selector in _NAMED_BLOCKS or _SELECTOR.fullmatch(self.selector)):
            raise _wrong("A block is a number, 'latest' or 'finalized'", self.block)


@dataclass(frozen=True)
class Account(_AtBlock):
    """Properties and storage slots of one account at one block.

    Raises `ValueError` if no property or slot is given. The service makes further checks, for example whether an ENS
    name exists, and answers with `InvalidRequest`.
    """

    address: str
    """0x and 40 hexadecimal digits, in mixed case with their EIP-55 checksum; or an ENS name."""
    props: Sequence[AccountProperty] = field(default=(), kw_only=True)
    slots: Sequence[Slot] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        if not isinstance(self.address, str):
            raise _wrong("An address is text", self.address)
        self._set("props", _items(self.props, "Properties", str))
        slots = _items(self.slots, "Slots")
        self._set("slots", tuple(slot if isinstance(slot, Mapping) else slot_hex(slot) for slot in slots))
        if not self.props and not self.slots:
            raise ValueError("Name properties or storage slots of the account.")


@dataclass(frozen=True)
class Header(_AtBlock):
    """Properties of one block's header. `HEADER_PROPERTIES` has their names."""

    props: Sequence[str]

    def __post_init__(self) -> None:
        self._check()
        self._set("props", _items(self.props, "Properties", str))
        if not self.props:
            raise ValueError("Name properties of the header.")


@dataclass(frozen=True)
class Transaction(_AtBlock):
    """Properties and logs of one transaction of a block. Raises `ValueError` if none is given.

    A transaction that is named by its hash needs no block.
    """

    transaction: int | str
    """The index in the block, or the hash: 0x and 64 hexadecimal digits."""
    props: Sequence[TransactionProperty] = field(default=(), kw_only=True)
    logs: Sequence[int] = field(default=(), kw_only=True)
    """Indexes of logs within the receipt."""
    block_logs: Sequence[int] = field(default=(), kw_only=True)
    """Indexes of logs within the block, as `eth_getLogs` counts them."""

    def __post_init__(self) -> None:
        if not isinstance(self.transaction, str):
            self._set("transaction", _whole(self.transaction, "A transaction that isn't named in text"))
        if not _TRANSACTION.fullmatch(str(self.transaction)):
            raise _wrong("A transaction is its index, or 0x and 64 hexadecimal digits", self.transaction)
        if self.block is None and self.time is None and str(self.transaction).startswith("0x"):
            object.__setattr__(self, "block", f"transaction:{str(self.transaction).lower()}")
        self._check()
        self._set("props", _items(self.props, "Properties", str))
        for name in ("logs", "block_logs"):
            self._set(name, tuple(_whole(log, "The index of a log") for log in _items(getattr(self, name), "Logs")))
        if not self.props and not self.logs and not self.block_logs:
            raise ValueError("Name properties of the transaction, or logs.")


@dataclass(frozen=True)
class Withdrawals(_AtBlock):
    """Withdrawals from the beacon chain in one block, for proofs to read them. They are never stored."""

    places: Sequence[int]
    """In the block, from 0."""

    def __post_init__(self) -> None:
        self._check()
        self._set("places", tuple(_whole(place, "A place") for place in _items(self.places, "Places")))
        if not self.places:
            raise ValueError("Name the places of withdrawals.")


@dataclass(frozen=True)
class Webhook:
    """The receiver of a batch's events (Standard Webhooks). `verify_webhook` checks the deliveries."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    events: Sequence[Literal["DONE", "REJECTED", "WENT_BACK", "STEP"]] = ()
    """Empty: the first three."""

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise _wrong("A webhook's URL is text", self.url)
        is_mapping = isinstance(self.headers, Mapping)
        if not is_mapping or not all(isinstance(text, str) for header in self.headers.items() for text in header):
            # They may be secrets.
            raise ValueError("A webhook's headers are a mapping from text to text.")
        object.__setattr__(self, "events", _items(self.events, "Events", str))


def slot_hex(slot: int | str | bytes) -> str:
    """Return the slot as 0x and 64 digits. Raises `ValueError`."""
    if isinstance(slot, _Bytes):
        slot = int.from_bytes(slot)
    if isinstance(slot, str) and _HEX.fullmatch(slot):
        slot = int(slot, 16)
    with suppress(ValueError):
        if 0 <= (number := _whole(slot, "A storage slot")) < 1 << 256:
            return f"0x{number:064x}"
    raise _wrong("A storage slot is a number of 256 bits, or up to 64 hexadecimal digits", slot)


def body(
    *,
    destination: int,
    queries: Iterable[Account | Header | Transaction | Withdrawals],
    fee: int | str | None = None,
    is_paid_by_caller: bool = False,
    webhook: Webhook | None = None,
    label: str | None = None,
) -> dict[str, Any]:
    """Return the body of a submission. Queries for the same account at the same block are merged.

    Raises `ValueError`.
    """
    data = _data(_items(queries, "Queries"))
    if not data:
        raise ValueError("Name at least one account, transaction, header or withdrawal.")
    document: dict[str, Any] = {"destinationChainId": str(_whole(destination, "The id of the destination"))}
    if fee is not None:
        document["fee"] = fee if isinstance(fee, str) else str(_whole(fee, "A fee in wei"))
    if is_paid_by_caller:
        document["sender"] = "self"
    if webhook is not None:
        if not isinstance(webhook, Webhook):
            # It may be a URL with a token.
            raise ValueError("A webhook is a Webhook, which has the URL.")
        document["webhook"] = {"url": webhook.url, "headers": dict(webhook.headers)}
        if webhook.events:
            document["webhook"]["events"] = list(webhook.events)
    if label is not None:
        document["label"] = label
    return document | {"data": data}


def _data(queries: Iterable[Any]) -> dict[str, Any]:
    """Group the queries by source chain and selector.

    Properties and slots become keys, so that each occurs once, in order. A key's value, if any, is listed instead.
    """
    data: dict[str, dict[str, Any]] = {}
    # The service rejects an account that occurs twice, in upper or lower case.
    entries: dict[tuple[int, str, str], dict[str, dict[str, Any]]] = {}
    for query in queries:
        if not isinstance(query, Account | Header | Transaction | Withdrawals):
            raise _wrong("A query is an Account, Header, Transaction or Withdrawals", query)
        block = data.setdefault(str(query.chain), {}).setdefault(query.selector, {})
        if isinstance(query, Header):
            block.setdefault("header", {}).update(dict.fromkeys(query.props))
            continue
        if isinstance(query, Withdrawals):
            block.setdefault("withdrawals", {}).update(dict.fromkeys(map(str, query.places)))
            continue
        if isinstance(query, Transaction):
            entry = block.setdefault("transactions", {}).setdefault(str(query.transaction).lower(), {})
            for name, asked in (("props", query.props), ("logs", query.logs), ("blockLogs", query.block_logs)):
                entry.setdefault(name, {}).update(dict.fromkeys(map(str, asked)))
            continue
        place = (query.chain, query.selector, query.address.lower())
        if place not in entries:
            entries[place] = block.setdefault("accounts", {}).setdefault(query.address, {"props": {}, "slots": {}})
        entries[place]["props"].update(dict.fromkeys(query.props))
        for slot in query.slots:
            if isinstance(slot, Mapping):
                entries[place]["slots"][json.dumps(slot)] = slot
            else:
                entries[place]["slots"][str(slot)] = None
    return {chain: {at: _listed(block) for at, block in blocks.items()} for chain, blocks in data.items()}


def _listed(block: dict[str, Any]) -> dict[str, Any]:
    """Return the block with lists instead of dictionaries with keys only."""
    listed: dict[str, Any] = {}
    for kind in ("accounts", "transactions"):
        if kind in block:
            listed[kind] = {
                key: {name: [each or word for word, each in names.items()] for name, names in entry.items()}
                for key, entry in block[kind].items()
            }
    return listed | {kind: list(block[kind]) for kind in ("header", "withdrawals") if kind in block}
