"""Answers of source chains that were verified a moment ago, kept in memory, because the next step needs the same ones.

Admission asks for account proofs and for the receipts of blocks. The turn that follows proves by them, and other
batches may be about the same blocks. Hashes decide whether an answer is valid, so none gets old.
"""

import threading
from collections.abc import Callable, Sequence
from sys import getsizeof
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from chains import block_transactions, receipts
from chains.header import Header
from chains.node_errors import ChainError
from chains.questions import ProofRequest, VerifiedAccountProof
from chains.rpc import RpcClient

# Maximum proofs that are kept of a chain, and maximum bytes of its receipts, and of its transactions.
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
    """The contents of blocks of each source chain, by the block's hash. The oldest go first."""

    def __init__(self, read: Callable[[RpcClient, Header], T], values: Callable[[T], Sequence[bytes]]) -> None:
        self._read, self._values = read, values
        self._kept: WeakKeyDictionary[RpcClient, dict[bytes, T]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of_block(self, source: RpcClient, header: Header) -> T:
        """Return the contents of a block, kept or read now. Raises the errors of reading them."""
        with self._lock:
            kept = self._kept.setdefault(source, {})
            if header.hash in kept:
                return kept[header.hash]
        contents = self._read(source, header)
        with self._lock:
            kept[header.hash] = contents
            while kept and sum(map(self._size, kept.values())) > _MOST_BYTES:
                del kept[next(iter(kept))]
        return contents

    def _size(self, contents: T) -> int:
        return sum(map(getsizeof, self._values(contents)))


receipts_of = _BlockCache(receipts.of_block, lambda block: block.values).of_block
transactions_of = _BlockCache[tuple[bytes, ...]](block_transactions.of_block, lambda values: values).of_block
