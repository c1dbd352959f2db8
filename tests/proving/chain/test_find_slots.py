"""`POST /find-slots`: slots, layouts and certainties of real contracts, and nodes that lie about them."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from threading import Event, Semaphore
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from eth_abi.abi import encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from accounts.models import ApiKey, ThrottleCount
from devnet import devchain, foreign_contracts
from proving.models import Signer
from tests import chain_fixtures, deployed
from tests.chains import geth_answers
from tests.chains.hostile_node import dripped_reply, hostile_node, silence
from tests.chains.lying_node import Raw, ask, between, error, lying_node, pruned
from tests.proving import tokens
from tests.service import ALICE, BOB, CHARLIE, a_key, chains_toml, header, reconfigure

pytestmark = [pytest.mark.outside, pytest.mark.long]

_ERC20 = 0x52C63247E1F47DB19D5CE0460030C497F067CA4CEBF71BA98EEADABE20BACE00
_VOTES = 0xE8B26C30FAD74198956032A3533D903385D56DD795AF560196F9C78D4AF40D00
_ERC721 = 0x80BB2B638CC20BC4D0A60D66940F3AB4A00C1D7B313497CA82FB0B4AB0079300
_MINTER = f"0x{keccak(text='MINTER').hex()}"
_HOLDER = int(ALICE, 16)

_deployed: list[tokens.Deployed] = []
shared_chain = chain_fixtures.chain_fixture(lambda chain: _deployed.append(tokens.deploy(chain)))


@pytest.fixture
def chain(shared_chain: devchain.DevChain, db, settings, tmp_path) -> devchain.DevChain:
    """Return a chain with all contracts, connected to the service."""
    settings.CHAINS_FILE = chains_toml(tmp_path, shared_chain.url)
    return shared_chain


@dataclass(frozen=True)
class Search:
    """Searches by one user."""

    chain: devchain.DevChain
    key: ApiKey

    def ask(self, name: str, signature: str, *arguments: str, **more: Any) -> Any:
        # The limit has its own test.
        ThrottleCount.objects.all().delete()
        addresses = _deployed[-1].addresses
        body = {
            "sourceChainId": "31337",
            "contract": addresses.get(name, name),
            "signature": signature,
            "arguments": [addresses.get(argument, argument) for argument in arguments],
        }
        return Client().post("/find-slots", body | more, content_type="application/json", headers=header(self.key))

    def found(self, name: str, signature: str, *arguments: str, **more: Any) -> Any:
        answer = self.ask(name, signature, *arguments, **more)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def refused(self, name: str, signature: str, *arguments: str, **more: Any) -> tuple[int, str]:
        answer = self.ask(name, signature, *arguments, **more)
        body = answer.json()
        assert set(body) <= {"error", "code", "details"}
        assert body["error"].endswith(".")
        return answer.status_code, body["code"]


@pytest.fixture
def search(chain: devchain.DevChain) -> Search:
    return Search(chain, a_key())


# --- Real contracts ---------------------------------------------------------------------------------------------------


def slot_name(base: int | str, *keys: Any, layout: str = "solidity") -> dict[str, Any]:
    """`base` is a slot, or the name of a variable in the contract's source."""
    return {"slot": base, "keys": list(keys), "layout": layout}


def whole(base: int | str, *keys: Any, value: int, layout: str = "solidity") -> dict[str, Any]:
    """Return the only slot that is expected: its word is the answer."""
    return {"name": slot_name(base, *keys, layout=layout), "certainty": "is_value", "part": (0, 256), "value": value}


def part(base: int | str, *keys: Any, at: tuple[int, int], value: int, layout: str = "solidity") -> dict[str, Any]:
    """Return the only slot that is expected: the bits of its word `at` an offset and of a size are the answer."""
    return whole(base, *keys, value=value, layout=layout) | {"certainty": "part_of_word", "part": at}


def fixed(slot: int | str, *, value: int, at: tuple[int, int] = (0, 256)) -> dict[str, Any]:
    certainty = "is_value" if at == (0, 256) else "part_of_word"
    return {"slot": slot, "layout": "fixed", "certainty": certainty, "part": at, "value": value}


def unknown(value: int) -> dict[str, Any]:
    return {"layout": "layout_unknown", "certainty": "is_value", "part": (0, 256), "value": value}


LAST = {"last": True}
_WHOLE = {"offset": 0, "size": 256, "form": "unsigned"}


def element(index: int, size: int = 32) -> dict[str, str]:
    return {"index": str(index)} | ({} if size == 32 else {"size": str(size)})


def member(place: int) -> dict[str, str]:
    return {"member": str(place)}


def text(key: str, kind: str) -> dict[str, str]:
    return {"key": key, "type": kind}


# The contract, the call's signature and arguments, and the slot from which it answers.
_ROWS: list[tuple[str, str, list[str], dict[str, Any]]] = [
    *(
        row
        for name in ("OldToken", "Token", "SolmateToken")
        for row in [
            (name, "balanceOf(address)", [ALICE], whole("_balances balanceOf", ALICE, value=1001)),
            (name, "balanceOf(address)", [BOB], whole("_balances balanceOf", BOB, value=0)),
            (
                name,
                "allowance(address,address)",
                [ALICE, name],
                whole("_allowances allowance", ALICE, name, value=1002),
            ),
            # Both orders of the keys lead to this slot.
            (
                name,
                "allowance(address,address)",
                [ALICE, ALICE],
                whole("_allowances allowance", ALICE, ALICE, value=0),
            ),
        ]
    ),
    *((name, "totalSupply()", [], fixed("_totalSupply", value=1001)) for name in ("OldToken", "Token")),
    (
        "SoladyToken",
        "balanceOf(address)",
        [ALICE],
        whole(_HOLDER << 96 | 0x87A211A2, element(0), value=1001) | {"layout": "solady"},
    ),
    (
        "SoladyToken",
        "allowance(address,address)",
        [ALICE, BOB],
        whole(0x7F5E9F20 << 160 | int(BOB, 16), text(ALICE.lower(), "bytes"), value=0) | {"layout": "solady"},
    ),
    ("SoladyToken", "totalSupply()", [], fixed(0x05345CDF77EB68F44C, value=1001)),
    *(
        row
        for name, size in (("OldVotesToken", 224), ("VotesToken", 208))
        for row in [
            (name, "balanceOf(address)", [ALICE], whole("_balances", ALICE, value=1003)),
            (name, "delegates(address)", [ALICE], part("_delegates _delegatee", ALICE, at=(0, 160), value=_HOLDER)),
            (
                name,
                "getVotes(address)",
                [ALICE],
                part("_checkpoints _delegateCheckpoints", ALICE, element(1), at=(256 - size, size), value=1003) | LAST,
            ),
        ]
    ),
    (
        "OldNft",
        "ownerOf(uint256)",
        ["7"],
        part("_owners", "7", at=(0, 160), value=_HOLDER),
    ),
    (
        "OldNft",
        "tokenOfOwnerByIndex(address,uint256)",
        [ALICE, "1"],
        whole("_ownedTokens", ALICE, "1", value=9),
    ),
    ("OldNft", "tokenByIndex(uint256)", ["1"], whole("_allTokens", element(1), value=9)),
    ("old behind proxy", "balanceOf(address)", [ALICE], whole(51, ALICE, value=1001)),
    *(
        row
        for name in ("behind proxy", "behind beacon", "behind older beacon")
        for row in [
            (name, "balanceOf(address)", [ALICE], whole(_ERC20, ALICE, value=1001)),
            (name, "totalSupply()", [], fixed(_ERC20 + 2, value=1001)),
            (name, "delegates(address)", [ALICE], part(_VOTES, ALICE, at=(0, 160), value=_HOLDER)),
            (name, "getVotes(address)", [ALICE], part(_VOTES + 1, ALICE, element(0), at=(48, 208), value=1001) | LAST),
        ]
    ),
    ("NFT behind proxy", "ownerOf(uint256)", ["7"], part(_ERC721 + 2, "7", at=(0, 160), value=_HOLDER)),
    ("behind slot 0", "balanceOf(address)", [ALICE], whole(1, ALICE, value=1001)),
    ("Roles", "hasRole(bytes32,address)", [_MINTER, ALICE], part("_roles", _MINTER, ALICE, at=(0, 8), value=1)),
    ("Vault", "totalAssets()", [], whole(3, "Vault", value=1001) | {"account": "SolmateToken"}),
    ("Rebasing", "shares(address)", [ALICE], whole("shares", ALICE, value=10)),
    ("Flagged", "balanceOf(address)", [ALICE], part("words", ALICE, at=(0, 255), value=1001)),
    ("Hidden", "balanceOf(address)", [ALICE], unknown(1001)),
    ("Hidden", "half(address)", [ALICE], unknown(1001) | {"certainty": "part_of_word", "part": (0, 128)}),
    *(
        row
        for version, base, old in (("0.2.12", 1, True), ("0.2.16", 4, False), ("0.3.10", 3, False), ("0.4.3", 3, False))
        for name, of_struct in [(f"Vyper {version}", "vyper-0.2.12" if old else "vyper")]
        for row in [
            (name, "balanceOf(address)", [ALICE], whole(base, ALICE, value=1001, layout="vyper")),
            (
                name,
                "allowance(address,address)",
                [ALICE, name],
                whole(base + 1, ALICE, name, value=1002, layout="vyper"),
            ),
            (name, "lockedEnd(address)", [ALICE], whole(base + 2, ALICE, member(1), value=1004, layout=of_struct)),
            (
                name,
                "slopeEnd(address,address)",
                [ALICE, name],
                whole(base + 3, ALICE, name, member(2), value=1005, layout=of_struct),
            ),
            (name, "frozen(address)", [ALICE], whole(base + 4, ALICE, value=1, layout="vyper")),
        ]
    ),
    ("Many", "plain()", [], fixed("plain", value=1)),
    ("Many", "paused()", [], fixed("paused", at=(8, 8), value=1)),
    ("Many", "open()", [], fixed("paused", at=(16, 8), value=0)),
    ("Many", "tick()", [], fixed("paused", at=(24, 24), value=-5)),
    ("Many", "owner()", [], fixed("owner", at=(0, 160), value=_HOLDER)),
    # No layout is known for an array of fixed length, and its slot isn't that of another index.
    ("Many", "list(uint256)", ["2"], unknown(2)),
    (
        "Many",
        "points(address,uint256)",
        [ALICE, "7"],
        part("points", ALICE, "7", at=(0, 128), value=3) | {"position": "0"},
    ),
    (
        "Many",
        "points(address,uint256)",
        [ALICE, "7"],
        whole("points", ALICE, "7", member(1), value=5) | {"position": "2"},
    ),
    ("Many", "deep(address,address,uint256)", [ALICE, "Many", "1"], whole("deep", ALICE, "Many", "1", value=8)),
    (
        "Many",
        "turned(address,address,uint256)",
        ["Many", ALICE, "1"],
        whole("deep", ALICE, "Many", "1", value=8) | {"is_turned": True},
    ),
    ("Many", "byText(string)", ["a key"], whole("byText", text("a key", "string"), value=9)),
    ("Many", "ofBytes(bytes)", ["0x00ff"], whole("byBytes", text("0x00ff", "bytes"), value=10)),
    ("Many", "byBytes4(bytes4)", ["0x12345678"], whole("byBytes4", text("0x12345678", "bytes4"), value=11)),
    ("Many", "byWord(bytes32)", [f"0x{'78':0<64}"], whole("byWord", f"0x{'78':0<64}", value=12)),
    ("Many", "byTick(int24)", ["-887272"], whole("byTick", "-887272", value=13)),
    ("Many", "byFlag(bool)", ["true"], whole("byFlag", "1", value=14)),
    ("Many", "inBox(uint256,address)", ["3", ALICE], whole("boxes", "3", member(1), ALICE, value=15)),
    ("Many", "lastInBox(uint256)", ["3"], whole("boxes", "3", member(2), element(1), value=16) | LAST),
    ("Many", "numbers(uint256)", ["19"], whole("numbers", element(19), value=17)),
    ("Many", "small(uint256)", ["17"], part("small", element(17, 2), at=(16, 16), value=18)),
    ("Many", "endOf(uint256)", ["2"], whole("structs", element(2, 64), member(1), value=19)),
    ("Many", "lists(address,uint256)", [ALICE, "3"], whole("lists", ALICE, element(3), value=20)),
    ("Many", "tags(address)", [ALICE], part("tags", ALICE, at=(0, 32), value=0x12345678)),
    ("Many", "frozen(address)", [ALICE], part("frozen", ALICE, at=(0, 8), value=1)),
    ("Many", "votes(address)", [ALICE], part("packed", ALICE, at=(0, 96), value=6)),
    ("Many", "tickOf(address)", [ALICE], part("packed", ALICE, member(1), at=(0, 24), value=-7)),
    ("Many", "isFrozen(address)", [ALICE], part("packed", ALICE, member(1), at=(24, 8), value=1)),
]


def _base(contract: str, variable: int | str) -> int:
    """Return the slot of a variable. Several names are those in different versions."""
    if isinstance(variable, int):
        return variable
    slots = _deployed[-1].variables[contract]
    (slot,) = {slots[name] for name in variable.split() if name in slots}
    return slot


def test_a_view_call_leads_to_its_slot_and_layout(search):
    """The batch that the answer has is taken by `/read-proofs`, which computes slots from names anew."""
    deployed.deploy_on(search.chain)
    addresses = _deployed[-1].addresses
    for name, signature, arguments, expected in _ROWS:
        position = {"position": expected["position"]} if "position" in expected else {}
        found = search.found(name, signature, *arguments, **position)
        row = name, signature, found
        first, *others = found["slots"]
        assert {other["certainty"] for other in others} <= {"path_only"}, row
        assert first["account"] == addresses[expected.get("account", name)], row
        assert (first["certainty"], first["value"]) == (expected["certainty"], str(expected["value"])), row
        assert (first["part"]["offset"], first["part"]["size"]) == expected["part"], row
        assert first["onlyAtThisBlock"] is expected.get("last", False), row
        in_full = None
        if named := expected.get("name"):
            keys = [addresses.get(key, key) if isinstance(key, str) else key for key in named["keys"]]
            slot = hex(_base(expected.get("account", name), named["slot"]))
            in_full = {"slot": slot, "keys": keys, "layout": named["layout"]}
        elif "slot" in expected:
            assert int(first["slot"], 16) == _base(name, expected["slot"]), row
        layout = expected.get("layout") or expected["name"]["layout"]
        stated = first["slotName"] or {}
        assert {key: value for key, value in stated.items() if key in (in_full or {})} == (in_full or {}), row
        assert stated.get("part", first["part"]) == first["part"], row
        assert ("part" in stated) == (bool(stated) and expected["part"] != (0, 256)), row
        # The call is stated if its arguments, its contract and its only word are those that a reader takes for them.
        is_stated = bool(stated) and not expected.keys() & {"position", "account", "is_turned"}
        assert stated.get("call") == (signature if is_stated else None), row
        assert first["layout"] == layout, row
        body = {"destinationChainId": "31337", **found["batch"]}
        answer = Client().post("/read-proofs", body, content_type="application/json", headers=header(search.key))
        shown = {proof["slot"]: proof for proof in answer.json()["proofs"]}[first["slot"]]
        assert (shown["word"], shown["value"]) == (first["word"], first["value"]), row
        # The request states the part also of a slot without a name.
        assert first["slotName"] in (None, shown["slotName"]), row
        assert (shown["slotName"] or {}).get("part", _WHOLE) == first["part"], row


@pytest.mark.parametrize(
    ("signature", "arguments", "value", "part"),
    [
        ("Typed.pnl(address)(int256)", [ALICE], "-1001", (0, 256, "signed")),
        ("Typed.pnl(address) (int)", [BOB], "0", (0, 256, "signed")),
        ("Typed.pnl(address)", [ALICE], str(2**256 - 1001), (0, 256, "unsigned")),
        ("Typed.root()(bytes32)", [], f"0x{b'root'.hex():0<64}", (0, 256, "left")),
        ("Typed.price()(uint160)", [], str(1 << 159), (0, 160, "unsigned")),
        ("Many.owner()(address)", [], ALICE, (0, 160, "unsigned")),
        ("Many.paused()(bool)", [], "true", (8, 8, "bool")),
        ("Many.plain()(bool)", [], "true", (0, 256, "bool")),
        ("Many.tick()(int24)", [], "-5", (24, 24, "signed")),
        ("Many.tags(address)(bytes4)", [ALICE], "0x12345678", (0, 32, "left")),
    ],
)
def test_a_value_is_shown_by_the_type_that_the_signature_names(search, signature, arguments, value, part):
    name, _, call = signature.partition(".")
    slot, *_ = search.found(name, call, *arguments)["slots"]
    assert (slot["value"], tuple(slot["part"].values())) == (value, part)


_MAIN = 0x183A6125C38840424C4A85FA12BAB2AB606C4B6D0E7CC73C0C06BA5300EAB500
_HOLDER_OF_7 = {"slot": hex(_HOLDER << 96 | 0x9A31110384E0B0C9), "keys": ["7"], "layout": "solidity"}


@pytest.mark.parametrize(
    ("signature", "arguments", "base", "value", "name"),
    [
        ("far(address)", [ALICE], "300", "1001", slot_name("0x12c", ALICE)),
        ("far(address)", [BOB], "0x12c", "0", slot_name("0x12c", BOB)),
        ("staked(address)", [ALICE], "erc7201:example.main", "1002", slot_name(hex(_MAIN + 1), ALICE)),
        ("staked(address)", [ALICE], str(_MAIN), "1002", slot_name(hex(_MAIN + 1), ALICE)),
        ("sharesIn(uint256,address)", ["5", ALICE], "301", "1003", slot_name("0x12d", "5", member(1), ALICE)),
        ("balanceOf(address,uint256)", [ALICE, "7"], "0x9a31110384e0b0c9", "1004", _HOLDER_OF_7),
    ],
)
def test_a_hint_where_the_layout_begins_names_the_slot(search, signature, arguments, base, value, name):
    (slot,) = search.found("Hinted", signature, *arguments)["slots"]
    assert (slot["value"], slot["layout"], slot["slotName"]) == (value, "layout_unknown", None)
    (slot,) = search.found("Hinted", signature, *arguments, base=base)["slots"]
    assert {key: slot["slotName"][key] for key in name} == name
    assert (slot["value"], slot["layout"]) == (value, "solady" if "0x9a" in base else "solidity")
    # A hint makes no layout right.
    (slot,) = search.found("Hinted", signature, *arguments, base="erc7201:example.other")["slots"]
    assert (slot["value"], slot["layout"], slot["slotName"]) == (value, "layout_unknown", None)


def test_slots_that_a_value_depends_on_are_named(search):
    depending = {
        ("OldVotesToken", "getVotes(address)"): ["length"],
        ("behind proxy", "getVotes(address)"): ["eip1967_implementation", "length"],
        ("old behind proxy", "balanceOf(address)"): ["eip1967_implementation", "eip1967_admin"],
        ("behind beacon", "balanceOf(address)"): ["address_of_contract"],
        ("behind older beacon", "balanceOf(address)"): ["eip1967_beacon", "address_of_contract"],
        ("behind slot 0", "balanceOf(address)"): ["address_of_contract"],
        ("Token", "balanceOf(address)"): [],
    }
    for (name, signature), roles in depending.items():
        found = search.found(name, signature, ALICE)
        assert [slot["role"] for slot in found["dependsOn"]] == roles, found
    # The address of a contract that the call runs may be the answer itself.
    slot, *_ = search.found("Registered", "tokenOf(address)", ALICE)["slots"]
    assert (slot["part"]["size"], slot["layout"], int(slot["slot"], 16)) == (160, "fixed", 0)
    votes = search.found("OldVotesToken", "getVotes(address)", ALICE)
    first, (length,) = votes["slots"][0], votes["dependsOn"]
    assert (int(length["word"], 16), length["slotName"]["keys"], first["onlyAtThisBlock"]) == (2, [ALICE], True)
    ((_, asked),) = votes["batch"]["data"]["31337"].items()
    assert asked["accounts"][first["account"]]["slots"] == [first["slotName"], length["slotName"]]
    assert votes["hints"] == {"decimals": 18, "symbol": "OLD", "nft": None}


@pytest.mark.parametrize(
    ("name", "signature", "decimals", "symbol"),
    [
        ("OldToken", "balanceOf(address)", 18, "OLD"),
        ("Lend", "balanceOf(address)", 18, "LEND"),
        ("Lend", "balanceOf(address)(uint256)", 18, "LEND"),
        ("behind proxy", "allowance(address,address)", 18, None),
        ("SolmateToken", "allowance(address,address)", 18, "MATE"),
        ("SoladyToken", "allowance(address,address)", 18, "LADY"),
        ("Token", "totalSupply()", 18, "NEW"),
        ("VotesToken", "getVotes(address)", 18, "NEW"),
        ("VotesToken", "getPastVotes(address,uint256)", 18, "NEW"),
        ("OldNft", "balanceOf(address)", None, "OLD"),
        ("Vyper 0.4.3", "balanceOf(address)", None, None),
        # The answer is no amount of the token.
        ("OldVotesToken", "delegates(address)", None, None),
        ("Vault", "totalAssets()", None, None),
        # The key is the contract's own address.
        ("Own", "balanceOf(address)", None, None),
    ],
)
def test_a_slot_s_name_states_the_symbol_and_the_decimals_of_a_token(search, name, signature, decimals, symbol):
    second = {"allowance(address,address)": [BOB], "getPastVotes(address,uint256)": [str(search.chain.head() - 1)]}
    arguments = [] if signature.endswith("()") else [ALICE, *second.get(signature, ())]
    found = search.found(name, signature, *arguments)
    # A slot without a name states them in the request.
    ((_, asked),) = found["batch"]["data"]["31337"].items()
    stated = asked["accounts"][found["slots"][0]["account"]]["slots"][0]
    assert found["slots"][0]["slotName"] in (None, stated)
    assert (stated.get("decimals"), stated.get("symbol")) == (decimals, symbol), found
    assert found["hints"]["symbol"] == symbol
    assert ("call" in stated) is (name not in {"Own", "Vault"})


@pytest.mark.parametrize("kind", ["bytes32", "bool"])
def test_an_answer_that_is_no_number_has_no_units(search, kind):
    slot, *_ = search.found("Lend", f"balanceOf(address)({kind})", BOB)["slots"]
    assert {"decimals", "symbol"}.isdisjoint(slot["slotName"])


# Symbols that look like an amount, or like another part of a title, or that a file or a terminal may run.
WRONG_SYMBOLS = [
    *("", "A", "M", "5k", "1INCH", "000", "1,000,000 USDC", "e18", "x1000", "0x7099", "US DC", "USDC: 5", "USDC\u00a0"),
    *("=cmd|' /C calc'!A0", "+USDC", "-USDC", "@USDC", "$1000", "<b>USDC</b>", 'US"DC', "US'DC", "US`DC", "US\\DC"),
    *(
        "USDC\n",
        "USDC\r\nSet-Cookie: a=b",
        "US\tDC",
        "US\x1b[31mDC",
        "US\0DC",
        "\u202eCDSU",
        "US\u200bDC",
        "\ufeffUSDC",
    ),
    *(
        "USDC\u0336",
        "U\u0405DC",
        "\u05e9\u05dc",
        "US\u3164DC",
        "\uff35\uff33\uff24\uff23",
        "claim.xyz",
        "USDC.io",
        "{{USDC}}",
    ),
    *("A" * 21, "A" * 10_000, "\udcff"),
]


@pytest.mark.parametrize("symbol", WRONG_SYMBOLS)
def test_a_symbol_that_could_be_taken_for_something_else_is_left_out(search, spoiled, symbol):
    def change(question: Any, honest: Any) -> Any:
        if _is_of_symbol(question):
            answer = encode(["bytes"], [symbol.encode(errors="surrogateescape")])
            return honest | {"result": f"0x{answer.hex()}"}
        return honest

    honest = search.found("Lend", "balanceOf(address)", ALICE)
    spoiled(change)
    found = search.found("Lend", "balanceOf(address)", ALICE)
    assert (honest["hints"]["symbol"], found["hints"]["symbol"]) == ("LEND", None)
    stated = honest["slots"][0]["slotName"]
    assert found["slots"] == [
        honest["slots"][0] | {"slotName": {key: stated[key] for key in stated if key != "symbol"}}
    ]


def _is_of_symbol(question: Any) -> bool:
    return question["method"] == "eth_call" and bool(question["params"][0]["data"] == "0x95d89b41")


@pytest.mark.parametrize(
    "reply",
    [
        lambda question: error(question, -32000, "execution timeout"),
        lambda question: error(question, 3, "execution reverted"),
        lambda question: {"jsonrpc": "2.0", "id": question["id"], "result": "0x"},
        lambda question: {"jsonrpc": "2.0", "id": question["id"], "result": f"0x{'ff' * 32}{'ff' * 32}4c454e44"},
        lambda question: {"jsonrpc": "2.0", "id": question["id"], "result": f"0x{'41' * 2_000_000}"},
        lambda question: {"jsonrpc": "2.0", "id": question["id"], "result": ["LEND"]},
    ],
    ids=["fails", "reverts", "empty", "malformed", "huge", "a list"],
)
def test_a_token_without_a_symbol_is_searched(search, spoiled, reply):
    spoiled(lambda question, honest: reply(question) if _is_of_symbol(question) else honest)
    found = search.found("Lend", "balanceOf(address)", ALICE)
    (slot,) = found["slots"]
    assert (found["hints"]["symbol"], slot["certainty"], slot["value"]) == (None, "is_value", str(1000 * 10**18))


def test_a_symbol_takes_only_an_exchange_that_is_left(search, chain, settings, limit_exchanges):
    bodies: list[Any] = []

    def answer(body: Any) -> Any:
        bodies.append(body)
        return ask(chain.url, body)

    with lying_node(answer) as url:
        reconfigure(settings, chain.url, url)
        # The first search finds out which list the node makes.
        for _ in range(2):
            bodies.clear()
            assert search.found("Lend", "balanceOf(address)", ALICE)["hints"]["symbol"] == "LEND"
        *of_search, last = bodies
        assert "95d89b41" in json.dumps(last)
        assert "95d89b41" not in json.dumps(of_search)
        limit_exchanges(len(of_search))
        bodies.clear()
        found = search.found("Lend", "balanceOf(address)", ALICE)
    assert (found["hints"]["symbol"], found["slots"][0]["value"]) == (None, str(1000 * 10**18))
    assert len(bodies) == len(of_search)


def test_a_value_of_several_slots_is_claimed_to_be_none(search):
    shares, total, supply = (_base("Rebasing", name) for name in ("shares", "total", "supply"))
    found = search.found("Rebasing", "balanceOf(address)", ALICE)["slots"]
    assert [slot["certainty"] for slot in found] == ["computed"] * 3
    assert [(slot["part"], slot["value"]) for slot in found] == [(None, None)] * 3
    names = {slot["layout"]: slot["slotName"] for slot in found}
    assert names == {"fixed": None, "solidity": {"slot": hex(shares), "keys": [ALICE], "layout": "solidity"}}
    assert {total, supply} < {int(slot["slot"], 16) for slot in found}
    (staked,) = search.found("Sum", "stakedOrSeven(address)", ALICE)["slots"]
    assert (staked["certainty"], staked["value"], staked["layout"]) == ("computed", None, "solidity")
    for view in ("balanceOf(address)", "balanceUnlessPaused(address)", "stakedOrLiquid(address)"):
        first, second = search.found("Sum", view, ALICE)["slots"]
        assert (first["certainty"], first["value"], second["certainty"]) == ("one_of_several", "1001", "computed")
    two = search.found("Hidden", "two(address)", ALICE, position="1")["slots"]
    assert [(slot["certainty"], slot["value"], slot["layout"]) for slot in two] == [
        ("is_value", "1001", "layout_unknown")
    ]


def test_a_slot_behind_a_switch_is_not_claimed_to_be_the_value(search):
    """The switch doesn't change the answer by most words, or not at all as long as the balance is 0."""
    views = ("whileOpen", "unlessBlocked", "belowLevel")
    for view, (holder, value) in product(views, [(ALICE, "1001"), (BOB, "0")]):
        first, second = search.found("Switched", f"{view}(address)", holder)["slots"]
        row = view, holder, first, second
        assert (first["certainty"], first["value"], second["certainty"]) == ("one_of_several", value, "computed"), row
    for view, holder in (("ofDust", BOB), ("orElse", ALICE)):
        slot, *others = search.found("Switched", f"{view}(address)", holder)["slots"]
        assert (slot["certainty"], slot["value"]) == ("computed", None)
        assert {other["certainty"] for other in others} <= {"path_only"}


@pytest.mark.parametrize("holder", [ALICE, BOB])
@pytest.mark.parametrize(
    "view",
    [
        "isEither",
        "isAllowed",
        "free",
        "worth",
        "withoutFrozen",
        "halfIfStaked",
        "unlessOwn",
        "ownerOf",
        "latest",
        "title",
        "longTitle",
    ],
)
def test_a_slot_that_others_may_change_later_is_not_claimed_to_be_the_value(search, view, holder):
    """The call reads them only over other words, or they matter if they are an argument or the contract itself."""
    if view in {"latest", "title", "longTitle"}:
        slots = search.found("Lazy", f"{view}()", position="0" if view == "latest" else "1")["slots"]
    else:
        slots = search.found("Lazy", f"{view}(address)", holder)["slots"]
    assert {slot["certainty"] for slot in slots} <= {"one_of_several", "computed", "path_only"}, slots


@pytest.mark.parametrize("view", ["atThisTime", "atThisNumber"])
def test_a_slot_that_the_time_chooses_is_valid_only_at_this_block(search, view):
    (slot,) = search.found("Lazy", f"{view}()")["slots"]
    assert (slot["certainty"], slot["onlyAtThisBlock"]) == ("is_value", True)


def test_a_slot_of_proxies_that_is_a_switch_is_no_detail(search, chain):
    """The call answers slot 0 as long as the slot of the proxy's code is 5, and 0 otherwise."""
    implementation = "0x360894a13ba1a3210667c828492db98dca3e2076cc3735a920a3ca505d382bbc"
    contract = to_checksum_address(f"0x{0x1967 << 128:040x}")
    chain.rpc("anvil_setCode", contract, f"0x7f{implementation[2:]}546005146000540260005260206000f3")
    chain.rpc("anvil_setStorageAt", contract, implementation, f"0x{5:064x}")
    chain.rpc("anvil_setStorageAt", contract, f"0x{0:064x}", f"0x{1001:064x}")
    chain.mine(1)
    found = search.found(contract, "total()")
    assert [slot["certainty"] for slot in found["slots"]] == ["one_of_several", "computed"]
    assert found["dependsOn"] == []


@pytest.mark.parametrize("half", ["1c", "1b"], ids=["upper", "lower"])
def test_a_word_that_counts_only_if_a_half_of_it_is_set_is_not_claimed_to_be_the_value(search, chain, half):
    # The word at slot 0, times 1 if the half isn't 0: SLOAD DUP1 PUSH1 128 SHR or SHL ISZERO ISZERO MUL.
    code = bytes.fromhex(f"600054806080{half}1515025f5260205ff3")
    contract = foreign_contracts.create(chain, f"60{len(code):02x}600c60003960{len(code):02x}6000f3{code.hex()}")
    chain.rpc("anvil_setStorageAt", contract, f"0x{0:064x}", f"0x{(1 << 200) + 7:064x}")
    chain.mine(1)
    (slot,) = search.found(contract, "amount()")["slots"]
    assert (slot["certainty"], slot["value"]) == ("computed", None)


# Each begins with SLOAD of slot 0, and leaves the answer on the stack.
_NEARLY_PARTS = {
    # word == 0 ? 25 : word
    "a default instead of 0": (1001, "80600a575060195b"),
    # status == 3 ? 0 : word >> 8, with the status in the lowest byte
    "a status next to an amount": (1001 << 8 | 1, "8060ff1660031415906008" + "1c02"),
}


@pytest.mark.parametrize("kind", _NEARLY_PARTS)
def test_a_word_that_is_the_answer_only_over_most_words_is_not_claimed_to_be_the_value(search, chain, kind):
    word, code = _NEARLY_PARTS[kind]
    contract = to_checksum_address(f"0x{0x57A7 << 128:040x}")
    chain.rpc("anvil_setCode", contract, f"0x600054{code}5f5260205ff3")
    chain.rpc("anvil_setStorageAt", contract, f"0x{0:064x}", f"0x{word:064x}")
    chain.mine(1)
    (slot,) = search.found(contract, "amount()")["slots"]
    assert (slot["certainty"], slot["value"]) == ("computed", None)


def test_nfts_have_no_decimals_even_if_their_contract_has(search, chain):
    """The contract answers 1 to all calls."""
    contract = to_checksum_address(f"0x{0x0721 << 128:040x}")
    chain.rpc("anvil_setCode", contract, "0x6000545f5260205ff3")
    chain.rpc("anvil_setStorageAt", contract, f"0x{0:064x}", f"0x{1:064x}")
    chain.mine(1)
    hints = search.found(contract, "balanceOf(address)", ALICE)["hints"]
    assert (hints["nft"], hints["decimals"]) == ("ERC-721", None)


def test_a_base_at_the_end_of_storage_is_searched(search):
    found = search.found("OldToken", "balanceOf(address)", ALICE, base=str(2**256 - 1))
    assert [slot["certainty"] for slot in found["slots"]] == ["is_value"]


def test_a_node_whose_list_is_short_does_not_hide_the_slots_of_a_long_one(search, chain, spoiled, settings):
    """The call adds up 60 slots, of which only one isn't 0."""
    contract = to_checksum_address(f"0x{0x5030 << 128:040x}")
    terms = "".join(f"60{slot:02x}5401" for slot in range(60))
    chain.rpc("anvil_setCode", contract, f"0x5f{terms}5f5260205ff3")
    chain.rpc("anvil_setStorageAt", contract, f"0x{3:064x}", f"0x{1001:064x}")
    chain.mine(1)

    def shorten(asked: Any, honest: Any) -> Any:
        if asked["method"] != "eth_createAccessList" or "result" not in honest:
            return honest
        listed = [{"address": contract, "storageKeys": [f"0x{3:064x}"]}]
        return honest | {"result": honest["result"] | {"accessList": listed}}

    spoiled(shorten)
    one = settings.CHAINS_FILE.read_text()
    (liar,) = search.found(contract, "total()")["confirmedBy"]
    reconfigure(settings, '"]', f'", "{chain.url}"]')
    answer = search.ask(contract, "total()")
    settings.CHAINS_FILE.write_text(one)
    assert answer.status_code != 200 or answer.json()["confirmedBy"] == [liar]


def test_a_slot_that_leads_elsewhere_by_one_small_number_is_no_detail(search, chain):
    """The call answers slot 9, or slot 10 if slot 2 is 2."""
    contract = to_checksum_address(f"0x{0x5107 << 128:040x}")
    chain.rpc("anvil_setCode", contract, "0x600260025414600901545f5260205ff3")
    chain.rpc("anvil_setStorageAt", contract, f"0x{9:064x}", f"0x{1001:064x}")
    chain.mine(1)
    slots = {int(slot["slot"], 16): slot["certainty"] for slot in search.found(contract, "total()")["slots"]}
    assert slots == {9: "one_of_several", 2: "computed"}


def test_the_last_of_many_slots_counts_also_if_only_one_small_number_matters(search, chain):
    """The call answers slot 0, or 0 if slot 4 is 3. It reads slots 1 to 3 in vain."""
    contract = to_checksum_address(f"0x{0x5108 << 128:040x}")
    chain.rpc("anvil_setCode", contract, "0x60015450600254506003545060045460031415600054025f5260205ff3")
    chain.rpc("anvil_setStorageAt", contract, f"0x{0:064x}", f"0x{1001:064x}")
    chain.mine(1)
    assert search.found(contract, "total()")["slots"][0]["certainty"] == "one_of_several"


def test_a_length_that_is_the_answer_is_proven_once(search):
    found = search.found("Switched", "lengthAndLast()")
    assert [(slot["certainty"], slot["value"]) for slot in found["slots"]] == [
        ("one_of_several", "2"),
        ("computed", None),
    ]
    ((_, asked),) = found["batch"]["data"]["31337"].items()
    ((_, entry),) = asked["accounts"].items()
    assert entry["slots"] == [slot["slotName"] for slot in found["slots"]]
    assert found["dependsOn"] == []


# The contract, the call, the slot's part, and the roles of the slots that it depends on.
_CHOSEN: list[tuple[str, str, list[str], tuple[int, int], list[str]]] = [
    ("Checkpoints", "balanceOf(address)", [ALICE], (128, 128), ["length"]),
    ("CountedVotes", "getCurrentVotes(address)", [ALICE], (32, 96), ["choice"]),
    ("Feed", "latestAnswer()", [], (0, 192), ["choice"]),
    ("FeedProxy", "latestAnswer()", [], (0, 192), ["address_of_contract", "choice"]),
    ("FeedProxy", "ofPhase()", [], (0, 192), ["address_of_contract", "choice", "choice"]),
    ("Switched", "ofNumber(address)", [ALICE], (0, 256), ["choice"]),
    ("Switched", "ofNumber(address)", [BOB], (0, 256), ["choice"]),
    ("Switched", "listed(address)", [ALICE], (0, 256), ["choice"]),
    # Neither an account that never delegated nor one without a point has a checkpoint.
    ("OldVotesToken", "getVotes(address)", [BOB], (0, 256), []),
    ("VotesToken", "getVotes(address)", [BOB], (0, 256), []),
    ("behind proxy", "getVotes(address)", [BOB], (0, 256), ["eip1967_implementation"]),
    ("Checkpoints", "balanceOf(address)", [BOB], (0, 256), []),
    ("CountedVotes", "getCurrentVotes(address)", [BOB], (0, 256), []),
    ("Escrow", "balanceOf(address)", [BOB], (0, 256), []),
]


def called(chain: devchain.DevChain, name: str, signature: str, *arguments: str) -> int:
    """Return the word that the node answers."""
    types = signature[signature.index("(") + 1 : -1].split(",")
    values = [
        int(each) if kind.startswith("uint") else bytes.fromhex(each[2:]) if kind == "bytes32" else each
        for kind, each in zip(types, arguments, strict=False)
    ]
    return int.from_bytes(foreign_contracts.ask(chain, _deployed[-1].addresses[name], signature, *values)[:32])


def test_a_slot_that_other_slots_choose_is_marked(search):
    for name, signature, arguments, (offset, size), roles in _CHOSEN:
        found = search.found(name, signature, *arguments)
        row = name, signature, found
        first, *others = found["slots"]
        assert {other["certainty"] for other in others} <= {"path_only"}, row
        assert first["certainty"] == ("is_value" if size == 256 else "part_of_word"), row
        assert (first["part"]["offset"], first["part"]["size"], first["onlyAtThisBlock"]) == (offset, size, True), row
        assert int(first["value"]) % (1 << 256) == called(search.chain, name, signature, *arguments), row
        assert sorted(slot["role"] for slot in found["dependsOn"]) == roles, row
        ((_, asked),) = found["batch"]["data"]["31337"].items()
        choosing = [slot for slot in found["dependsOn"] if slot["role"] in {"length", "choice"}]
        assert sum(len(of["slots"]) for of in asked["accounts"].values()) == 1 + len(choosing), row
    points = search.found("Escrow", "balanceOf(address)", ALICE)
    shown = [(slot["certainty"], slot["onlyAtThisBlock"]) for slot in points["slots"]]
    assert shown == [("computed", True)] * 2
    assert [(slot["role"], int(slot["word"], 16)) for slot in points["dependsOn"]] == [("choice", 2)]


def test_an_earlier_checkpoint_is_one_value(search, chain, spoiled, settings):
    """The search in checkpoints reads others on its way."""
    views = {
        "OldVotesToken": "getPastVotes(address,uint256)",
        "VotesToken": "getPastVotes(address,uint256)",
        "Checkpoints": "balanceOfAt(address,uint256)",
        "CountedVotes": "getPriorVotes(address,uint256)",
    }
    first = chain.head()
    for name in views:
        for value in range(2001, 2010):
            is_token = name in {"OldVotesToken", "VotesToken"}
            size = "128" if name == "Checkpoints" else "96"
            call = ("more(address)", ALICE) if is_token else (f"push(address,uint{size})", ALICE, value)
            foreign_contracts.send(chain, _deployed[-1].addresses[name], *call)
    chain.mine(2)
    for name, signature in views.items():
        for number in (first, *range(first + 2, chain.head() - 1, 7)):
            found = search.found(name, signature, ALICE, str(number))
            row = name, number - first, found
            slot, *others = found["slots"]
            assert {other["certainty"] for other in others} <= {"path_only"}, row
            assert (slot["certainty"], slot["onlyAtThisBlock"]) == ("part_of_word", True), row
            assert int(slot["value"]) == called(chain, name, signature, ALICE, str(number)), row
            assert {slot["role"] for slot in found["dependsOn"]} <= {"length", "choice"}, row
    spoiled(lambda _, honest: honest)
    reconfigure(settings, 'rpc_urls = ["', f'rpc_urls = ["{chain.url}", "')
    for name, signature in views.items():
        found = search.found(name, signature, ALICE, str(chain.head() - 9))
        assert (found["slots"][0]["certainty"], len(found["confirmedBy"])) == ("part_of_word", 2), (name, found)


def test_the_address_of_code_that_runs_is_no_answer(search):
    for name, count in (("Diamond", 1), ("LowPackedProxy", 1), ("HighPackedProxy", 1), ("AppProxy", 2)):
        found = search.found(name, "balanceOf(address)", ALICE)
        assert [(slot["certainty"], slot["value"]) for slot in found["slots"]] == [("is_value", "1001")], found
        assert [slot["role"] for slot in found["dependsOn"]] == ["address_of_contract"] * count, found
    # Bits beside the address change the answer.
    found = search.found("FrozenProxy", "balanceOf(address)", ALICE)
    assert [slot["certainty"] for slot in found["slots"]] == ["one_of_several", "computed"]
    assert found["dependsOn"] == []


@pytest.mark.parametrize(
    ("signature", "argument", "part", "form"),
    [
        ("isClaimed(uint256)", "300", (44, 1), "unsigned"),
        ("isClaimed(uint256)", "301", (45, 1), "unsigned"),
        ("status(address)", ALICE, (0, 8), "unsigned"),
        ("status(address)", BOB, (0, 8), "unsigned"),
        ("statusOf(bytes32)", f"0x{5:064x}", (192, 8), "unsigned"),
        ("amountOf(bytes32)", f"0x{5:064x}", (64, 64), "unsigned"),
        ("ownerOf(uint256)", "3", (0, 160), "unsigned"),
        ("balanceOf(address)", ALICE, (0, 255), "unsigned"),
        ("isBlacklisted(address)", ALICE, (255, 1), "unsigned"),
        ("isBlacklisted(address)", BOB, (255, 1), "unsigned"),
        ("adminIfOpen()", None, (0, 160), "unsigned"),
        ("kindOf()", None, (176, 8), "unsigned"),
    ],
)
def test_a_part_of_any_width_is_found(search, signature, argument, part, form):
    arguments = [] if argument is None else [argument]
    found = search.found("Parts", signature, *arguments)
    (slot,) = found["slots"]
    assert slot["certainty"] == "part_of_word", found
    assert (slot["part"]["offset"], slot["part"]["size"], slot["part"]["form"]) == (*part, form), found
    assert int(slot["value"]) == called(search.chain, "Parts", signature, *arguments), found
    # A bit that the argument chooses has no name.
    assert (slot["layout"] == "layout_unknown") is signature.startswith("isClaimed"), found


def test_an_answer_that_changes_with_bits_beside_it_is_claimed_to_be_none(search):
    (slot,) = search.found("Parts", "adminOrNone()")["slots"]
    assert (slot["certainty"], slot["value"]) == ("computed", None)


def test_a_contract_that_knows_trial_words_does_not_fool_the_search(search):
    """It answers the decoy's word as long as one of the two is large. Both are the same now."""
    decoy, real = search.found("Switched", "decoyOrReal(address)", ALICE)["slots"]
    assert (decoy["certainty"], decoy["value"], real["certainty"]) == ("computed", None, "path_only")


def test_an_earlier_block_has_its_own_value(search, chain):
    number = chain.head()
    foreign_contracts.send(chain, _deployed[-1].addresses["behind slot 0"], "fill(address)", BOB)
    for block, value in ((f"block:{number}", "0"), ("latest", "1001")):
        found = search.found("behind slot 0", "balanceOf(address)", BOB, block=block)
        (slot,) = found["slots"]
        assert (slot["value"], slot["certainty"], slot["slotName"]["keys"]) == (value, "is_value", [BOB])
        told = chain.rpc("eth_getBlockByNumber", hex(int(found["blockNumber"])), False)
        assert found["blockHash"] == told["hash"]
    chain.mine(3)
    final = search.found("behind slot 0", "balanceOf(address)", BOB, block="finalized")
    assert int(final["blockNumber"]) == int(chain.rpc("eth_getBlockByNumber", "finalized", False)["number"], 16)


@pytest.mark.parametrize(
    ("call", "more", "status", "code"),
    [
        (("Hidden", "constantOf(address)", ALICE), {}, 422, "slots_unknown"),
        (("Hidden", "failing(address)", ALICE), {}, 422, "call_failed"),
        (("Hidden", "two(address)", ALICE), {}, 422, "call_failed"),
        (("Hidden", "two(address)", ALICE), {"position": "2"}, 422, "call_failed"),
        # The first word is constant.
        (("Hidden", "two(address)", ALICE), {"position": "0"}, 422, "slots_unknown"),
        (("Hidden", "longer(address)", ALICE), {"position": "0"}, 422, "call_failed"),
        (("Hidden", "endless()"), {}, 422, "call_failed"),
        # Trials with the same gas would leave too little for another way through the contract.
        (("Hidden", "burning(address)", ALICE), {}, 422, "slots_unknown"),
        ((BOB, "balanceOf(address)", ALICE), {}, 422, "call_failed"),
        (("Token", "balanceOf(address)", ALICE), {"block": "block:999999"}, 503, "chain_unavailable"),
        (("Token", "balanceOf(address)", ALICE), {"sourceChainId": "5"}, 400, "unsupported"),
        *(
            ((name, *call), more, 400, "invalid_request")
            for name, *call, more in [
                ("0x12", "balanceOf(address)", ALICE, {}),
                ("Token", "balanceOf(address)", "0x12", {}),
                ("Token", "balanceOf(address)", {}),
                ("Token", "balanceOf", ALICE, {}),
                ("Token", "balanceOf(uint7)", ALICE, {}),
                ("Token", "balanceOf(address)(uint7)", ALICE, {}),
                ("Token", "balanceOf(address)(string)", ALICE, {}),
                ("Token", "balanceOf(uint257)", "1", {}),
                ("Token", "f(uint8)", "256", {}),
                ("Token", "f(int8)", "-129", {}),
                ("Token", "f(bool)", "2", {}),
                ("Token", "f(bytes4)", "0x12", {}),
                ("Token", "f(string)", "a\0", {}),
                ("Token", "f(string)", "a" * 2049, {}),
                ("Token", "f(bool,bool,bool,bool,bool)", *["true"] * 5, {}),
                ("Token", "balanceOf(address)", ALICE, {"block": "timestamp:1"}),
                ("Token", "balanceOf(address)", ALICE, {"block": "block:9999999999999999999"}),
                ("Token", "balanceOf(address)", ALICE, {"position": "-1"}),
                ("Token", "balanceOf(address)", ALICE, {"more": "1"}),
                ("Token", "balanceOf(address)", ALICE, {"base": "12c"}),
                ("Token", "balanceOf(address)", ALICE, {"base": str(2**256)}),
                ("Token", "balanceOf(address)", ALICE, {"base": "erc7201:"}),
                ("Token", "balanceOf(address)", ALICE, {"arguments": [5]}),
            ]
        ),
    ],
)
def test_questions_without_an_answer_are_refused(search, call, more, status, code):
    assert search.refused(*call, **more) == (status, code)


def test_a_refusal_says_what_to_check(search, chain):
    address = _deployed[-1].addresses["Hidden"]
    later = foreign_contracts.create(chain, "0x6001600c60003960016000f300")
    for call, block, sentence in (
        (("Hidden", "failing(address)", ALICE), "latest", f"failing({ALICE}) of {address} reverts: “no”."),
        (("Hidden", "paused()"), "latest", f"paused() of {address} reverts."),
        (
            (BOB, "balanceOf(address)", ALICE),
            "block:1",
            f"{BOB} has no code at block 1 of Development chain (31337). Ch",
        ),
        (
            (later, "balanceOf(address)", ALICE),
            "block:1",
            f"{later} has no code at block 1 of Development chain (31337). It",
        ),
        ((later, "balanceOf(address)", ALICE), "latest", "The call answers 0 bytes: name a view function"),
        (("Token", "totalSupply()(bool)"), "latest", "The call answers 0x3e9, which is no bool."),
        (("Hidden", "failing(address)"), "latest", "The signature has 1 argument, not 0."),
    ):
        assert search.ask(*call, block=block).json()["error"].startswith(sentence)


def test_a_long_answer_is_the_contract_s_fault(search, chain):
    contract = to_checksum_address(f"0x{0xB16 << 128:040x}")
    chain.rpc("anvil_setCode", contract, f"0x62{200_000:06x}5ff3")
    chain.mine(1)
    answer = search.ask(contract, "amount()", position="0")
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "The call answers more than 64 KiB, and 16384 can be searched.",
    )


def test_a_user_may_search_ten_times_in_a_minute(search):
    def times(key: ApiKey) -> int:
        body = {"sourceChainId": "31337", "contract": BOB, "signature": "f()"}
        return Client().post("/find-slots", body, content_type="application/json", headers=header(key)).status_code

    def faulty(**fault: str) -> int:
        body = {"sourceChainId": "31337", "contract": BOB, "signature": "f()", **fault}
        return (
            Client().post("/find-slots", body, content_type="application/json", headers=header(search.key)).status_code
        )

    faults = [{"contract": "0x"}, {"signature": "f"}, {"block": f"block:{1 << 63}"}, {"sourceChainId": "5"}, {"x": "y"}]
    assert [faulty(**fault) for fault in 3 * faults] == [400] * 15
    assert [times(search.key) for _ in range(11)] == [422] * 10 + [429]
    assert [faulty(**fault) for fault in faults] == [400] * 5
    assert times(a_key(BOB)) == 422
    # Other requests have their own limits.
    assert (
        Client().post("/read-proofs", {}, content_type="application/json", headers=header(search.key)).status_code
        == 400
    )


# Code whose answer is the word of one slot, unless words that the search doesn't find alone are in others; the words of
# slots 0 to 3.
_TOGETHER: dict[str, tuple[str, list[int]]] = {
    "0 while the value is small": ("60035460025460035460e01c17151502", [2, 2, 2, 0xC3B3 << 144]),
    "two are equal": ("60005460025414151560090154", [0xD908 << 144, 2, 0xD30F, 7]),
    "both are 0": ("60035460081c6001546000011460090154", [2, 0x594A << 240, 0x841B, 0xDBE3 << 240]),
    "both are 0 and the value is even": ("600254151560015460005417150260025417", [1 << 150, 1 << 151, 0x70D6, 2]),
    "both are large": ("6002546000540260801c60090154", [0, 7, 0, 2]),
    "one is large and one 0": ("60015460801c600354150260090154", [1, 0, 0x686F << 240, 2]),
}


@pytest.mark.parametrize(("code", "words"), _TOGETHER.values(), ids=_TOGETHER)
def test_slots_that_change_the_answer_only_together_are_no_detail(search, chain, code, words):
    contract = to_checksum_address(f"0x{0x70E7 << 128 | [*_TOGETHER.values()].index((code, words)):040x}")
    chain.rpc("anvil_setCode", contract, f"0x{code}5f5260205ff3")
    for slot, word in enumerate(words):
        # A zero that anvil stores is in its trie, so that no proof verifies.
        if word:
            chain.rpc("anvil_setStorageAt", contract, f"0x{slot:064x}", f"0x{word:064x}")
    chain.mine(1)
    certainties = {slot["certainty"] for slot in search.found(contract, "total()")["slots"]}
    assert not certainties & {"is_value", "part_of_word"}


# --- Random contracts -------------------------------------------------------------------------------------------------


# Code after a word on the stack: shifts and masks, ISZERO, the slot at the word's hash, and the slot after others.
_AFTER_ONE = [
    *(bytes([0x60, bits, shift]) for bits in (1, 8, 96, 128, 160, 224) for shift in (0x1C, 0x1B)),
    *(bytes([0x5F + size]) + b"\xff" * size + b"\x16" for size in (1, 4, 16, 20)),
    *[b"\x15", b"\x15\x15"] * 4,
    *[bytes.fromhex("5f5260205f2054"), bytes.fromhex("60090154")] * 4,
]
# Code after two words: ADD, XOR, OR, LT, EQ and MUL, the last also with ISZERO.
_AFTER_TWO = [bytes.fromhex(code) for code in ("01", "18", "17", "10", "14", "02", "1502", "151502")]


def _random_code(chance: random.Random, depth: int = 0) -> bytes:
    """Return code that computes a word from slots 0 to 3, and from slots that their words lead to."""
    if depth == 3 or chance.random() < 0.2:
        return bytes([0x60, chance.randrange(4), 0x54] if chance.random() < 0.85 else [0x60, chance.randrange(9)])
    inner = _random_code(chance, depth + 1)
    if chance.random() < 0.55:
        return inner + chance.choice(_AFTER_ONE)
    return inner + _random_code(chance, depth + 1) + chance.choice(_AFTER_TWO)


def _answer(part: Any, word: int) -> int:
    """Return the word that a call answers if a slot holds `word` and this part of it is the answer."""
    offset, size, form = int(part["offset"]), int(part["size"]), part["form"]
    content = (word >> offset) % (1 << size)
    if form == "bool":
        return int(content != 0)
    if form == "left":
        return content << (256 - size)
    is_negative = form == "signed" and content >> (size - 1)
    return (content - (1 << size)) % (1 << 256) if is_negative else content


def _false_claim(search: Search, contract: str, found: Any, chance: random.Random) -> Any:
    """Return what a claim promises and the call doesn't answer over random words. None: there is nothing.

    The slots that choose the value's slot keep their words. Of a slot that is 0 and has no answer behind it yet, the
    claim is only that 0 is the answer, whatever other slots contain.
    """
    first, *others = found["slots"]
    if first["certainty"] not in {"is_value", "part_of_word"}:
        return None
    part, base = first["part"], int(first["word"], 16)
    mask = ((1 << part["size"]) - 1) << part["offset"]
    choosing = [slot for slot in found["dependsOn"] if slot["role"] in {"length", "choice"}]
    is_empty = first["onlyAtThisBlock"] and not choosing
    # A slot that isn't marked has the answer also over other words of the slots that it is said to depend on.
    depending = [*others, *(() if first["onlyAtThisBlock"] else found["dependsOn"])]
    for _ in range(12):
        words = [chance.getrandbits(256), chance.getrandbits(20), 1 << chance.randrange(256)]
        word = base if is_empty else base & ~mask | chance.choice(words) & mask
        other_words = {
            slot["slot"]: f"0x{chance.choice([chance.getrandbits(256), chance.randrange(4)]):064x}"
            for slot in depending
        }
        changed = {first["slot"]: f"0x{word:064x}", **(other_words if is_empty or chance.random() < 0.5 else {})}
        call = {"to": contract, "data": "0xaffed0e0"}
        told = int(search.chain.rpc("eth_call", call, "latest", {contract: {"stateDiff": changed}}), 16)
        if told != _answer(part, word):
            return changed, told, part
    return None


def test_no_claim_about_a_random_contract_is_false(search, chain):
    """`RANDOM_CONTRACTS=2000` tries more, and `RANDOM_SEED` others."""
    chance, claims, marked, false = random.Random(int(os.environ.get("RANDOM_SEED", "1"))), 0, 0, list[Any]()
    for number in range(int(os.environ.get("RANDOM_CONTRACTS", "40"))):
        code = _random_code(chance) + bytes.fromhex("5f5260205ff3")
        contract = to_checksum_address(f"0x{0xC0DE << 128 | number:040x}")
        chain.rpc("anvil_setCode", contract, f"0x{code.hex()}")
        for slot in range(4):
            word = chance.choice([0, 1, 2, chance.getrandbits(16), chance.getrandbits(160), chance.getrandbits(256)])
            # A zero that anvil stores is in its trie, so that no proof verifies.
            if word:
                chain.rpc("anvil_setStorageAt", contract, f"0x{slot:064x}", f"0x{word:064x}")
        chain.mine(1)
        answer = search.ask(contract, "nonce()")
        assert answer.status_code in {200, 422, 503}, answer.content
        if answer.status_code == 200:
            found = answer.json()
            is_claim = found["slots"][0]["certainty"] in {"is_value", "part_of_word"}
            claims += is_claim
            marked += is_claim and found["slots"][0]["onlyAtThisBlock"]
            if refuted := _false_claim(search, contract, found, chance):
                false.append((number, code.hex(), refuted, found))
    print(f"{claims} claims, {marked} of them marked, {len(false)} false")
    assert false == []
    assert claims > 5
    assert marked > 0


# --- Nodes that lie ---------------------------------------------------------------------------------------------------

Change = Callable[[Any, Any], Any]
"""A function of a request and the honest reply. It returns another reply."""


@pytest.fixture
def spoiled(chain: devchain.DevChain, settings) -> Iterator[Callable[[Change], list[Any]]]:
    """Return a function that places a node before the real one, and returns the requests that it gets."""
    with ExitStack() as stack:

        def place(change: Change) -> list[Any]:
            asked: list[Any] = []

            def reply(question: Any, honest: Any) -> list[Any]:
                asked.append(question)
                return [change(question, honest)]

            url = stack.enter_context(between(chain.url, reply))
            reconfigure(settings, chain.url, url)
            return asked

        yield place


def spoiling(methods: dict[str, Callable[[Any, Any], Any]]) -> Change:
    def change(question: Any, honest: Any) -> Any:
        spoil = methods.get(question["method"])
        return spoil(question, honest) if spoil else honest

    return change


def refuse(question: Any, _: Any) -> Any:
    return error(question, -32601, "the method does not exist")


def told(value: Any) -> Change:
    return lambda question, _: {"jsonrpc": "2.0", "id": question["id"], "result": value}


def with_error(_: Any, honest: Any) -> Any:
    return honest | {"result": honest["result"] | {"error": "out of gas"}}


def without_contract(_: Any, honest: Any) -> Any:
    contract = _deployed[-1].addresses["OldToken"].lower()
    entries = [entry for entry in honest["result"]["accessList"] if entry["address"].lower() != contract]
    return honest | {"result": honest["result"] | {"accessList": entries}}


def is_trial(question: Any) -> bool:
    return question["method"] == "eth_call" and len(question["params"]) == 3


UNUSABLE_LISTS: dict[str, Change] = {
    "empty": told({"accessList": [], "gasUsed": "0x6000"}),
    "optimised": without_contract,
    "with an error": with_error,
    "refused": refuse,
    "malformed": told({"accessList": [{"address": "0x12"}], "gasUsed": "0x1"}),
    "huge": told(
        {"accessList": [{"address": f"0x{at:040x}", "storageKeys": [f"0x{1:064x}"]} for at in range(5000)]}
        | {"gasUsed": "0x1"}
    ),
}


@pytest.mark.parametrize("spoil", UNUSABLE_LISTS.values(), ids=UNUSABLE_LISTS)
def test_an_unusable_list_is_no_answer(search, spoiled, spoil):
    """The tracer is asked then. Without it, the node can't tell."""
    asked = spoiled(spoiling({"eth_createAccessList": spoil}))
    found = search.found("OldToken", "balanceOf(address)", ALICE)
    (slot,) = found["slots"]
    assert (found["foundBy"], slot["certainty"], slot["value"]) == ("debug_traceCall", "is_value", "1001")
    assert len(asked) < 150


@pytest.mark.parametrize("spoil", UNUSABLE_LISTS.values(), ids=UNUSABLE_LISTS)
def test_slots_that_a_node_does_not_tell_are_found_by_trials(search, spoiled, spoil):
    spoiled(spoiling({"eth_createAccessList": spoil, "debug_traceCall": refuse}))
    for name, call, value in (
        ("OldToken", ("balanceOf(address)", ALICE), "1001"),
        ("OldToken", ("balanceOf(address)", BOB), "0"),
        ("SoladyToken", ("balanceOf(address)", ALICE), "1001"),
        ("behind proxy", ("allowance(address,address)", ALICE, BOB), "0"),
        ("behind proxy", ("totalSupply()",), "1001"),
    ):
        found = search.found(name, *call)
        (slot,) = found["slots"]
        assert (slot["certainty"], slot["value"]) == ("is_value", value)
        # One of the lists leaves out this contract only.
        assert name != "OldToken" or found["foundBy"] == "eth_call"
    found = search.found("Sum", "balanceOf(address)", ALICE)
    assert {slot["certainty"] for slot in found["slots"]} == {"computed", "one_of_several"}


def test_a_node_that_tells_no_slots_is_named(search, spoiled):
    """The namespace is none that the search knows."""
    spoiled(spoiling({"eth_createAccessList": refuse, "debug_traceCall": refuse}))
    refused = search.ask("Hidden", "constantOf(address)", ALICE)
    assert (refused.status_code, refused.json()["code"]) == (422, "slots_unknown")
    assert " refused eth_createAccessList (-32601): it doesn't serve that method. " in refused.json()["error"]


def test_a_list_may_name_a_contract_several_times(search, spoiled):
    def divide(_: Any, honest: Any) -> Any:
        if "error" in honest:
            return honest
        entries = [
            entry | {"storageKeys": [key]}
            for entry in honest["result"]["accessList"]
            for key in sorted(entry["storageKeys"])
        ]
        return honest | {"result": honest["result"] | {"accessList": entries}}

    honest = search.found("Sum", "balanceOf(address)", ALICE)["slots"]
    spoiled(spoiling({"eth_createAccessList": divide}))
    assert len(honest) == 2
    assert search.found("Sum", "balanceOf(address)", ALICE)["slots"] == honest


def test_a_slot_of_the_caller_is_no_value(search, spoiled):
    """Each call has another caller. A tracer tells the slot of its own."""
    spoiled(spoiling({"eth_createAccessList": refuse}))
    assert search.refused("Switched", "mine()") == (422, "slots_unknown")


def test_a_small_number_is_no_address_of_a_contract(search, spoiled):
    """A tracer names the precompiled contracts that a call runs, such as that of SHA-256 at 2."""
    spoiled(spoiling({"eth_createAccessList": refuse}))
    found = search.found("Switched", "beneathHash(address)", ALICE)
    assert [slot["certainty"] for slot in found["slots"]] == ["one_of_several", "computed"]
    assert found["dependsOn"] == []


def test_a_node_that_shortens_lists_of_plain_calls_tells_all_slots(search, spoiled):
    """Such nodes leave the callee out of a call's list, and not out of a creation's."""

    def shorten(question: Any, honest: Any) -> Any:
        return without_contract(question, honest) if "to" in question["params"][0] else honest

    spoiled(spoiling({"eth_createAccessList": shorten, "debug_traceCall": refuse}))
    assert search.found("OldToken", "balanceOf(address)", ALICE)["foundBy"] == "eth_createAccessList"


def _ignored(chain: devchain.DevChain) -> Change:
    def change(question: Any, honest: Any) -> Any:
        return (
            honest
            if not is_trial(question)
            else chain.ask("eth_call", *question["params"][:2]) | {"id": question["id"]}
        )

    return change


def _refused_trials(question: Any, honest: Any) -> Any:
    return error(question, *geth_answers.REFUSALS["too many parameters"]) if is_trial(question) else honest


def _echoed(question: Any, honest: Any) -> Any:
    """Answer each trial with its word, wherever it stands."""
    if not is_trial(question):
        return honest
    ((_, storage),) = list(question["params"][2].items())[:1]
    return honest | {"result": next(iter(storage["stateDiff"].values()))}


def _other_block(chain: devchain.DevChain) -> Change:
    def change(question: Any, honest: Any) -> Any:
        if question["method"] != "eth_call":
            return honest
        transaction, _, *overrides = question["params"]
        return chain.ask("eth_call", transaction, "latest", *overrides) | {"id": question["id"]}

    return change


def _other_values(_: Any, honest: Any) -> Any:
    proofs = [proof | {"value": "0x1"} for proof in honest["result"]["storageProof"]]
    nodes = [proof | {"proof": proof["proof"][:-1]} for proof in proofs]
    return honest | {"result": honest["result"] | {"storageProof": nodes}}


def test_a_node_that_ignores_changed_storage_cannot_tell(search, chain, spoiled):
    spoiled(_ignored(chain))
    for name, signature in (("OldToken", "balanceOf(address)"), ("behind proxy", "getVotes(address)")):
        assert search.refused(name, signature, ALICE) == (422, "slots_unknown")


def test_a_node_that_refuses_changed_storage_cannot_tell(search, spoiled):
    spoiled(_refused_trials)
    assert search.refused("OldToken", "balanceOf(address)", ALICE) == (422, "slots_unknown")


def test_a_call_for_which_a_node_has_no_time_may_be_asked_for_again(search, spoiled):
    spoiled(spoiling({"eth_call": lambda asked, _: error(asked, *geth_answers.REFUSALS["a call that takes too long"])}))
    answer = search.ask("OldToken", "balanceOf(address)", ALICE)
    assert (answer.status_code, answer.json()["code"], "Retry-After" in answer) == (503, "chain_unavailable", True)


def test_a_node_that_answers_trial_words_contradicts_the_proven_slots(search, spoiled):
    spoiled(_echoed)
    assert search.refused("Rebasing", "balanceOf(address)", ALICE) == (503, "chain_unavailable")


def test_a_trial_without_an_answer_is_no_change(search, spoiled):
    def garble(question: Any, honest: Any) -> Any:
        return honest | {"result": "0x1"} if is_trial(question) and "40414243" in str(question) else honest

    spoiled(garble)
    assert search.refused("OldToken", "balanceOf(address)", ALICE) == (503, "chain_unavailable")


def test_long_answers_over_changed_storage_are_not_read(search, spoiled):
    def lengthen(question: Any, honest: Any) -> Any:
        return honest | {"result": f"0x{0:0400000x}"} if is_trial(question) else honest

    assert search.found("Hidden", "long(address)", ALICE, position="0")["slots"][0]["value"] == "1001"
    spoiled(lengthen)
    assert search.refused("OldToken", "balanceOf(address)", ALICE) == (503, "chain_unavailable")


def test_each_search_has_other_arguments_and_callers(search, spoiled):
    """A contract may know those of an earlier search."""
    asked = spoiled(lambda _, honest: honest)
    sets = []
    for _ in range(2):
        search.found("OldToken", "balanceOf(address)", ALICE)
        calls = [question["params"][0] for question in asked if question["method"] == "eth_call"]
        callers = [call["from"] for call in calls]
        assert len(set(callers)) == len(callers)
        balances = [call["data"] for call in calls if call["data"].startswith("0x70a08231")]
        holders = {data[-40:] for data in balances} - {ALICE[2:].lower()}
        sets.append({*callers, *holders})
        assert holders
        asked.clear()
    assert not sets[0] & sets[1]


def test_values_of_another_block_are_found_out(search, chain, spoiled):
    number = chain.head()
    foreign_contracts.send(chain, _deployed[-1].addresses["behind slot 0"], "fill(address)", CHARLIE)
    spoiled(_other_block(chain))
    refused = search.refused("behind slot 0", "balanceOf(address)", CHARLIE, block=f"block:{number}")
    assert refused == (503, "chain_unavailable")


def test_a_proof_that_does_not_verify_is_no_value(search, spoiled):
    spoiled(spoiling({"eth_getProof": _other_values}))
    assert search.refused("OldToken", "balanceOf(address)", ALICE) == (503, "chain_unavailable")


def test_slots_at_an_old_block_that_nodes_read_without_proof_are_refused_as_a_batch_is(search, chain, settings):
    number = chain.head()
    chain.mine(140)
    with pruned(chain.url, only_proofs=True) as url:
        reconfigure(settings, chain.url, url)
        answer = search.ask("OldToken", "balanceOf(address)", ALICE, block=f"block:{number}")
    assert (answer.status_code, answer.json()["code"], "Retry-After" in answer) == (422, "proof_unavailable", False)
    assert "Accounts and slots at old blocks need an archive node." in answer.json()["error"]


FIRST_TRIAL = int.from_bytes(bytes(range(0x40, 0x60)))


@pytest.mark.parametrize("always", [5, FIRST_TRIAL])
def test_a_layout_is_not_named_if_another_holder_does_not_confirm_it(search, spoiled, always):
    def hide_others(question: Any, honest: Any) -> Any:
        is_other = is_trial(question) and ALICE[2:].lower() not in question["params"][0]["data"]
        return honest | {"result": f"0x{always:064x}"} if is_other else honest

    spoiled(hide_others)
    (slot,) = search.found("OldToken", "balanceOf(address)", ALICE)["slots"]
    assert (slot["certainty"], slot["layout"], slot["slotName"]) == ("is_value", "layout_unknown", None)


def test_another_node_answers_for_one_that_is_down_or_lies(search, chain, spoiled, settings):
    spoiled(spoiling({"eth_getProof": _other_values}))
    reconfigure(settings, "rpc_urls = [", f'rpc_urls = ["http://127.0.0.1:1", "{chain.url}", ')
    (slot,) = search.found("OldToken", "balanceOf(address)", ALICE)["slots"]
    assert (slot["certainty"], slot["value"]) == ("is_value", "1001")


def _invented(question: Any, honest: Any) -> Any:
    """Tell that the supply of the token, which Alice holds, is her balance."""
    supply = f"0x{_base('OldUpgradeableToken', '_totalSupply'):064x}"
    contract = _deployed[-1].addresses["OldUpgradeableToken"]
    if question["method"] == "eth_createAccessList":
        entry = {"address": contract, "storageKeys": [supply]}
        return honest | {"result": {"accessList": [entry], "gasUsed": "0x6000"}}
    if is_trial(question):
        storage = question["params"][2].get(contract, {}).get("stateDiff", {})
        return honest | {"result": storage.get(supply, f"0x{0:064x}")}
    return honest


def _liquid(question: Any, honest: Any) -> Any:
    """Leave the slots of staked tokens out of lists and traces."""
    place = f"{ALICE[2:].lower():0>64}{_base('Sum', 'liquid'):064x}"
    liquid = f"0x{keccak(bytes.fromhex(place)).hex()}"
    if question["method"] == "debug_traceCall":
        accounts = honest["result"].items()
        told = {
            address: {"storage": {liquid: account["storage"][liquid]}}
            for address, account in accounts
            if "storage" in account
        }
        return honest | {"result": told}
    if question["method"] != "eth_createAccessList":
        return honest
    entry = {"address": _deployed[-1].addresses["Sum"], "storageKeys": [liquid]}
    return honest | {"result": {"accessList": [entry], "gasUsed": "0x6000"}}


@pytest.mark.parametrize("name", ["OldUpgradeableToken", "Sum"])
def test_a_second_node_contradicts_a_lie_that_agrees_with_itself(search, chain, spoiled, settings, name):
    change = {"OldUpgradeableToken": _invented, "Sum": _liquid}[name]
    spoiled(change)
    lie = search.found(name, "balanceOf(address)", ALICE)
    assert (lie["slots"][0]["certainty"], len(lie["confirmedBy"])) == ("is_value", 1)
    one = settings.CHAINS_FILE.read_text()
    for more in (f'", "{chain.url}"]', f'", "http://127.0.0.1:1", "{chain.url}"]'):
        reconfigure(settings, '"]', more)
        if name == "Sum":
            # The slot that one node hides, the other one tells.
            found = search.found(name, "balanceOf(address)", ALICE)
            assert {slot["certainty"] for slot in found["slots"]} == {"one_of_several", "computed"}
        else:
            assert search.refused(name, "balanceOf(address)", ALICE) == (503, "chain_unavailable")
        settings.CHAINS_FILE.write_text(one)
    # A silent node isn't waited for.
    with hostile_node(silence) as silent:
        reconfigure(settings, '"]', f'", "{silent}"]')
        found = search.found(name, "balanceOf(address)", ALICE)
        assert (found["slots"][0]["certainty"], found["confirmedBy"]) == ("is_value", lie["confirmedBy"])


def _other_slots(*changing: int) -> Change:
    """Tell that the call reads other slots, and not those that it reads, as soon as some words are changed."""

    def change(question: Any, honest: Any) -> Any:
        params = str(question["params"][2:])
        if question["method"] not in {"eth_createAccessList", "debug_traceCall"} or "0x" not in params:
            return honest
        changed = [f"{slot:064x}" for slot in changing if f"{slot:064x}" in params]
        if not changed:
            return honest
        invented = [keccak(text=params)]
        address = _deployed[-1].addresses["Sum"]
        if question["method"] == "debug_traceCall":
            storage = {f"0x{each.hex()}": f"0x{1:064x}" for each in invented}
            return honest | {"result": {address: {"storage": storage}}}
        keys = [f"0x{each.hex()}" for each in invented]
        return honest | {"result": {"accessList": [{"address": address, "storageKeys": keys}], "gasUsed": "0x6000"}}

    return change


def test_a_node_can_not_tell_that_a_summand_chooses_the_other_one(search, spoiled):
    """It tells that the word of a summand, which is 0, chooses the slot of the other one."""
    place = f"{ALICE[2:].lower():0>64}{_base('Sum', 'staked'):064x}"
    staked = int.from_bytes(keccak(bytes.fromhex(place)))
    spoiled(_other_slots(staked))
    (slot, other) = search.found("Sum", "balanceOf(address)", ALICE)["slots"]
    assert (slot["certainty"], other["certainty"]) == ("one_of_several", "computed")


def test_a_node_that_tells_no_slots_over_changed_storage_confirms_nothing_if_another_does(
    search, chain, spoiled, settings
):
    def refuse_changed(question: Any, honest: Any) -> Any:
        is_list = question["method"] in {"eth_createAccessList", "debug_traceCall"}
        return refuse(question, honest) if is_list and "state" in str(question["params"][2:]) else honest

    spoiled(refuse_changed)
    for old, new in (('"]', f'", "{chain.url}"]'), ('rpc_urls = ["', f'rpc_urls = ["{chain.url}", "')):
        one = settings.CHAINS_FILE.read_text()
        reconfigure(settings, old, new)
        found = search.found("Checkpoints", "balanceOf(address)", ALICE)
        assert (found["slots"][0]["onlyAtThisBlock"], len(found["dependsOn"])) == (True, 1)
        assert found["confirmedBy"] == [chain.url.removeprefix("http://")]
        # Other slots may count only over another balance.
        assert search.found("OldToken", "balanceOf(address)", ALICE)["confirmedBy"] == found["confirmedBy"]
        settings.CHAINS_FILE.write_text(one)


def test_the_nodes_that_confirm_a_slot_are_named(search, chain, spoiled, settings):
    asked = spoiled(lambda _, honest: honest)
    reconfigure(settings, '"]', f'", "{chain.url}"]')
    found = search.found("OldToken", "balanceOf(address)", ALICE)
    assert len(found["confirmedBy"]) == 2
    assert chain.url.removeprefix("http://") in found["confirmedBy"]
    assert asked


def test_a_node_cannot_use_up_the_time_of_another_one(search, chain, spoiled, settings):
    """It answers so late that the other one has no time to contradict."""
    asked: list[Any] = []

    def late(question: Any, honest: Any) -> Any:
        if is_trial(question) and not asked:
            asked.append(question)
            time.sleep(1.9)
        return _invented(question, honest)

    spoiled(late)
    reconfigure(settings, '"]', f'", "{chain.url}"]')
    assert search.refused("OldUpgradeableToken", "balanceOf(address)", ALICE) == (503, "chain_unavailable")


def _lagging(chain: devchain.DevChain, blocks: int) -> Change:
    """Play a node that lacks the newest blocks."""
    head = chain.head() - blocks
    later = {ask(chain.url, _block_question(number))["result"]["hash"] for number in range(head + 1, chain.head() + 1)}

    def change(question: Any, honest: Any) -> Any:
        if question["method"] == "eth_getBlockByNumber":
            block = question["params"][0]
            if block == "latest":
                return ask(chain.url, _block_question(head)) | {"id": question["id"]}
            return honest | {"result": None} if _is_above(block, head) else honest
        named = [each.get("blockHash") if isinstance(each, dict) else each for each in question["params"][1:3]]
        is_later = any(isinstance(each, str) and (each in later or _is_above(each, head)) for each in named)
        return error(question, -32000, "header not found") if is_later else honest

    return change


def _is_above(block: str, head: int) -> bool:
    return block.startswith("0x") and len(block) < 20 and int(block, 16) > head


def _block_question(number: int) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": [hex(number), False]}


@pytest.mark.parametrize("is_first", [False, True])
def test_nodes_that_lag_a_block_are_searched_at_one_that_all_have(search, chain, spoiled, settings, is_first):
    chain.mine(40)
    one = settings.CHAINS_FILE.read_text()
    place = ('"]', f'", "{chain.url}"]') if is_first else ('rpc_urls = ["', f'rpc_urls = ["{chain.url}", "')
    for blocks, confirming in ((1, 2), (4, 2), (7, 1), (40, 1)):
        settings.CHAINS_FILE.write_text(one)
        spoiled(_lagging(chain, blocks))
        reconfigure(settings, *place)
        found = search.found("OldToken", "balanceOf(address)", ALICE)
        assert (found["slots"][0]["certainty"], len(found["confirmedBy"])) == ("is_value", confirming)
        assert chain.url.removeprefix("http://") in found["confirmedBy"]
        assert int(found["blockNumber"]) == chain.head() - (blocks if confirming == 2 else 0)
        # The only node that has a named block may have invented it, unless the other one lags far.
        answer = search.ask("OldToken", "balanceOf(address)", ALICE, block=f"block:{chain.head()}")
        assert answer.status_code == (503 if confirming == 2 else 200), answer.content


def test_a_node_that_stops_answering_confirms_nothing(search, chain, spoiled, settings):
    trials: list[Any] = []

    def stop(question: Any, honest: Any) -> Any:
        trials.extend([question] * is_trial(question))
        return error(question, -32005, "rate limit") if trials else honest

    spoiled(stop)
    reconfigure(settings, 'rpc_urls = ["', f'rpc_urls = ["{chain.url}", "')
    found = search.found("OldToken", "balanceOf(address)", ALICE)
    assert (found["slots"][0]["certainty"], found["confirmedBy"]) == ("is_value", [chain.url.removeprefix("http://")])
    assert trials


def _needless(count: int) -> Change:
    """Tell more slots of each contract than the call reads."""
    more = [f"0x{number:064x}" for number in range(9000, 9000 + count)]

    def change(question: Any, honest: Any) -> Any:
        if question["method"] == "debug_traceCall":
            for account in honest["result"].values():
                if "storage" in account:
                    account["storage"] |= dict.fromkeys(more, f"0x{1:064x}")
        if question["method"] == "eth_createAccessList" and "result" in honest:
            for entry in honest["result"]["accessList"]:
                entry["storageKeys"] += more
        return honest

    return change


def test_an_additional_slot_of_one_node_that_changes_nothing_is_no_contradiction(search, chain, spoiled, settings):
    spoiled(_needless(1))
    for old, new in (('rpc_urls = ["', f'rpc_urls = ["{chain.url}", "'), ('"]', f'", "{chain.url}"]')):
        one = settings.CHAINS_FILE.read_text()
        reconfigure(settings, old, new)
        found = search.found("OldToken", "balanceOf(address)", ALICE)
        assert len(found["confirmedBy"]) == 2
        assert [slot["certainty"] for slot in found["slots"]] == ["is_value", "path_only"]
        assert found["slots"][1]["slot"] == f"0x{9000:064x}"
        settings.CHAINS_FILE.write_text(one)


@pytest.mark.parametrize("holder", [ALICE, BOB])
def test_a_node_that_tells_a_whole_storage_is_searched(search, spoiled, holder):
    spoiled(lambda asked, honest: refuse(asked, honest) if "List" in asked["method"] else _needless(300)(asked, honest))
    for name in ("OldToken", "behind proxy"):
        (slot,) = search.found(name, "balanceOf(address)", holder)["slots"]
        assert (slot["certainty"], slot["value"]) == ("is_value", "1001" if holder == ALICE else "0")


def test_honest_nodes_agree_on_the_slots_of_a_caller(search, chain, spoiled, settings):
    spoiled(lambda _, honest: honest)
    reconfigure(settings, '"]', f'", "{chain.url}"]')
    first, second = search.found("Switched", "seen(address)", ALICE)["slots"]
    assert (first["value"], second["certainty"]) == ("1001", "path_only")


def test_a_second_node_contradicts_another_chain_of_the_same_id(search, chain, settings):
    """The other chain has a contract that this one lacks, and proves its slots by its own state root."""
    with devchain.DevChain() as other:
        other.mine(chain.head() - other.head())
        contract = foreign_contracts.create(other, (tokens.FOLDER / "vyper" / "Token-0.4.3.hex").read_text().strip())
        reconfigure(settings, chain.url, other.url)
        block = f"block:{other.head()}"
        chain.mine(other.head() - chain.head())
        assert search.found(contract, "balanceOf(address)", ALICE, block=block)["slots"][0]["value"] == "0"
        reconfigure(settings, '"]', f'", "{chain.url}"]')
        assert search.refused(contract, "balanceOf(address)", ALICE, block=block) == (503, "chain_unavailable")


# --- Bounds -----------------------------------------------------------------------------------------------------------


def test_a_dead_node_is_told_at_once(search, chain, settings):
    reconfigure(settings, chain.url, "http://127.0.0.1:1")
    assert search.refused("OldToken", "balanceOf(address)", ALICE) == (503, "chain_unavailable")


@pytest.mark.usefixtures("search_seconds")
@pytest.mark.parametrize("behave", [silence, dripped_reply])
def test_slow_nodes_hold_a_search_for_five_seconds_at_most(search, chain, settings, behave):
    with hostile_node(behave) as first, hostile_node(behave) as second, hostile_node(behave) as third:
        reconfigure(settings, f'"{chain.url}"', f'"{first}", "{second}", "{third}"')
        began = time.monotonic()
        assert search.refused("OldToken", "balanceOf(address)", ALICE) == (503, "chain_unavailable")
        assert 3 < time.monotonic() - began < 6.5


def test_a_search_takes_twenty_exchanges_at_most(search, chain, settings):
    """The node refuses every batch of more than one request, so that each goes alone."""
    bodies: list[Any] = []

    def answer(body: Any) -> Any:
        bodies.append(body)
        if isinstance(body, list):
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no batches"}}
        return chain.ask(body["method"], *body["params"]) | {"id": body["id"]}

    with lying_node(answer) as url:
        reconfigure(settings, chain.url, url)
        refused = search.ask("Rebasing", "balanceOf(address)", ALICE)
        assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable")
        assert f"{url.removeprefix('http://')} doesn't answer " in refused.json()["error"]
        assert 16 < len(bodies) <= 20


def test_a_node_that_takes_three_questions_at_once_is_searched(search, chain, settings):
    """It refuses longer batches as a provider does for those who don't pay."""

    def answer(body: Any) -> Any:
        if isinstance(body, list) and len(body) > 3:
            words = "Batch of more than 3 requests are not allowed on free tier"
            return Raw(json.dumps({"message": words, "code": 31}).encode(), 500)
        return ask(chain.url, body)

    with lying_node(answer) as url:
        reconfigure(settings, chain.url, url)
        (slot,) = search.found("OldToken", "balanceOf(address)", ALICE)["slots"]
    assert (slot["certainty"], slot["value"]) == ("is_value", "1001")


def _without_zeros(question: Any, honest: Any) -> Any:
    if question["method"] == "debug_traceCall":
        for account in honest["result"].values():
            words = account.get("storage", {}).items()
            account["storage"] = {slot: word for slot, word in words if int(word, 16)}
    return refuse(question, honest) if "List" in question["method"] else honest


@pytest.mark.parametrize("holder", [ALICE, BOB])
def test_slots_of_zero_that_a_tracer_leaves_out_are_found(search, spoiled, holder):
    honest = search.found("Sum", "balanceOf(address)", holder)["slots"]
    spoiled(_without_zeros)
    found = search.found("Sum", "balanceOf(address)", holder)["slots"]
    assert sorted(found, key=str) == sorted(honest, key=str)
    (slot,) = search.found("OldToken", "balanceOf(address)", holder)["slots"]
    assert slot["certainty"] == "is_value"


def test_a_call_that_reads_many_slots_is_not_tried(search, spoiled):
    asked = spoiled(lambda _, honest: honest)
    assert search.refused("Hidden", "many()") == (422, "slots_unknown")
    assert "eth_getProof" not in {question["method"] for question in asked}


def test_executions_are_given_the_gas_of_a_transaction_at_most(search, spoiled):
    asked = spoiled(lambda _, honest: honest)
    search.found("behind proxy", "getVotes(address)", ALICE)
    given = [int(question["params"][0]["gas"], 16) for question in asked if "gas" in str(question["params"])]
    trials = [int(question["params"][0]["gas"], 16) for question in asked if is_trial(question)]
    assert max(given) == 1 << 24
    assert trials.count(100_000) == len(trials) / 2
    # Three exchanges of trials.
    assert sum(trials) <= 3 * 35_000_000


# It returns slot 0 to a call with much gas, and slot 1 to another one.
_KNOWS_GAS = "0x600f600c600039600f6000f35a62030d401015545f5260205ff3"


def test_a_contract_that_knows_trials_by_their_gas_does_not_fool_the_search(search, chain):
    contract = foreign_contracts.create(chain, _KNOWS_GAS)
    answer = search.ask(contract, "total()")
    assert (answer.status_code, answer.json()["error"]) == (422, "The call answers otherwise with less gas.")


def _gas_of(question: Any) -> int:
    return int(question["params"][0]["gas"], 16)


def _capped(chain: devchain.DevChain, cap: int) -> Change:
    """Give calls less gas than they ask for, without a word."""

    def change(question: Any, honest: Any) -> Any:
        if question["method"] != "eth_call" or _gas_of(question) <= cap:
            return honest
        transaction, *others = question["params"]
        return chain.ask("eth_call", transaction | {"gas": hex(cap)}, *others) | {"id": question["id"]}

    return change


def test_a_node_that_gives_little_gas_is_searched_and_a_cap_that_stops_the_search_is_named(search, chain, spoiled):
    spoiled(_capped(chain, 200_000))
    assert search.found("behind proxy", "balanceOf(address)", ALICE)["slots"][0]["value"] == "1001"
    for call in (("Hidden", "burning(address)", ALICE), ("Hidden", "endless()")):
        assert " gives a call 200,000 gas at most." in search.ask(*call).json()["error"]


def test_a_node_that_refuses_much_gas_is_given_less(search, spoiled):
    def refuse_much(question: Any, honest: Any) -> Any:
        has_gas = question["method"] in {"eth_call", "eth_createAccessList"}
        if has_gas and _gas_of(question) > 10_000_000:
            return error(question, -32000, "gas limit is too high: 16777216 (maximum: 10000000)")
        return honest

    spoiled(refuse_much)
    found = search.found("behind proxy", "balanceOf(address)", ALICE)
    assert (found["foundBy"], found["slots"][0]["value"]) == ("eth_createAccessList", "1001")


def _poor(chain: devchain.DevChain, question: Any, honest: Any) -> Any:
    """Refuse a list for a caller without ether, whatever a state override says, as geth does for a call with fees."""
    if question["method"] != "eth_createAccessList":
        return honest
    transaction = question["params"][0]
    fee = 2 * int(chain.rpc("eth_getBlockByNumber", "latest", False)["baseFeePerGas"], 16) + 10**9
    balance = int(chain.rpc("eth_getBalance", transaction["from"], "latest"), 16)
    return error(question, *geth_answers.NO_LIST) if balance < fee * int(transaction["gas"], 16) else honest


# Nodes as people meet them, and the method by which the slot is found, or what the refusal says of the cause.
_QUIRKS: dict[str, tuple[Callable[[devchain.DevChain, Any, Any], Any], str]] = {
    "a list only for a caller with ether": (_poor, "eth_createAccessList"),
    "no debug either": (
        lambda chain, question, honest: (
            refuse(question, honest) if "debug" in question["method"] else _poor(chain, question, honest)
        ),
        "eth_createAccessList",
    ),
    "a whole storage from a tracer": (
        lambda _, question, honest: (
            refuse(question, honest) if "List" in question["method"] else _needless(300)(question, honest)
        ),
        "debug_traceCall",
    ),
    "a floor for tips": (
        lambda _, question, honest: (
            error(question, -32000, "transaction gas price below minimum: gas tip cap 1, minimum needed 25000000000")
            if question["method"] == "eth_sendRawTransaction"
            else honest
        ),
        "eth_createAccessList",
    ),
    "block 0 as the final one": (
        lambda chain, question, honest: (
            ask(chain.url, _block_question(0)) | {"id": question["id"]}
            if question["params"][:1] == ["finalized"]
            else honest
        ),
        "has no code at block 0 ",
    ),
    "no time for proofs": (
        lambda _, question, honest: (
            error(question, 30, "Request timeout on the free tier, please upgrade your tier to the paid one")
            if question["method"] == "eth_getProof"
            else honest
        ),
        " refused the proof of ",
    ),
}


@pytest.mark.parametrize(("change", "expected"), _QUIRKS.values(), ids=_QUIRKS)
def test_a_node_with_a_quirk_is_searched_or_the_cause_is_named(search, chain, spoiled, change, expected):
    spoiled(lambda question, honest: change(chain, question, honest))
    block = "finalized" if "block 0" in expected else "latest"
    answer = search.ask("OldToken", "balanceOf(address)", ALICE, block=block)
    if answer.status_code == 200:
        found = answer.json()
        assert (found["foundBy"], found["slots"][0]["certainty"]) == (expected, "is_value")
    else:
        assert expected in answer.json()["error"]


# The recipient of the fees has 0.02 ETH.
@pytest.mark.parametrize(("gwei", "payer"), [(1, f"0x{0:040x}"), (1000, devchain.ACCOUNTS[2][0])])
def test_a_list_is_asked_for_from_an_account_with_ether(search, chain, spoiled, gwei, payer):
    """The node repeats what geth before 1.15 answers, and serves no tracer."""

    def change(question: Any, honest: Any) -> Any:
        if question["method"] == "debug_traceCall":
            return refuse(question, honest)
        if question["method"] != "eth_createAccessList":
            return honest
        if len(question["params"]) > 2:
            return error(question, *geth_answers.REFUSALS["too many parameters"])
        balance = int(chain.rpc("eth_getBalance", question["params"][0]["from"], "latest"), 16)
        return error(question, *geth_answers.NO_LIST) if balance < _gas_of(question) * gwei * 10**9 else honest

    asked = spoiled(change)
    Signer.objects.create(chain_id=5, address=devchain.ACCOUNTS[2][0])
    for _ in range(2):
        asked.clear()
        found = search.found("OldToken", "balanceOf(address)", ALICE)
        assert (found["foundBy"], found["slots"][0]["value"]) == ("eth_createAccessList", "1001")
        callers = [question["params"][0]["from"] for question in asked if question["method"] == "eth_call"]
        assert len(set(callers)) == len(callers)
        assert payer not in callers
    # The form that worked is asked for at once.
    (of_list,) = [question for question in asked if question["method"] == "eth_createAccessList"]
    assert of_list["params"][0]["from"] == payer


def test_two_searches_at_a_time_leave_room_for_others(shared_chain, transactional_db, settings, tmp_path):
    keys, waiting, may_go_on = [a_key(BOB, f"key {number}") for number in range(3)], Semaphore(0), Event()

    def answer_late(body: Any) -> Any:
        waiting.release()
        may_go_on.wait(20)
        return ask(shared_chain.url, body)

    def search(key: ApiKey) -> Any:
        body = {"sourceChainId": "31337", "contract": BOB, "signature": "f()"}
        answer = Client().post("/find-slots", body, content_type="application/json", headers=header(key))
        connections.close_all()
        return answer

    with lying_node(answer_late) as url, ThreadPoolExecutor(2) as pool:
        settings.CHAINS_FILE = chains_toml(tmp_path, url)
        others = [pool.submit(search, key) for key in keys[:2]]
        assert all(waiting.acquire(timeout=20) for _ in others)
        refused = [search(keys[2]) for _ in range(12)][-1]
        may_go_on.set()
        assert {other.result().status_code for other in others} <= {422, 503}
    assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (503, "busy", "2")
