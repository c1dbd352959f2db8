"""The packed calldata that proves receipts, logs and transactions (docs/developing/proof-format.md).

It is built from all of a block's receipts, or transactions, whose trie shows whether they are the block's.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import rlp
from eth_utils.crypto import keccak

from chains.encoding import Item, decode_rlp, shortest
from chains.tries.packed import (
    ABSENT_TRANSACTION,
    AT_EMPTY,
    AT_EXTENSION,
    AT_LEAF,
    AT_SAME,
    EXTENSION,
    HASH_BYTES,
    RECEIPT_FIELDS,
    RECEIPT_FIELDS_AND_LOGS,
    RECEIPT_LOGS,
    RECEIPTS,
    TRANSACTION,
    TRANSACTIONS,
    CannotPack,
    HeaderParts,
    branch_operation,
    pack_headers,
    pack_number,
    packed_path,
)

STATUS, TYPE, CUMULATIVE_GAS_USED, LOG_COUNT, EXISTS = range(5)
"""Fields of a receipt, as in the contract's enumeration."""

# A shorter value can be embedded in the node above.
_SHORTEST = 32
_BLOOM, _LOGS = 2, 3
_BLOOM_BYTES = 3 + 256
# The greatest index of a log whose mark has two bytes.
_LAST_LOG = 0xFFFF // 3 // 2


def encode_receipts(
    block: bytes | int | HeaderParts,
    receipts: Sequence[bytes],
    logs: Mapping[int, Collection[int]] = MappingProxyType({}),
    fields: Collection[int] = (),
    *,
    takes_masks: bool = True,
) -> bytes:
    """Return packed calldata that proves receipts of a block.

    `block` is as in `packed.encode`, but its header isn't accumulated, and a number needs the root of receipts to be a
    fact. `receipts` are all values of the block's trie. `logs` has the logs to store, and `fields` the receipts whose
    fields are stored, by the transactions' indexes. An index beyond the last transaction is proven absent.
    `takes_masks` is as in `packed.encode`. Without it, the fields of another receipt may be stored, too.

    Raises `CannotPack`.
    """

    def leaf(index: int, depth: int) -> bytes:
        wanted = sorted(logs.get(index, ()))
        with_logs = RECEIPT_FIELDS_AND_LOGS if index in fields else RECEIPT_LOGS
        operation = with_logs if wanted else RECEIPT_FIELDS
        return bytes([operation]) + _name(index) + bytes([depth]) + _without_bloom(receipts[index], wanted)

    asked = {*logs, *fields}
    return _begin(block) + bytes([RECEIPTS]) + _Trie(receipts, leaf, takes_masks=takes_masks).operations(asked)


def encode_transactions(
    block: bytes | int | HeaderParts,
    transactions: Sequence[bytes],
    hashes: Collection[int],
    *,
    takes_masks: bool = True,
) -> bytes:
    """Return packed calldata that proves the hashes of transactions by their indexes, as `encode_receipts` does."""

    def leaf(index: int, depth: int) -> bytes:
        return bytes([TRANSACTION]) + _whole_leaf(index, depth, transactions[index])

    if any(index >= len(transactions) for index in hashes):
        raise CannotPack("The block has no such transaction.")
    return _begin(block) + bytes([TRANSACTIONS]) + _Trie(transactions, leaf, takes_masks=takes_masks).operations(hashes)


def root(values: Sequence[bytes]) -> bytes:
    """Return the root of the trie of a block's receipts, or transactions."""
    return _Trie(values, lambda *_: b"").write(())[0]


def nodes(values: Sequence[bytes], indexes: Collection[int]) -> dict[int, list[bytes]]:
    """Return the trie's nodes on the way to each index, the root first, or to where it shows that there is none.

    Each node has a hash, because no receipt or transaction is short enough to embed. Withdrawals may be.
    """
    trie = _Trie(values, lambda *_: b"")
    trie.write(())
    return {index: [rlp.encode(node, infer_serializer=False) for node in trie.way(_key(index))] for index in indexes}


def size(value: bytes, *, is_receipt: bool) -> int:
    """Return the bytes of a receipt or transaction in a packed proof. Four zeros count as one, as in the price.

    Raises `CannotPack`.
    """
    packed = _without_bloom(value, ()) if is_receipt else value
    return len(packed) - packed.count(0) * 3 // 4


def size_of_ways(count: int, indexes: Collection[int]) -> tuple[int, int]:
    """Return the bytes and the number of the packed nodes above these leaves.

    Their trie has `count` receipts or transactions.
    """
    return _size_of_ways({_key(index): index in indexes for index in range(count)}, 0)


def _size_of_ways(there: Mapping[str, bool], depth: int) -> tuple[int, int]:
    """Return the bytes and the number for the keys `there` that are true. All agree down to `depth`."""
    if len(there) < 2 or not any(there.values()):
        return 0, 0
    below: dict[str, dict[str, bool]] = {}
    for key, is_asked in there.items():
        below.setdefault(key[depth], {})[key] = is_asked
    inside = [_size_of_ways(keys, depth + 1) for keys in below.values()]
    own = sum(any(keys.values()) for keys in below.values())
    # A path that all share takes an extension, whose first digit is counted here.
    size = 1 if len(below) == 1 else 2 + own + (1 + HASH_BYTES) * (len(below) - own)
    return size + sum(each for each, _ in inside), 1 + sum(nodes for _, nodes in inside)


def _begin(block: bytes | int | HeaderParts) -> bytes:
    if isinstance(block, int):
        return pack_number(block)
    return pack_headers([block] if isinstance(block, bytes) else block)


class _Trie:
    """A trie of values by their index. It writes the operations that prove some of them."""

    def __init__(self, values: Sequence[bytes], leaf: Callable[[int, int], bytes], *, takes_masks: bool = True) -> None:
        """`leaf` returns the operation for an index at a depth."""
        self._takes_masks = takes_masks
        self._values = values
        self._leaf = leaf
        self._written: dict[str, Item] = {}
        """The nodes that were written, by the digits of the keys that lead to each."""

    def operations(self, asked: Collection[int]) -> bytes:
        if not asked:
            raise CannotPack("There is nothing to prove.")
        return self.write(asked)[1]

    def write(self, asked: Collection[int]) -> tuple[bytes, bytes]:
        """Return the trie's root, and the operations that prove these indexes."""
        there, wanted = ({_key(index): index for index in indexes} for indexes in (range(len(self._values)), asked))
        node, operations = self._node(there, wanted, 0)
        return keccak(rlp.encode(node, infer_serializer=False)), operations

    def way(self, key: str) -> list[Item]:
        """Return the nodes on the way to a key, which were written."""
        return [self._written[key[:depth]] for depth in range(len(key) + 1) if key[:depth] in self._written]

    def _node(self, there: Mapping[str, int], asked: Mapping[str, int], depth: int) -> tuple[Item, bytes]:
        """Return the node that holds the keys `there`, which agree down to `depth`, and its operations."""
        keys, out, others = sorted(there), b"", sorted(asked)
        if not keys:
            if others:
                out = _absent(asked[others.pop(0)], AT_EMPTY, bytes([depth]))
            node: Item = b""
        elif len(keys) == 1:
            [key] = keys
            node = [_hex_prefix(key[depth:], 2), self._values[there[key]]]
            if others:
                first = key if key in asked else others[0]
                out = self._at_leaf(there[key], depth, asked[first])
                # A registry of version 0.3.0 is shown every absence behind a leaf whose facts it stores.
                others = [other for other in others if other != (first if self._takes_masks else key)]
        elif reach := _shared(keys[0][depth:], keys[-1][depth:]):
            path = keys[0][depth : depth + reach]
            inside = {key: asked[key] for key in others if key[depth:].startswith(path)}
            child, out = self._node(there, inside, depth + reach)
            others = [key for key in others if key not in inside]
            reference = _reference(child)
            node = [_hex_prefix(path, 0), reference]
            if inside:
                out += bytes([EXTENSION, reach])
            elif others:
                if not isinstance(reference, bytes):
                    raise CannotPack("An extension leads to a node of less than 32 bytes.")
                out = _absent(asked[others.pop(0)], AT_EXTENSION, bytes([depth, reach]) + packed_path(path) + reference)
        else:
            node, out = self._branch(there, asked, depth)
            others = []
        if keys:
            self._written[keys[0][:depth]] = node
        return node, out + b"".join(_absent(asked[key], AT_SAME, b"") for key in others)

    def _at_leaf(self, index: int, depth: int, asked: int) -> bytes:
        """Return the operation that proves the asked index at the leaf of an index."""
        if asked == index or not self._takes_masks:
            return self._leaf(index, depth)
        return _absent(asked, AT_LEAF, _whole_leaf(index, depth, self._values[index]))

    def _branch(self, there: Mapping[str, int], asked: Mapping[str, int], depth: int) -> tuple[Item, bytes]:
        children: list[Item] = []
        out, below = b"", []
        for place, digit in enumerate("0123456789abcdef"):
            inside, wanted = ({key: each[key] for key in each if key[depth] == digit} for each in (there, asked))
            child, operations = self._node(inside, wanted, depth + 1)
            children.append(_reference(child))
            out += operations
            if wanted:
                below.append(place)
        node = [*children, b""]
        return node, out + branch_operation(node, below, takes_masks=self._takes_masks) if below else b""


def _key(index: int) -> str:
    return bytes(rlp.encode(index)).hex()


def _shared(one: str, other: str) -> int:
    return next(length for length, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)


def _reference(node: Item) -> Item:
    """Return a node as the node above has it."""
    encoded: bytes = rlp.encode(node, infer_serializer=False)
    return node if len(encoded) < HASH_BYTES else keccak(encoded)


def _hex_prefix(path: str, flag: int) -> bytes:
    return bytes.fromhex(f"{flag + 1:x}{path}" if len(path) % 2 else f"{flag:x}0{path}")


def _name(index: int) -> bytes:
    digits = shortest(index)
    if len(digits) > 2:
        raise CannotPack(f"No block has a transaction {index}.")
    return bytes([len(digits)]) + digits


def _whole_leaf(index: int, depth: int, value: bytes) -> bytes:
    if len(value) < _SHORTEST:
        raise CannotPack(f"Transaction {index} has less than {_SHORTEST} bytes.")
    return _name(index) + bytes([depth]) + len(value).to_bytes(3) + value


def _absent(index: int, how: int, where: bytes) -> bytes:
    return bytes([ABSENT_TRANSACTION + 2 * how + index.bit_count() % 2]) + _name(index) + where


def log_marks(logs: Sequence[int]) -> bytes:
    """Return the bytes that tell which logs of a receipt to store."""
    return b"".join((3 * (2 * log + int(place < len(logs)))).to_bytes(2) for place, log in enumerate(logs, 1))


def _without_bloom(value: bytes, logs: Sequence[int]) -> bytes:
    """Return a receipt without its bloom, behind the marks of the logs to store, which rise."""
    begin = 0 if value[:1] >= b"\x80" else 1
    try:
        items = decode_rlp(value[begin:])
    except ValueError as error:
        raise CannotPack(f"A receipt is {error}.") from None
    if isinstance(items, bytes) or len(items) <= _LOGS or isinstance(items[_LOGS], bytes):
        raise CannotPack("A receipt is none.")
    if any(log >= min(len(items[_LOGS]), _LAST_LOG + 1) for log in logs):
        raise CannotPack("A receipt has no such log.")
    behind = sum(len(rlp.encode(item, infer_serializer=False)) for item in items[_BLOOM + 1 :])
    place = len(value) - behind
    return log_marks(logs) + value[: place - _BLOOM_BYTES] + value[place:]
