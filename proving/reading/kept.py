"""Answers of source chains that were verified a moment ago, kept in memory, because the next step needs the same ones.

Admission asks for account proofs and for the receipts of blocks. The turn that follows proves by them, and other
batches may be about the same blocks. Hashes decide whether an answer is valid, so none gets old.
"""

import pickle
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from chains.nodes import block_transactions, receipts
from chains.nodes.node_errors import ChainError
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header

# Maximum proofs that are kept of a chain, and maximum bytes of its blocks' receipts, and of their transactions.
_MOST_PROOFS = 64
_MOST_BYTES = 8 * 1024 * 1024


# --- Proofs of accounts -----------------------------------------------------------------------------------------------

_proofs: WeakKeyDictionary[RpcClient, dict[tuple[bytes | str | int, ...], VerifiedAccountProof]] = WeakKeyDictionary()


def keep_proofs(
    source: RpcClient, requests: Sequence[ProofRequest], answers: Sequence[VerifiedAccountProof | ChainError]
) -> None:
    """Keep verified proofs for the next request for the same."""
    kept = _proofs.setdefault(source, {})
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, VerifiedAccountProof):
            kept[_key(request)] = answer
    for key in list(kept)[:-_MOST_PROOFS]:
        kept.pop(key, None)


def take_proof(source: RpcClient, request: ProofRequest) -> VerifiedAccountProof | None:
    """Return the kept proof for a request, and keep it no longer."""
    return _proofs.get(source, {}).pop(_key(request), None)


def _key(request: ProofRequest) -> tuple[bytes | str | int, ...]:
    return request.state_root, request.address, *request.slots


# --- Receipts and transactions of blocks ------------------------------------------------------------------------------

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
            while sum(map(len, kept.values())) > _MOST_BYTES:
                del kept[next(iter(kept))]
        return contents


receipts_of = _BlockCache(receipts.of_block).of_block
transactions_of = _BlockCache(block_transactions.of_block).of_block
