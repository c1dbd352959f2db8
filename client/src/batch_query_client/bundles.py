"""Verification of proof bundles, without trust in the service that made them.

The caller trusts only block hashes, which come from the caller's own nodes. All other steps are computed: the header
has the hash, the header has the state root, and proofs lead from that root to the account, and from the account's
storage root to each slot. Proofs of transactions and receipts begin at two other roots of the header.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from batch_query_client import block_header, receipts, trie_proof
from batch_query_client.answers import Data, Number, ShownLog, Word
from batch_query_client.block_header import BlockHeader
from batch_query_client.effects import Steps
from batch_query_client.errors import InvalidBundle, NodeRefused, WrongChain
from batch_query_client.json_rpc import Node, read_data, read_quantity
from batch_query_client.plain_text import hex_data, plain
from batch_query_client.questions import ACCOUNT_PROPERTIES
from batch_query_client.receipts import ProvenReceipt, log_hash
from batch_query_client.trie_proof import ProvenAccount

FORMAT = "facts-3"
MAX_BYTES = 256 * 1024 * 1024
# Maximum JSON values, because a short value takes twenty times as much memory as its text. A bundle of 10,000 queries
# has about 100,000 values.
_MAX_VALUES = 10_000_000
# Blocks in one request to a node. A block's JSON lists the hashes of its transactions, which may be thousands.
_BLOCKS_TOGETHER = 10

BlockHashes = Mapping[tuple[int, int], str | bytes]
"""Block hashes (32 bytes, or 0x and 64 digits) by the source chain's id and the block's number."""

_Place = Annotated[int, Field(strict=True, ge=0)]
_Index = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,9})$")]
_Address = Annotated[Data, Field(min_length=20, max_length=20)]


class _BundlePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class _BundleSlot(_BundlePart):
    word: Word
    proof: tuple[_Place, ...]


class _BundleTransaction(_BundlePart):
    index: _Index
    hash: Word | None = None


class _BundleLog(_BundlePart):
    word: Word
    emitter: _Address
    topics: tuple[Word, ...]
    data: Data


class _BundleBlock(_BundlePart):
    source_chain_id: Number
    block_number: Number
    block_hash: Word
    header: Data
    # Only bundles of 0.4.0 and earlier may have one.
    next_header: Data | None


class _BundleQuery(_BundlePart):
    number: Annotated[int, Field(strict=True, ge=1)]
    block: _Place
    account: _Address | None
    account_proof: tuple[_Place, ...] | None
    facts: dict[str, Word]
    slots: dict[Annotated[str, Field(pattern="^0x[0-9a-f]{64}$")], _BundleSlot]
    timestamp: Number | None
    # Bundles of earlier versions lack these.
    transaction: _BundleTransaction | None = None
    receipt_proof: tuple[_Place, ...] | None = None
    transaction_proof: tuple[_Place, ...] | None = None
    logs: dict[_Index, _BundleLog] = {}


class _Bundle(_BundlePart):
    batch: Annotated[str, Field(pattern="^[0-9A-Za-z]{1,64}$")]
    destination_chain_id: Number
    blocks: tuple[_BundleBlock, ...]
    nodes: tuple[Data, ...]
    queries: tuple[_BundleQuery, ...]


@dataclass(frozen=True)
class VerifiedQuery:
    """The facts that a bundle proves for one query, at a block whose hash the caller trusts."""

    source_chain_id: int
    """The chain that the caller gave with the block's hash. A header doesn't contain it."""
    block_number: int
    block_hash: str
    account: str | None
    """Address with EIP-55 checksum. None: the facts are the header's or a transaction's."""
    exists: bool
    """True if the account exists."""
    facts: Mapping[str, bytes]
    """32 bytes by property."""
    slots: Mapping[str, bytes]
    """32 bytes by slot (0x and 64 digits)."""
    transaction: int | None
    """Index in the block. None: the facts are the header's or an account's."""
    transaction_hash: str | None
    """None: not proven. The proof of a receipt doesn't show it."""
    logs: Mapping[int, ShownLog]
    """Logs by the index within the receipt."""
    timestamp: int | None
    """A time in seconds at which the block was the latest. None: the query has no time, or it isn't proven."""
    claimed_timestamp: int | None
    """The time in the query, proven or not."""


@dataclass(frozen=True)
class VerifiedBundle:
    """The facts that a bundle proves, at blocks whose hashes the caller trusts."""

    batch: str
    """The batch's identifier as the bundle claims it. Nothing proves it, nor that the batch has no other queries."""
    destination_chain_id: int
    """Claimed too."""
    queries: Mapping[int, VerifiedQuery]
    """Queries by number: one of a batch's queries, or all of the bundle, numbered from 1 without gaps."""


def verify_bundle(document: str | bytes, *, block_hashes: BlockHashes) -> VerifiedBundle:
    """Verify a bundle, from the blocks' hashes down to each fact of each query, without network access.

    `block_hashes` must come from a source that you trust, such as your own nodes, and not from the bundle. It must have
    the blocks of all queries. A query's time is proven only if the bundle is of 0.4.0 or earlier, and `block_hashes`
    also has the block after the query's block. `claimed_hashes` lists all these blocks. Raises `InvalidBundle`.
    """
    bundle, headers, following = _read(document)
    return _verify(bundle, headers, following, {about: _trusted(value) for about, value in block_hashes.items()})


def claimed_hashes(document: str | bytes) -> dict[tuple[int, int], str]:
    """Return the block hashes that a bundle claims, by the source chain's id and the block's number.

    Compare them with a source that you trust before you rely on them. Raises `InvalidBundle`.
    """
    bundle, _, following = _read(document)
    return {about: hex_data(value) for about, value in (_hashes(bundle) | following).items()}


def verify_by_nodes(document: str | bytes, nodes: Sequence[Node]) -> Steps[VerifiedBundle]:
    """Verify a bundle like `verify_bundle`, with block hashes from these nodes of the source chains.

    Several nodes of one chain must agree. Also raises `WrongChain` if a chain has no node.
    """
    bundle, headers, following = _read(document)
    nodes_by_chain: dict[int, list[Node]] = {}
    for node in nodes:
        nodes_by_chain.setdefault(read_quantity((yield from node.call("eth_chainId"))), []).append(node)
    needed = _hashes(bundle)
    claimed = needed | following
    trusted: dict[tuple[int, int], bytes] = {}
    for chain_id in {block.source_chain_id: None for block in bundle.blocks}:
        if chain_id not in nodes_by_chain:
            raise WrongChain(f"The bundle has blocks of chain {chain_id}. Name a node of this chain, too.")
        numbers = sorted(number for chain, number in claimed if chain == chain_id)
        for node in nodes_by_chain[chain_id]:
            hashes = yield from _block_hashes(node, numbers)
            for about, block_hash in zip([(chain_id, number) for number in numbers], hashes, strict=True):
                if block_hash is None and about not in needed:
                    continue
                if block_hash is None or block_hash != claimed[about]:
                    raise InvalidBundle(
                        f"{node.name} knows another block {about[1]} of chain {chain_id} than the bundle is about."
                    )
                trusted[about] = block_hash
    return _verify(bundle, headers, following, trusted)


def _block_hashes(node: Node, numbers: Sequence[int]) -> Steps[list[bytes | None]]:
    """Return the hashes of a node's blocks. None for a block that the node doesn't have."""
    calls = [("eth_getBlockByNumber", (hex(number), False)) for number in numbers]
    answers = yield from node.calls(calls, together=_BLOCKS_TOGETHER)
    for answer in answers:
        if isinstance(answer, NodeRefused):
            raise answer
    # web3.py returns a mapping of its own type.
    return [read_data(block["hash"]) if isinstance(block, Mapping) and "hash" in block else None for block in answers]


# --- Reading ----------------------------------------------------------------------------------------------------------


def _read(document: str | bytes) -> tuple[_Bundle, list[BlockHeader], dict[tuple[int, int], bytes]]:
    """Return the bundle, the headers of its blocks, and the hashes of the headers that follow them.

    The hashes are not yet compared with trusted hashes. Raises `InvalidBundle`.
    """
    bundle = _parse(document)
    numbers = [query.number for query in bundle.queries]
    if not numbers:
        raise InvalidBundle("The bundle has no queries.")
    if len(numbers) > 1 and numbers != list(range(1, len(numbers) + 1)):
        raise InvalidBundle("The bundle's queries are not numbered from 1, each once and in order.")
    if any(query.block >= len(bundle.blocks) for query in bundle.queries):
        raise InvalidBundle("A query names a block that the bundle lacks.")
    if {query.block for query in bundle.queries} != set(range(len(bundle.blocks))):
        raise InvalidBundle("No query of the bundle uses one of its blocks.")
    if len(_hashes(bundle)) < len(bundle.blocks):
        raise InvalidBundle("The bundle has a block twice.")
    headers = _headers(bundle)
    return bundle, headers, _following(bundle, headers)


def _parse(document: str | bytes) -> _Bundle:
    if len(document) > MAX_BYTES:
        raise InvalidBundle(f"The bundle is larger than {MAX_BYTES} bytes.")
    if _values(document) > _MAX_VALUES:
        raise InvalidBundle(f"The bundle has more than {_MAX_VALUES} values.")
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):
        raise InvalidBundle("The bundle is not JSON.") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InvalidBundle(f"The file is not a proof bundle of the format {FORMAT}.")
    try:
        return _Bundle.model_validate(value)
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
        raise InvalidBundle(f"The bundle's {plain(where)[:80]} is missing or malformed.") from None


def _hashes(bundle: _Bundle) -> dict[tuple[int, int], bytes]:
    return {(block.source_chain_id, block.block_number): block.block_hash for block in bundle.blocks}


def _values(document: str | bytes) -> int:
    """Return an upper bound of the number of values in the document."""
    if isinstance(document, str):
        return sum(map(document.count, ",[{"))
    return sum(map(document.count, (b",", b"[", b"{")))


def _headers(bundle: _Bundle) -> list[BlockHeader]:
    """Return the headers of the blocks. Raises `InvalidBundle` unless they match the bundle's hashes and numbers."""
    headers = [block_header.decode(block.header) for block in bundle.blocks]
    for block, header in zip(bundle.blocks, headers, strict=True):
        if header.hash != block.block_hash:
            raise InvalidBundle("The header's hash is not the block's hash.")
        if header.number != block.block_number:
            raise InvalidBundle(f"The header is that of block {header.number}, not of the block that the bundle names.")
    return headers


def _following(bundle: _Bundle, headers: Sequence[BlockHeader]) -> dict[tuple[int, int], bytes]:
    """Return the hashes of the headers that follow the blocks, as far as the bundle has them."""
    hashes = _hashes(bundle)
    next_hashes: dict[tuple[int, int], bytes] = {}
    for block, header in zip(bundle.blocks, headers, strict=True):
        if block.next_header is None:
            continue
        about, following = (block.source_chain_id, block.block_number + 1), block_header.decode(block.next_header)
        if following.parent_hash != header.hash:
            raise InvalidBundle("The nextHeader is not the header of the next block.")
        if hashes.get(about, following.hash) != following.hash:
            raise InvalidBundle(f"The bundle has two headers of block {about[1]} of chain {about[0]}.")
        next_hashes[about] = following.hash
    return next_hashes


# --- Verifying --------------------------------------------------------------------------------------------------------


def _verify(
    bundle: _Bundle,
    headers: Sequence[BlockHeader],
    following: dict[tuple[int, int], bytes],
    trusted: Mapping[tuple[int, int], bytes],
) -> VerifiedBundle:
    """Check the headers against the trusted hashes, and each query against its header. Raises `InvalidBundle`."""
    needed = _hashes(bundle)
    for about, claimed in (needed | following).items():
        if trusted.get(about, None if about in needed else claimed) != claimed:
            raise InvalidBundle(
                f"The bundle has block {about[1]} of chain {about[0]} with another hash than those that you trust: "
                f"{hex_data(claimed)}."
            )
    verified: dict[int, VerifiedQuery] = {}
    for query in bundle.queries:
        block, header = bundle.blocks[query.block], headers[query.block]
        knows_next = (block.source_chain_id, block.block_number + 1) in trusted
        try:
            verified[query.number] = _verify_query(query, block, header, bundle.nodes, knows_next=knows_next)
        except InvalidBundle as invalid:
            raise InvalidBundle(f"Query {query.number}: {invalid}") from None
    return VerifiedBundle(bundle.batch, bundle.destination_chain_id, verified)


def _verify_query(
    query: _BundleQuery, block: _BundleBlock, header: BlockHeader, nodes: Sequence[bytes], *, knows_next: bool
) -> VerifiedQuery:
    """Return the proven facts of a query whose block hash is trusted.

    `knows_next` is True if the next block's hash is trusted too.
    """
    if not query.facts and not query.slots and not query.logs:
        raise InvalidBundle("The bundle claims no facts.")
    if query.account is not None and query.transaction is not None:
        raise InvalidBundle("The bundle names an account and a transaction for one query.")
    account: ProvenAccount | None = None
    words: Mapping[str, bytes] = header.words
    receipt: ProvenReceipt | None = None
    if query.account is not None:
        account = trie_proof.account(header.state_root, query.account, _at(query.account_proof or (), nodes))
        words = _account_words(account)
    elif query.transaction is not None:
        words, receipt = _transaction(query, query.transaction, header, nodes)
    for name, word in query.facts.items():
        if name not in words:
            raise InvalidBundle(f"The bundle claims an unknown fact: {plain(name)[:40]!r}.")
        if word != words[name]:
            raise InvalidBundle(f"The proof shows another {name} than the bundle claims.")
    _check_slots(query, account, nodes)
    shown_time = _shown_time(query, block, header)
    return VerifiedQuery(
        source_chain_id=block.source_chain_id,
        block_number=header.number,
        block_hash=hex_data(header.hash),
        account=None if query.account is None else to_checksum_address(query.account),
        exists=account is not None and account.exists,
        facts=query.facts,
        slots={slot: entry.word for slot, entry in query.slots.items()},
        transaction=None if query.transaction is None else int(query.transaction.index),
        transaction_hash=hex_data(words["HASH"]) if "HASH" in words else None,
        logs=_logs(query, receipt),
        timestamp=shown_time if knows_next else None,
        claimed_timestamp=query.timestamp,
    )


def _check_slots(query: _BundleQuery, account: ProvenAccount | None, nodes: Sequence[bytes]) -> None:
    for slot, entry in query.slots.items():
        if account is None:
            raise InvalidBundle("The bundle claims slots without an account.")
        if trie_proof.slot(account.storage_root, bytes.fromhex(slot[2:]), _at(entry.proof, nodes)) != entry.word:
            raise InvalidBundle(f"The proof shows another word in slot {slot} than the bundle claims.")


def _transaction(
    query: _BundleQuery, transaction: _BundleTransaction, header: BlockHeader, nodes: Sequence[bytes]
) -> tuple[dict[str, bytes], ProvenReceipt | None]:
    """Return the words of the query's transaction that the bundle has proofs for, and its receipt."""
    words: dict[str, bytes] = {}
    receipt: ProvenReceipt | None = None
    index = int(transaction.index)
    if query.receipt_proof is not None:
        proof = _at(query.receipt_proof, nodes)
        receipt = receipts.decode(trie_proof.of_transaction(header.receipts_root, index, proof))
        words |= receipt.words
    if query.transaction_proof is not None:
        proof = _at(query.transaction_proof, nodes)
        words["HASH"] = keccak(trie_proof.of_transaction(header.transactions_root, index, proof))
    if transaction.hash not in {None, words.get("HASH")}:
        raise InvalidBundle("The proof doesn't show the transaction's hash that the bundle names.")
    return words, receipt


def _logs(query: _BundleQuery, receipt: ProvenReceipt | None) -> dict[int, ShownLog]:
    """Return the logs that the bundle claims, as the receipt has them."""
    logs: dict[int, ShownLog] = {}
    for at, claimed in query.logs.items():
        if receipt is None or int(at) >= len(receipt.logs):
            raise InvalidBundle(f"The proof shows no log {at}.")
        log = logs[int(at)] = receipt.logs[int(at)]
        content = (claimed.word, to_checksum_address(claimed.emitter), claimed.topics, claimed.data)
        if content != (log_hash(log), log.emitter, log.topics, log.data):
            raise InvalidBundle(f"The proof shows another log {at} than the bundle claims.")
    return logs


def _at(indexes: Sequence[int], nodes: Sequence[bytes]) -> list[bytes]:
    if any(index >= len(nodes) for index in indexes):
        raise InvalidBundle("The proof names trie nodes that the bundle lacks.")
    return [nodes[index] for index in indexes]


def _account_words(account: ProvenAccount) -> dict[str, bytes]:
    values = (account.nonce.to_bytes(32), account.balance.to_bytes(32), account.storage_root, account.code_hash)
    return dict(zip(ACCOUNT_PROPERTIES, values, strict=True))


def _shown_time(query: _BundleQuery, block: _BundleBlock, header: BlockHeader) -> int | None:
    """Return the query's time, if the next header proves that the block was the latest at that time."""
    if query.timestamp is None:
        return None
    if header.timestamp > query.timestamp:
        raise InvalidBundle(f"The block's time is {header.timestamp} s, after the time {query.timestamp} of the query.")
    if block.next_header is None:
        return None
    following = block_header.decode(block.next_header)
    if following.timestamp <= query.timestamp:
        raise InvalidBundle(f"The next block's time is {following.timestamp} s, not after the time {query.timestamp}.")
    return query.timestamp


def _trusted(value: str | bytes) -> bytes:
    """Read a block hash that the caller gave. Raises `InvalidBundle`."""
    try:
        block_hash = bytes.fromhex(value.removeprefix("0x")) if isinstance(value, str) else bytes(value)
    except ValueError:
        block_hash = b""
    if len(block_hash) != 32:
        raise InvalidBundle("A block's hash is 32 bytes, in hex 0x and 64 digits.")
    return block_hash
