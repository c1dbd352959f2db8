"""Block headers of every fork up to Amsterdam: their RLP, their hash, and their JSON-RPC form (Yellow Paper 4.4.3)."""

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from typing import Any, Self

import rlp
from eth_utils.crypto import keccak

from chains.encoding import Item, decode_rlp, read_bytes, read_data, read_integer, read_quantity

# How many fields a header has: at first, and since London, Shanghai, Cancun, Prague and Amsterdam.
FIELD_COUNTS = (15, 16, 17, 20, 21, 23)


class InvalidHeader(ValueError):
    """The bytes, or the JSON, are no header of a known form, or not the one that was expected."""


@dataclass(frozen=True)
class Header:
    """Hashes, addresses and blobs are bytes; numbers are ints (timestamp in seconds, fees in wei).

    What a later fork added is None in an older header.
    """

    parent_hash: bytes
    uncles_hash: bytes
    coinbase: bytes
    state_root: bytes
    transactions_root: bytes
    receipts_root: bytes
    logs_bloom: bytes
    difficulty: int
    number: int
    gas_limit: int
    gas_used: int
    timestamp: int
    extra_data: bytes
    mix_hash: bytes
    nonce: bytes
    base_fee_per_gas: int | None = None  # London, EIP-1559
    withdrawals_root: bytes | None = None  # Shanghai, EIP-4895
    blob_gas_used: int | None = None  # Cancun, EIP-4844
    excess_blob_gas: int | None = None  # Cancun, EIP-4844
    parent_beacon_block_root: bytes | None = None  # Cancun, EIP-4788
    requests_hash: bytes | None = None  # Prague, EIP-7685
    block_access_list_hash: bytes | None = None  # Amsterdam, EIP-7928
    slot_number: int | None = None  # Amsterdam, EIP-7843

    def encode(self) -> bytes:
        """The header's RLP, whose keccak-256 is the block hash. Raises `InvalidHeader` for fields of no known form."""
        values = astuple(self)
        present = [value for value in values if value is not None]
        if len(present) not in FIELD_COUNTS or None in values[: len(present)]:
            raise InvalidHeader("The header's fields are those of no known fork.")
        encoded: bytes = rlp.encode(present)
        return encoded

    @cached_property
    def hash(self) -> bytes:
        return keccak(self.encode())

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Raises `InvalidHeader` unless `encoded` is the canonical RLP of a header of a known form."""
        try:
            items = decode_rlp(encoded)
        except ValueError as error:
            raise InvalidHeader(f"The header is {error}.") from None
        if isinstance(items, bytes) or len(items) not in FIELD_COUNTS:
            count = "no list" if isinstance(items, bytes) else f"a list of {len(items)}"
            raise InvalidHeader(f"The header is {count}; a header has {', '.join(map(str, FIELD_COUNTS))} fields.")
        values = {}
        for (name, form), item in zip(_FORMS.items(), items, strict=False):
            try:
                values[name] = form.from_rlp(item)
            except ValueError as error:
                raise InvalidHeader(f"The header's {name} is {error}.") from None
        return cls(**values)

    @classmethod
    def from_rpc(cls, block: Mapping[str, Any]) -> Self:
        """The header of a block as nodes send it. It is not the node's word that counts: compare `hash`.

        Raises `InvalidHeader`.
        """
        values = {}
        for name, form in _FORMS.items():
            written = block.get(form.rpc_name)
            if written is None and name in _OPTIONAL:
                continue
            try:
                values[name] = form.from_rpc(written)
            except ValueError as error:
                raise InvalidHeader(f"The block's {form.rpc_name} is {error}.") from None
        header = cls(**values)
        header.encode()
        return header


def verify(encoded: bytes, expected_hash: bytes) -> Header:
    """The header whose hash is `expected_hash`, or `InvalidHeader`."""
    if keccak(encoded) != expected_hash:
        raise InvalidHeader("The header's hash is not the block's hash.")
    return Header.decode(encoded)


@dataclass(frozen=True)
class _Form:
    """How one field is written in RLP and in JSON."""

    rpc_name: str
    from_rlp: Callable[[Item], Any]
    from_rpc: Callable[[Any], Any]


def _fixed(rpc_name: str, length: int) -> _Form:
    return _Form(rpc_name, lambda item: read_bytes(item, length), lambda value: read_data(value, length))


def _integer(rpc_name: str, max_bytes: int) -> _Form:
    def from_rpc(value: Any) -> int:
        number = read_quantity(value)
        if number >= 256**max_bytes:
            raise ValueError(f"more than {max_bytes} bytes")
        return number

    return _Form(rpc_name, lambda item: read_integer(item, max_bytes), from_rpc)


def _any_bytes(item: Item) -> bytes:
    if not isinstance(item, bytes):
        raise ValueError("not bytes")  # noqa: TRY004 - as every other fault of what comes from outside.
    return item


_FORMS = {
    "parent_hash": _fixed("parentHash", 32),
    "uncles_hash": _fixed("sha3Uncles", 32),
    "coinbase": _fixed("miner", 20),
    "state_root": _fixed("stateRoot", 32),
    "transactions_root": _fixed("transactionsRoot", 32),
    "receipts_root": _fixed("receiptsRoot", 32),
    "logs_bloom": _fixed("logsBloom", 256),
    "difficulty": _integer("difficulty", 32),
    "number": _integer("number", 8),
    "gas_limit": _integer("gasLimit", 8),
    "gas_used": _integer("gasUsed", 8),
    "timestamp": _integer("timestamp", 8),
    "extra_data": _Form("extraData", _any_bytes, read_data),
    "mix_hash": _fixed("mixHash", 32),
    "nonce": _fixed("nonce", 8),
    "base_fee_per_gas": _integer("baseFeePerGas", 32),
    "withdrawals_root": _fixed("withdrawalsRoot", 32),
    "blob_gas_used": _integer("blobGasUsed", 8),
    "excess_blob_gas": _integer("excessBlobGas", 8),
    "parent_beacon_block_root": _fixed("parentBeaconBlockRoot", 32),
    "requests_hash": _fixed("requestsHash", 32),
    "block_access_list_hash": _fixed("blockAccessListHash", 32),
    "slot_number": _integer("slotNumber", 8),
}
assert list(_FORMS) == [field.name for field in fields(Header)]
_OPTIONAL = frozenset(list(_FORMS)[FIELD_COUNTS[0] :])
