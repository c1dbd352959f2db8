"""Transactions as requests name them, found among the verified receipts and transactions of their block.

These are kept in memory for a while, and so are proofs of accounts.
"""

import pickle
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Self, TypeVar
from weakref import WeakKeyDictionary

from django.db.models.functions import Length
from eth_utils.crypto import keccak

from chains.encoding import hex_data
from chains.nodes import block_transactions, receipts
from chains.nodes.node_errors import PRUNED, ChainError, OtherRoot, RpcRefused
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.receipts import BlockReceipts, TransactionReceipt
from chains.nodes.rpc import RpcClient
from chains.tries import packed_entries
from chains.tries.header import Header
from proving import facts
from proving.facts import EntryFact, Fact, LogFact, TimeFact
from proving.models import BlockTrie, ProvenTransaction
from queries.columns import EntryField, HeaderField
from queries.models import Query, QueryKind
from queries.waits import Value, WaitReason, wait

# Maximum bytes of a receipt. With its trie nodes, a header and other calls, it must fit a transaction of 128 KiB.
MOST_BYTES = 120_000
# Maximum proofs that are kept of a chain, and maximum bytes of its blocks' receipts, and of their transactions.
_MOST_KEPT_PROOFS = 64
_MOST_KEPT_BYTES = 8 * 1024 * 1024
_HINT_OF_LOGS = "Indexes count within the receipt; for a node's logIndex use blockLogs."


@dataclass(frozen=True)
class NamedEntry:
    """A transaction of a block by its index or its hash (0x…), and the properties and logs that are asked for."""

    name: int | str
    fields: tuple[EntryField, ...] = ()
    logs: tuple[int, ...] = ()
    """Indexes within the receipt."""
    block_logs: tuple[int, ...] = ()
    """Indexes within the block."""

    @classmethod
    def of_query(cls, query: Query) -> Self:
        name = query.transaction_name if query.transaction_name.startswith("0x") else int(query.transaction_name)
        return cls(name, tuple(query.transaction_fields), tuple(query.logs), tuple(query.block_logs))

    @property
    def asks(self) -> bool:
        """Return whether a fact is asked for. Otherwise the transaction only selects its block."""
        return bool(self.fields or self.logs or self.block_logs)

    @property
    def needs_transactions(self) -> bool:
        """Return whether the trie of transactions is needed, and not only that of receipts."""
        return isinstance(self.name, str) or EntryField.HASH in self.fields


Asked = Fact | NamedEntry
"""Something that a request names."""


def asked_of(query: Query) -> list[Asked]:
    """Return what a query requests, with its transaction as the request names it."""
    if query.kind != QueryKind.ENTRY:
        return [*facts.of(query)]
    time = [] if query.timestamp is None else [TimeFact(query.timestamp)]
    return [NamedEntry.of_query(query), *time]


@dataclass(frozen=True)
class EntrySize:
    """The sizes of a transaction and its receipt in packed proofs, without the nodes above them.

    Four zero bytes count as one. The defaults are for unknown ones: nine of ten are smaller.
    """

    receipt: int = 1_250
    logs: int = 12
    """The number of logs in the receipt."""
    transaction: int = 1_250
    length: int = 1_600
    """The receipt's bytes, each of which counts."""


@dataclass(frozen=True)
class BlockSize:
    """The number of a block's transactions, and the sizes of some of them by their indexes."""

    count: int = 400
    entries: Mapping[int, EntrySize] = field(default_factory=dict)


UNKNOWN_SIZE = BlockSize()


def stored_sizes(blocks: Collection[int | None]) -> dict[int | None, BlockSize]:
    """Return the sizes of the stored transactions of these blocks (ids)."""
    if not blocks:
        return {}
    sizes: dict[int | None, dict[int, EntrySize]] = defaultdict(dict)
    rows = ProvenTransaction.objects.filter(block__in=blocks).annotate(length=Length("receipt"))
    columns = ("receipt_size", "log_count", "transaction_size", "length")
    for block, index, *size in rows.values_list("block", "index", *columns):
        sizes[block][index] = EntrySize(*size)
    counts = BlockTrie.objects.filter(block__in=blocks).values_list("block", "count")
    return {block: BlockSize(count, sizes[block]) for block, count in counts}


class Unprovable(Exception):
    """A transaction or log can't be proven. The reason's code is also a `RejectionCode`."""

    def __init__(self, reason: WaitReason, *, place: Sequence[str | int] = ()) -> None:
        """`place` is the path, below the transaction in the request, to the wrong value."""
        self.reason, self.place = reason, place
        super().__init__(str(reason))


@dataclass(frozen=True)
class FoundEntry:
    """A transaction that was found in its block."""

    index: int
    value: bytes
    """The receipt as the trie holds it."""
    receipt: TransactionReceipt
    hash: str
    """0x…, by the trie of transactions. Empty: that wasn't read."""
    first_log: int | None
    """The index within the block of the receipt's first log. None: nothing needs it."""
    facts: Sequence[EntryFact | LogFact]


@dataclass(frozen=True)
class BlockContents:
    """The verified receipts of a block, and its transactions if these are needed."""

    chain: int
    number: int
    receipts: BlockReceipts
    transactions: Sequence[bytes] | None
    _first_logs: list[int] = field(default_factory=lambda: [0])
    """The indexes within the block of the first logs, of as many of the first transactions as was needed so far."""

    @property
    def tries(self) -> dict[HeaderField, Sequence[bytes]]:
        """Return the values of the tries that were read, by the field of the header that is the root."""
        of_entries = {} if self.transactions is None else {HeaderField.TRANSACTIONS_ROOT: self.transactions}
        return {HeaderField.RECEIPTS_ROOT: self.receipts.values} | of_entries

    def size(self, indexes: Collection[int]) -> BlockSize:
        """Return the sizes of these transactions."""
        sizes = {
            index: EntrySize(
                packed_entries.size(self.receipts.values[index], is_receipt=True),
                len(self._decoded(index).logs),
                packed_entries.size(self.transactions[index], is_receipt=False) if self.transactions else 0,
                len(self.receipts.values[index]),
            )
            for index in indexes
        }
        return BlockSize(len(self.receipts.values), sizes)

    def find(self, named: NamedEntry, *, most_bytes: int | None = MOST_BYTES) -> FoundEntry:
        """Return a transaction with what is asked of it, if its receipt isn't too large. Raises `Unprovable`."""
        index = self.index_of(named.name)
        value, receipt = self.receipts.values[index], self._decoded(index)
        if most_bytes and len(value) > most_bytes:
            raise self._unprovable("receipt_too_large", index=index, size=len(value), most=most_bytes)
        if most_bytes and EntryField.HASH in named.fields:
            size = len((self.transactions or ())[index])
            if size > most_bytes:
                raise self._unprovable("transaction_too_long", index=index, size=size, most=most_bytes, place=["props"])
        if EntryField.STATUS in named.fields and receipt.status is None:
            raise self._unprovable("status_missing", index=index, place=["props"])
        first = self._first_log(index) if named.block_logs else None
        logs = dict.fromkeys(self._logs_of(index, named, len(receipt.logs), first))
        fields = [EntryFact(index, each) for each in named.fields]
        tx_hash = "" if self.transactions is None else hex_data(keccak(self.transactions[index]))
        of_logs = (LogFact(index, log) for log in logs)
        return FoundEntry(index, value, receipt, tx_hash, first, [*fields, *of_logs])

    def index_of(self, name: int | str) -> int:
        """Return the index of a transaction by its name. Raises `Unprovable`."""
        if isinstance(name, str):
            index = self._indexes.get(bytes.fromhex(name[2:]))
            if index is None:
                raise self._unprovable("transaction_not_in_block", transaction=name)
            return index
        if name >= (count := len(self.receipts.values)):
            raise self._unprovable("transaction_index_beyond", index=name, count=count)
        return name

    @cached_property
    def _indexes(self) -> Mapping[bytes, int]:
        """Return the indexes of transactions by their hashes."""
        return {keccak(value): index for index, value in enumerate(self.transactions or ())}

    def _decoded(self, index: int) -> TransactionReceipt:
        value = self.receipts.values[index]
        try:
            return TransactionReceipt.decode(value)
        except ValueError:
            raise self._unprovable("receipt_type_unknown", index=index, type=hex_data(value[:1])) from None

    def _first_log(self, index: int) -> int:
        for before in range(len(self._first_logs) - 1, index):
            self._first_logs.append(self._first_logs[before] + len(self._decoded(before).logs))
        return self._first_logs[index]

    def _logs_of(self, index: int, named: NamedEntry, count: int, first: int | None) -> Iterator[int]:
        for name, logs, before in (("logs", named.logs, 0), ("blockLogs", named.block_logs, first or 0)):
            for place, log in enumerate(logs):
                if not before <= log < before + count:
                    where, hint = (" of the block", "") if name == "blockLogs" else ("", _HINT_OF_LOGS)
                    last = before + count - 1
                    its = f"its logs are {before} to {last}{where}" if count > 1 else f"its only log is {last}{where}"
                    values = {"log": f"{log}{where}", "logs": its if count else "it has none", "hint": hint}
                    raise self._unprovable("log_index_beyond", index=index, place=[name, place], **values)
                yield log - before

    def _unprovable(self, code: str, *, place: Sequence[str | int] = (), **values: Value) -> Unprovable:
        return Unprovable(wait(code, chain=self.chain, block=self.number, **values), place=place)


@dataclass(frozen=True)
class BlockEntries:
    """The transactions of a block that requests name: each as it was found, or why it can't be proven."""

    contents: BlockContents | None
    """None: the block couldn't be read."""
    found: Mapping[NamedEntry, FoundEntry]
    """The transactions of which a fact is asked for."""
    faults: Mapping[NamedEntry, Unprovable | ChainError]
    """In the order of the names, first the names that no transaction of the block has."""

    @cached_property
    def receipt_nodes(self) -> Mapping[int, Sequence[bytes]]:
        """Return the nodes from the root of receipts to each of the found transactions, by its index."""
        values = self.contents.receipts.values if self.contents else ()
        return packed_entries.nodes(values, {entry.index for entry in self.found.values()})


def find(
    rpc: RpcClient, header: Header, named: Collection[NamedEntry], *, most_bytes: int | None = MOST_BYTES
) -> BlockEntries:
    """Read a block's receipts, and its transactions if any name needs them. Find the named transactions.

    If no node's answers make the header's root, or all nodes have pruned the block, the fault of each is `Unprovable`.
    """
    try:
        of_receipts = _receipts_of(rpc, header)
        needs_transactions = any(transaction.needs_transactions for transaction in named)
        transactions = _transactions_of(rpc, header) if needs_transactions else None
    except ChainError as error:
        is_pruned = isinstance(error, RpcRefused) and error.code == PRUNED and not error.may_pass
        if not is_pruned and not isinstance(error, OtherRoot):
            return BlockEntries(None, {}, dict.fromkeys(named, error))
        problem = f"{error.host} has pruned the block." if isinstance(error, RpcRefused) else str(error)
        reason = wait("root_not_made", chain=rpc.chain.id, block=header.number, problem=problem)
        return BlockEntries(None, {}, dict.fromkeys(named, Unprovable(reason)))
    contents = BlockContents(rpc.chain.id, header.number, of_receipts, transactions)
    found: dict[NamedEntry, FoundEntry] = {}
    faults: dict[NamedEntry, Unprovable | ChainError] = {}
    for transaction in named:
        try:
            contents.index_of(transaction.name)
        except Unprovable as error:
            faults[transaction] = error
    for transaction in named:
        try:
            if transaction.asks and transaction not in faults:
                found[transaction] = contents.find(transaction, most_bytes=most_bytes)
        except Unprovable as error:
            faults[transaction] = error
    return BlockEntries(contents, found, faults)


# --- Answers that are kept --------------------------------------------------------------------------------------------
#
# Answers that were verified a moment ago are kept in memory, because the next step needs the same ones. Admission asks
# for account proofs and for the receipts of blocks. The turn that follows proves by them, and other batches may be
# about the same blocks. Hashes decide whether an answer is valid, so none gets old.

_proofs: WeakKeyDictionary[RpcClient, dict[tuple[bytes | str | int, ...], VerifiedAccountProof]] = WeakKeyDictionary()


def keep_proofs(
    source: RpcClient, requests: Sequence[ProofRequest], answers: Sequence[VerifiedAccountProof | ChainError]
) -> None:
    """Keep verified proofs for the next request for the same."""
    kept = _proofs.setdefault(source, {})
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, VerifiedAccountProof):
            kept[_key(request)] = answer
    for key in list(kept)[:-_MOST_KEPT_PROOFS]:
        kept.pop(key, None)


def take_proof(source: RpcClient, request: ProofRequest) -> VerifiedAccountProof | None:
    """Return the kept proof for a request, and keep it no longer."""
    return _proofs.get(source, {}).pop(_key(request), None)


def _key(request: ProofRequest) -> tuple[bytes | str | int, ...]:
    return request.state_root, request.address, *request.slots


T = TypeVar("T")


class _BlockCache(Generic[T]):
    """The contents of blocks of each source chain, compressed, by the block's hash. The least recently used go first.

    A block of 1,300 transfers takes about 130 KiB of receipts and as much of transactions.
    """

    def __init__(self, read: Callable[[RpcClient, Header], T]) -> None:
        self._read = read
        self._kept: WeakKeyDictionary[RpcClient, dict[bytes, bytes]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of_block(self, source: RpcClient, header: Header) -> T:
        """Return the contents of a block, kept or read now. Raises the errors of reading them."""
        with self._lock:
            kept = self._kept.setdefault(source, {})
            if compressed := kept.pop(header.hash, None):
                kept[header.hash] = compressed
        if compressed:
            contents: T = pickle.loads(zlib.decompress(compressed))  # noqa: S301 (made below)
            return contents
        contents = self._read(source, header)
        compressed = zlib.compress(pickle.dumps(contents), 1)
        with self._lock:
            kept[header.hash] = compressed
            while sum(map(len, kept.values())) > _MOST_KEPT_BYTES:
                del kept[next(iter(kept))]
        return contents


_receipts_of = _BlockCache(receipts.of_block).of_block
_transactions_of = _BlockCache(block_transactions.of_block).of_block
