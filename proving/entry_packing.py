"""The division of facts about a block's transactions into packed proofs that each fit a transaction."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chains.packed import HeaderParts
from chains.packed_entries import encode_receipts, encode_transactions
from proving.facts import EntryFact, LogFact
from queries.columns import HeaderField

# Maximum bytes and gas of one of these proofs, so that a header and other calls fit beside it.
_MOST_BYTES, _MOST_GAS = 124_000, 12_000_000
# Maximum bytes of the trie nodes on the way to a receipt or transaction, and maximum gas of rebuilding them.
_NODES_BYTES, _NODES_GAS = 1_000, 20_000
# Maximum gas of a log that is read, of a log that is stored too, of storing a receipt's fields or a hash, and of a
# byte of what is hashed.
_LOG_GAS, _STORED_GAS, _BYTE_GAS = 3_000, 26_000, 3


@dataclass
class EntryPack:
    """Facts under one root of a block, for one proof."""

    root: HeaderField
    facts: list[EntryFact | LogFact] = field(default_factory=list)
    most_bytes: int = 0
    """An upper bound of its packed bytes, without a header."""
    most_gas: int = 0
    """An upper bound of its gas, without calldata."""

    def encode(self, block: int | HeaderParts, values: Sequence[bytes]) -> bytes:
        """Return the packed calldata. `block` and `values` are as in `encode_receipts`."""
        indexes = {fact.entry for fact in self.facts if isinstance(fact, EntryFact)}
        if self.root == HeaderField.TRANSACTIONS_ROOT:
            return encode_transactions(block, values, indexes)
        logs: dict[int, list[int]] = {}
        for fact in self.facts:
            if isinstance(fact, LogFact):
                logs.setdefault(fact.entry, []).append(fact.log)
        return encode_receipts(block, values, logs, indexes)


def packs(facts: Iterable[EntryFact | LogFact], length_of: Callable[[EntryFact | LogFact], int]) -> Iterator[EntryPack]:
    """Yield the packs of these facts of a block. `length_of` returns the bytes of a fact's receipt or transaction.

    A receipt with more logs to store than fit is in several packs.
    """
    pack: EntryPack | None = None
    before: int | None = None
    for fact in sorted(facts, key=_order):
        length = length_of(fact)
        new_bytes, new_gas = (2, _STORED_GAS) if isinstance(fact, LogFact) else (0, _STORED_GAS)
        of_value = length + _NODES_BYTES, _NODES_GAS + _BYTE_GAS * length + _LOG_GAS * (length // 60)
        is_same = pack is not None and pack.root == fact.root and before == fact.entry
        whole = (new_bytes, new_gas) if is_same else (new_bytes + of_value[0], new_gas + of_value[1])
        if pack is None or pack.root != fact.root or not _fits(pack, *whole):
            if pack is not None:
                yield pack
            pack, whole = EntryPack(fact.root), (new_bytes + of_value[0], new_gas + of_value[1])
        pack.facts.append(fact)
        pack.most_bytes += whole[0]
        pack.most_gas += whole[1]
        before = fact.entry
    if pack is not None:
        yield pack


def _fits(pack: EntryPack, more_bytes: int, more_gas: int) -> bool:
    return pack.most_bytes + more_bytes <= _MOST_BYTES and pack.most_gas + more_gas <= _MOST_GAS


def _order(fact: EntryFact | LogFact) -> tuple[int, int, int]:
    return fact.root, fact.entry, fact.log + 1 if isinstance(fact, LogFact) else 0
