"""`POST /find-slots`: slots, layouts and certainties of real contracts, and nodes that lie about them."""

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
from eth_utils.crypto import keccak

from accounts.models import ApiKey, ThrottleCount
from devnet import devchain, foreign_contracts
from tests import chain_fixtures, deployed
from tests.chains import geth_answers
from tests.chains.hostile_node import dripped_reply, hostile_node, silence
from tests.chains.lying_node import ask, between, error, lying_node, pruned
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
        assert (shown["word"], shown["slotName"]) == (first["word"], first["slotName"]), row


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
    assert votes["hints"] == {"decimals": 18}


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
    views = ("whileOpen", "unlessBlocked", "belowLevel", "ofNumber", "orElse")
    for view, holder, value in [*product(views, [ALICE], ["1001"]), *product(views[:-1], [BOB], ["0"])]:
        first, second = search.found("Switched", f"{view}(address)", holder)["slots"]
        row = view, holder, first, second
        assert (first["certainty"], first["value"], second["certainty"]) == ("one_of_several", value, "computed"), row
    (dust,) = search.found("Switched", "ofDust(address)", BOB)["slots"]
    assert (dust["certainty"], dust["value"]) == ("computed", None)


@pytest.mark.parametrize("half", ["1c", "1b"], ids=["upper", "lower"])
def test_a_word_that_counts_only_if_a_half_of_it_is_set_is_not_claimed_to_be_the_value(search, chain, half):
    # The word at slot 0, times 1 if the half isn't 0: SLOAD DUP1 PUSH1 128 SHR or SHL ISZERO ISZERO MUL.
    code = bytes.fromhex(f"600054806080{half}1515025f5260205ff3")
    contract = foreign_contracts.create(chain, f"60{len(code):02x}600c60003960{len(code):02x}6000f3{code.hex()}")
    chain.rpc("anvil_setStorageAt", contract, f"0x{0:064x}", f"0x{(1 << 200) + 7:064x}")
    chain.mine(1)
    (slot,) = search.found(contract, "amount()")["slots"]
    assert (slot["certainty"], slot["value"]) == ("computed", None)


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


def test_a_slot_that_another_one_leads_to_is_not_claimed_to_be_fixed(search):
    slots = search.found("Switched", "listed(address)", ALICE)["slots"]
    assert [(slot["certainty"], slot["layout"]) for slot in slots] == [
        ("one_of_several", "layout_unknown"),
        ("computed", "solidity"),
    ]


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
        (("Hidden", "failing(address)"), "latest", "The signature has 1 argument, not 0."),
    ):
        assert search.ask(*call, block=block).json()["error"].startswith(sentence)


def test_a_user_may_search_ten_times_in_a_minute(search):
    def times(key: ApiKey) -> int:
        body = {"sourceChainId": "31337", "contract": BOB, "signature": "f()"}
        return Client().post("/find-slots", body, content_type="application/json", headers=header(key)).status_code

    assert [times(search.key) for _ in range(11)] == [422] * 10 + [429]
    assert times(a_key(BOB)) == 422
    # Other requests have their own limits.
    assert (
        Client().post("/read-proofs", {}, content_type="application/json", headers=header(search.key)).status_code
        == 400
    )


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
    assert len(asked) < 40


@pytest.mark.parametrize("spoil", UNUSABLE_LISTS.values(), ids=UNUSABLE_LISTS)
def test_a_node_that_tells_no_slots_cannot_tell(search, spoiled, spoil):
    spoiled(spoiling({"eth_createAccessList": spoil, "debug_traceCall": refuse}))
    assert search.refused("OldToken", "balanceOf(address)", ALICE) == (422, "slots_unknown")


def test_a_list_may_name_a_contract_several_times(search, spoiled):
    def divide(_: Any, honest: Any) -> Any:
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
        holders = {call["data"][-40:] for call in calls if len(call["data"]) == 74} - {ALICE[2:].lower()}
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
    """Leave the slots of staked tokens out of a list."""
    if question["method"] != "eth_createAccessList":
        return honest
    place = f"{ALICE[2:].lower():0>64}{_base('Sum', 'liquid'):064x}"
    liquid = f"0x{keccak(bytes.fromhex(place)).hex()}"
    entry = {"address": _deployed[-1].addresses["Sum"], "storageKeys": [liquid]}
    return honest | {"result": {"accessList": [entry], "gasUsed": "0x6000"}}


@pytest.mark.parametrize(("name", "change"), [("OldUpgradeableToken", _invented), ("Sum", _liquid)])
def test_a_second_node_contradicts_a_lie_that_agrees_with_itself(search, chain, spoiled, settings, name, change):
    spoiled(change)
    assert search.found(name, "balanceOf(address)", ALICE)["slots"][0]["certainty"] == "is_value"
    reconfigure(settings, '"]', f'", "{chain.url}"]')
    assert search.refused(name, "balanceOf(address)", ALICE) == (503, "chain_unavailable")
    # A silent node isn't waited for.
    with hostile_node(silence) as silent:
        reconfigure(settings, f'"{chain.url}"', f'"{silent}"')
        assert search.found(name, "balanceOf(address)", ALICE)["slots"][0]["certainty"] == "is_value"


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
        assert search.found("OldToken", "balanceOf(address)", ALICE)["slots"][0]["certainty"] == "is_value"
        assert len(bodies) <= 20
        bodies.clear()
        assert search.refused("Rebasing", "balanceOf(address)", ALICE) == (503, "chain_unavailable")
        assert 16 < len(bodies) <= 20


def test_a_call_that_reads_many_slots_is_not_tried(search, spoiled):
    asked = spoiled(lambda _, honest: honest)
    assert search.refused("Hidden", "many()") == (422, "slots_unknown")
    assert {question["method"] for question in asked} == {
        *("eth_chainId", "eth_getBlockByNumber", "eth_call", "eth_createAccessList")
    }


def test_executions_are_given_thirty_million_gas_at_most(search, spoiled):
    asked = spoiled(lambda _, honest: honest)
    search.found("behind proxy", "getVotes(address)", ALICE)
    given = [int(question["params"][0]["gas"], 16) for question in asked if "gas" in str(question["params"])]
    trials = [int(question["params"][0]["gas"], 16) for question in asked if is_trial(question)]
    assert max(given) == 30_000_000
    assert trials
    # Three exchanges of trials.
    assert sum(trials) <= 90_000_000


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
        refused = search(keys[2])
        may_go_on.set()
        assert {other.result().status_code for other in others} <= {422, 503}
    assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (503, "busy", "2")
