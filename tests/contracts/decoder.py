"""A model of the contract. It verifies packed calldata and returns the proven facts."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn

import rlp
from eth_utils.crypto import keccak

from chains.beacon.jumps import BeaconChain
from chains.encoding import HISTORY_WINDOW, Item, read_integer, shortest
from chains.tries import packed
from chains.tries.header import Beginning, InvalidHeader, read_beginning, read_fields
from chains.tries.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT
from tests.contracts import beacon_model

_BEACON_ROOT = 19
_ROOT_PLACES: Mapping[int | None, int] = {packed.TRANSACTIONS: 4, packed.RECEIPTS: 5}
# Behind the logs of receipts from this type on, there may be strings.
_FIRST_OF_OTHER_CHAINS = 0x64


class InvalidPacked(ValueError):
    """The calldata doesn't prove facts of a trusted block, or isn't their only valid encoding. The message is one
    sentence.
    """


@dataclass(frozen=True)
class AccountFacts:
    """The proven facts of an account. An absent account has zeros, and the root of the empty trie."""

    exists: bool
    fields: int  # as in AccountToProve; zero for an absent account
    nonce: int
    balance: int  # wei
    storage_root: bytes
    code_hash: bytes
    slots: Mapping[int, int]
    history: Mapping[int, bytes] = field(
        default_factory=dict
    )  # block hashes by slot, if the account is the history contract


@dataclass(frozen=True)
class Receipt:
    """The proven fields of a receipt."""

    status: int | None
    type: int
    cumulative_gas: int
    log_count: int


@dataclass
class TransactionFacts:
    """The proven facts about transactions, by their indexes in the block."""

    receipts: dict[int, Receipt | None] = field(default_factory=dict)  # None: there is no such transaction
    logs: dict[tuple[int, int], bytes] = field(default_factory=dict)  # hashes by indexes of transaction and log
    hashes: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class PackedFacts:
    """The facts that packed calldata proves about one block, and the block hashes that become known.

    Known block hashes come from `history` of accounts, or from calldata that proves only the hash of a parent or older
    block. Such calldata accumulates no block. Without headers, the number and the root are zero. Calldata that proves
    `transactions` accumulates no block either.
    """

    block_number: int
    state_root: bytes
    headers: Sequence[
        bytes
    ]  # RLP from the trusted header down to the block's; empty if the calldata names the block by number
    header_fields: Mapping[int, bytes]  # stored words by field index
    accounts: Mapping[bytes, AccountFacts]  # by address
    known_hashes: frozenset[bytes] = frozenset()
    transactions: TransactionFacts = field(default_factory=TransactionFacts)


def decode(  # noqa: C901 - it reads what calldata has, in order.
    calldata: bytes,
    *,
    block_hash: Callable[[int], bytes | None],
    state_root: Callable[[int], bytes | None],
    known_hashes: Container[bytes] = frozenset(),
    history_window: int = HISTORY_WINDOW,
    beacon: BeaconChain | None = None,
    header_field: Callable[[int, int], bytes | None] = lambda *_: None,
) -> PackedFacts:
    """Return the facts that the calldata proves. Raise `InvalidPacked` if the registry would refuse it.

    `block_hash` returns the hash for which the source vouches, and `state_root` the root that the registry holds, both
    by block number. They return None or zero bytes for an unknown block. `known_hashes` are block hashes proven to the
    registry. `history_window` is the number of slots of the history contract that the registry accepts as block hashes.
    `beacon` is the chain of the registry's beacon history. `header_field` returns a proven field by block number and
    place.
    """
    reader = _Reader(calldata)
    headers: tuple[bytes, ...] = ()
    fields: dict[int, bytes] = {}
    if calldata[:1] < bytes([packed.OLD_BLOCK]):
        number = _read_number(reader)
        transactions = _read_transactions(reader, lambda place: header_field(number, place))
        if transactions:
            return PackedFacts(number, bytes(32), (), {}, {}, transactions=transactions)
        root = state_root(number)
        if root is None or not any(root):
            raise InvalidPacked(f"The header of block {number} is not accumulated.")
    else:
        read, hash_alone = _read_headers(reader, block_hash, known_hashes, beacon)
        headers = tuple(each.encoded for each in read)
        if hash_alone is not None:
            number, root = (read[-1].number, read[-1].state_root) if read else (0, bytes(32))
            return PackedFacts(number, root, headers, {}, {}, frozenset({hash_alone}))
        header = read[-1]
        number, root = header.number, header.state_root
        if calldata[reader.cursor :] == bytes([packed.HASH_ALONE]):
            if not any(header.parent_hash) or not header.number:
                raise InvalidPacked("The first block of a chain has no parent there.")
            return PackedFacts(number, root, headers, {}, {}, frozenset({header.parent_hash}))
        known = state_root(number)
        if known is not None and any(known) and known != root:
            raise InvalidPacked(f"Block {number} was accumulated with another state root.")
        transactions = _read_transactions(reader, list(islice(read_fields(header.encoded), 6)).__getitem__)
        if transactions:
            return PackedFacts(number, root, headers, {}, {}, transactions=transactions)
        if reader.peek() == packed.HEADER_FACTS:
            reader.byte()
            fields = _read_header_fields(header.encoded, reader.integer(4))
        if calldata[reader.cursor :] == bytes([packed.HEADER_ALONE]):
            return PackedFacts(number, root, headers, fields, {})
    accounts = _Decoder(reader, history_window)
    accounts.run()
    _refuse_if(accounts.root != root, "The proof is one under another state root.")
    proven = frozenset(digest for facts in accounts.facts.values() for digest in facts.history.values())
    return PackedFacts(number, root, headers, fields, accounts.facts, proven)


def _refuse_if(fault: object, message: str) -> None:
    if fault:
        raise InvalidPacked(message)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.cursor = 0

    def at_end(self) -> bool:
        return self.cursor == len(self._data)

    def peek(self) -> int | None:
        return None if self.at_end() else self._data[self.cursor]

    def take(self, size: int) -> bytes:
        taken = self._data[self.cursor : self.cursor + size]
        _refuse_if(len(taken) != size, "The calldata ends too early.")
        self.cursor += size
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def shortest(self, size: int, most: int = 32) -> bytes:
        """Read a number's bytes without leading zeros."""
        _refuse_if(size > most, f"A number has more than {most} bytes.")
        digits = self.take(size)
        _refuse_if(digits[:1] == b"\0", "A number has a leading zero.")
        return digits


def _read_number(reader: _Reader) -> int:
    size = reader.byte()
    _refuse_if(not 1 <= size <= 8, "The calldata begins neither with a header nor with a block number.")
    digits = reader.take(size)
    _refuse_if(size > 1 and digits[0] == 0, "The block number has a leading zero.")
    return int.from_bytes(digits)


def _check_hash(header: Beginning, expected: bytes | None, known_hashes: Container[bytes]) -> None:
    digest = keccak(header.encoded)
    if digest == expected or digest in known_hashes:
        return
    if expected is None or not any(expected):
        raise InvalidPacked(f"Nobody vouches for block {header.number}.")
    raise InvalidPacked(f"The header is not that of block {header.number}.")


def _read_headers(
    reader: _Reader,
    block_hash: Callable[[int], bytes | None],
    known_hashes: Container[bytes],
    beacon: BeaconChain | None,
) -> tuple[list[Beginning], bytes | None]:
    """Read headers down to the block's. Return them with a proven hash if no header follows it."""
    headers: list[Beginning] = []
    while True:
        first, proven = reader.peek(), None
        if headers and first == packed.PARENT:
            headers.append(_read_parent(reader, headers[-1]))
            continue
        if headers and first != packed.OLD_BLOCK:
            return headers, None
        if headers or (first is not None and first < 0x80):
            proven = _read_block_hash(reader, headers, beacon)
            if reader.peek() == packed.HASH_ALONE:
                reader.byte()
                _refuse_if(not reader.at_end(), "Something follows a hash alone.")
                return headers, proven
        header = _read_header(reader)
        if proven is None:
            _check_hash(header, block_hash(header.number), known_hashes)
        elif keccak(header.encoded) != proven:
            raise InvalidPacked("The header is not that of the proven hash.")
        headers.append(header)


def _read_block_hash(reader: _Reader, headers: Sequence[Beginning], beacon: BeaconChain | None) -> bytes:
    """Read a branch to a block hash, from the last header or from a constant."""
    operation = reader.byte()
    allowed = {packed.OLD_BLOCK} if headers else {packed.BLOCK_BEFORE_CAPELLA, packed.BLOCK_BEFORE_MERGE}
    _refuse_if(operation not in allowed, "The calldata begins neither with a header nor with a block.")
    root = _read_beacon_root(headers[-1]) if headers else b""
    branch = reader.take(reader.integer(2))
    if beacon is None:
        raise InvalidPacked("The registry has no beacon history.")
    try:
        if operation == packed.OLD_BLOCK:
            return beacon_model.old(beacon, root, branch)
        if operation == packed.BLOCK_BEFORE_CAPELLA:
            return beacon_model.before_capella(beacon, branch)
        return beacon_model.before_merge(beacon, branch)
    except beacon_model.InvalidBranch as invalid:
        raise InvalidPacked(str(invalid)) from None


def _read_beacon_root(header: Beginning) -> bytes:
    try:
        fields = list(islice(read_fields(header.encoded, 3), _BEACON_ROOT + 1))
    except InvalidHeader as invalid:
        raise InvalidPacked(str(invalid)) from None
    root = fields[_BEACON_ROOT] if len(fields) > _BEACON_ROOT else b""
    if len(root) != packed.HASH_BYTES or not any(root):
        raise InvalidPacked(f"The header of block {header.number} has no beacon root.")
    return root


def _read_parent(reader: _Reader, child: Beginning) -> Beginning:
    reader.byte()
    header = _read_header(reader)
    if keccak(header.encoded) != child.parent_hash or header.number + 1 != child.number:
        raise InvalidPacked(f"A header is not that of the parent of block {child.number}.")
    return header


def _read_header(reader: _Reader) -> Beginning:
    # The list's length always takes two bytes, because the bloom filter alone has 256.
    prefix = reader.take(3)
    try:
        return read_beginning(prefix + reader.take(int.from_bytes(prefix[1:])))
    except InvalidHeader as invalid:
        raise InvalidPacked(str(invalid)) from None


def _read_header_fields(header: bytes, mask: int) -> dict[int, bytes]:
    even = mask.bit_count() % 2 == 0
    mask &= ~packed.HEADER_PARITY
    if not even or mask == 0 or any(mask >> index & 1 for index in packed.IMPLIED_HEADER_FIELDS):
        raise InvalidPacked("Header fields are asked for that are none, or that need no asking.")
    words = {}
    try:
        fields = list(islice(read_fields(header), mask.bit_length()))
    except InvalidHeader as invalid:
        raise InvalidPacked(str(invalid)) from None
    _refuse_if(len(fields) < mask.bit_length(), "The header has no such field.")
    for index, content in enumerate(fields):
        if not mask >> index & 1:
            continue
        if index in packed.HASHED_HEADER_FIELDS:
            words[index] = keccak(content)
        elif len(content) > packed.HASH_BYTES:
            raise InvalidPacked(f"Field {index} of the header does not fit a word.")
        else:
            words[index] = content.rjust(32, b"\0")
    return words


@dataclass
class _Subtree:
    reference: (
        bytes  # RLP as in the parent node: a string of 32 bytes, an empty string, or a list of less than 32 bytes
    )
    key: int
    depth: int
    reach: int = 0  # nibble before which an absent key must leave `key`; zero for a branch
    last: int = 0  # largest key proven absent at this node

    def path(self, depth: int) -> int:
        return _prefix(self.key, depth)

    @property
    def place(self) -> int:
        """Return the index of this child in the branch above."""
        return self.path(self.depth) & 0x0F

    def attach(self, key: int) -> None:
        if not (
            _prefix(key, self.depth) == self.path(self.depth)
            and _prefix(key, self.reach) != self.path(self.reach)
            and key > self.last
        ):
            raise InvalidPacked("A key is said to be absent where it would not be, or out of order.")
        self.last = key


EMPTY = b"\x80"
"""Reference of an empty place: the RLP of an empty string."""


def _prefix(key: int, depth: int) -> int:
    return key >> 4 * (packed.NIBBLES - depth)


def _reference(node: Item) -> bytes:
    encoded: bytes = rlp.encode(node)
    return encoded if len(encoded) < packed.HASH_BYTES else b"\xa0" + keccak(encoded)


def _root(stack: list[_Subtree]) -> bytes:
    _refuse_if(len(stack) != 1 or stack[0].depth, "The proof does not end in one root.")
    reference = stack[0].reference
    return reference[1:] if reference[0] == 0xA0 else keccak(reference)


def _hex_prefix(path: str, *, leaf: bool) -> bytes:
    flag = 2 if leaf else 0
    return bytes.fromhex(f"{flag + 1:x}{path}" if len(path) % 2 else f"{flag:x}0{path}")


def _invalid(why: str) -> NoReturn:
    raise InvalidPacked(why)


class _Decoder:
    """Run operations on two stacks of subtrees: one of the state trie, one of an open storage."""

    def __init__(self, reader: _Reader, history_window: int) -> None:
        self._reader = reader
        self._history_window = history_window
        self._state: list[_Subtree] = []
        self._storage: list[_Subtree] | None = None
        self._owner = b""
        self._slots: dict[int, int] = {}
        self._history: dict[int, bytes] = {}
        self.facts: dict[bytes, AccountFacts] = {}

    @property
    def root(self) -> bytes:
        """Return the state root that the operations compute. Raise `InvalidPacked` if they compute none."""
        _refuse_if(self._storage is not None, "A storage stays open.")
        return _root(self._state)

    def run(self) -> None:
        while not self._reader.at_end():
            op = self._reader.byte()
            if op == packed.FULL_BRANCH:
                self._full_branch()
            elif packed.BRANCH <= op < packed.END_OF_BRANCHES:
                self._branch(op)
            elif op == packed.OPEN_STORAGE:
                self._open_storage()
            elif op == packed.EXTENSION:
                self._extension(self._reader.byte())
            elif op >= packed.ABSENT_ACCOUNT:
                self._any_account(op)
            else:
                self._any_slot(op)

    def _any_slot(self, op: int) -> None:
        if self._storage is None:
            raise InvalidPacked("There is no such operation outside of a storage.")
        if op == packed.SLOT:
            self._slot()
        elif op == packed.BLOCK_HASH:
            self._block_hash()
        elif packed.ZERO_SLOT <= op <= packed.ZERO_SLOT + packed.AT_LEAF:
            self._zero_slot(op - packed.ZERO_SLOT)
        else:
            raise InvalidPacked("There is no such operation.")

    def _open_storage(self) -> None:
        _refuse_if(self._storage is not None, "A storage is opened in another one.")
        self._storage, self._owner = [], self._reader.take(20)
        self._slots, self._history = {}, {}

    @property
    def _stack(self) -> list[_Subtree]:
        return self._state if self._storage is None else self._storage

    def _close_storage(self) -> bytes:
        if self._storage is None:
            raise InvalidPacked("There is no storage to close.")
        root = _root(self._storage)
        self._storage = None
        return root

    # --- Nodes --------------------------------------------------------------------------------------------------------

    def _full_branch(self) -> None:
        child = self._pop(1)[0]
        if len(child.reference) != len(b"\xa0") + packed.HASH_BYTES:
            raise InvalidPacked("A branch of sixteen hashes holds something else.")
        self._push_branch(
            child, [child.reference if index == child.place else self._hash_child() for index in range(16)]
        )

    def _branch(self, op: int) -> None:
        """Read a branch that takes children from the stack: the masks of hashes and nodes, and then these."""
        count = (op & 0x0F) + 1
        hashes = self._places()
        nodes = self._places() if op >= packed.BRANCH_WITH_NODES else set()
        _refuse_if(op >= packed.BRANCH_WITH_NODES and not nodes, "A mask of nodes has no place.")
        mine = self._pop(count)
        children = self._children(mine, hashes, nodes)
        _refuse_if(sum(child != EMPTY for child in children) < 2, "A branch has fewer than two children.")
        if count == 1 and all(len(child) == len(b"\xa0") + packed.HASH_BYTES for child in children):
            raise InvalidPacked("A branch of sixteen hashes is written in a longer form than it needs.")
        self._push_branch(mine[0], children)

    def _children(self, mine: Sequence[_Subtree], hashes: set[int], nodes: set[int]) -> list[bytes]:
        """Read the children at these places, beside those from the stack. Return all sixteen; the others are empty."""
        own = [self._own_place(child, mine[0]) for child in mine]
        _refuse_if(own != sorted(set(own)), "The children of a branch are out of order.")
        _refuse_if(len({*own, *hashes, *nodes}) < len(own) + len(hashes) + len(nodes), "A place has two children.")
        children = [EMPTY] * 16
        for index in sorted({*own, *hashes, *nodes}):
            if index in hashes:
                children[index] = self._hash_child()
            elif index in nodes:
                children[index] = self._node_child()
            else:
                children[index] = mine[own.index(index)].reference
        return children

    def _places(self) -> set[int]:
        mask = int.from_bytes(self._reader.take(2))
        return {place for place in range(16) if mask >> place & 1}

    @staticmethod
    def _own_place(child: _Subtree, sibling: _Subtree) -> int:
        if (child.depth, child.path(child.depth - 1)) != (sibling.depth, sibling.path(sibling.depth - 1)):
            raise InvalidPacked("The children belong to several branches.")
        return child.place

    def _pop(self, count: int) -> list[_Subtree]:
        """Pop the `count` topmost subtrees, which must be children of one branch."""
        if len(self._stack) < count or not self._stack[-count].depth:
            raise InvalidPacked("A branch has too few children before it.")
        popped = self._stack[-count:]
        del self._stack[-count:]
        return popped

    def _push_branch(self, child: _Subtree, children: Sequence[bytes]) -> None:
        """Push the branch with these children. `child` is one of them."""
        self._stack.append(_Subtree(_listed(b"".join(children) + EMPTY), child.key, child.depth - 1))

    def _hash_child(self) -> bytes:
        return b"\xa0" + self._reader.take(packed.HASH_BYTES)

    def _node_child(self) -> bytes:
        prefix = self._reader.byte()
        _refuse_if(not 0xC1 <= prefix <= 0xDE, "An embedded node is no list of less than 32 bytes.")
        return bytes([prefix]) + self._reader.take(prefix - 0xC0)

    def _extension(self, length: int) -> None:
        top = self._stack[-1] if self._stack else _invalid("An extension leads nowhere.")
        _refuse_if(top.reach, "An extension leads to something else than a branch.")
        _refuse_if(not 0 < length <= top.depth, "An extension is empty, or longer than its place is deep.")
        path = f"{top.key:064x}"[top.depth - length : top.depth]
        above = _listed(bytes(rlp.encode(_hex_prefix(path, leaf=False))) + top.reference)
        self._stack[-1] = _Subtree(above, top.key, top.depth - length, top.depth)

    def _push_leaf(self, key: int, depth: int, value: bytes) -> _Subtree:
        _refuse_if(depth > packed.MAX_DEPTH, "A leaf is deeper than any is.")
        path = _hex_prefix(f"{key:064x}"[depth:], leaf=True)
        self._stack.append(_Subtree(_reference([path, value]), key, depth, packed.NIBBLES))
        return self._stack[-1]

    def _other_key(self, key: int, depth: int, length: int) -> int:
        """Read a key that differs from `key` after `depth` nibbles."""
        path = self._reader.integer((length + 1) // 2)
        _refuse_if(depth + length > packed.NIBBLES or path >> 4 * length, "A path has a nibble too many.")
        return (_prefix(key, depth) << 4 * length | path) << 4 * (packed.NIBBLES - depth - length)

    def _absent_key(self, how: int, key: int) -> None:
        if how == packed.AT_SAME:
            _refuse_if(not self._stack, "A key is said to be absent where there is nothing.")
            self._stack[-1].attach(key)
            return
        depth = self._reader.byte()
        if how == packed.AT_EMPTY:
            _refuse_if(depth > packed.MAX_DEPTH, "An empty place is deeper than any is.")
            self._stack.append(_Subtree(EMPTY, key, depth, packed.NIBBLES, key))
        elif how == packed.AT_EXTENSION:
            length = self._reader.byte()
            _refuse_if(not length or depth + length > packed.MAX_DEPTH, "An extension is empty, or deeper than any is.")
            other = self._other_key(key, depth, length)
            self._stack.append(_Subtree(b"\xa0" + self._reader.take(packed.HASH_BYTES), other, depth + length))
            self._extension(length)
            self._stack[-1].attach(key)
        else:
            raise InvalidPacked("There is no such operation.")

    # --- Accounts -----------------------------------------------------------------------------------------------------

    def _any_account(self, op: int) -> None:
        closes = op & (packed.CLOSES_STORAGE if op >= packed.ACCOUNT else packed.ABSENT_CLOSES_STORAGE)
        storage_root = self._close_storage() if closes else None
        _refuse_if(self._storage is not None, "An account comes before the open storage is closed.")
        if op >= packed.ACCOUNT:
            self._account(op, storage_root)
        else:
            self._absent_account(op, storage_root)

    def _account(self, op: int, storage_root: bytes | None) -> None:
        _refuse_if(op.bit_count() % 2 == 0, "An account's operation has an odd number of bits.")
        head, follows = self._reader.integer(2), op >> 1 & 3
        if storage_root is None:
            address, slots, history = self._reader.take(20), {}, {}
            _refuse_if(op < packed.ACCOUNT | packed.STORE_CODE_HASH, "Nothing of an account is requested.")
        else:
            address, slots, history = self._owner, self._slots, self._history
            _refuse_if(follows & packed.STORAGE_ROOT_FOLLOWS, "A storage root comes twice.")
        nonce, balance, storage_root, code_hash = self._account_body(follows, head, storage_root)
        key = int.from_bytes(keccak(address))
        self._push_leaf(key, head >> 10, rlp.encode([nonce, balance, storage_root, code_hash]))
        fields = packed.NONCE_AND_BALANCE if op & packed.STORE_NONCE_AND_BALANCE else 0
        fields |= packed.STORAGE_ROOT if op & packed.STORE_STORAGE_ROOT else 0
        fields |= packed.CODE_HASH if op & packed.STORE_CODE_HASH else 0
        self.facts[address] = AccountFacts(
            exists=True,
            fields=fields,
            nonce=int.from_bytes(nonce),
            balance=int.from_bytes(balance),
            storage_root=storage_root,
            code_hash=code_hash,
            slots=slots,
            history=history,
        )

    def _absent_account(self, op: int, storage_root: bytes | None) -> None:
        if storage_root is None:
            address, slots = self._reader.take(20), {}
        else:
            address, slots = self._owner, self._slots
            _refuse_if(storage_root != EMPTY_TRIE_ROOT, "An account that does not exist has no storage.")
        key, how = int.from_bytes(keccak(address)), op & 7
        if how >= packed.AT_ACCOUNT:
            head = self._reader.integer(2)
            depth = head >> 10
            other = self._other_key(key, depth, packed.NIBBLES - depth)
            leaf = self._push_leaf(other, depth, rlp.encode(self._account_body(op & 3, head, None)))
            leaf.attach(key)
        else:
            self._absent_key(how, key)
        self.facts[address] = AccountFacts(
            exists=False, fields=0, nonce=0, balance=0, storage_root=EMPTY_TRIE_ROOT, code_hash=bytes(32), slots=slots
        )

    def _account_body(self, follows: int, head: int, storage_root: bytes | None) -> tuple[bytes, bytes, bytes, bytes]:
        nonce = self._reader.shortest(head >> 6 & 0x0F, 8)
        balance = self._reader.shortest(head & 0x3F)
        code_hash = EMPTY_CODE_HASH
        if follows & packed.STORAGE_ROOT_FOLLOWS:
            storage_root = self._hash_but(EMPTY_TRIE_ROOT)
        if follows & packed.CODE_HASH_FOLLOWS:
            code_hash = self._hash_but(EMPTY_CODE_HASH)
        return nonce, balance, storage_root or EMPTY_TRIE_ROOT, code_hash

    def _hash_but(self, implied: bytes) -> bytes:
        digest = self._reader.take(packed.HASH_BYTES)
        _refuse_if(digest == implied or not any(digest), "A hash is zero, or would not have to be sent.")
        return digest

    # --- Slots --------------------------------------------------------------------------------------------------------

    def _slot(self) -> None:
        slot, value = self._push_slot()
        self._slots[slot] = int.from_bytes(value)

    def _block_hash(self) -> None:
        _refuse_if(self._owner != packed.HISTORY_ADDRESS, "Only the history contract holds block hashes.")
        slot, value = self._push_slot()
        _refuse_if(slot >= self._history_window, "The history contract keeps no block hash in this slot.")
        self._history[slot] = value.rjust(packed.HASH_BYTES, b"\0")

    def _push_slot(self) -> tuple[int, bytes]:
        slot = int.from_bytes(self._reader.shortest(self._reader.byte()))
        depth = self._reader.byte()
        value = self._value()
        self._push_leaf(_slot_key(slot), depth, rlp.encode(value))
        return slot, value

    def _zero_slot(self, how: int) -> None:
        slot = int.from_bytes(self._reader.shortest(self._reader.byte()))
        key = _slot_key(slot)
        if how == packed.AT_LEAF:
            depth = self._reader.byte()
            _refuse_if(depth > packed.MAX_DEPTH, "A leaf is deeper than any is.")
            other = self._other_key(key, depth, packed.NIBBLES - depth)
            self._push_leaf(other, depth, rlp.encode(self._value())).attach(key)
        else:
            self._absent_key(how, key)
        self._slots[slot] = 0

    def _value(self) -> bytes:
        value = self._reader.shortest(self._reader.byte())
        _refuse_if(not value, "A leaf holds a zero, which no storage trie does.")
        return value


# --- Transactions -----------------------------------------------------------------------------------------------------


def _read_transactions(reader: _Reader, root_at: Callable[[int], bytes | None]) -> TransactionFacts | None:
    """Return the facts about transactions. None if the operations are about the state."""
    trie = reader.peek()
    if trie not in _ROOT_PLACES:
        return None
    reader.byte()
    root = root_at(_ROOT_PLACES[trie])
    if root is None or not any(root):
        raise InvalidPacked("The trie has no root, or none that is proven.")
    proof = _TransactionDecoder(reader, is_receipts=trie == packed.RECEIPTS)
    proof.run()
    _refuse_if(proof.root != root, "The proof is one under another root of the block.")
    return proof.transactions


class _TransactionDecoder(_Decoder):
    """Run operations on the trie of a block's receipts, or of its transactions."""

    def __init__(self, reader: _Reader, *, is_receipts: bool) -> None:
        super().__init__(reader, 0)
        self._is_receipts = is_receipts
        self.transactions = TransactionFacts()

    def run(self) -> None:
        while not self._reader.at_end():
            op = self._reader.byte()
            if op == packed.FULL_BRANCH:
                self._full_branch()
            elif packed.BRANCH <= op < packed.END_OF_BRANCHES:
                self._branch(op)
            elif op == packed.EXTENSION:
                self._extension(self._reader.byte())
            elif self._is_receipts and op in {
                packed.RECEIPT_LOGS,
                packed.RECEIPT_FIELDS,
                packed.RECEIPT_FIELDS_AND_LOGS,
            }:
                self._receipt(op)
            elif self._is_receipts and packed.ABSENT_TRANSACTION <= op < packed.ABSENT_TRANSACTION + 8:
                self._absent(op - packed.ABSENT_TRANSACTION)
            elif not self._is_receipts and op == packed.TRANSACTION:
                self._transaction()
            else:
                raise InvalidPacked("There is no such operation on such a trie.")

    def _index(self) -> tuple[int, bytes]:
        index = int.from_bytes(self._reader.shortest(self._reader.byte(), 2))
        return index, bytes(rlp.encode(index))

    def _push_value(self, key: bytes, depth: int, value: bytes) -> None:
        _refuse_if(depth > 2 * len(key), "A transaction is deeper than its key is long.")
        path = _hex_prefix(key.hex()[depth:], leaf=True)
        padded = int.from_bytes(key.ljust(packed.HASH_BYTES, b"\0"))
        self._state.append(_Subtree(_reference([path, value]), padded, depth, 2 * len(key)))

    def _transaction(self) -> None:
        index, value = self._whole_leaf()
        self.transactions.hashes[index] = keccak(value)

    def _whole_leaf(self) -> tuple[int, bytes]:
        """Read a leaf that was sent whole. Return its index and its value."""
        index, key = self._index()
        depth = self._reader.byte()
        value = self._reader.take(self._reader.integer(3))
        _refuse_if(len(value) < packed.HASH_BYTES, "A transaction has less than 32 bytes.")
        self._push_value(key, depth, value)
        return index, value

    def _absent(self, low: int) -> None:
        index, key = self._index()
        _refuse_if(index.bit_count() % 2 != low % 2, "An absent transaction's parity is wrong.")
        how, padded = low // 2, int.from_bytes(key.ljust(packed.HASH_BYTES, b"\0"))
        if how == packed.AT_LEAF:
            self._whole_leaf()
            self._state[-1].attach(padded)
        else:
            self._absent_key(how, padded)
        _refuse_if(self._state[-1].depth > 2 * len(key), "A transaction is absent deeper than its key is long.")
        self.transactions.receipts[index] = None

    def _receipt(self, op: int) -> None:
        index, key = self._index()
        depth = self._reader.byte()
        stored = [] if op == packed.RECEIPT_FIELDS else self._marked()
        type_ = self._reader.peek() or 0
        typed = b"" if type_ >= 0x80 else self._reader.take(1)
        _refuse_if(typed == b"\0", "A receipt has a byte for the type 0.")
        type_ = typed[0] if typed else 0
        prefix, size = self._prefix()
        status, gas = self._item(), self._item()
        logs_prefix, logs_size = self._prefix()
        logs = self._logs(logs_size)
        bloom = b"\xb9\x01\x00" + _bloom(logs)
        listed = b"".join([status, gas, bloom, logs_prefix, *logs])
        _refuse_if(size < len(listed), "A receipt is longer than it says.")
        listed += self._reader.take(size - len(listed))
        success, gas_used = _receipt_fields(_strict(prefix + listed), type_)
        _refuse_if(stored and stored[-1] >= len(logs), "A receipt has no such log.")
        self._push_value(key, depth, typed + prefix + listed)
        self.transactions.logs.update({(index, place): _log_hash(logs[place]) for place in stored})
        if op != packed.RECEIPT_LOGS:
            self.transactions.receipts[index] = Receipt(success, type_, gas_used, len(logs))

    def _marked(self) -> list[int]:
        """Read which logs to store."""
        logs: list[int] = []
        more = 1
        while more:
            mark, odd = divmod(self._reader.integer(2), 3)
            log, more = divmod(mark, 2)
            if odd or (logs and log <= logs[-1]):
                raise InvalidPacked("The logs to store aren't marked in rising order, by multiples of three.")
            logs.append(log)
        return logs

    def _logs(self, size: int) -> list[bytes]:
        """Read logs of so many bytes."""
        logs: list[bytes] = []
        while size > 0:
            logs.append(self._item())
            size -= len(logs[-1])
            _read_log(logs[-1])
        return logs

    def _item(self) -> bytes:
        """Read an item of RLP, whatever is in it."""
        first = self._reader.peek()
        if first is not None and first < 0x80:
            return self._reader.take(1)
        prefix, size = self._prefix()
        return prefix + self._reader.take(size)

    def _prefix(self) -> tuple[bytes, int]:
        """Read the prefix of a list or string. Return it, and the bytes that it tells."""
        first = self._reader.byte()
        size = (first - 0x80) % 0x40
        _refuse_if(first < 0x80 or size > 58, "Something else is where an item of a receipt belongs.")
        digits = self._reader.take(max(0, size - 55))
        return bytes([first]) + digits, int.from_bytes(digits) if digits else size


def _strict(encoded: bytes) -> list[Item]:
    try:
        items = rlp.decode(encoded, strict=True)
    except rlp.exceptions.RLPException:
        raise InvalidPacked("A receipt is no canonical RLP.") from None
    if not isinstance(items, list):
        raise InvalidPacked("A receipt, or a log, is no list.")
    return items


def _receipt_fields(items: list[Item], type_: int) -> tuple[int | None, int]:
    """Return status and cumulative gas of a receipt."""
    status, gas, _, logs, *more = items
    is_old = isinstance(status, bytes) and len(status) == packed.HASH_BYTES and not type_
    if isinstance(logs, bytes) or (status not in (b"", b"\1") and not is_old):
        raise InvalidPacked("A receipt has no status, or no logs.")
    _refuse_if(bool(more) and type_ < _FIRST_OF_OTHER_CHAINS, "A receipt has too many fields.")
    _refuse_if(not all(isinstance(each, bytes) for each in more), "A receipt has a list behind its logs.")
    try:
        return None if is_old else len(status), read_integer(gas, 8)
    except ValueError:
        raise InvalidPacked("A receipt's gas is no number.") from None


def _read_log(encoded: bytes) -> tuple[bytes, list[bytes], bytes]:
    items = _strict(encoded)
    _refuse_if(len(items) != 3, "A log is none.")
    emitter, topics, data = items
    if not isinstance(topics, list) or not isinstance(data, bytes):
        raise InvalidPacked("A log has no topics, or no data.")
    if not isinstance(emitter, bytes) or len(emitter) != 20 or len(topics) > 4:
        raise InvalidPacked("A log has no emitter, or too many topics.")
    words = [topic for topic in topics if isinstance(topic, bytes) and len(topic) == packed.HASH_BYTES]
    _refuse_if(len(words) < len(topics), "A topic is no word.")
    return emitter, words, data


def _log_hash(encoded: bytes) -> bytes:
    emitter, topics, data = _read_log(encoded)
    return keccak(b"".join([emitter.rjust(packed.HASH_BYTES, b"\0"), *topics, keccak(data)]))


def _bloom(logs: Sequence[bytes]) -> bytes:
    bits = 0
    for log in logs:
        emitter, topics, _ = _read_log(log)
        for name in (emitter, *topics):
            digest = keccak(name)
            for at in (0, 2, 4):
                bits |= 1 << int.from_bytes(digest[at : at + 2]) % 2048
    return bits.to_bytes(256)


def _slot_key(slot: int) -> int:
    return int.from_bytes(keccak(slot.to_bytes(32)))


def _listed(payload: bytes) -> bytes:
    """Return a node's reference, given the payload of its RLP list."""
    size = len(payload)
    if size < 56:
        encoded = bytes([0xC0 + size]) + payload
    else:
        digits = shortest(size)
        encoded = bytes([0xF7 + len(digits)]) + digits + payload
    return encoded if len(encoded) < packed.HASH_BYTES else b"\xa0" + keccak(encoded)
