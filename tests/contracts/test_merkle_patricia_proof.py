import random

import pytest
from eth_utils.crypto import keccak

from tests.contracts import tries

KEY = bytes.fromhex("12" * 32)
OTHER = b"\x99" * 32  # a hash of no node at all
INVALID = (False, b"")
ABSENT = (True, b"")


def _random_key(chance: random.Random, pool: list[bytes]) -> bytes:
    """Often close to a key that was drawn before, so that tries get extensions, and nodes short enough to embed."""
    if pool and chance.random() < 0.7:
        near = int.from_bytes(chance.choice(pool), "big")
        same = 4 * chance.choice([1, 2, 3, 31, 60, 61, 62, 63])
        return ((near >> (256 - same) << (256 - same)) | chance.getrandbits(256 - same)).to_bytes(32, "big")
    return chance.randbytes(32)


@pytest.mark.parametrize(("seed", "size"), [(1, 1), (2, 2), (3, 3), (4, 10), (5, 40), (6, 200), (7, 1000)])
def test_it_agrees_with_py_trie_on_random_tries(harness, seed, size):
    chance = random.Random(seed)
    keys: list[bytes] = []
    while len(keys) < size:
        keys.append(_random_key(chance, keys))
    entries = {key: chance.randbytes(chance.choice([1, 1, 1, 2, 20, 33, 100])) for key in keys}
    trie = tries.build(entries)

    absent = [_random_key(chance, keys) for _ in range(40)]
    for key in [*chance.sample(keys, min(size, 40)), *absent]:
        nodes = tries.proof(trie, key)
        assert harness.call("verify", trie.root_hash, key, nodes) == (True, entries.get(key, b""))
        for cut in range(len(nodes)):
            assert harness.call("verify", trie.root_hash, key, nodes[:cut]) == INVALID
        assert harness.call("verify", trie.root_hash, key, [*nodes, nodes[-1]]) == INVALID
        assert harness.call("verify", OTHER, key, nodes) == INVALID


def test_random_tries_have_embedded_nodes_and_extensions():
    """Else the test above would not be about them."""
    chance = random.Random(7)
    keys: list[bytes] = []
    while len(keys) < 1000:
        keys.append(_random_key(chance, keys))
    trie = tries.build(dict.fromkeys(keys, b"\x01"))
    paths = [trie.get_proof(key) for key in keys[:200]]
    assert any(len(tries.encode(node)) < 32 for path in paths for node in path[1:])
    assert any(len(node) == 2 for path in paths for node in path[:-1])


def test_a_missing_node_between_two_others_is_refused(harness):
    chance = random.Random(8)
    entries = {chance.randbytes(32): b"value" for _ in range(300)}
    trie = tries.build(entries)
    key = next(key for key in entries if len(tries.proof(trie, key)) == 4)
    nodes = tries.proof(trie, key)
    assert harness.call("verify", trie.root_hash, key, nodes) == (True, b"value")
    assert harness.call("verify", trie.root_hash, key, [nodes[0], *nodes[2:]]) == INVALID
    assert harness.call("verify", trie.root_hash, key, [nodes[1], nodes[0], *nodes[2:]]) == INVALID


@pytest.mark.parametrize("nodes", [[], [b"\x80"]], ids=["no node", "the empty node"])
def test_nothing_is_in_the_empty_trie(harness, nodes):
    assert harness.call("verify", tries.EMPTY_ROOT, KEY, nodes) == ABSENT
    assert harness.call("verify", OTHER, KEY, nodes) == INVALID
    assert harness.call("verify", bytes(32), KEY, nodes) == INVALID


@pytest.mark.parametrize("nodes", [[b"\x80", b"\x80"], [b""], [b"", b""]])
def test_other_forms_of_the_empty_trie_are_refused(harness, nodes):
    assert harness.call("verify", tries.EMPTY_ROOT, KEY, nodes) == INVALID


def _branch(*, value: bytes = b"", **children: object) -> list[object]:
    """A branch with children at the given hexadecimal places: `_1=...`."""
    return [children.get(f"_{place:x}", b"") for place in range(16)] + [value]


# Shorter than 32 bytes each, so they are embedded. What is left of KEY below a branch at its first nibble: 2121...2.
_SHORT_LEAF = [b"\x20", b"\x05"]
_LONG_LEAF = [b"\x32" + bytes.fromhex("12" * 31), b"\x05"]
_LONG_LEAF_HASH = keccak(tries.encode(_LONG_LEAF))


def _below(path_nibbles: int, child: object) -> bytes:
    """An extension that follows KEY for that many nibbles."""
    nibbles = KEY.hex()[:path_nibbles]
    prefix = "1" if path_nibbles % 2 else "00"
    return tries.encode([bytes.fromhex(prefix + nibbles), child])


@pytest.mark.parametrize(
    ("nodes", "value"),
    [
        pytest.param([tries.leaf(KEY, b"\x05")], b"\x05", id="a lone leaf"),
        pytest.param([tries.leaf(b"\x13" + KEY[1:], b"\x05")], b"", id="another lone leaf"),
        pytest.param([tries.encode(_branch(_1=_LONG_LEAF_HASH)), tries.encode(_LONG_LEAF)], b"\x05", id="branch"),
        pytest.param([tries.encode(_branch(_2=_LONG_LEAF_HASH))], b"", id="empty place"),
        pytest.param([_below(63, _branch(_2=_SHORT_LEAF))], b"\x05", id="all embedded at the last nibble"),
        pytest.param([_below(63, _branch(_1=_SHORT_LEAF))], b"", id="empty place of an embedded branch"),
        pytest.param(
            [_below(62, _branch(_1=[b"\x32", b"\x05"], _2=[b"\x32", b"\x06"]))],
            b"\x05",
            id="embedded leaf of one nibble",
        ),
        pytest.param([tries.encode([b"\x13", OTHER])], b"", id="extension that goes elsewhere"),
        pytest.param([tries.encode([b"\x00\x12\x12\x13", OTHER])], b"", id="longer extension that goes elsewhere"),
    ],
)
def test_it_follows_every_form_of_node(harness, nodes, value):
    assert harness.call("verify", keccak(nodes[0]), KEY, nodes) == (True, value)


@pytest.mark.parametrize(
    "root",
    [
        pytest.param(tries.encode(b"a string of more than 32 bytes, no list"), id="no list"),
        pytest.param(b"\xc0", id="empty list"),
        pytest.param(tries.encode([b"\x20" + KEY]), id="one item"),
        pytest.param(tries.encode([b"\x20" + KEY, b"\x05", b"\x05"]), id="three items"),
        pytest.param(tries.leaf(KEY, b"\x05") + b"\x00", id="bytes after the node"),
        pytest.param(b"\xe4" + tries.leaf(KEY, b"\x05")[1:], id="list longer than its bytes"),
        pytest.param(b"\xe2" + tries.leaf(KEY, b"\x05")[1:], id="list shorter than its bytes"),
        pytest.param(b"\xf8\x23" + tries.leaf(KEY, b"\x05")[1:], id="long form of a short list"),
        pytest.param(tries.encode([b"\x20" + KEY, b""]), id="leaf with an empty value"),
        pytest.param(tries.encode([b"\x20" + KEY, [b"\x05"]]), id="leaf with a list as its value"),
        pytest.param(tries.encode([b"\x13"]), id="one item, a path that goes elsewhere"),
        # Its items, each a byte below 0x80, are in a row just what the path would be.
        pytest.param(tries.encode([[b"\x20", *[b"\x12"] * 32], b"\x05"]), id="path is a list"),
        pytest.param(tries.encode([b"", b"\x05"]), id="empty path"),
        pytest.param(tries.encode([b"\x21" + KEY, b"\x05"]), id="even path with a nibble in its flags"),
        pytest.param(tries.encode([b"\x40" + KEY, b"\x05"]), id="unknown flag"),
        pytest.param(tries.encode([b"\x60" + KEY, b"\x05"]), id="unknown flag beside the leaf's"),
        pytest.param(tries.encode([b"\xa0" + KEY, b"\x05"]), id="highest flag"),
        pytest.param(tries.encode([b"\x20" + KEY[1:], b"\x05"]), id="leaf above the last nibble"),
        pytest.param(tries.encode([b"\x32" + KEY[1:], b"\x05"]), id="leaf one nibble short"),
        pytest.param(tries.encode([b"\x20" + KEY + b"\x12", b"\x05"]), id="leaf below the last nibble"),
        pytest.param(tries.encode([b"\x31" + KEY, b"\x05"]), id="leaf one nibble long"),
        pytest.param(tries.encode([b"\x20" + b"\x99" * 31, b"\x05"]), id="other leaf above the last nibble"),
        pytest.param(tries.encode([b"\x00", OTHER]), id="extension without a nibble"),
        pytest.param(tries.encode([b"\x00" + KEY, OTHER]), id="extension as long as the key"),
        pytest.param(tries.encode([b"\x00" + b"\x99" * 32, OTHER]), id="other extension as long as the key"),
        pytest.param(tries.encode([b"\x13", b""]), id="extension to nothing"),
        pytest.param(tries.encode([b"\x13", OTHER[:31]]), id="extension to 31 bytes"),
        pytest.param(tries.encode([b"\x13", OTHER + b"\x99"]), id="extension to 33 bytes"),
        pytest.param(tries.encode([b"\x13", []]), id="extension to an empty list"),
        pytest.param(tries.encode([b"\x13", [b"\x20" + bytes(28), b"\x05"]]), id="extension to an embedded 32 bytes"),
        pytest.param(tries.encode(_branch(_2=OTHER)[:16]), id="branch of 16"),
        pytest.param(tries.encode([*_branch(_2=OTHER), b""]), id="branch of 18"),
        pytest.param(tries.encode(_branch(_2=OTHER, value=b"\x05")), id="branch with a value"),
        pytest.param(tries.encode(_branch(_2=OTHER, value=b"\x80")), id="branch with a value that ends like none"),
        pytest.param(tries.encode(_branch(_2=OTHER[:31])), id="branch with a child of 31 bytes"),
        pytest.param(tries.encode(_branch(_2=OTHER + b"\x99")), id="branch with a child of 33 bytes"),
        pytest.param(tries.encode(_branch(_2=[])), id="branch with an empty list as a child"),
        pytest.param(tries.encode(_branch(_2=b"\x05")), id="branch with a byte as a child"),
        pytest.param(tries.encode(_branch(_2=[b"\x20" + bytes(28), b"\x05"])), id="branch with 32 embedded bytes"),
        # Its last reference claims bytes that the node doesn't have; behind it in the calldata there is more.
        pytest.param(b"\xd3" + b"\x80" * 15 + b"\xa0" + b"\x99" * 3, id="branch that ends inside of a child"),
        pytest.param(b"\xd0" + b"\x80" * 15 + b"\xa0", id="branch that ends where a child begins"),
    ],
)
def test_it_refuses_nodes_that_no_trie_has(harness, root):
    assert harness.call("verify", keccak(root), KEY, [root]) == INVALID


def test_a_short_node_must_be_embedded_and_not_referenced_by_hash(harness):
    short = tries.encode([b"\x32", b"\x05"])
    root = _below(63, keccak(short))
    assert harness.call("verify", keccak(root), KEY, [root, short]) == INVALID


@pytest.mark.parametrize(("length", "embedded"), [(28, True), (29, False)])
def test_a_node_is_embedded_if_it_has_less_than_32_bytes(harness, length, embedded):
    value = b"\x07" * length
    leaf = tries.encode([b"\x20", value])
    assert len(leaf) == length + 3
    inside = tries.encode(_branch(_2=[b"\x20", value]))
    outside = tries.encode(_branch(_2=keccak(leaf)))
    for branch, below, valid in ((inside, [], embedded), (outside, [leaf], not embedded)):
        root = _below(63, keccak(branch))
        expected = (True, value) if valid else INVALID
        assert harness.call("verify", keccak(root), KEY, [root, branch, *below]) == expected


def test_a_branch_below_the_last_nibble_is_refused(harness):
    below = tries.encode(_branch(_1=OTHER))
    last = tries.encode(_branch(_2=keccak(below)))
    root = _below(63, keccak(last))
    assert harness.call("verify", keccak(root), KEY, [root, last, below]) == INVALID


def test_an_extension_without_a_nibble_is_refused_also_where_it_leads_somewhere(harness):
    leaf = tries.leaf(KEY, b"\x05")
    root = tries.encode([b"\x00", keccak(leaf)])
    assert harness.call("verify", keccak(root), KEY, [root, leaf]) == INVALID


def test_an_extension_below_the_last_nibble_is_refused(harness):
    last = tries.encode(_branch(_2=[b"\x11", OTHER[:20]]))
    root = _below(63, keccak(last))
    assert harness.call("verify", keccak(root), KEY, [root, last]) == INVALID


def test_an_embedded_node_is_decoded_as_strictly_as_any(harness):
    root = _below(63, _branch(_2=[b"\x20", b""]))
    assert harness.call("verify", keccak(root), KEY, [root]) == INVALID
