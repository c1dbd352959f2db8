import random

import pytest
from eth_utils.crypto import keccak

from campaigns.fuzzing.walker import EMPTY_ROOT, NotShown, Odd, Walker, parse
from tests.contracts import tries

_HASH = bytes(range(32))
_KEY = keccak(b"a key")
_LEAF = tries.leaf(_KEY, b"value")


def walker(*nodes: bytes) -> Walker:
    return Walker({keccak(node): node for node in nodes})


@pytest.mark.parametrize("count", [1, 2, 17, 300])
def test_it_reads_from_a_trie_what_py_trie_reads(count: int) -> None:
    chance = random.Random(count)
    entries = {chance.randbytes(32): chance.randbytes(chance.choice([1, 40])) for _ in range(count)}
    # Neighbours make extensions and embedded nodes.
    entries |= {key[:31] + bytes([key[31] ^ change]): b"\x07" for key in list(entries)[:5] for change in (1, 0x10)}
    trie = tries.build(entries)
    reader = Walker(trie.db)
    for key in [*entries, *(chance.randbytes(32) for _ in range(50))]:
        assert reader.value(trie.root_hash, key.hex()) == trie[key]
    assert {bytes.fromhex(key): value for key, value in reader.leaves(trie.root_hash)} == entries


def test_nothing_is_in_the_empty_trie() -> None:
    assert walker().value(EMPTY_ROOT, _KEY.hex()) == b""
    assert not list(walker().leaves(EMPTY_ROOT))


def test_what_nobody_has_shown_is_not_known() -> None:
    branch = tries.encode([keccak(_LEAF), _HASH, *[b""] * 15])
    with pytest.raises(NotShown):
        walker(branch).value(keccak(branch), "1" * 64)
    with pytest.raises(NotShown):
        walker().value(_HASH, _KEY.hex())
    assert walker(branch).value(keccak(branch), "2" * 64) == b""


_BRANCH = [_HASH, _HASH, *[b""] * 15]


@pytest.mark.parametrize(
    "node",
    [
        pytest.param([_HASH, *[b""] * 16], id="a branch of one child"),
        pytest.param([_HASH, _HASH, *[b""] * 14, b"value"], id="a branch with a value"),
        pytest.param([_HASH, _HASH[:31], *[b""] * 15], id="a child that is no hash"),
        pytest.param([_HASH, [_HASH], *[b""] * 15], id="a child of 34 bytes that is no hash"),
        pytest.param([b"\x00\x12", b""], id="an extension to nothing"),
        pytest.param([b"\x00\x12", [b"\x20", b"value"]], id="an extension to a leaf"),
        pytest.param([b"\x00\x12", [b"\x11", _HASH[:20]]], id="an extension to an extension"),
        pytest.param([b"\x00", _HASH], id="an extension of no nibble"),
        pytest.param([b"\x20\x12", b""], id="a leaf of nothing"),
        pytest.param([b"\x20\x12", [b"value"]], id="a leaf of a list"),
        pytest.param([b"\x01\x12", b"value"], id="a path that is padded with something"),
        pytest.param([b"\x40\x12", b"value"], id="a path with an unknown flag"),
        pytest.param([b"", b"value"], id="a path without flags"),
        pytest.param([[b"\x20"], b"value"], id="a path that is a list"),
        pytest.param([b"\x20\x12", b"value", b""], id="three items"),
        pytest.param(b"\x20\x12", id="no list"),
    ],
)
def test_a_node_that_no_trie_holds_is_odd(node: object) -> None:
    with pytest.raises(Odd):
        parse(tries.encode(node))


@pytest.mark.parametrize(
    "encoded",
    [
        _LEAF + b"\x80",
        _LEAF[:-1],
        b"\xf8\x02\x20\x01",
        bytes.fromhex("c48120 8101"),
        bytes.fromhex("c3208101"),
        bytes.fromhex("c3 20 83 01"),
        b"",
    ],
)
def test_rlp_that_is_not_canonical_is_odd(encoded: bytes) -> None:
    with pytest.raises(Odd):
        parse(encoded)


def test_a_leaf_that_is_too_deep_or_not_deep_enough_is_odd() -> None:
    for path in (_KEY.hex()[2:], "00" + _KEY.hex()):
        leaf = tries.encode([b"\x20" + bytes.fromhex(path), b"value"])
        with pytest.raises(Odd):
            walker(leaf).value(keccak(leaf), _KEY.hex())


def test_an_extension_that_leads_to_a_leaf_by_its_hash_is_odd_where_a_key_follows_it() -> None:
    extension = tries.encode([b"\x00" + _KEY[:1], keccak(_LEAF)])
    with pytest.raises(Odd):
        walker(extension, _LEAF).value(keccak(extension), _KEY.hex())
    # An operation that leaves the path before the child needn't see it.
    assert walker(extension).value(keccak(extension), "00" * 32) == b""


def test_a_node_that_should_be_embedded_is_odd() -> None:
    short = tries.encode([b"\x20" + bytes(8), b"\x01"])
    branch = tries.encode([keccak(short), *_BRANCH[1:]])
    with pytest.raises(Odd):
        walker(short, branch).value(keccak(branch), "0" * 64)
