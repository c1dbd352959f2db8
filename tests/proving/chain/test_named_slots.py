"""Slots by name: compiled contracts hold at the slots what their code has written."""

import json
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak

from contracts.build import run_compiler
from tests.service import ALICE, BOB, asking, header

pytestmark = pytest.mark.outside

VYPER_DIR = Path(__file__).parents[1] / "vyper"
SOLIDITY = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

contract Slots {
    struct Point { uint128 bias; uint128 slope; uint256 end; }
    struct Box { uint8 tag; mapping(uint256 => uint256) inner; Point[] points; string text; uint256[3] list; }

    uint256 plain;
    mapping(address => uint256) balances;
    mapping(address => mapping(uint256 => Point)) votes;
    mapping(string => uint256) byString;
    mapping(bytes => uint256) byBytes;
    mapping(bytes4 => uint256) byBytes4;
    mapping(int24 => uint256) ticks;
    mapping(bool => uint256) flags;
    uint256[] numbers;
    uint16[] packed;
    uint96[] pairs;
    address[] addresses;
    Point[] points;
    uint16[20] fixedPacked;
    Point[4] fixedPoints;
    uint256[3][] rows;
    uint8[3][][2] deep;
    string short;
    string long;
    mapping(uint256 => bytes) texts;
    mapping(bytes32 => Box) boxes;

    function fill(address account) external {
        plain = 1;
        balances[account] = 2;
        votes[account][7].end = 3;
        byString["a {key}"] = 4;
        byBytes[hex"00ff"] = 5;
        byBytes4[0x12345678] = 6;
        ticks[-887272] = 7;
        flags[true] = 8;
        for (uint256 at; at < 20; ++at) {
            numbers.push(); packed.push(); pairs.push(); addresses.push(); points.push(); rows.push();
        }
        deep[1].push(); deep[1].push();
        numbers[19] = 9;
        packed[17] = 10;
        pairs[3] = 11;
        addresses[5] = address(12);
        points[2].end = 13;
        fixedPacked[18] = 14;
        fixedPoints[3].end = 15;
        rows[4][2] = 16;
        deep[1][1][2] = 17;
        short = "abc";
        long = "The quick brown fox jumps over the lazy dog and goes on";
        texts[5] = bytes(long);
        Box storage box = boxes[bytes32(uint256(1) << 255)];
        box.tag = 18;
        box.inner[1] = 19;
        box.points.push(); box.points.push();
        box.points[1].end = 20;
        box.text = long;
        box.list[2] = 21;
    }
}
"""
TEXT = b"The quick brown fox jumps over the lazy dog and goes on"
CONTENT = [int.from_bytes(TEXT[:32]), int.from_bytes(TEXT[32:].ljust(32, b"\0"))]


def element(index: int, size: int = 32, length: int | None = None) -> dict[str, str]:
    more = {} if length is None else {"length": str(length)}
    return {"index": str(index), **({} if size == 32 else {"size": str(size)}), **more}


def member(place: int) -> dict[str, str]:
    return {"member": str(place)}


BOX = hex(1 << 255)
# The keys of a value from its variable, and the word that its slot holds.
OF_SOLIDITY: list[tuple[str, list[Any], int]] = [
    ("plain", [member(0)], 1),
    ("balances", [ALICE], 2),
    ("votes", [ALICE.lower(), "7", member(1)], 3),
    ("byString", [{"key": "a {key}", "type": "string"}], 4),
    ("byBytes", [{"key": "0x00ff", "type": "bytes"}], 5),
    ("byBytes4", [{"key": "0x12345678", "type": "bytes4"}], 6),
    ("ticks", ["-887272"], 7),
    ("flags", ["0x1"], 8),
    ("numbers", [element(19)], 9),
    ("packed", [element(17, 2)], 10 << 16),
    ("pairs", [element(3, 12)], 11 << 96),
    ("addresses", [element(5, 20)], 12),
    ("points", [element(2, 64), member(1)], 13),
    ("fixedPacked", [element(18, 2, 20)], 14 << 32),
    ("fixedPoints", [element(3, 64, 4), member(1)], 15),
    ("rows", [element(4, 96), element(2, 32, 3)], 16),
    ("deep", [element(1, 32, 2), element(1), element(2, 1, 3)], 17 << 16),
    ("short", [member(0)], int.from_bytes(b"abc".ljust(31, b"\0") + b"\x06")),
    ("long", [element(0)], CONTENT[0]),
    ("texts", ["5", element(1)], CONTENT[1]),
    ("boxes", [BOX], 18),
    ("boxes", [BOX, member(1), "1"], 19),
    ("boxes", [BOX, member(2), element(1, 64), member(1)], 20),
    ("boxes", [BOX, member(3), element(1)], CONTENT[1]),
    ("boxes", [BOX, member(4), element(2, 32, 3)], 21),
]
OF_VYPER: list[tuple[str, list[Any], int]] = [
    ("points", [ALICE, "7", member(0)], 102),
    ("points", [ALICE, "7", member(1)], 103),
    ("votes", [ALICE, "CONTRACT"], 104),
    ("by_text", [{"key": "abc", "type": "string"}], 105),
    ("by_bytes", [{"key": "0x61626364", "type": "bytes"}], 106),
    ("by_bytes32", [f"0x{keccak(b'x').hex()}"], 107),
    ("by_int", ["-3"], 108),
    ("lists", [element(1, 96, 2), element(2, 32, 3)], 109),
    ("bools", [element(2, 1, 4)], 1),
    ("nested", [member(1), member(1)], 110),
    ("nested", ["LIST", element(2, 32, 3)], 111),
    ("nested", ["LAST"], 112),
    ("text", [element(1)], CONTENT[1]),
    ("texts", ["5", element(0)], int.from_bytes(b"abcdefgh".ljust(32, b"\0"))),
    ("list_of_points", [element(2, 64, 3), member(1)], 113),
    ("mappings", ["9", element(3, 32, 4)], 114),
]
# Slots of the variables in Slots.vy: older versions give each variable one.
NAMES = [*("plain", "text", "points", "votes", "by_text", "by_bytes", "by_bytes32", "by_int"), "lists", "bools"]
NAMES += ["nested", "texts", "list_of_points", "mappings", "last"]
SIZES = {"lists": 6, "bools": 4, "nested": 7, "list_of_points": 6}
OF_VERSION = [
    ("0.2.4", "vyper-0.2.12", 0),
    ("0.2.12", "vyper-0.2.12", 0),
    ("0.2.15", "vyper", 5),
    ("0.4.3", "vyper", 4),
]
OF_DYN_ARRAYS: list[tuple[int, list[Any], int]] = [
    (1, [element(1)], 202),
    (7, [element(2, 1)], 1),
    (13, [element(1, 64), member(1)], 203),
    (24, [element(1, 128), element(1)], 204),
    (41, [ALICE, element(1, 64), member(1)], 205),
    (42, [{"key": "0x12345678", "type": "bytes4"}], 206),
]


def filled(service, code: str) -> str:
    """Return the address of a deployed contract after its function `fill` has run."""
    deployed = service.rpc("eth_sendTransaction", {"from": BOB, "data": code, "gas": hex(10**7)})
    service.mine()
    address = str(service.rpc("eth_getTransactionReceipt", deployed)["contractAddress"])
    data = f"0x{keccak(text='fill(address)')[:4].hex()}{ALICE[2:].lower():0>64}"
    sent = service.rpc("eth_sendTransaction", {"from": BOB, "to": address, "data": data, "gas": hex(10**7)})
    service.mine()
    assert service.rpc("eth_getTransactionReceipt", sent)["status"] == "0x1"
    return address


def read(service, client, key, address: str, slots: list[Any]) -> list[dict[str, Any]]:
    service.mine(2)
    body = asking({f"block:{service.head() - 1}": {"accounts": {address: {"slots": slots}}}})
    answer = client.post("/read-proofs", body, content_type="application/json", headers=header(key))
    assert answer.status_code == 200, answer.content
    return list(answer.json()["proofs"])


def assert_held(service, client, key, address: str, layout: str, expected: list[tuple[int, list[Any], int]]) -> None:
    named = [{"slot": hex(slot), "keys": keys, "layout": layout} for slot, keys, _ in expected]
    proofs = read(service, client, key, address, json.loads(json.dumps(named).replace("CONTRACT", address)))
    assert len(proofs) == len(expected)
    for proof, name, (_, _, word) in zip(proofs, named, expected, strict=True):
        assert (int(proof["word"], 16), proof["slotName"]["layout"]) == (word, layout), name
        assert int(service.rpc("eth_getStorageAt", address, proof["slot"], "latest"), 16) == word, name


@pytest.mark.long
def test_solidity_holds_what_was_written(service, client, key):
    output = run_compiler({"Slots.sol": SOLIDITY}, {"*": {"*": ["evm.bytecode.object", "storageLayout"]}})
    compiled = output["contracts"]["Slots.sol"]["Slots"]
    layout = {each["label"]: int(each["slot"]) for each in compiled["storageLayout"]["storage"]}
    address = filled(service, "0x" + compiled["evm"]["bytecode"]["object"])
    expected = [(layout[name], keys, word) for name, keys, word in OF_SOLIDITY]
    assert {name for name, *_ in OF_SOLIDITY} == {*layout}
    assert_held(service, client, key, address, "solidity", expected)


def test_vyper_holds_what_was_written(service, client, key):
    for version, layout, text_size in OF_VERSION:
        slots, at = {}, 0
        for name in NAMES:
            slots[name] = at
            at += {**SIZES, "text": text_size}.get(name, 1) if text_size else 1
        # Older versions give each member of a struct one slot, too.
        members = {"LIST": member(3 if text_size else 2), "LAST": member(6 if text_size else 3)}
        address = filled(service, (VYPER_DIR / f"Slots-{version}.hex").read_text().strip())
        expected = [(slots[name], [members.get(str(key), key) for key in keys], word) for name, keys, word in OF_VYPER]
        assert_held(service, client, key, address, layout, expected)
    for version in ("0.3.10", "0.4.3"):
        address = filled(service, (VYPER_DIR / f"DynArrays-{version}.hex").read_text().strip())
        assert_held(service, client, key, address, "vyper", OF_DYN_ARRAYS)
