"""Receipts and logs that are shown to `FactsReader` or read by the package's `Receipts`.

Both and their model must agree on every proof.
"""

import random
from collections.abc import Iterable

import pytest
from eth_utils.crypto import keccak

from chains.tries.packed_entries import root as root_of
from tests.contracts import tries
from tests.contracts.blocks import Block, Outcome, bloom, random_block, recorded
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call
from tests.contracts.walks import (
    REFUSAL,
    ReceiptWalk,
    WithoutRegistry,
    encode_log,
    encode_receipt,
    receipt_nodes,
    receipt_trie,
    refusals,
    spoilt_proofs,
)
from tests.fixtures_folder import fixture_names

RECORDED = [name.removesuffix(".json") for name in fixture_names("receipts/*.json")]
SIZES = (0, 1, 2, 3, 16, 17, 128, 129, 130, 145, 257, 273)
CORNERS = (0, 1, 2, 15, 16, 127, 128, 129, 144, 255, 256, 272)
LOGS = [(b"\xaa" * 20, [b"\x01" * 32, b"\x02" * 32], b"data"), (b"\xbb" * 20, [], b"\x05"), (b"\xcc" * 20, [], b"")]
GENUINE = Outcome(1, 2, 50_000, LOGS)
NO_SUCH_LOG = "There is no such log."


@pytest.fixture(scope="module")
def user(chain) -> Deployed:
    return Deployed(chain, "test/PackageUser")


@pytest.fixture(scope="module")
def refused(simulator, reader, user):
    """Return a function that returns the model's refusals of walks, after the reader and the package have agreed."""

    def agreed(walks: Iterable[ReceiptWalk]) -> list[str]:
        all_walks = list(walks)
        refusals(simulator, user, map(WithoutRegistry, all_walks))
        return refusals(simulator, reader, all_walks)

    return agreed


def shown(values: list[bytes], indexes: Iterable[int], log: int | None = None) -> list[ReceiptWalk]:
    built = receipt_trie(dict(enumerate(values)))
    return [ReceiptWalk(index, log, built.root_hash, tries.encode(receipt_nodes(built, index))) for index in indexes]


def with_logs(walks: Iterable[ReceiptWalk], block: Block) -> list[tuple[ReceiptWalk, bytes]]:
    """Return the walks, and one for each log, with the answer that is true of the block."""
    answers = []
    for walk in walks:
        receipt = block.receipts[walk.index]
        answers.append((walk, encode_receipt(receipt)))
        answers += [
            (ReceiptWalk(walk.index, log, walk.root, walk.proof), encode_log(each))
            for log, each in enumerate(receipt.logs)
        ]
    return answers


def spoilt(genuine: ReceiptWalk) -> list[ReceiptWalk]:
    return [ReceiptWalk(genuine.index, genuine.log, genuine.root, proof) for proof in spoilt_proofs(genuine.proof)]


# --- Genuine proofs ---------------------------------------------------------------------------------------------------


def picked(block: Block, values: list[bytes]) -> list[int]:
    """Return the indexes of a receipt of each type with and without success, of the longest one, and of corners."""
    kinds = {(receipt.type, receipt.facts.status): index for index, receipt in enumerate(block.receipts)}
    longest = values.index(max(values, key=len)) if values else 0
    return sorted(index for index in {*kinds.values(), longest, *CORNERS} if index < len(block.receipts))


@pytest.mark.long("eth-mainnet-4369999")
@pytest.mark.parametrize("name", RECORDED)
def test_receipts_and_logs_of_recorded_blocks_are_as_the_chain_has_them(simulator, reader, refused, name):
    block = recorded(name)
    values, count = block.values, len(block.receipts)
    walks = shown(values, picked(block, values))
    if "not-reproducible" in name:
        assert all(refused([ReceiptWalk(walk.index, 0, block.roots[1], walk.proof) for walk in walks]))
        return
    assert root_of(values) == block.roots[1]
    answers = with_logs(walks, block)
    assert {walk.root for walk in walks} <= {block.roots[1]}
    outcomes = simulator.run([Call(reader.address, walk.calldata) for walk, _ in answers])
    assert [outcome.data for outcome in outcomes] == [answer for _, answer in answers]
    assert refused([walk for walk, _ in answers]) == [""] * len(answers)
    absent = shown(values, {count, count + 1, *(each for each in (127, 128, 255, 256, 300, 65_535) if each >= count)})
    assert refused(absent) == [""] * len(absent)
    assert {walk.answer() for walk in absent} == {bytes(192)}
    beyond = [ReceiptWalk(walk.index, len(block.receipts[walk.index].logs), walk.root, walk.proof) for walk in walks]
    beyond += [ReceiptWalk(walk.index, 0, walk.root, walk.proof) for walk in absent]
    assert set(refused(beyond)) == {NO_SUCH_LOG}
    assert all(refused(each for walk in walks[:3] for each in spoilt(walk)))


@pytest.mark.parametrize("count", SIZES)
def test_receipts_of_blocks_of_all_sizes_are_shown_or_absent(simulator, reader, refused, count):
    block = random_block(random.Random(count), count)
    values = block.values
    walks = shown(values, [index for index in CORNERS if index < count])
    answers = with_logs(walks, block)
    outcomes = simulator.run([Call(reader.address, walk.calldata) for walk, _ in answers])
    assert [outcome.data for outcome in outcomes] == [answer for _, answer in answers]
    beyond = (*range(count, count + 20), 127, 128, 255, 256, 300, 4095, 4096, 65_535)
    absent = shown(values, [index for index in beyond if index >= count])
    assert refused(absent) == [""] * len(absent)
    assert {walk.answer() for walk in absent} == {bytes(192)}
    # A proof of one index shows nothing else, but that another one is absent.
    others = [
        ReceiptWalk(index, 0, walk.root, walk.proof)
        for walk in walks[:6]
        for index in CORNERS
        if index != walk.index and index < count
    ]
    assert all(refused(others))


@pytest.mark.parametrize("log", [0, 3, 2**32, 2**256 - 1])
@pytest.mark.parametrize("index", [0, 1, 2**16 - 1, 2**16, 2**256 - 1])
def test_an_index_that_is_not_there_is_told_by_its_own_error(refused, index, log):
    [walk] = shown([GENUINE.encode()], [0])
    [refusal] = refused([ReceiptWalk(index, log, walk.root, walk.proof)])
    if index >= 2**16:
        assert refusal == "No block has such an index."
    else:
        assert refusal == ("" if (index, log) == (0, 0) else NO_SUCH_LOG)


@pytest.mark.parametrize("log", [None, 0])
@pytest.mark.parametrize(
    ("proof", "is_taken"),
    [
        ("c0", True),
        ("c28180", True),
        *((each, False) for each in ("", "80", "c180", "c28181", "c3818080", "c0c0", "c100")),
    ],
)
def test_an_empty_block_has_two_proofs(refused, proof, is_taken, log):
    [refusal] = refused([ReceiptWalk(0, log, tries.EMPTY_ROOT, bytes.fromhex(proof))])
    assert refusal == ("" if log is None else NO_SUCH_LOG) if is_taken else refusal not in {"", NO_SUCH_LOG}


@pytest.mark.long("128")
@pytest.mark.parametrize("index", [0, 5, 128, 300])
def test_a_leaf_may_have_as_many_bytes_as_a_full_branch(refused, index):
    path = tries.hex_prefix(tries.encode(index).hex(), leaf=True)
    sizes = []
    for size in range(160, 240):
        value = Outcome(1, 2, 50_000, [(b"\xaa" * 20, [], bytes([7]) * size)]).encode()
        node = tries.encode([path, value])
        sizes.append(len(node) - 3)
        proof = tries.encode([node])
        assert refused([ReceiptWalk(index, log, keccak(node), proof) for log in (None, 0)]) == ["", ""]
    assert 529 in sizes


# --- Values that no trie has ------------------------------------------------------------------------------------------


def _receipt(*fields: object, type_: bytes = b"\2") -> bytes:
    return type_ + tries.encode(list(fields))


def _raw(*fields: bytes, type_: bytes = b"\2") -> bytes:
    """Return a receipt of items in any encoding."""
    return type_ + tries.listed(b"".join(fields))


_BLOOM = bloom(LOGS)
_LISTED = [[emitter, topics, data] for emitter, topics, data in LOGS]
_ITEMS = [tries.encode(each) for each in (1, 50_000, _BLOOM, _LISTED)]
_WORD = b"\1" * 32


def _logged(*logs: object) -> bytes:
    return _receipt(1, 50_000, _BLOOM, list(logs))


def _raw_log(*items: bytes) -> bytes:
    return _raw(*_ITEMS[:3], tries.listed(tries.listed(b"".join(items))))


_MORE: list[list[bytes]] = [[], [b""], [b"\xff" * 8, b"\1"], [b"\0\1", bytes(60), b"\x80"]]
_EMITTER, _TOPICS, _DATA = (tries.encode(each) for each in (bytes(20), [_WORD], b"data"))
TAKEN = {
    "as it is": GENUINE.encode(),
    "the bloom of other logs": _receipt(1, 50_000, bytes(256), _LISTED),
    "a root": _receipt(_WORD, 50_000, _BLOOM, _LISTED, type_=b""),
    "a failure with logs": _receipt(0, 50_000, _BLOOM, _LISTED),
    **{f"type {type_:02x}": _receipt(1, 50_000, _BLOOM, _LISTED, type_=bytes([type_])) for type_ in range(1, 0x80)},
    **{
        f"{count} items behind the logs": _receipt(1, 50_000, _BLOOM, _LISTED, *more, type_=b"\x64")
        for count, more in enumerate(_MORE)
    },
    "many items behind the logs": _receipt(1, 50_000, _BLOOM, _LISTED, *range(1000), type_=b"\x7f"),
    "the most gas": _receipt(1, 2**64 - 1, _BLOOM, _LISTED),
    "four topics": _logged([bytes(20), [_WORD] * 4, b""]),
    "data of a byte": _logged([bytes(20), [_WORD], b"\x80"]),
}
FORGED = {
    **{f"type {type_:02x}": _receipt(1, 5, _BLOOM, [], type_=bytes([type_])) for type_ in (0, 0x80, 0xBF, 0xC0, 0xFF)},
    "a type alone": b"\2",
    "a type and a string": b"\2" + tries.encode(bytes(300)),
    "two types": b"\2" + GENUINE.encode(),
    "a type as a string": b"\x81\x82" + GENUINE.encode()[1:],
    "a byte behind it": GENUINE.encode() + b"\0",
    "a byte too few": GENUINE.encode()[:-1],
    "a list that ends before its items": GENUINE.encode()[:3] + bytes([GENUINE.encode()[3] - 1]) + GENUINE.encode()[4:],
    "a status of zero in two bytes": _raw(b"\x81\x80", *_ITEMS[1:]),
    "a status whose second byte would be the gas": _raw(b"\x81\x80", *_ITEMS[2:]),
    "a status of no byte with a long prefix": _raw(b"\xb8\0", *_ITEMS[1:]),
    "a list's longer prefix": b"\2\xfa\0" + GENUINE.encode()[2:],
    "a string": tries.encode(GENUINE.encode()),
    "status 2": _receipt(2, 5, _BLOOM, []),
    "a status of two bytes": _receipt(256, 5, _BLOOM, []),
    "a status of 0002": _receipt(b"\0\2", 5, _BLOOM, []),
    "a status that is a byte of zero": _receipt(b"\0", 5, _BLOOM, []),
    "a status of 0001": _receipt(b"\0\1", 5, _BLOOM, []),
    "a status that is a list": _receipt([], 5, _BLOOM, []),
    "a status that is a list of 1": _receipt([b"\1"], 5, _BLOOM, []),
    "a status in two bytes": _raw(b"\x81\1", *_ITEMS[1:]),
    "a status with a long prefix": _raw(b"\xb8\1\1", *_ITEMS[1:]),
    "a root with a type": _receipt(_WORD, 5, _BLOOM, []),
    "a root of zero and ones with a type": _receipt(bytes(31) + b"\1", 5, _BLOOM, []),
    "a root of 33 bytes": _receipt(_WORD + b"\1", 5, _BLOOM, [], type_=b""),
    "a root of 31 bytes": _receipt(_WORD[1:], 5, _BLOOM, [], type_=b""),
    "a root that is a list": _receipt([b"\1"] * 32, 5, _BLOOM, [], type_=b""),
    "gas with a leading zero": _receipt(1, b"\0\1", _BLOOM, []),
    "gas of zero": _receipt(1, b"\0", _BLOOM, []),
    "gas of nine bytes": _receipt(1, b"\1" * 9, _BLOOM, []),
    "gas that is a list": _receipt(1, [b"\1"], _BLOOM, []),
    "gas in two bytes": _raw(_ITEMS[0], b"\x81\5", *_ITEMS[2:]),
    "a bloom of 255 bytes": _receipt(1, 5, _BLOOM[1:], []),
    "a bloom of 257 bytes": _receipt(1, 5, _BLOOM + b"\0", []),
    "no bloom": _receipt(1, 5, b"", []),
    "a bloom that is a list": _receipt(1, 5, [b"\1"] * 256, []),
    "a bloom with a longer prefix": _raw(*_ITEMS[:2], b"\xba\0\1\0" + _BLOOM, _ITEMS[3]),
    "logs that are a string": _receipt(1, 5, _BLOOM, b""),
    "logs that are a string of logs": _receipt(1, 5, _BLOOM, tries.encode(_LISTED[0])),
    "logs with a longer prefix": _raw(*_ITEMS[:3], b"\xf8\0"),
    "three fields": _receipt(1, 5, _BLOOM),
    "five fields": _receipt(1, 5, _BLOOM, [], 1),
    "six fields": _receipt(1, 5, _BLOOM, [], 1, 1),
    "five fields with type 63": _receipt(1, 5, _BLOOM, [], 1, type_=b"\x63"),
    "five fields without a type": _receipt(1, 5, _BLOOM, [], 1, type_=b""),
    "a list behind the logs": _receipt(1, 5, _BLOOM, [], [], 1, type_=b"\x7e"),
    "a list at the end": _receipt(1, 5, _BLOOM, [], 1, [], type_=b"\x7e"),
    "an item of two encodings behind the logs": _raw(*_ITEMS, b"\x81\1", type_=b"\x64"),
    "an item that ends behind the receipt": _raw(*_ITEMS, b"\x82\1", type_=b"\x64"),
    "a log that is a string": _logged(b"log"),
    "a log of nothing": _logged([]),
    "a log of two": _logged([bytes(20), []]),
    "a log of four": _logged([bytes(20), [], b"", b""]),
    "an emitter of 19 bytes": _logged([bytes(19), [], b""]),
    "an emitter of 21 bytes": _logged([bytes(21), [], b""]),
    "an emitter of 32 bytes": _logged([bytes(32), [], b""]),
    "an emitter that is a list": _logged([[b"\1"] * 20, [], b""]),
    "topics that are a string": _logged([bytes(20), b"", b""]),
    "topics that are a string of a topic": _logged([bytes(20), tries.encode(_WORD), b""]),
    "five topics": _logged([bytes(20), [_WORD] * 5, b""]),
    "a topic of 31 bytes": _logged([bytes(20), [_WORD[1:]], b""]),
    "a topic of 33 bytes": _logged([bytes(20), [_WORD + b"\1"], b""]),
    "a topic of 33 bytes in all": _logged([bytes(20), [_WORD[1:], b"\1"], b""]),
    "a topic that is a list": _logged([bytes(20), [[b"\1"] * 32], b""]),
    "a second topic that is a list": _logged([bytes(20), [_WORD, [b"\1"] * 32], b""]),
    "a topic with a long prefix": _raw_log(_EMITTER, tries.listed(b"\xb8\x20" + _WORD), _DATA),
    "a second topic of a prefix alone": _raw_log(_EMITTER, tries.listed(b"\xa0" + _WORD + b"\xa0"), _DATA),
    "data that are a list": _logged([bytes(20), [], []]),
    "data in two bytes": _raw_log(_EMITTER, _TOPICS, b"\x81\5"),
    "data with a long prefix": _raw_log(_EMITTER, _TOPICS, b"\xb8\4data"),
    "an emitter with a long prefix": _raw_log(b"\xb8\x14" + bytes(20), _TOPICS, _DATA),
    "topics with a long prefix": _raw_log(_EMITTER, b"\xf8\x21\xa0" + _WORD, _DATA),
    "a log that is a string of a log's items": _raw(
        *_ITEMS[:3], tries.listed(tries.encode(_EMITTER + tries.listed(b"") + _DATA))
    ),
    "a fault in the second log": _logged(*_LISTED[:1], [bytes(19), [], b""]),
    "an internal node": tries.branch({0: tries.hash_reference(_WORD), 8: tries.hash_reference(_WORD)}),
    "a leaf": tries.leaf(b"\1" * 32, b"\1" * 300),
    "an account": tries.account(),
}


@pytest.mark.parametrize("log", [None, 0])
@pytest.mark.parametrize("values", [TAKEN, FORGED], ids=["taken", "forged"])
def test_a_receipt_that_no_block_has_is_refused_even_under_its_own_root(refused, values, log):
    nodes = [tries.encode([tries.hex_prefix("80", leaf=True), value]) for value in values.values()]
    walks = [ReceiptWalk(0, log, keccak(node), tries.encode([node])) for node in nodes]
    refusals = dict(zip(values, refused(walks), strict=True))
    assert [name for name, refusal in refusals.items() if (not refusal) != (values is TAKEN)] == []
    # Nothing is read from the receipt of another index. But no node of the trie is short.
    absent = refused([ReceiptWalk(1, None, walk.root, walk.proof) for walk in walks])
    assert [not refusal for refusal in absent] == [len(node) >= 32 for node in nodes]


def _receipt_around(level: int, payload: bytes) -> bytes:
    """Return a receipt in which a list has this payload: the receipt itself (0), its logs (1), or its only log (2)."""
    cut = tries.listed(payload)
    return b"\2" + cut if level == 0 else _raw(*_ITEMS[:3], cut if level == 1 else tries.listed(cut))


@pytest.mark.parametrize(
    ("level", "whole"), list(enumerate([GENUINE.encode()[4:], _ITEMS[3][2:], tries.encode(_LISTED[0])[2:]]))
)
def test_no_byte_behind_a_receipt_counts(simulator, reader, user, level, whole):
    """The bytes that a list lacks follow the proof in the calldata."""
    fewer_logs = {_receipt(1, 50_000, _BLOOM, _LISTED[:count]) for count in range(3)}
    calls = []
    for size in range(len(whole)):
        value = _receipt_around(level, whole[:size])
        if value in fewer_logs:
            continue
        node = tries.encode([tries.hex_prefix("80", leaf=True), value])
        proof = tries.encode([node])
        walk = ReceiptWalk(0, 0, keccak(node), proof)
        for contract, data in [(reader, walk.calldata), (user, WithoutRegistry(walk).calldata)]:
            end = data.rindex(proof) + len(proof)
            calls.append(Call(contract.address, data[:end] + whole[size:] + bytes(32)))
    assert {(outcome.succeeded, outcome.data) for outcome in simulator.run(calls)} == {(False, REFUSAL)}


# --- Nodes that no trie of receipts has -------------------------------------------------------------------------------

VALUE = GENUINE.encode()
_THERE = tries.hash_reference(b"\1" * 32)


def _leaf(digits: str, value: bytes = VALUE) -> bytes:
    return tries.encode([tries.hex_prefix(digits, leaf=True), value])


def _short(digits: str) -> bytes:
    return tries.encode([tries.hex_prefix(digits, leaf=True), b"\1"])


def _above(node: bytes, digits: str, others: bytes = _THERE) -> list[bytes]:
    """Return branches along digits down to a node, with one more child each."""
    nodes = [node]
    for digit in reversed(digits):
        place = int(digit, 16)
        nodes.insert(0, tries.branch({place: tries.hash_reference(keccak(nodes[0])), (place + 1) % 16: others}))
    return nodes


NODES: dict[str, tuple[int, list[bytes]]] = {
    **{
        f"a leaf of the key {key or 'of nothing'}": (5, [_leaf(key)])
        for key in (
            *(
                "",
                "0",
                "8",
                "00",
                "81",
                "82",
                "ff",
                "050",
                "0500",
                "8100",
                "817f",
                "81ff00",
                "8200",
                "820001",
                "8200ff",
            ),
            *("8280", "82010000", "83010000", "05" * 33, "05" * 128, "820000", "830000", "00820100"),
        )
    },
    **{
        f"a key that goes on as {key}": (index, [_leaf(key)])
        for index, key in (
            (0, "8000"),
            (0, "8080"),
            (0, "800"),
            (128, "81"),
            (128, "818000"),
            (256, "8201"),
            (256, "82010000"),
            (5, "0500"),
        )
    },
    "a branch below the key": (0, _above(tries.branch({0: _THERE, 1: _THERE}), "80")),
    "a full branch below the key": (0, _above(tries.branch(dict.fromkeys(range(16), _THERE)), "80")),
    "a leaf below the key": (0, _above(_leaf("0"), "80")),
    "an extension below the key": (0, [*_above(tries.extension("0", _THERE), "80")]),
    "an extension to the key's end": (0, [tries.extension("80", tries.hash_reference(keccak(_leaf("")))), _leaf("")]),
    "an extension beyond the key": (1, [tries.extension("800", _THERE)]),
    "an extension of no digit": (0, [tries.extension("", tries.hash_reference(keccak(_leaf("80")))), _leaf("80")]),
    "an extension to nothing": (0, [tries.extension("8", b"\x80" + bytes(40))]),
    "an embedded leaf": (0, [tries.branch({8: _short("0"), 0: _THERE})]),
    "an embedded leaf, by its hash": (0, _above(_short("0"), "8")),
    "an embedded sibling": (0, _above(_leaf("0"), "8", _short("1"))),
    "an embedded sibling, absent": (64, _above(_leaf("0"), "8", _short("1"))),
    "an extension with an embedded node": (0, [tries.extension("8", _short("0"))]),
    "an extension with an embedded node, absent": (
        5,
        [tries.extension("8", tries.branch({place: _short("0") for place in range(6)}))],
    ),
    "a branch with a value": (0, [tries.listed(_above(_leaf("0"), "8")[0][3:-1] + b"\1"), _leaf("0")]),
    "a branch with a receipt": (0, [tries.listed(_above(_leaf("0"), "8")[0][2:-1] + tries.encode(VALUE))]),
    "a full branch with a value": (
        64,
        [tries.listed(_THERE * 16 + b"\1")],
    ),
    "a branch of 529 bytes with a short reference": (
        64,
        [tries.listed(_THERE * 14 + b"\x9f" + bytes(31) + b"\xa1" + bytes(33) + b"\x80")],
    ),
    "a list of three": (0, [tries.encode([tries.hex_prefix("80", leaf=True), VALUE, b""])]),
    "a list of 18": (0, [tries.encode([b""] * 18)]),
    "a leaf without a value": (0, [_leaf("80", b"")]),
    "another key's leaf without a value": (5, [_leaf("80", b"")]),
    "another key's leaf with a list": (5, [tries.encode([tries.hex_prefix("80", leaf=True), [VALUE]])]),
    "a leaf with a list": (0, [tries.encode([tries.hex_prefix("80", leaf=True), [VALUE]])]),
    **{f"a short node at depth {depth}": (300, _above(tries.branch({}), "82012"[:depth])) for depth in (1, 2, 3)},
    "a short root": (0, [_leaf("80", b"\2\xc0")]),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_that_no_trie_of_receipts_has_are_refused(refused, name):
    index, nodes = NODES[name]
    walks = [ReceiptWalk(index, log, keccak(nodes[0]), tries.encode(nodes)) for log in (None, 0)]
    assert not {"", NO_SUCH_LOG} & set(refused(walks))


@pytest.mark.parametrize(
    ("index", "nodes"),
    [
        *((index, [_leaf(key)]) for index, key in ((0, "8180"), (0, "820100"), (128, "80"), (256, "7f"), (1, "80"))),
        *((index, [_leaf(key)]) for index, key in ((0, "01"), (0, "81ff"), (0, "82ffff"), (0xFFFF, "80"))),
        (300, _above(tries.extension("02", _THERE), "82")),
        (5, [tries.branch({8: _THERE, 7: _THERE})]),
    ],
)
def test_other_keys_show_an_index_absent(refused, index, nodes):
    walks = [ReceiptWalk(index, log, keccak(nodes[0]), tries.encode(nodes)) for log in (None, 0)]
    assert refused(walks) == ["", NO_SUCH_LOG]


@pytest.mark.parametrize("log", [None, 0])
def test_no_flipped_bit_leaves_a_valid_proof(reader, user, harness, log):
    [walk] = shown([Outcome(0, 0, 0, []).encode()] * 2 + [GENUINE.encode()], [2], log)
    for contract, data in [(reader, walk.calldata), (user, WithoutRegistry(walk).calldata)]:
        start = data.index(walk.proof)
        assert harness.accepted_flips(contract, data, start, start + len(walk.proof)) == 0
        assert harness.accepted(contract, [data]) == [True]
