"""Kinds of contracts that people use: each slot is found, marked, proven in a batch, and read by a contract.

The answer of the contract that reads is that of the node for the call, at the same block. `-rP` shows the table.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from django.test import Client
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from accounts.models import ApiKey, ThrottleCount
from contracts.build import run_compiler
from devnet import foreign_contracts
from devnet.devchain import DevChain, DevChainError
from proving.models import FactsRegistry
from tests import chain_fixtures, deployed
from tests.proving import tokens
from tests.service import ALICE, BOB, asking, chains_toml, done, header, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.long]

_READER = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

interface IRegistry {
    function accountStorageSlotValues(address account, uint256 blockNumber, bytes32 slot)
        external view returns (bytes32);
}

contract PartReader {
    IRegistry private immutable REGISTRY;

    constructor(IRegistry registry) { REGISTRY = registry; }

    /// The number in `size` bits of a proven word, above its lowest `offset` bits.
    function read(address account, uint256 blockNumber, bytes32 slot, uint256 offset, uint256 size, bool isSigned)
        external view returns (uint256)
    {
        uint256 word = uint256(REGISTRY.accountStorageSlotValues(account, blockNumber, slot));
        uint256 part = (word << (256 - size - offset)) >> (256 - size);
        return isSigned ? uint256(int256(part << (256 - size)) >> (256 - size)) : part;
    }
}
"""
_VALUE, _CHOSEN, _COMPUTED = "one value", "one value, only at this block", "no slot is the value"
_MINTER = f"0x{keccak(text='MINTER').hex()}"
_BTC = f"0x{b'BTC'.hex():0<64}"
# An operation of `Timelock.fill`.
_OPERATION = encode(["address", "uint256", "bytes", "bytes32", "bytes32"], [ALICE, 0, b"", bytes(32), (4).to_bytes(32)])
_SCHEDULED = f"0x{keccak(_OPERATION).hex()}"


class Kind(NamedTuple):
    """A call of a contract, and the right answer of a search."""

    what: str
    contract: str
    signature: str
    arguments: tuple[str, ...] = (ALICE,)
    claim: str = _VALUE
    choosing: int = 0
    """The number of slots that choose the value's slot, or are the length of its array."""


# Names of contracts in arguments stand for their addresses.
_KINDS = [
    Kind("ERC-20, OpenZeppelin 4", "OldToken", "balanceOf(address)"),
    Kind("ERC-20, OpenZeppelin 4, supply", "OldToken", "totalSupply()", ()),
    Kind("ERC-20, OpenZeppelin 5", "Token", "balanceOf(address)"),
    Kind("allowance, OpenZeppelin 5", "Token", "allowance(address,address)", (ALICE, "Token")),
    Kind("ERC-20, Solmate", "SolmateToken", "balanceOf(address)"),
    Kind("ERC-20, Solady", "SoladyToken", "balanceOf(address)"),
    Kind("allowance, Solady", "SoladyToken", "allowance(address,address)", (ALICE, "SoladyToken")),
    Kind("transparent proxy, OpenZeppelin 4", "old behind proxy", "balanceOf(address)"),
    Kind("EIP-1967 proxy, ERC-7201", "behind proxy", "balanceOf(address)"),
    Kind("EIP-1967 proxy, votes", "behind proxy", "getVotes(address)", claim=_CHOSEN, choosing=1),
    Kind("beacon proxy", "behind beacon", "balanceOf(address)"),
    Kind("beacon proxy, OpenZeppelin 4", "behind older beacon", "balanceOf(address)"),
    Kind("Safe's proxy", "behind slot 0", "balanceOf(address)"),
    Kind("minimal clone (EIP-1167)", "clone", "balanceOf(address)"),
    Kind("diamond (EIP-2535)", "Diamond", "balanceOf(address)"),
    Kind("Aragon's proxy", "AppProxy", "balanceOf(address)"),
    Kind("proxy with a packed address", "LowPackedProxy", "balanceOf(address)"),
    Kind("ERC-721 behind a proxy, ERC-7201", "NFT behind proxy", "ownerOf(uint256)", ("7",)),
    Kind("Vyper 0.2.12", "Vyper 0.2.12", "balanceOf(address)"),
    Kind("Vyper 0.2.16", "Vyper 0.2.16", "allowance(address,address)", (ALICE, "Vyper 0.2.16")),
    Kind("Vyper 0.3.10, struct", "Vyper 0.3.10", "lockedEnd(address)"),
    Kind("Vyper 0.4.3, nested struct", "Vyper 0.4.3", "slopeEnd(address,address)", (ALICE, "Vyper 0.4.3")),
    Kind("Vyper 0.4.3, flag", "Vyper 0.4.3", "frozen(address)"),
    Kind("balance below a flag", "Flagged", "balanceOf(address)"),
    Kind("USDC, balance", "FiatToken", "balanceOf(address)"),
    Kind("USDC, blacklist", "FiatToken", "isBlacklisted(address)"),
    Kind("USDC, pause", "FiatToken", "paused()", ()),
    Kind("USDC, pauser", "FiatToken", "pauser()", ()),
    Kind("USDC, version", "FiatToken", "version()", ()),
    Kind("stETH, balance", "Shares", "balanceOf(address)", claim=_COMPUTED),
    Kind("stETH, shares", "Shares", "sharesOf(address)"),
    Kind("MiniMe", "Checkpoints", "balanceOf(address)", claim=_CHOSEN, choosing=1),
    Kind("COMP", "CountedVotes", "getCurrentVotes(address)", claim=_CHOSEN, choosing=1),
    Kind("UNI, votes", "UniVotes", "getCurrentVotes(address)", claim=_CHOSEN, choosing=1),
    Kind("UNI, balance", "UniVotes", "balanceOf(address)"),
    Kind("UNI, delegate", "UniVotes", "delegates(address)"),
    Kind("votes, OpenZeppelin 4", "OldVotesToken", "getVotes(address)", claim=_CHOSEN, choosing=1),
    Kind("votes, OpenZeppelin 5", "VotesToken", "getVotes(address)", claim=_CHOSEN, choosing=1),
    Kind("votes of none, OpenZeppelin 5", "VotesToken", "getVotes(address)", (BOB,), claim=_CHOSEN),
    Kind("votes of COMP's form", "OldCompVotes", "getCurrentVotes(address)", claim=_CHOSEN, choosing=1),
    Kind("votes of NFTs", "Votes721", "getVotes(address)", claim=_CHOSEN, choosing=1),
    Kind("snapshot", "OldSnapshot", "balanceOfAt(address,uint256)", (ALICE, "1"), claim=_CHOSEN, choosing=2),
    Kind("vote-escrow", "Escrow", "balanceOf(address)", claim=_COMPUTED),
    Kind("price feed", "RoundFeed", "latestAnswer()", (), claim=_CHOSEN, choosing=1),
    Kind("price feed, a round", "RoundFeed", "getAnswer(uint80)", ("1",)),
    Kind("price feed of a phase", "FeedProxy", "ofPhase()", (), claim=_CHOSEN, choosing=2),
    Kind("ERC-721, OpenZeppelin 4", "OldNft", "ownerOf(uint256)", ("7",)),
    Kind("ERC-721 with a list, OpenZeppelin 5", "Enumerable721", "tokenOfOwnerByIndex(address,uint256)", (ALICE, "0")),
    Kind("ERC-721, approval of all", "Enumerable721", "isApprovedForAll(address,address)", (ALICE, "Enumerable721")),
    Kind("ERC-721, Solmate", "Mate721", "ownerOf(uint256)", ("7",)),
    Kind("ERC-721, Solady", "Lady721", "ownerOf(uint256)", ("7",)),
    Kind("ERC-721, Solady, balance", "Lady721", "balanceOf(address)"),
    Kind("ERC-721A", "Packed721", "ownerOf(uint256)", ("1",)),
    Kind("ERC-721A, minted", "Packed721", "numberMinted(address)"),
    Kind("ERC-1155, OpenZeppelin 4", "Old1155", "balanceOf(address,uint256)", (ALICE, "7")),
    Kind("ERC-1155, OpenZeppelin 5, supply", "Supply1155", "totalSupply(uint256)", ("7",)),
    Kind("ERC-1155, ERC-7201", "Upgradeable1155", "balanceOf(address,uint256)", (ALICE, "7")),
    Kind("ERC-1155, Solmate", "Mate1155", "balanceOf(address,uint256)", (ALICE, "7")),
    Kind("ERC-1155, Solady", "Lady1155", "balanceOf(address,uint256)", (ALICE, "7")),
    Kind("ERC-6909, OpenZeppelin", "New6909", "allowance(address,address,uint256)", (ALICE, "New6909", "7")),
    Kind("ERC-6909, Solmate", "Mate6909", "balanceOf(address,uint256)", (ALICE, "7")),
    Kind("ERC-6909, Solady", "Lady6909", "balanceOf(address,uint256)", (ALICE, "7")),
    Kind("WETH, Solmate", "MateWeth", "balanceOf(address)"),
    Kind("WETH, Solady", "LadyWeth", "balanceOf(address)"),
    Kind("ERC-4626, Solmate, assets", "Vault", "totalAssets()", ()),
    Kind("ERC-4626, OpenZeppelin, shares", "Vault5", "balanceOf(address)"),
    Kind("ERC-4626, OpenZeppelin, worth", "Vault5", "convertToAssets(uint256)", ("1000000",), claim=_COMPUTED),
    Kind("nonce of permits", "Permit", "nonces(address)"),
    Kind("endless allowance", "Permit", "allowance(address,address)", (ALICE, ALICE)),
    Kind("roles, OpenZeppelin 5", "Roles", "hasRole(bytes32,address)", (_MINTER, ALICE)),
    Kind("roles, ERC-7201", "UpgradeableRoles", "hasRole(bytes32,address)", (_MINTER, ALICE)),
    Kind("owner, ERC-7201", "UpgradeableRoles", "owner()", ()),
    Kind("pause, ERC-7201", "UpgradeableRoles", "paused()", ()),
    Kind("roles, Solady", "LadyRoles", "rolesOf(address)"),
    Kind("owner, Solady", "LadyRoles", "owner()", ()),
    Kind("pending owner", "TwoStep", "pendingOwner()", ()),
    Kind("pause", "Switch", "paused()", ()),
    Kind("claimed bit", "Claims", "isClaimed(uint256)", ("300",)),
    Kind("unclaimed bit", "Claims", "isClaimed(uint256)", ("301",)),
    Kind("set, length", "Members", "length()", ()),
    Kind("set, member", "Members", "at(uint256)", ("0",), choosing=1),
    Kind("shares of a splitter", "Splitter", "shares(address)", ("0x00000000000000000000000000000000000000AD",)),
    Kind("timelock, delay", "Timelock", "getMinDelay()", ()),
    Kind("timelock, operation", "Timelock", "getTimestamp(bytes32)", (_SCHEDULED,)),
    Kind("vesting, owner", "Vesting", "owner()", ()),
    Kind("enum in a struct", "Market", "sideOf(bytes32)", (_BTC,)),
    Kind("signed part of a struct", "Market", "sizeOf(bytes32)", (_BTC,)),
    Kind("packed amount of a struct", "Market", "marginOf(bytes32)", (_BTC,)),
    Kind("signed word of a struct", "Market", "profit(bytes32)", (_BTC,)),
    Kind("address in a struct", "Market", "ownerOf(bytes32)", (_BTC,)),
    Kind("flag in a struct", "Market", "isOpen(bytes32)", (_BTC,)),
    Kind("signed word of a mapping", "Market", "profitOf(address)"),
    Kind("array of structs", "Market", "ofAll(uint256)", ("0",), choosing=1),
    Kind("nested mapping of structs", "Market", "indexOf(address,uint256)", (ALICE, "7")),
    Kind("mapping in a nested struct", "Market", "scaled(address,uint256)", (ALICE, "7")),
    Kind("array in a nested struct", "Market", "cap(address,uint256,uint256)", (ALICE, "7", "0"), choosing=1),
    Kind("packed signed array", "Market", "tick(uint256)", ("0",)),
    Kind("three nested mappings", "Many", "deep(address,address,uint256)", (ALICE, "Many", "1")),
    Kind("mapping by text", "Many", "byText(string)", ("a key",)),
]


@dataclass
class _Row:
    kind: Kind
    found: Any = None
    faults: list[str] = field(default_factory=list)
    steps: dict[str, bool] = field(default_factory=dict)

    def check(self, step: str, seen: object, *, is_right: bool) -> None:
        self.steps[step] = is_right
        if not is_right:
            self.faults.append(f"not {step}: {seen}")

    def __str__(self) -> str:
        kind = self.kind
        call = f"{kind.contract}.{kind.signature}"
        steps = "  ".join(f"{step} {'yes' if is_right else 'NO'}" for step, is_right in self.steps.items())
        return f"{kind.what:<38} {call:<58} {kind.claim:<30} {steps}"


def _deploy(chain: DevChain) -> dict[str, str]:
    """Deploy the contracts of both files. Return their addresses by name."""
    addresses = dict(tokens.deploy(chain).addresses)
    codes = {name: each["evm"]["bytecode"]["object"] for name, each in tokens.compiled("Kinds.sol").items()}
    for name, code in codes.items():
        arguments = f"{addresses['Plain'][2:].lower():0>64}" if name == "Vault5" else ""
        addresses[name] = foreign_contracts.create(chain, code + arguments)
    addresses["clone"] = foreign_contracts.create_behind_proxy(chain, codes["Plain"])
    for name in (*codes, "clone"):
        foreign_contracts.send(chain, addresses[name], "fill(address)", ALICE)
    chain.mine(3)
    return addresses


_addresses: list[dict[str, str]] = []
shared_chain = chain_fixtures.chain_fixture(lambda chain: _addresses.append(_deploy(chain)))


@pytest.fixture
def chain(shared_chain: DevChain, settings, tmp_path) -> DevChain:
    settings.CHAINS_FILE = chains_toml(tmp_path, shared_chain.url)
    deployed.deploy_on(shared_chain)
    shared_chain.mine(2)
    return shared_chain


def _search(key: ApiKey, kind: Kind, block: int) -> Any:
    # The limit has its own test.
    ThrottleCount.objects.all().delete()
    addresses = _addresses[-1]
    body = {
        "sourceChainId": "31337",
        "block": f"block:{block}",
        "contract": addresses[kind.contract],
        "signature": kind.signature,
        "arguments": [addresses.get(each, each) for each in kind.arguments],
    }
    return Client().post("/find-slots", body, content_type="application/json", headers=header(key))


def _check_found(row: _Row, answer: Any) -> None:
    row.found, kind = answer.json(), row.kind
    row.check("found", row.found, is_right=answer.status_code == 200)
    if answer.status_code == 200 and kind.claim == _COMPUTED:
        certainties = {slot["certainty"] for slot in row.found["slots"]}
        row.check("marked", row.found, is_right=certainties <= {"computed", "path_only"})
    elif answer.status_code == 200:
        first, *others = row.found["slots"]
        is_one = first["certainty"] in {"is_value", "part_of_word"}
        is_only = {slot["certainty"] for slot in others} <= {"path_only"}
        choosing = [slot for slot in row.found["dependsOn"] if slot["role"] in {"length", "choice"}]
        is_marked = first["onlyAtThisBlock"] is (kind.claim == _CHOSEN)
        is_right = is_one and is_only and is_marked and len(choosing) == kind.choosing
        row.check("marked", row.found, is_right=is_right)


def _argument(type_: str, text: str) -> object:
    if type_.startswith("uint"):
        return int(text)
    return bytes.fromhex(text[2:]) if type_ == "bytes32" else text


def _called(chain: DevChain, kind: Kind, block: int) -> int | None:
    """Return the word that the node answers at a block. None: the call reverts."""
    addresses = _addresses[-1]
    types = kind.signature.partition("(")[2].removesuffix(")").split(",")
    arguments = [
        _argument(type_, addresses.get(text, text)) for type_, text in zip(types, kind.arguments, strict=False)
    ]
    asked = {"to": addresses[kind.contract], "data": foreign_contracts.calldata(kind.signature, *arguments)}
    try:
        return int(chain.rpc("eth_call", asked, hex(block))[:66], 16)
    except DevChainError:
        return None


def _proven(chain: DevChain, key: ApiKey, rows: list[_Row], block: int) -> None:
    """Prove the slots of all rows in batches, in each of which a slot has one name."""
    batches: list[dict[str, dict[str, Any]]] = []
    for row in rows:
        (accounts,) = (blocks[f"block:{block}"]["accounts"] for blocks in row.found["batch"]["data"].values())
        for account, entry in accounts.items():
            for slot in entry["slots"]:
                number = slot if isinstance(slot, str) else repr({**slot, "part": None, "call": None, "decimals": None})
                into = next((each for each in batches if number not in each.get(account, {})), None)
                if into is None:
                    batches.append(into := {})
                into.setdefault(account, {})[number] = slot
    for accounts in batches:
        entries = {account: {"slots": [*slots.values()]} for account, slots in accounts.items()}
        done(submit(key, asking({f"block:{block}": {"accounts": entries}})), chain)


def _part_in(part: Mapping[str, Any]) -> tuple[int, int, bool]:
    return int(part["offset"]), int(part["size"]), part["form"] == "signed"


def _deployed_reader(chain: DevChain) -> str:
    registry = FactsRegistry.in_use.get(destination_chain_id=31337, source_chain_id=31337).address
    output = run_compiler({"Reader.sol": _READER}, {"*": {"*": ["evm.bytecode.object"]}})
    code = output["contracts"]["Reader.sol"]["PartReader"]["evm"]["bytecode"]["object"]
    return foreign_contracts.create(chain, f"{code}{registry[2:].lower():0>64}")


def _check_read(chain: DevChain, reader: str, row: _Row, block: int) -> None:
    """Compare what the contract reads with the node's answers, at the block and for an unmarked slot at a later one."""
    signature = "read(address,uint256,bytes32,uint256,uint256,bool)"
    answered = _called(chain, row.kind, block)
    for slot in row.found.get("slots", []):
        if slot["certainty"] == "path_only":
            continue
        part = slot["part"] or {"offset": 0, "size": 256, "form": "unsigned"}
        place = slot["account"], block, bytes.fromhex(slot["slot"][2:])
        read = int.from_bytes(foreign_contracts.ask(chain, reader, signature, *place, *_part_in(part)))
        if row.kind.claim == _COMPUTED:
            stored = int(chain.rpc("eth_getStorageAt", slot["account"], slot["slot"], hex(block)), 16)
            row.check("read", (slot, read), is_right=read == stored)
        else:
            row.check("equal", (slot, read, answered), is_right=read == answered)


def _check_later(chain: DevChain, row: _Row) -> None:
    """Compare the slot with the node's answer after the contract has changed, unless the slot is marked."""
    first, block = row.found["slots"][0], chain.head()
    if row.kind.claim == _VALUE and (answered := _called(chain, row.kind, block)) is not None:
        word = int(chain.rpc("eth_getStorageAt", first["account"], first["slot"], hex(block)), 16)
        offset, size, is_signed = _part_in(first["part"])
        part = (word >> offset) % (1 << size)
        expected = (part - (is_signed and part >> size - 1) * (1 << size)) % (1 << 256)
        row.check("later", (first, word, answered), is_right=expected == answered)


def test_each_kind_is_found_marked_proven_and_read(chain, key):
    block = chain.head() - 1
    rows = [_Row(kind) for kind in _KINDS]
    for row in rows:
        _check_found(row, _search(key, row.kind, block))
    found = [row for row in rows if "batch" in row.found]
    _proven(chain, key, found, block)
    reader = _deployed_reader(chain)
    for row in found:
        _check_read(chain, reader, row, block)
    for address in _addresses[-1].values():
        # Some contracts can be filled only once.
        with suppress(AssertionError, DevChainError):
            foreign_contracts.send(chain, address, "fill(address)", ALICE)
    for row in found:
        _check_later(chain, row)
    print(*rows, f"{len(rows)} calls of {len({row.kind.contract for row in rows})} contracts", sep="\n")
    assert [(row.kind, row.faults) for row in rows if row.faults] == []
