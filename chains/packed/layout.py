"""What the bytes of packed calldata mean (docs/developing/proof-format.md), and the facts that they are about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chains import history

# What to store of an account, as a mask of 1 << AccountField of the contract.
NONCE_AND_BALANCE = 0b0011
STORAGE_ROOT = 0b0100
CODE_HASH = 0b1000

# Places in the header's RLP whose facts are the keccak-256 of their bytes: LOGS_BLOOM and EXTRA_DATA.
HASHED_HEADER_FIELDS = frozenset({6, 12})
# STATE_ROOT and BLOCK_NUMBER can be read of every accumulated header, so they are never asked for.
IMPLIED_HEADER_FIELDS = frozenset({3, 8})
HEADER_FIELDS = 31

NIBBLES = 64
# A node at depth 63 needs two keys that agree in 62 nibbles of their hashes: 2^124 steps of search.
MAX_DEPTH = 62
BRANCH_ITEMS = 17
HASH_BYTES = 32

HISTORY_ADDRESS = bytes.fromhex(history.CONTRACT[2:])

# Operations; the low bits of most tell more.
FULL_BRANCH, BRANCH, END_OF_BRANCHES = 0x00, 0x10, 0x20
# What comes with a child of a branch, in the high half of the byte whose low half is its place.
HASH_CHILD, NODE_CHILD, OWN_CHILD = 0, 1, 2
OPEN_STORAGE, HEADER_FACTS, ZERO_SLOT, EXTENSION, HEADER_ALONE = 0x30, 0x31, 0x32, 0x36, 0x37
PARENT, HASH_ALONE = 0x38, 0x39
# Older blocks, by branches in the beacon chain; the last two need no header.
OLD_BLOCK, BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE = 0x3A, 0x3B, 0x3C
SLOT, BLOCK_HASH, ABSENT_ACCOUNT, ACCOUNT = 0x40, 0x43, 0x70, 0x80
# How a key is absent.
AT_EMPTY, AT_EXTENSION, AT_SAME, AT_LEAF, AT_ACCOUNT = 0, 1, 2, 3, 4
ABSENT_CLOSES_STORAGE = 0x08
# Bits of an account's operation. The lowest makes their number even.
STORE_NONCE_AND_BALANCE, STORE_STORAGE_ROOT, STORE_CODE_HASH, CLOSES_STORAGE = 0x40, 0x20, 0x10, 0x08
# One bit up in an account's operation.
STORAGE_ROOT_FOLLOWS, CODE_HASH_FOLLOWS = 0x02, 0x01
HEADER_PARITY = 1 << 31


class CannotPack(ValueError):
    """The nodes don't prove what is to be packed, or the facts make no sense; the message is one sentence."""


@dataclass(frozen=True)
class BlockBranch:
    """The proof of an older block's hash: OLD_BLOCK below a header, or an operation that needs none.

    `branch` is as `chains.beacon.jumps` makes it.
    """

    operation: int
    branch: bytes


HeaderParts = Sequence[bytes | BlockBranch]
"""Headers and branches in their order, from one that is trusted on."""


@dataclass(frozen=True)
class AccountToProve:
    """An account, what to store of it, and the nodes that prove it, as `eth_getProof` answers them.

    `fields` is a mask of NONCE_AND_BALANCE, STORAGE_ROOT and CODE_HASH, and does not matter for an account that does
    not exist. It may be zero where there are slots. `slots` holds the proof's nodes of each storage slot. So does
    `history`, for other slots, of the history contract only: their values become known block hashes, and no facts.
    """

    address: bytes  # 20 bytes
    fields: int
    nodes: Sequence[bytes]
    slots: Mapping[int, Sequence[bytes]] = field(default_factory=dict)
    history: Mapping[int, Sequence[bytes]] = field(default_factory=dict)


def shortest(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8)
