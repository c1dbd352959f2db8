"""Tries built by another implementation, with their proofs, and nodes and accounts that no valid trie has."""

from collections.abc import Mapping
from typing import Any

import pytest
import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie

from chains.tries.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT
from tests.contracts import tries
from tests.contracts.tries import hex_prefix
from tests.contracts.worlds import slot_key


def storage_trie(slots: Mapping[int, int]) -> HexaryTrie:
    return tries.build({slot_key(slot): tries.encode(value) for slot, value in slots.items()})


def slot_proof(built: HexaryTrie, slot: int) -> list[bytes]:
    return tries.proof(built, slot_key(slot))


# --- Nodes that no trie has, each below a root of its own -------------------------------------------------------------

KEY = keccak(bytes(32))  # key of slot 0
DIGITS = KEY.hex()
GOOD_LEAF = [hex_prefix(DIGITS, leaf=True), b"\x07"]
EMPTY_PLACES = [b""] * 16


def branch(digit: str, child: object, value: bytes = b"") -> list[object]:
    places: list[object] = list(EMPTY_PLACES)
    places[int(digit, 16)] = child
    return [*places, value]


def chained(*nodes: object) -> tuple[bytes, list[bytes]]:
    """Return root and proof of the nodes. A node may be given encoded."""
    encoded = [node if isinstance(node, bytes) else rlp.encode(node) for node in nodes]
    return keccak(encoded[0]), encoded


REST_8 = hex_prefix(DIGITS[9:], leaf=True)
EXTENSION_8 = hex_prefix(DIGITS[:8], leaf=False)
OTHER_8 = hex_prefix("f" * 8, leaf=False)
SHORT_BRANCH = branch(DIGITS[8], [REST_8, b"\x07"])
LONG_LEAF = [hex_prefix(DIGITS[1:], leaf=True), b"\x07"]
LEAF_OF_32_BYTES = [b"\x20", b"\1" * 29]
assert len(rlp.encode(LEAF_OF_32_BYTES)) == 32
DEEP_LEAF = rlp.encode([hex_prefix(DIGITS[10:], leaf=True), b"\x07"])

# An embedded leaf whose announced length reaches into the next child.
LONGER_CHILDREN = [b"\x80"] * 16
LONGER_CHILDREN[int(DIGITS[8], 16)] = bytes([0xC0 + 30]) + rlp.encode(REST_8) + b"\x82"
LONGER_CHILDREN[int(DIGITS[8], 16) + 1] = b"\x81\x90"
LONGER = bytes([0xC0 + 48]) + b"".join(LONGER_CHILDREN) + b"\x80"

LEAF_OF_55 = rlp.encode([hex_prefix(DIGITS, leaf=True), rlp.encode(b"\1" * 19)])
assert LEAF_OF_55[0] == 0xC0 + 55

LEAF_RLP = bytes([len(rlp.encode(GOOD_LEAF)) - 1]) + rlp.encode(GOOD_LEAF)[1:]


def nested(depth: int) -> bytes:
    """Return the RLP of `depth` nested lists."""
    encoded = b"\xc0"
    for _ in range(depth):
        digits = b"" if len(encoded) < 56 else len(encoded).to_bytes((len(encoded).bit_length() + 7) // 8)
        encoded = (bytes([0xF7 + len(digits)]) + digits if digits else bytes([0xC0 + len(encoded)])) + encoded
    return encoded


# Malformed nodes beside the key's path. The client and the page don't look there.
MALFORMED_BESIDE = [
    pytest.param([branch(DIGITS[1], b"\1" * 33)], "neither a hash", id="other child of 33 bytes"),
    pytest.param(
        [branch(DIGITS[1], LEAF_OF_32_BYTES)], "not shorter than a hash", id="other node of 32 bytes embedded"
    ),
    pytest.param([[OTHER_8, b"\1" * 31]], "neither a hash", id="other extension to 31 bytes"),
    pytest.param([[OTHER_8, b""]], "neither a hash", id="other extension to nowhere"),
]
MALFORMED = [
    pytest.param([branch(DIGITS[0], b"", value=b"\1")], "branch with a value", id="value in a branch"),
    pytest.param([[*branch(DIGITS[0], b"")[:16], []]], "branch with a value", id="list as a branch's value"),
    pytest.param([[b"\x00", b"\1" * 32]], "extension that is empty", id="extension of no length"),
    pytest.param(
        [[b"\x00", keccak(rlp.encode(GOOD_LEAF))], GOOD_LEAF],
        "extension that is empty",
        id="extension of no length, to a leaf",
    ),
    pytest.param([[hex_prefix(DIGITS, leaf=False), b"\1" * 32]], "longer than its key", id="extension of all digits"),
    pytest.param([[hex_prefix("f" * 64, leaf=False), b"\1" * 32]], "longer than its key", id="other of all digits"),
    pytest.param([[hex_prefix(DIGITS + "0", leaf=False), b"\1" * 32]], "longer than its key", id="extension of more"),
    pytest.param([[hex_prefix(DIGITS[:63], leaf=True), b"\7"]], "the wrong length", id="leaf too short"),
    pytest.param([[hex_prefix(DIGITS + "0", leaf=True), b"\7"]], "the wrong length", id="leaf too long"),
    pytest.param([[b"\x40" + KEY, b"\7"]], "hex-prefix", id="flag beyond 3"),
    pytest.param([[b"\x40" + bytes(4), b"\1" * 32]], "hex-prefix", id="flag beyond 3 in an extension"),
    pytest.param([[b"\x60" + KEY, b"\7"]], "hex-prefix", id="spare bit in a leaf's flag"),
    pytest.param([[b"\x21" + KEY, b"\7"]], "hex-prefix", id="padding that is not zero"),
    pytest.param([[b"", b"\7"]], "hex-prefix", id="no path"),
    pytest.param([[[], b"\7"]], "hex-prefix", id="list as a path"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b""]], "without a value", id="leaf without value"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), [b"\7"]]], "without a value", id="list as a value"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b"\x00"]], "malformed", id="zero byte as a value"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b"\x80"]], "has a zero", id="zero as a value"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b"\x82\x00\x07"]], "malformed", id="value with a leading zero"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b"\x81\x07"]], "malformed", id="value not canonical"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b"\x81\x7f"]], "malformed", id="value of 7f not canonical"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b"\xa1" + b"\1" * 33]], "malformed", id="value of 33 bytes"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b"\xc1\x07"]], "malformed", id="list inside of a value"),
    pytest.param([[hex_prefix(DIGITS, leaf=True), b"\x07\x07"]], "malformed", id="two values"),
    pytest.param([b"\x81\x80"], "neither branch", id="string as a node"),
    pytest.param([[b"\x20", b"\1", b"\1"]], "neither branch", id="node of three items"),
    pytest.param([[b""] * 16], "neither branch", id="branch of sixteen"),
    pytest.param([rlp.encode(GOOD_LEAF) + b"\0"], "canonical", id="byte after a node"),
    pytest.param([b"\xf8" + rlp.encode(GOOD_LEAF)], "canonical", id="length not canonical"),
    pytest.param([b"\xf8" + LEAF_RLP], "canonical", id="length that needs no byte of its own"),
    pytest.param([b"\xf8\x37" + LEAF_OF_55[1:]], "canonical", id="length of 55 in a byte of its own"),
    pytest.param(
        [b"\xf9\0" + rlp.encode(branch(DIGITS[0], b"\1" * 32, b"\1" * 32))[1:]], "canonical", id="zero in a length"
    ),
    pytest.param([rlp.encode(GOOD_LEAF)[:-1]], "canonical", id="byte less than its length"),
    pytest.param([[EXTENSION_8, keccak(LONGER)], LONGER], "canonical", id="value that is longer than its leaf"),
    pytest.param([b"\xc1" * 5000 + b"\xc0"], "neither branch|canonical", id="absurd nesting"),
    pytest.param([nested(10_000)], "canonical", id="absurd depth"),
    pytest.param([branch(DIGITS[0], b"\1" * 31)], "ends before|neither a hash", id="child of 31 bytes"),
    pytest.param([branch(DIGITS[0], LONG_LEAF)], "not shorter than a hash", id="long node embedded"),
    pytest.param([branch(DIGITS[0], LEAF_OF_32_BYTES)], "not shorter than a hash", id="node of 32 bytes embedded"),
    pytest.param([branch(DIGITS[0], [])], "neither branch", id="empty list as a child"),
    pytest.param([[EXTENSION_8, b""]], "ends before|neither a hash", id="extension to nowhere"),
    pytest.param(
        [[hex_prefix(DIGITS[:10], leaf=False), keccak(DEEP_LEAF)], DEEP_LEAF],
        "should embed it",
        id="short node by hash",
    ),
]

MALFORMED_ACCOUNTS = [
    b"\x80",
    rlp.encode([b"\0", b"", EMPTY_TRIE_ROOT, EMPTY_CODE_HASH]),
    rlp.encode([b"\1" * 9, b"", EMPTY_TRIE_ROOT, EMPTY_CODE_HASH]),
    rlp.encode([b"", b"\0\1", EMPTY_TRIE_ROOT, EMPTY_CODE_HASH]),
    rlp.encode([b"", b"\1" * 33, EMPTY_TRIE_ROOT, EMPTY_CODE_HASH]),
    rlp.encode([b"", b"", EMPTY_TRIE_ROOT[1:], EMPTY_CODE_HASH]),
    rlp.encode([b"", b"", EMPTY_TRIE_ROOT, [EMPTY_CODE_HASH]]),
    rlp.encode([b"", b"", EMPTY_TRIE_ROOT, EMPTY_CODE_HASH]) + b"\0",
]

# --- Values that no trie of receipts has ------------------------------------------------------------------------------

RECEIPT: list[Any] = [b"\1", b"\1", bytes(256), []]
MALFORMED_RECEIPTS = [
    b"",
    b"\xc0",
    rlp.encode([b"", b"", b"", b""]),
    keccak(b""),
    *map(
        rlp.encode,
        [
            [b"\2", *RECEIPT[1:]],
            [bytes(31), *RECEIPT[1:]],
            [b"\1", b"\1" * 9, *RECEIPT[2:]],
            [b"\1", b"\0", *RECEIPT[2:]],
            [*RECEIPT[:2], bytes(255), []],
            [*RECEIPT[:3], [[bytes(19), [], b""]]],
            [*RECEIPT[:3], [[bytes(20), [bytes(31)], b""]]],
            [*RECEIPT[:3], [[bytes(20), [bytes(32)] * 5, b""]]],
            [*RECEIPT, b""],
        ],
    ),
    b"\0" + rlp.encode(RECEIPT),
    b"\x02" + rlp.encode([bytes(32), *RECEIPT[1:]]),
    *(bytes([type_]) + rlp.encode([*RECEIPT, b"", b"\1"]) for type_ in (1, 2, 0x63)),
    *(bytes([type_]) + rlp.encode([*RECEIPT, b"\1", []]) for type_ in (0x64, 0x7B, 0x7F)),
]
# Receipts of each type, with and without strings behind the logs.
TYPED_RECEIPTS = [
    *(bytes([type_]) + rlp.encode(RECEIPT) for type_ in range(1, 0x80)),
    *(
        bytes([type_]) + rlp.encode([*RECEIPT, *more])
        for type_ in (0x64, 0x6A, 0x7B, 0x7E, 0x7F)
        for more in ([b""], [b"\0\1", bytes(60)], [b"\5"] * 9)
    ),
]
