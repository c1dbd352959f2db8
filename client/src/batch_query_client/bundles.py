"""Verifies proof bundles without trusting the service that made them.

What is trusted is the hash of the block, which the caller's own node tells. From there each step is computed: the
header has this hash, the header names the state root, the proof leads from it to the account, and from the account's
storage root to each slot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from eth_utils.address import to_checksum_address
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from batch_query_client import block_header, trie_proof
from batch_query_client.answers import Data, Number, Word
from batch_query_client.block_header import BlockHeader
from batch_query_client.effects import Steps
from batch_query_client.errors import InvalidBundle
from batch_query_client.json_rpc import Node, read_data
from batch_query_client.plain_text import hex_data, plain
from batch_query_client.questions import ACCOUNT_PROPERTIES
from batch_query_client.trie_proof import ProvenAccount

FORMAT = "facts-2"
MAX_BYTES = 256 * 1024 * 1024
# Of JSON. Short ones take twenty times as much memory as text. Of 10,000 queries there are some hundreds of thousands.
_MAX_VALUES = 10_000_000

Read = TypeVar("Read", bound=BaseModel)

Place = Annotated[int, Field(strict=True, ge=0)]
Address = Annotated[Data, Field(min_length=20, max_length=20)]


class Part(BaseModel):
    """A part of a bundle."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class SlotPart(Part):
    word: Word
    proof: tuple[Place, ...]


class BlockPart(Part):
    source_chain_id: Number
    block_number: Number
    block_hash: Word
    header: Data
    next_header: Data | None


class QueryPart(Part):
    account: Address | None
    facts: dict[str, Word]
    slots: dict[Annotated[str, Field(pattern="^0x[0-9a-f]{64}$")], SlotPart]
    timestamp: Number | None


class Document(BlockPart, QueryPart):
    """The bundle of a query as it comes."""

    account_proof: tuple[Data, ...] | None
    storage_nodes: tuple[Data, ...]
    """`SlotPart.proof` has places in it."""


@dataclass(frozen=True)
class VerifiedBundle:
    """The facts that a bundle proves of the block whose hash the caller trusts."""

    source_chain_id: int
    """The chain that the caller named with the block's hash: a header does not name it."""
    block_number: int
    block_hash: str
    account: str | None
    """With its EIP-55 checksum. None: the facts are the header's."""
    exists: bool
    """The account."""
    facts: Mapping[str, bytes]
    """32 bytes by property."""
    slots: Mapping[str, bytes]
    """32 bytes by slot (0x and 64 digits)."""
    timestamp: int | None
    """The block was the latest at this time, in seconds. None: the query named no time, or that is not shown."""
    claimed_timestamp: int | None
    """The time that the query named, whether shown or not."""


def verify_bundle(
    document: str | bytes, *, block_hash: str | bytes, next_block_hash: str | bytes | None = None
) -> VerifiedBundle:
    """Check a bundle from the block's hash down to each fact. Needs no network.

    `block_hash` must come from a source that you trust, such as your own node, and not from the bundle. So must
    `next_block_hash`, that of the block after it, by which alone a bundle of a query that names a time shows that its
    block was the latest then. Raises `InvalidBundle`.
    """
    bundle = read_as(Document, FORMAT, document)
    header = checked_header(bundle)
    if header.hash != trusted_hash(block_hash):
        raise InvalidBundle(f"The bundle is of a block with another hash than yours: {hex_data(header.hash)}.")
    return verify_query(bundle, header, None if next_block_hash is None else trusted_hash(next_block_hash))


def bundle_block(document: str | bytes) -> tuple[int, int]:
    """Return the source chain's id and the block's number that a bundle claims: whose hash to look up.

    Nothing is checked. Raises `InvalidBundle` where it is no bundle.
    """
    bundle = read_as(Document, FORMAT, document)
    return bundle.source_chain_id, bundle.block_number


def verify_by_node(document: str | bytes, node: Node) -> Steps[VerifiedBundle]:
    """Check a bundle as `verify_bundle` does, with the hashes that this node of the source chain tells.

    Raises `WrongChain` too.
    """
    bundle = read_as(Document, FORMAT, document)
    header = checked_header(bundle)
    yield from node.require_chain(bundle.source_chain_id)
    found = yield from _block_hash(node, header.number)
    if found != header.hash:
        raise InvalidBundle(f"{node.name} knows another block {header.number} than the bundle is of.")
    following = None
    if bundle.timestamp is not None and bundle.next_header is not None:
        following = yield from _block_hash(node, header.number + 1)
    return verify_query(bundle, header, following)


def _block_hash(node: Node, number: int) -> Steps[bytes | None]:
    return block_hash_in((yield from node.call(*asking_hash(number))))


def asking_hash(number: int) -> tuple[str, str, bool]:
    """Return a call of a node, with its parameters; `block_hash_in` reads the answer."""
    return "eth_getBlockByNumber", hex(number), False


def block_hash_in(block: object) -> bytes | None:
    """Return the hash of a node's block. None: the node knows no such block."""
    # web3.py's own kind of mapping, or JSON's.
    return read_data(block["hash"]) if isinstance(block, Mapping) and "hash" in block else None


def format_of(document: str | bytes) -> str:
    """Return the format that the bundle names. Raises `InvalidBundle` where it is no bundle of any format."""
    return _read(_Format, "that verify_bundle knows", document).format


def read_as(kind: type[Read], known: str, document: str | bytes) -> Read:
    """Return the bundle, if it is of this format. Raises `InvalidBundle`."""
    if _read(_Format, known, document).format != known:
        raise InvalidBundle(f"The file is not a proof bundle of the format {known}.")
    return _read(kind, known, document)


def _read(kind: type[Read], known: str, document: str | bytes) -> Read:
    if len(document) > MAX_BYTES:
        raise InvalidBundle(f"The bundle is larger than {MAX_BYTES} bytes.")
    if _values(document) > _MAX_VALUES:
        raise InvalidBundle(f"The bundle has more than {_MAX_VALUES} values.")
    try:
        return kind.model_validate_json(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        raise InvalidBundle("The bundle is not JSON.")
    if first["loc"] in {(), ("format",)}:
        raise InvalidBundle(f"The file is not a proof bundle of the format {known}.")
    where = ".".join(map(str, first["loc"]))
    raise InvalidBundle(f"The bundle's {plain(where)[:80]} is missing or malformed.")


def _values(document: str | bytes) -> int:
    """Return an upper bound of the number of values in the document."""
    if isinstance(document, str):
        return sum(map(document.count, ",[{"))
    return sum(map(document.count, (b",", b"[", b"{")))


class _Format(Part):
    format: str


def checked_header(bundle: BlockPart) -> BlockHeader:
    """Return the header, checked to have the hash and the number that the bundle names. Raises `InvalidBundle`."""
    header = block_header.decode(bundle.header)
    if header.hash != bundle.block_hash:
        raise InvalidBundle("The header's hash is not the block's hash.")
    if header.number != bundle.block_number:
        raise InvalidBundle(f"The header is that of block {header.number}, not of the block that the bundle names.")
    return header


def verify_query(bundle: Document, header: BlockHeader, next_hash: bytes | None) -> VerifiedBundle:
    """Return what the bundle shows of its block. The hashes of that block and the next are trusted.

    Raises `InvalidBundle`.
    """
    if not bundle.facts and not bundle.slots:
        raise InvalidBundle("The bundle claims no facts.")
    account: ProvenAccount | None = None
    words: Mapping[str, bytes] = header.words
    if bundle.account is not None:
        account = trie_proof.account(header.state_root, bundle.account, bundle.account_proof or ())
        words = _account_words(account)
    for name, word in bundle.facts.items():
        if name not in words:
            raise InvalidBundle(f"The bundle claims a fact that is not known: {plain(name)[:40]!r}.")
        if word != words[name]:
            raise InvalidBundle(f"The proof shows another {name} than the bundle claims.")
    _check_slots(bundle, account)
    return VerifiedBundle(
        source_chain_id=bundle.source_chain_id,
        block_number=header.number,
        block_hash=hex_data(header.hash),
        account=None if bundle.account is None else to_checksum_address(bundle.account),
        exists=account is not None and account.exists,
        facts=bundle.facts,
        slots={slot: entry.word for slot, entry in bundle.slots.items()},
        timestamp=_shown_time(bundle, header, next_hash),
        claimed_timestamp=bundle.timestamp,
    )


def _account_words(account: ProvenAccount) -> dict[str, bytes]:
    values = (account.nonce.to_bytes(32), account.balance.to_bytes(32), account.storage_root, account.code_hash)
    return dict(zip(ACCOUNT_PROPERTIES, values, strict=True))


def _check_slots(bundle: Document, account: ProvenAccount | None) -> None:
    if bundle.slots and account is None:
        raise InvalidBundle("The bundle claims slots of no account.")
    for slot, entry in bundle.slots.items():
        assert account is not None
        if any(place >= len(bundle.storage_nodes) for place in entry.proof):
            raise InvalidBundle(f"The proof of slot {slot} names nodes that the bundle has not.")
        nodes = [bundle.storage_nodes[place] for place in entry.proof]
        if trie_proof.slot(account.storage_root, bytes.fromhex(slot[2:]), nodes) != entry.word:
            raise InvalidBundle(f"The proof shows another word in slot {slot} than the bundle claims.")


def _shown_time(bundle: Document, header: BlockHeader, next_hash: bytes | None) -> int | None:
    """Return the time at which the block was the latest, as far as the next block's trusted hash shows it."""
    if bundle.timestamp is None:
        return None
    if header.timestamp > bundle.timestamp:
        raise InvalidBundle(f"The block is of {header.timestamp} s, after the time {bundle.timestamp} of the query.")
    if bundle.next_header is None:
        return None
    following = block_header.decode(bundle.next_header)
    if following.parent_hash != header.hash:
        raise InvalidBundle("The nextHeader is not that of the block after it.")
    if following.timestamp <= bundle.timestamp:
        raise InvalidBundle(f"The next block is of {following.timestamp} s, not after the time {bundle.timestamp}.")
    if next_hash is None:
        return None
    if following.hash != next_hash:
        raise InvalidBundle("The nextHeader is of a block with another hash than yours.")
    return bundle.timestamp


def trusted_hash(value: str | bytes) -> bytes:
    """Read a block hash from a caller. Raises `InvalidBundle`."""
    try:
        found = bytes.fromhex(value.removeprefix("0x")) if isinstance(value, str) else bytes(value)
    except ValueError:
        found = b""
    if len(found) != 32:
        raise InvalidBundle("A block's hash is 32 bytes, in hex 0x and 64 digits.")
    return found
