"""The packed calldata of the facts registry (docs/developing/proof-format.md), built from trie nodes by `encode`.

A set of facts has exactly one encoding. `tests/contracts/decoder.py` verifies it as the contract does.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import rlp
from eth_utils.crypto import keccak

from chains.encoding import HISTORY_CONTRACT, HISTORY_WINDOW, Item, decode_rlp, shortest
from chains.tries.header import Beginning, InvalidHeader, read_beginning
from chains.tries.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT, InvalidProof, read_account

# --- Bytes and facts --------------------------------------------------------------------------------------------------

# Fields of an account to store, as bit masks: 1 << AccountField of the contract.
NONCE_AND_BALANCE = 0b0011
STORAGE_ROOT = 0b0100
CODE_HASH = 0b1000

# Indexes of header fields whose facts are hashes (keccak-256) of their bytes: LOGS_BLOOM and EXTRA_DATA.
HASHED_HEADER_FIELDS = frozenset({6, 12})
# STATE_ROOT and BLOCK_NUMBER of every accumulated header can be read, so no operation stores them.
IMPLIED_HEADER_FIELDS = frozenset({3, 8})
HEADER_FIELDS = 31

NIBBLES = 64
# A deeper node needs two keys whose hashes share 62 nibbles. Finding such keys takes 2^124 steps.
MAX_DEPTH = 62
BRANCH_ITEMS = 17
HASH_BYTES = 32

HISTORY_ADDRESS = bytes.fromhex(HISTORY_CONTRACT[2:])

# Operation codes. The low bits of most codes are parameters.
FULL_BRANCH, BRANCH, BRANCH_WITH_NODES, END_OF_BRANCHES = 0x00, 0x10, 0x20, 0x30
OPEN_STORAGE, HEADER_FACTS, ZERO_SLOT, EXTENSION, HEADER_ALONE = 0x30, 0x31, 0x32, 0x36, 0x37
PARENT, HASH_ALONE = 0x38, 0x39
# Codes for older blocks that are proven by branches in the beacon chain. The last two need no header.
OLD_BLOCK, BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE = 0x3A, 0x3B, 0x3C
SLOT, BLOCK_HASH, ABSENT_ACCOUNT, ACCOUNT = 0x40, 0x43, 0x70, 0x80
# Tries of a block besides its state, and their operations.
RECEIPTS, TRANSACTIONS = 0x3D, 0x3E
RECEIPT_LOGS, RECEIPT_FIELDS, RECEIPT_FIELDS_AND_LOGS, TRANSACTION, ABSENT_TRANSACTION = 0x50, 0x53, 0x55, 0x56, 0x60
# Kinds of proof that a key is absent, by the node at the end of its path.
AT_EMPTY, AT_EXTENSION, AT_SAME, AT_LEAF, AT_ACCOUNT = 0, 1, 2, 3, 4
ABSENT_CLOSES_STORAGE = 0x08
# Bits of an account's operation code. The lowest bit makes the number of set bits even.
STORE_NONCE_AND_BALANCE, STORE_STORAGE_ROOT, STORE_CODE_HASH, CLOSES_STORAGE = 0x40, 0x20, 0x10, 0x08
# These bits are shifted left by one in an account's operation code.
STORAGE_ROOT_FOLLOWS, CODE_HASH_FOLLOWS = 0x02, 0x01
HEADER_PARITY = 1 << 31


class CannotPack(ValueError):
    """The nodes don't prove the facts, or the facts contradict each other. The message is one sentence."""


@dataclass(frozen=True)
class BlockBranch:
    """The proof of an older block's hash: OLD_BLOCK after a header, or an operation that needs no header.

    `chains.beacon.jumps` makes the `branch`.
    """

    operation: int
    branch: bytes
    by_roots: bool = False
    """True if an OLD_BLOCK is proven by the block roots in a state themselves, which is shorter."""


HeaderParts = Sequence[bytes | BlockBranch]
"""Headers and branches in order, beginning with a trusted header or a branch that needs none."""


@dataclass(frozen=True)
class AccountToProve:
    """An account to prove, with the trie nodes of `eth_getProof`.

    `fields` is a mask of NONCE_AND_BALANCE, STORAGE_ROOT and CODE_HASH. It may be zero if there are slots. If the
    account doesn't exist, it is ignored. `slots` has the nodes of each storage slot. `history` has the nodes of the
    history contract's slots whose values are recorded as block hashes instead of facts.
    """

    address: bytes
    fields: int
    nodes: Sequence[bytes]
    slots: Mapping[int, Sequence[bytes]] = field(default_factory=dict)
    history: Mapping[int, Sequence[bytes]] = field(default_factory=dict)


# --- Encoding ---------------------------------------------------------------------------------------------------------


def encode(
    block: bytes | int | Sequence[bytes | BlockBranch],
    state_root: bytes,
    accounts: Iterable[AccountToProve] = (),
    *,
    header_fields: Iterable[int] = (),
    history_window: int = HISTORY_WINDOW,
    takes_masks: bool = True,
) -> bytes:
    """Return the packed calldata that proves the accounts, in any order, at one block.

    `block` is one of:
    - the RLP of the block's header;
    - headers and branches, from a trusted header down to the block's own. Each header is that of the previous block's
    parent, or of the block that the preceding branch proves;
    - the block's number, if the registry has accumulated its header. At least one account is then required.

    `state_root` is the block's (32 bytes). `header_fields` are indexes of fields in the header's RLP.
    `history_window` is the registry's number of slots that hold block hashes. Registries of version 0.3.0 don't take
    the masks of branches' children: each child has a byte that tells its kind and place.

    Raises `CannotPack` if the input is inconsistent. The caller has verified the proofs.
    """
    by_key: dict[bytes, AccountToProve] = {}
    for account in accounts:
        if by_key.setdefault(keccak(account.address), account) is not account:
            raise CannotPack(f"The account 0x{account.address.hex()} is listed twice.")
        beyond = [slot for slot in account.history if slot >= history_window]
        if beyond:
            raise CannotPack(f"Slot {min(beyond)} is none of the {history_window} in which block hashes are kept.")
    operations = _state_operations(state_root, by_key, takes_masks=takes_masks) if by_key else b""
    if isinstance(block, int):
        if header_fields:
            raise CannotPack("Fields of a header can only be stored together with the header.")
        if not operations:
            raise CannotPack("There is nothing to prove.")
        return pack_number(block) + operations
    headers = pack_headers([block] if isinstance(block, bytes) else block)
    return headers + _header_operation(header_fields) + (operations or bytes([HEADER_ALONE]))


def encode_parent_hash(headers: Sequence[bytes | BlockBranch]) -> bytes:
    """Return the packed calldata that records the hash of the last header's parent. No header is accumulated.

    `headers` are as in `encode`. Raises `CannotPack`.
    """
    return pack_headers(headers) + bytes([HASH_ALONE])


def encode_block_hash(headers: Sequence[bytes | BlockBranch]) -> bytes:
    """Return the packed calldata that records the hash that the last branch proves. No header is accumulated.

    `headers` are as in `encode`, but end with a branch. Raises `CannotPack`.
    """
    *before, last = headers
    if not isinstance(last, BlockBranch):
        raise CannotPack("The last part is not a branch.")
    return (pack_headers(before) if before else b"") + _branch(last, is_first=not before) + bytes([HASH_ALONE])


def pack_headers(parts: Sequence[bytes | BlockBranch]) -> bytes:
    packed = b""
    before: Beginning | BlockBranch | None = None
    for part in parts:
        if isinstance(part, BlockBranch):
            packed += _branch(part, is_first=before is None)
            before = part
            continue
        try:
            header = read_beginning(part)
        except InvalidHeader as invalid:
            raise CannotPack(f"A header can't be packed. {invalid}") from None
        if isinstance(before, Beginning):
            if before.parent_hash != keccak(part) or before.number != header.number + 1:
                raise CannotPack("A header does not belong to the parent of the previous block.")
            packed += bytes([PARENT])
        packed += part
        before = header
    if not isinstance(before, Beginning):
        raise CannotPack("There is no header.")
    return packed


def _branch(part: BlockBranch, *, is_first: bool) -> bytes:
    if is_first is (part.operation == OLD_BLOCK):
        raise CannotPack("A branch to an old block must come after a header. Other branches must come first.")
    return bytes([part.operation]) + len(part.branch).to_bytes(2) + part.branch


def pack_number(block: int) -> bytes:
    if not 0 <= block < 2**64:
        raise CannotPack("A block number has at most 64 bits.")
    digits = shortest(block) or b"\0"
    return bytes([len(digits)]) + digits


def _header_operation(places: Iterable[int]) -> bytes:
    mask = 0
    for place in places:
        if not 0 <= place < HEADER_FIELDS:
            raise CannotPack(f"A header has no field {place}.")
        if place not in IMPLIED_HEADER_FIELDS:
            mask |= 1 << place
    if mask.bit_count() % 2:
        mask |= HEADER_PARITY
    return bytes([HEADER_FACTS]) + mask.to_bytes(4) if mask else b""


def _state_operations(state_root: bytes, accounts: Mapping[bytes, AccountToProve], *, takes_masks: bool) -> bytes:
    nodes = (node for account in accounts.values() for node in account.nodes)
    subtrees = _Encoder(nodes, takes_masks=takes_masks)

    def present(key: bytes, depth: int, value: bytes) -> bytes:
        account = accounts[key]
        if len(account.address) != 20:
            raise CannotPack("An address has 20 bytes.")
        head, flags, integers, roots, storage_root = _account_parts(value, depth)
        store = 0
        for mask, flag in (
            (NONCE_AND_BALANCE, STORE_NONCE_AND_BALANCE),
            (STORAGE_ROOT, STORE_STORAGE_ROOT),
            (CODE_HASH, STORE_CODE_HASH),
        ):
            store |= flag if account.fields & mask else 0
        if not (account.slots or account.history):
            if not store:
                raise CannotPack(f"No fact of account 0x{account.address.hex()} is requested.")
            return _account_operation(store | flags << 1) + head + account.address + integers + roots
        flags &= CODE_HASH_FOLLOWS
        code_hash = roots[-HASH_BYTES:] if flags else b""
        opened = _open_storage(account, storage_root, takes_masks=takes_masks)
        return opened + _account_operation(store | CLOSES_STORAGE | flags << 1) + head + integers + code_hash

    def absent(key: bytes, how: int, after: Callable[[bytes], bytes]) -> bytes:
        account = accounts[key]
        if account.slots or account.history:
            opened = _open_storage(account, EMPTY_TRIE_ROOT, takes_masks=takes_masks)
            return opened + bytes([ABSENT_ACCOUNT | ABSENT_CLOSES_STORAGE | how]) + after(b"")
        return bytes([ABSENT_ACCOUNT | how]) + after(account.address)

    def absent_at_leaf(key: bytes, depth: int, suffix: str, value: bytes) -> bytes:
        head, flags, integers, roots, _ = _account_parts(value, depth)
        return absent(key, AT_ACCOUNT | flags, lambda name: name + head + packed_path(suffix) + integers + roots)

    def absent_elsewhere(key: bytes, how: int, where: bytes) -> bytes:
        return absent(key, how, lambda name: name + where)

    return subtrees.trie(state_root, sorted(accounts), _Leaves(present, absent_at_leaf, absent_elsewhere))


def _account_operation(bits: int) -> bytes:
    return bytes([ACCOUNT | bits | bits.bit_count() % 2])


def _open_storage(account: AccountToProve, storage_root: bytes, *, takes_masks: bool) -> bytes:
    if account.history and account.address != HISTORY_ADDRESS:
        raise CannotPack(f"The account 0x{account.address.hex()} is not the history contract.")
    if account.history.keys() & account.slots.keys():
        raise CannotPack("A slot of the history contract is requested both as a fact and as a block hash.")
    proofs = {**account.slots, **account.history}
    slots = {keccak(slot.to_bytes(32)): slot for slot in proofs}
    subtrees = _Encoder((node for nodes in proofs.values() for node in nodes), takes_masks=takes_masks)

    def name(key: bytes) -> bytes:
        digits = shortest(slots[key])
        return bytes([len(digits)]) + digits

    def present(key: bytes, depth: int, value: bytes) -> bytes:
        operation = BLOCK_HASH if slots[key] in account.history else SLOT
        return bytes([operation]) + name(key) + bytes([depth]) + _slot_part(value)

    def absent_at_leaf(key: bytes, depth: int, suffix: str, value: bytes) -> bytes:
        where = bytes([depth]) + packed_path(suffix) + _slot_part(value)
        return absent_elsewhere(key, AT_LEAF, where)

    def absent_elsewhere(key: bytes, how: int, where: bytes) -> bytes:
        if slots[key] in account.history:
            raise CannotPack(f"Slot {slots[key]} of the history contract holds no block hash.")
        return bytes([ZERO_SLOT + how]) + name(key) + where

    operations = subtrees.trie(storage_root, sorted(slots), _Leaves(present, absent_at_leaf, absent_elsewhere))
    return bytes([OPEN_STORAGE]) + account.address + operations


@dataclass(frozen=True)
class _Leaves:
    """Functions that write the operation for a key. They differ between the state trie and storage tries."""

    present: Callable[[bytes, int, bytes], bytes]  # key, depth, value
    absent_at_leaf: Callable[[bytes, int, str, bytes], bytes]  # key, depth, the other leaf's path and value
    absent_elsewhere: Callable[[bytes, int, bytes], bytes]  # key, kind of absence, encoded position


class _Encoder:
    """A writer of a trie's nodes, children before parents, as the contract's stack of subtrees needs them."""

    def __init__(self, nodes: Iterable[bytes], *, takes_masks: bool) -> None:
        self._takes_masks = takes_masks
        self._nodes = {keccak(node): node for node in set(nodes)}

    def trie(self, root: bytes, keys: Sequence[bytes], leaves: _Leaves) -> bytes:
        out = bytearray()
        self._subtree(b"" if root == EMPTY_TRIE_ROOT else root, 0, keys, leaves, out)
        return bytes(out)

    def _node(self, reference: Item) -> Sequence[Item]:
        if not isinstance(reference, bytes):
            return reference
        encoded = self._nodes.get(reference)
        if encoded is None:
            raise CannotPack("A node of the proof is missing.")
        try:
            node = decode_rlp(encoded)
        except ValueError as error:
            raise CannotPack(f"A node of the proof is {error}.") from None
        if isinstance(node, bytes):
            raise CannotPack("A node of the proof is not a list.")
        return node

    def _subtree(self, reference: Item, depth: int, keys: Sequence[bytes], leaves: _Leaves, out: bytearray) -> None:
        """Write the proof of `keys`, which are sorted and all lead to this node. There is at least one."""
        first, *same = keys
        if reference == b"":
            out += leaves.absent_elsewhere(first, AT_EMPTY, bytes([_depth(depth)]))
        else:
            node = self._node(reference)
            if len(node) == BRANCH_ITEMS:
                self._branch(node, depth, keys, leaves, out)
                return
            path, is_leaf = _read_path(node)
            reach = depth + len(path)
            inside = [key for key in keys if key.hex()[depth:reach] == path]
            same = [key for key in keys if key not in inside]
            if is_leaf:
                value = node[1]
                if not isinstance(value, bytes):
                    raise CannotPack("A leaf of the proof has no value.")
                if inside:
                    out += leaves.present(inside[0], _depth(depth), value)
                else:
                    out += leaves.absent_at_leaf(first, _depth(depth), path, value)
                    del same[0]
            elif inside:
                self._subtree(node[1], _depth(reach), inside, leaves, out)
                out += bytes([EXTENSION, len(path)])
            else:
                child = node[1]
                if not isinstance(child, bytes):
                    raise CannotPack("An extension of the proof leads to a node of less than 32 bytes.")
                where = bytes([depth, len(path)]) + packed_path(path) + child
                _depth(reach)
                out += leaves.absent_elsewhere(first, AT_EXTENSION, where)
                del same[0]
        for key in same:
            out += leaves.absent_elsewhere(key, AT_SAME, b"")

    def _branch(self, node: Sequence[Item], depth: int, keys: Sequence[bytes], leaves: _Leaves, out: bytearray) -> None:
        below: dict[int, list[bytes]] = {}
        for key in keys:
            below.setdefault(int(key.hex()[depth], 16), []).append(key)
        for place, inside in below.items():
            self._subtree(node[place], _depth(depth + 1), inside, leaves, out)
        out += branch_operation(node, below, takes_masks=self._takes_masks)


def branch_operation(node: Sequence[Item], below: Collection[int], *, takes_masks: bool = True) -> bytes:
    """Return the operation for a branch whose children at the places `below` are on the stack.

    `takes_masks` is as in `encode`.
    """
    children = [(place, child) for place, child in enumerate(node[:-1]) if place in below or child != b""]
    hashes = [child for _, child in children if isinstance(child, bytes) and child]
    if len(below) == 1 and len(hashes) == 16:
        others = [child for place, child in children if place not in below and isinstance(child, bytes)]
        return bytes([FULL_BRANCH]) + b"".join(others)
    if not takes_masks:
        return _branch_of_bytes(children, below)
    nodes = {place for place, child in children if place not in below and not isinstance(child, bytes)}
    masks = [[place for place, _ in children if place not in below and place not in nodes], *([nodes] if nodes else [])]
    out = bytearray([(BRANCH_WITH_NODES if nodes else BRANCH) + len(below) - 1])
    out += b"".join(sum(1 << place for place in mask).to_bytes(2) for mask in masks)
    for place, child in children:
        if place not in below:
            out += child if isinstance(child, bytes) else rlp.encode(child)
    return bytes(out)


def _branch_of_bytes(children: Sequence[tuple[int, Item]], below: Collection[int]) -> bytes:
    """Return a branch as version 0.3.0 takes it.

    The number of children comes first. In each child's first byte, the low half is its place, and the high half 0
    before a hash, 1 before a node, and 2 for a subtree on the stack.
    """
    out = bytearray([BRANCH + len(below) - 1, len(children)])
    for place, child in children:
        if place in below:
            out.append(2 << 4 | place)
        elif isinstance(child, bytes):
            out += bytes([place]) + child
        else:
            out += bytes([1 << 4 | place]) + rlp.encode(child)
    return bytes(out)


def _depth(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise CannotPack(f"A node of the proof is below depth {MAX_DEPTH}.")
    return depth


def _read_path(node: Sequence[Item]) -> tuple[str, bool]:
    digits = node[0].hex() if isinstance(node[0], bytes) and len(node) == 2 else ""
    flag = int(digits[:1] or "f", 16)
    if flag > 3:
        raise CannotPack("A node of the proof is neither branch, extension nor leaf.")
    return digits[1 if flag & 1 else 2 :], flag > 1


def _account_parts(value: bytes, depth: int) -> tuple[bytes, int, bytes, bytes, bytes]:
    """Return the parts of an account's leaf: head, flags, nonce and balance, packed roots, and the storage root."""
    try:
        account = read_account(value)
    except InvalidProof:
        raise CannotPack("A leaf of the proof is not an account.") from None
    nonce, balance = shortest(account.nonce), shortest(account.balance)
    head = (depth << 10 | len(nonce) << 6 | len(balance)).to_bytes(2)
    flags, roots = 0, b""
    if account.storage_root != EMPTY_TRIE_ROOT:
        flags, roots = STORAGE_ROOT_FOLLOWS, account.storage_root
    if account.code_hash != EMPTY_CODE_HASH:
        flags, roots = flags | CODE_HASH_FOLLOWS, roots + account.code_hash
    return head, flags, nonce + balance, roots, account.storage_root


def _slot_part(value: bytes) -> bytes:
    try:
        digits = decode_rlp(value)
    except ValueError:
        digits = []
    if not isinstance(digits, bytes):
        raise CannotPack("A leaf of the proof is not a storage slot.")
    return bytes([len(digits)]) + digits


def packed_path(digits: str) -> bytes:
    return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
