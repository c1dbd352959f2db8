"""Block headers, whose fields are read by their index as the facts registry reads them.

Sources: Yellow Paper 4.3; contracts/src/PackedHeader.sol.

Headers of all supported chains begin with the same 13 fields, up to the extra data. The later fields differ: Ethereum's
forks have appended fields, and some chains have fields of their own (docs/concepts/chains.md). The block hash covers
all fields, so the shared fields suffice to prove state below the state root.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice, takewhile
from typing import Any, Self

import rlp
from eth_utils.crypto import keccak

from chains.encoding import Item, decode_rlp, read_bytes, read_data, read_integer, read_list, read_number, shortest
from chains.tries.trie import EMPTY_TRIE_ROOT

SHARED_FIELDS = 13
# Number of fields in Ethereum's headers: before London, and since Amsterdam.
FEWEST_FIELDS, MOST_FIELDS = 15, 23

_FEE_RECIPIENT, _TRANSACTIONS_ROOT, _RECEIPTS_ROOT, _GAS_LIMIT = 2, 4, 5, 9
_BASE_FEE, _WITHDRAWALS_ROOT, _BEACON_ROOT = 15, 16, 19


class InvalidHeader(ValueError):
    """The bytes or the JSON are not a header of a known form, or not the expected header."""


class UnknownLayout(InvalidHeader):
    """The block's JSON seems to have another layout. The raw header may be readable.

    The message is a clause about the block, such as "which has no nonce".
    """


@dataclass(frozen=True)
class Header:
    """A block's header in a layout that the registry can read. Construct it with `decode` or `from_rpc`."""

    parent_hash: bytes
    state_root: bytes
    number: int
    timestamp: int  # seconds
    fields: tuple[bytes, ...]
    """The fields' contents, by place: all of them if the layout is Ethereum's, else the shared fields only."""
    _encoded: bytes = field(repr=False)

    def encode(self) -> bytes:
        """Return the header's RLP. Its keccak-256 is the block hash."""
        return self._encoded

    @cached_property
    def hash(self) -> bytes:
        return keccak(self._encoded)

    @property
    def is_ethereums(self) -> bool:
        """Return whether the layout is Ethereum's. Only then are the fields after the shared ones known."""
        return len(self.fields) > SHARED_FIELDS

    @property
    def is_amsterdams(self) -> bool:
        """Return whether the header has the two fields that Amsterdam adds (EIP-7928, EIP-7843)."""
        return len(self.fields) >= MOST_FIELDS

    @property
    def fee_recipient(self) -> bytes:
        return self.fields[_FEE_RECIPIENT]

    @property
    def transactions_root(self) -> bytes:
        return self.fields[_TRANSACTIONS_ROOT]

    @property
    def receipts_root(self) -> bytes:
        return self.fields[_RECEIPTS_ROOT]

    @property
    def is_without_transactions(self) -> bool:
        """Return whether both tries are empty. Chains that make their roots otherwise may leave one so."""
        return self.transactions_root == self.receipts_root == EMPTY_TRIE_ROOT

    @property
    def gas_limit(self) -> int:
        """Return the maximum gas of the block's transactions."""
        return int.from_bytes(self.fields[_GAS_LIMIT])

    @property
    def base_fee_per_gas(self) -> int | None:
        """Return the base fee in wei per gas. None before London, and if the layout is not Ethereum's."""
        return int.from_bytes(self.fields[_BASE_FEE]) if len(self.fields) > _BASE_FEE else None

    @property
    def withdrawals_root(self) -> bytes:
        """Return the root of the withdrawals (EIP-4895). Empty before Shanghai and in other layouts."""
        return self.fields[_WITHDRAWALS_ROOT] if len(self.fields) > _WITHDRAWALS_ROOT else b""

    @property
    def beacon_root(self) -> bytes:
        """Return the root of the parent beacon block (EIP-4788). Empty before Cancun and in other layouts."""
        return self.fields[_BEACON_ROOT] if len(self.fields) > _BEACON_ROOT else b""

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Decode a header that the registry accepts. Raises `InvalidHeader`.

        The layout counts as Ethereum's if every field has the size of Ethereum's field.
        """
        beginning = read_beginning(encoded)
        # The gas limit and the used gas stand between the number and the timestamp.
        digits = next(islice(read_fields(encoded, beginning.end), 2, None), None)
        if digits is None:
            raise InvalidHeader("The header has no timestamp.")
        timestamp = _read_number(digits, "timestamp")
        fields = _known_fields(encoded)
        return cls(beginning.parent_hash, beginning.state_root, beginning.number, timestamp, fields, encoded)

    @staticmethod
    def from_rpc(block: Mapping[str, Any]) -> "Header":
        """Return the header of a block in a node's JSON.

        The layout must be Ethereum's or another known layout. The returned header has the extra data that the block's
        hash covers, which for IBFT and QBFT excludes the seals.

        Raises `InvalidHeader`, also if no known layout gives the hash in the JSON. The caller checks that this hash is
        the expected hash.
        """
        other = next((forms for name, forms in _OTHER_LAYOUTS.items() if name in block), None)
        forms = other or _ETHEREUM
        *beginning, extra_data = (_field_from_rpc(block, form) for form in forms[:SHARED_FIELDS])
        seals = _aura_seals(block) or [_field_from_rpc(block, form) for form in forms[SHARED_FIELDS:FEWEST_FIELDS]]
        later = takewhile(lambda form: block.get(form.rpc_name) is not None, forms[FEWEST_FIELDS:])
        ending = [*seals, *(_field_from_rpc(block, form) for form in later)]
        try:
            expected = read_data(block.get("hash"), 32)
        except ValueError as error:
            raise InvalidHeader(f"The block's hash is {error}.") from None
        for hashed in _hashed_extra_data(extra_data):
            encoded = _encode([*beginning, hashed, *ending])
            if keccak(encoded) == expected:
                header = Header.decode(encoded)
                return header.with_shared_fields() if other else header
        if seals[0] == _ISTANBUL_DIGEST:
            # The raw header wouldn't help, because it includes the seals.
            raise InvalidHeader(
                "The block's fields don't give its hash, neither with nor without the seals of IBFT or QBFT."
            )
        raise UnknownLayout("whose fields don't give its hash")

    def with_shared_fields(self) -> Self:
        """Return the header without the fields after the shared ones, for other layouts than Ethereum's."""
        return replace(self, fields=self.fields[:SHARED_FIELDS])


def verify(encoded: bytes, expected_hash: bytes) -> Header:
    """Return the decoded header. Raises `InvalidHeader` if its hash isn't `expected_hash`."""
    header = Header.decode(encoded)
    if header.hash != expected_hash:
        raise InvalidHeader("The header's hash is not the block's hash.")
    return header


# --- Reading as the registry does -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beginning:
    """The first fields of a header, which the registry always reads."""

    encoded: bytes
    parent_hash: bytes
    state_root: bytes
    number: int
    end: int
    """Offset in the RLP of the field after the number."""


def read_beginning(encoded: bytes) -> Beginning:
    """Read the first fields of a header.

    Raises `InvalidHeader` if the registry wouldn't accept `encoded` as a header.
    """
    # The RLP must be a list of 256 to 65,535 bytes: the bloom alone has 256.
    if encoded[:1] != b"\xf9" or len(encoded) != 3 + int.from_bytes(encoded[1:3]):
        raise InvalidHeader("The header is not an RLP list, or is too short or too long.")
    # RLP prefixes of the first fields. All have 32 bytes except the coinbase (20) and the bloom (256).
    sized = zip((0, 33, 66, 87, 120, 153), (0xA0, 0xA0, 0x94, 0xA0, 0xA0, 0xA0), strict=True)
    if any(encoded[3 + at : 4 + at] != bytes([size]) for at, size in sized) or encoded[189:192] != b"\xb9\1\0":
        raise InvalidHeader("The header's first fields have wrong sizes.")
    # The registry skips the difficulty.
    difficulty, end = _read_string(encoded, 448)
    if len(difficulty) > 32:
        raise InvalidHeader("The header has no difficulty.")
    digits, end = _read_string(encoded, end)
    number = _read_number(digits, "number")
    root = encoded[91:123]
    if not any(root):
        raise InvalidHeader("The header has no state root: the field is zero.")
    return Beginning(encoded, encoded[4:36], root, number, end)


def read_fields(encoded: bytes, start: int = 3) -> Iterator[bytes]:
    """Yield the contents of a header's fields. `start` is the offset of the first field in the RLP.

    Raises `InvalidHeader` at a field that is a list.
    """
    while start < len(encoded):
        content, start = _read_string(encoded, start)
        yield content


def _read_string(encoded: bytes, cursor: int) -> tuple[bytes, int]:
    """Return the RLP string at the cursor, and the offset of the next item. Raises `InvalidHeader`."""
    prefix = encoded[cursor] if cursor < len(encoded) else 0xFF
    if prefix < 0x80:
        return encoded[cursor : cursor + 1], cursor + 1
    start, size = cursor + 1, prefix - 0x80
    if prefix in {0xB8, 0xB9}:
        start += prefix - 0xB7
        size = int.from_bytes(encoded[cursor + 1 : start])
        if size < (56 if prefix == 0xB8 else 256):
            raise InvalidHeader("A field of the header has a length that is too long.")
    elif prefix > 0xB9:
        raise InvalidHeader("A field of the header is a list, or its length is too large.")
    content = encoded[start : start + size]
    if len(content) != size or (size == 1 and content[0] < 0x80):
        raise InvalidHeader("A field of the header is cut, or isn't encoded in the shortest form.")
    return content, start + size


def _read_number(digits: bytes, name: str) -> int:
    try:
        return read_integer(digits, 8)
    except ValueError as error:
        raise InvalidHeader(f"The header's {name} is {error}.") from None


# --- Layouts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """The readers of one field in RLP and in JSON. They raise `ValueError`."""

    rpc_name: str
    from_rlp: Callable[[bytes], object]
    from_rpc: Callable[[Any], bytes]
    is_integer: bool = False


def _fixed(rpc_name: str, length: int) -> _Form:
    return _Form(rpc_name, lambda item: read_bytes(item, length), lambda value: read_data(value, length))


def _string(rpc_name: str) -> _Form:
    return _Form(rpc_name, bytes, read_data)


def _integer(rpc_name: str, max_bytes: int) -> _Form:
    def from_rpc(value: Any) -> bytes:
        number = read_number(value)
        if number >= 256**max_bytes:
            raise ValueError(f"more than {max_bytes} bytes")
        return shortest(number)

    return _Form(rpc_name, lambda item: read_integer(item, max_bytes), from_rpc, is_integer=True)


_ETHEREUM = (
    _fixed("parentHash", 32),
    _fixed("sha3Uncles", 32),
    _fixed("miner", 20),
    _fixed("stateRoot", 32),
    _fixed("transactionsRoot", 32),
    _fixed("receiptsRoot", 32),
    _fixed("logsBloom", 256),
    _integer("difficulty", 32),
    _integer("number", 8),
    _integer("gasLimit", 8),
    _integer("gasUsed", 8),
    _integer("timestamp", 8),
    _string("extraData"),
    _fixed("mixHash", 32),
    _fixed("nonce", 8),
    # London, EIP-1559. The base fee has at most 16 bytes. Avalanche has a longer hash in this field.
    _integer("baseFeePerGas", 16),
    _fixed("withdrawalsRoot", 32),  # Shanghai, EIP-4895
    _integer("blobGasUsed", 8),  # Cancun, EIP-4844
    _integer("excessBlobGas", 8),  # Cancun, EIP-4844
    _fixed("parentBeaconBlockRoot", 32),  # Cancun, EIP-4788
    _fixed("requestsHash", 32),  # Prague, EIP-7685
    _fixed("blockAccessListHash", 32),  # Amsterdam, EIP-7928
    _integer("slotNumber", 8),  # Amsterdam, EIP-7843
)
assert len(_ETHEREUM) == MOST_FIELDS
INTEGER_FIELDS = frozenset(place for place, form in enumerate(_ETHEREUM) if form.is_integer)

# Other layouts. Each key is the JSON name of a field that only this layout has.
_OTHER_LAYOUTS = {
    # Avalanche's C-Chain. Source: ava-labs/coreth, plugin/evm/customtypes/header_ext.go
    "extDataHash": (
        *_ETHEREUM[:15],
        _fixed("extDataHash", 32),
        _integer("baseFeePerGas", 32),
        _integer("extDataGasUsed", 32),
        _integer("blockGasCost", 32),
        *_ETHEREUM[17:20],
        _integer("timestampMilliseconds", 8),
        _integer("minDelayExcess", 8),
    ),
    # Berachain since Prague1. Source: berachain/bera-reth, src/primitives/header.rs
    "parentProposerPubkey": (*_ETHEREUM[:21], _fixed("parentProposerPubkey", 48)),
    # XDC. Source: XinFinOrg/XDPoSChain, core/types/block.go
    "penalties": (
        *_ETHEREUM[:15],
        _string("validators"),
        _string("validator"),
        _string("penalties"),
        _integer("baseFeePerGas", 32),
    ),
}


def _field_from_rpc(block: Mapping[str, Any], form: _Form) -> bytes:
    written = block.get(form.rpc_name)
    if written is None:
        raise UnknownLayout(f"which has no {form.rpc_name}")
    try:
        return form.from_rpc(written)
    except ValueError as error:
        raise UnknownLayout(f"whose {form.rpc_name} is {error}") from None


def _encode(fields: Sequence[Item]) -> bytes:
    try:
        # The fields are bytes already. Inferring their types would double the time.
        encoded: bytes = rlp.encode(fields, infer_serializer=False)
    except RecursionError:
        raise InvalidHeader("The block has lists nested too deeply to be read.") from None
    return encoded


def _aura_seals(block: Mapping[str, Any]) -> list[Item]:
    """Return the fields that AuRa's headers have instead of mix hash and nonce. Empty for other blocks.

    Sources: openethereum/openethereum, crates/rpc/src/v1/types/block.rs; NethermindEth/nethermind,
    Nethermind.Facade/Eth/BlockForRpc.cs; erigontech/erigon, rpc/ethapi/api.go.
    """
    step, signature, encoded = block.get("auraStep"), block.get("auraSeal"), None
    if signature is None and block.get("mixHash") is None:
        step, signature, encoded = block.get("step"), block.get("signature"), block.get("sealFields")
    try:
        if encoded:
            return [decode_rlp(read_data(seal)) for seal in read_list(encoded)]
        if signature is None:
            return []
        return [shortest(read_number(step)), read_data(signature)]
    except ValueError as error:
        raise UnknownLayout(f"with a seal that is {error}") from None


# The mix hash that marks blocks of IBFT and QBFT.
_ISTANBUL_DIGEST = bytes.fromhex("63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365")
_VANITY_BYTES = 32


def _hashed_extra_data(extra_data: bytes) -> Iterator[bytes]:
    """Yield the extra data unchanged, and then without the seals, as IBFT and QBFT hash it.

    Sources: Consensys/quorum, core/types/istanbul.go; hyperledger/besu, IbftExtraDataCodec.java and
    QbftExtraDataCodec.java; polynetwork/Zion, core/types/hotstuff.go.
    """
    yield extra_data
    for start in (0, _VANITY_BYTES):
        try:
            items = decode_rlp(extra_data[start:])
        except ValueError:
            continue
        hashed: list[Sequence[Item]] = []
        match items:
            case [validators, seal, list()]:
                hashed = [[validators, seal, []]]
            case [validators, _, list(), salt]:
                hashed = [[validators, b"", [], salt]]
            case [vanity, validators, vote, _, list()]:
                hashed = [[vanity, validators, vote], [vanity, validators, vote, b"", []]]
        for form in hashed:
            yield extra_data[:start] + _encode(form)


@lru_cache(maxsize=256)  # A turn reads each header several times: from the nodes, and from its row.
def _known_fields(encoded: bytes) -> tuple[bytes, ...]:
    """Return all fields if their sizes are those of Ethereum's fields. Return only the shared fields otherwise."""
    fields: list[bytes] = []
    try:
        for content in read_fields(encoded):
            fields.append(content)  # noqa: PERF402 - fields before an error stay.
        for form, content in zip(_ETHEREUM, fields, strict=False):
            form.from_rlp(content)
    except ValueError:  # A field is a list, or has another size.
        return tuple(fields[:SHARED_FIELDS])
    # The number of fields may be that of no fork, because chains adopt the fields of Ethereum's forks one by one.
    return tuple(fields if FEWEST_FIELDS <= len(fields) <= MOST_FIELDS else fields[:SHARED_FIELDS])
