"""docs/using/contracts.md: each recipe, compiled in an empty project, reads facts that the service has proven."""

import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import rlp
from django.core.management import call_command
from django.test import Client
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from accounts.models import ApiKey
from chains.contract_artifacts import NO_CONTRACT, Artifact
from chains.tries.packed import encode as pack
from devnet.devchain import PROJECT, DevChain
from proving.models import FactsRegistry
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.tries import header as header_of
from tests.contracts.walks import receipt_nodes, receipt_trie
from tests.docs.examples import blocks_of
from tests.service import ALICE, BOB, done, header, submit

pytestmark = pytest.mark.django_db

PAGE = "docs/using/contracts.md"
RECIPES = {
    name: block.code
    for block in blocks_of(PAGE)
    if block.language == "solidity"
    for name in re.findall(r"^contract (\w+)", block.code, re.MULTILINE)
}
MOCK = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {FactsMock} from "@batch-query-service/contracts/test/FactsMock.sol";

contract Mock is FactsMock(10) {}
"""
CHAIN = 31337
INVALID_PROOF = keccak(text="InvalidProof()")[:4].hex()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, Artifact]:
    """Compile each recipe in a project that has nothing but the package, as compilers do by default; and the tokens."""
    project = tmp_path_factory.mktemp("project")
    modules = project / "node_modules"
    shutil.copytree(PROJECT / "client/solidity", modules / "@batch-query-service/contracts")
    (modules / "openzeppelin-contracts-5").symlink_to(PROJECT / "node_modules/openzeppelin-contracts-5")
    contracts = RECIPES | {"Tokens": (PROJECT / "tests/docs/Tokens.sol").read_text(), "Mock": MOCK}
    for name, code in contracts.items():
        (project / f"{name}.sol").write_text(code)
    compiler = (PROJECT / ".venv/bin/node", PROJECT / "node_modules/solc/solc.js")
    command = [*map(str, compiler), "--abi", "--bin", "--optimize"]
    command += ["--base-path", ".", "--include-path", "node_modules", "--output-dir", "out"]
    made = subprocess.run(
        [*command, *(f"{name}.sol" for name in contracts)], cwd=project, capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, ""), made.stdout
    return {path.stem.rpartition("_")[2]: _artifact(path) for path in (project / "out").glob("*.bin")}


def _artifact(path: Path) -> Artifact:
    abi = json.loads(path.with_suffix(".abi").read_text())
    return Artifact(abi=abi, bytecode=bytes.fromhex(path.read_text()), runtime=b"", immutables={})


@pytest.fixture
def reader(service: DevChain) -> str:
    call_command("deploy_reader", CHAIN, stdout=(output := io.StringIO()))
    return output.getvalue().split()[-1]


def prove(key: ApiKey, chain: DevChain, block: int, requested: dict[str, Any]) -> None:
    body = {"destinationChainId": str(CHAIN), "fee": "0", "data": {str(CHAIN): {f"block:{block}": requested}}}
    done(submit(key, body), chain)


def proofs(key: ApiKey, block: int, requested: dict[str, Any]) -> list[bytes]:
    """Return the proofs that the service makes for a contract's caller."""
    body = {"destinationChainId": str(CHAIN), "data": {str(CHAIN): {f"block:{block}": requested}}}
    answer = Client().post("/read-proofs", body, content_type="application/json", headers=header(key))
    return [bytes.fromhex(proof["proof"][2:]) for proof in answer.json()["proofs"]]


def merged(key: ApiKey, token: Deployed, block: int, slots: list[str]) -> bytes:
    """Return one proof of several slots, in which each node is once."""
    shown = proofs(key, block, {"accounts": {token.address: {"slots": slots}}})
    return bytes(rlp.encode(list(dict.fromkeys(node for proof in shown for node in rlp.decode(proof)))))


def sent(token: Deployed, function: str, *arguments: Any) -> int:
    """Send a transaction. Return its block's number."""
    # The node estimates the gas in the newest block, where a checkpoint of that block takes less.
    token.chain.mine()
    return int(token.send(function, *arguments)["blockNumber"], 16)


def test_every_recipe_has_a_test():
    assert RECIPES.keys() == {
        *("TokenBalance", "LendingMarket", "Vault", "PastVotes", "TokenOwner", "TransferredOnce", "WithdrawnOnce")
    }


@pytest.mark.long
def test_the_balance_of_an_erc20_token(service: DevChain, key, compiled):
    token = Deployed(service, "Votes", artifact=compiled["Votes"])
    block = sent(token, "mint", ALICE, 10**18 + 7)
    sent(token, "mint", ALICE, 1)
    registry = FactsRegistry.in_use.get().address
    recipe = Deployed(service, "TokenBalance", registry, CHAIN, artifact=compiled["TokenBalance"])
    slot = keccak(bytes(12) + bytes.fromhex(ALICE[2:]) + bytes(32))
    unproven = keccak(text="SlotNotProven(address,uint256,bytes32)")[:4].hex()
    assert recipe.refusal("balanceOf", token.address, ALICE, block)[0].startswith(unproven)
    prove(key, service, block, {"accounts": {token.address: {"slots": ["0x" + slot.hex()]}}})
    assert recipe.call("balanceOf", token.address, ALICE, block) == 10**18 + 7

    # A blocked holder of USDC.
    slot = keccak(bytes(12) + bytes.fromhex(ALICE[2:]) + (9).to_bytes(32))
    service.rpc("anvil_setStorageAt", token.address, "0x" + slot.hex(), f"0x{1 << 255 | 1001:064x}")
    service.mine()
    block = service.head()
    prove(key, service, block, {"accounts": {token.address: {"slots": ["0x" + slot.hex()]}}})
    assert recipe.call("usdcOf", token.address, ALICE, block) == 1001


@pytest.mark.long
def test_a_recipe_is_tested_with_facts_that_the_test_sets(chain: DevChain, compiled):
    mock = Deployed(chain, "Mock", artifact=compiled["Mock"])
    recipe = Deployed(chain, "TokenBalance", mock.address, 10, artifact=compiled["TokenBalance"])
    slot = keccak(bytes(12) + bytes.fromhex(ALICE[2:]) + bytes(32))
    unproven = keccak(text="SlotNotProven(address,uint256,bytes32)")[:4].hex()
    assert recipe.refusal("balanceOf", BOB, ALICE, 5)[0].startswith(unproven)
    mock.send("setSlot", 5, BOB, slot, (7).to_bytes(32))
    assert recipe.call("balanceOf", BOB, ALICE, 5) == 7


@pytest.mark.long
def test_a_loan_against_a_deposit(service: DevChain, key, reader: str, compiled):  # noqa: PLR0915 (one story)
    """Market and vault are on one chain here, whose registry is about itself. The borrower is the deposits' owner."""
    nonce = int(service.rpc("eth_getTransactionCount", SENDER, "latest"), 16)
    of_vault = to_checksum_address(keccak(rlp.encode([bytes.fromhex(SENDER[2:]), nonce + 1]))[12:])
    market = Deployed(service, "LendingMarket", reader, CHAIN, of_vault, artifact=compiled["LendingMarket"])
    # The other vault names the market too, which doesn't name it.
    vault, other = (
        Deployed(service, "Vault", reader, CHAIN, market.address, BOB, artifact=compiled["Vault"]) for _ in range(2)
    )
    assert vault.address == of_vault
    service.rpc("anvil_setBalance", market.address, hex(10**18))
    service.mine(2)
    before, half = service.head(), 10**18 // 2
    of_borrower = keccak(bytes(12) + bytes.fromhex(SENDER[2:]) + bytes(32))
    locked = ["0x" + keccak(deposit.to_bytes(32) + of_borrower).hex() for deposit in range(2)]

    def pay(contract: Deployed, value: int, function: str, *arguments: Any) -> None:
        data = "0x" + contract.calldata(function, *arguments).hex()
        service.rpc(
            "eth_sendTransactionSync", {"from": SENDER, "to": contract.address, "data": data, "value": hex(value)}
        )

    def refused(number: int, amount: int = half) -> str:
        return str(market.refusal("borrow", 0, number, amount)[0])

    def prove_end(contract: Deployed, deposit: int) -> None:
        """Prove the market's block of two hours after the deposit's end, and what the vault reads there."""
        time = contract.call("deposits", deposit)[3] + 7200
        slots = ["0x01", "0x" + keccak(deposit.to_bytes(32) + bytes(32)).hex()]
        requested = {"header": ["BLOCK_NUMBER"], "accounts": {market.address: {"slots": slots}}}
        body = {"destinationChainId": str(CHAIN), "fee": "0", "data": {str(CHAIN): {f"timestamp:{time}": requested}}}
        done(submit(key, body), service)

    for each in (vault, other):
        pay(each, 10**18, "deposit", SENDER)
    pay(vault, 10**18, "deposit", SENDER)
    block = service.head()
    # A deposit in another vault is none here.
    prove(key, service, block, {"header": ["TIMESTAMP"], "accounts": {other.address: {"slots": locked}}})
    assert b"STORAGE_PROOF_SLOT_NOT_SAVED".hex() in refused(block)
    prove(key, service, block, {"accounts": {vault.address: {"slots": locked}}})
    assert market.call("credit", SENDER, 0, block) == half
    assert b"STORAGE_PROOF_SLOT_NOT_SAVED".hex() in market.refusal("credit", BOB, 0, block)[0]
    assert b"not enough locked".hex() in refused(block, half + 1)
    market.send("borrow", 0, block, half)
    assert b"not enough locked".hex() in refused(block, 1)
    # Before the deposit there was nothing, and a block without a proven time is of no use.
    prove(key, service, before, {"header": ["TIMESTAMP"], "accounts": {vault.address: {"slots": locked}}})
    assert market.call("credit", SENDER, 0, before) == 0
    untimed = service.head()
    prove(key, service, untimed, {"accounts": {vault.address: {"slots": locked}}})
    assert b"STORAGE_PROOF_HEADER_FIELD_NOT_SAVED".hex() in refused(untimed)
    # Too much is paid back to who repays.
    pay(market, half + 5, "repay", 0)
    assert (market.call("debt", 0), service.rpc("eth_getBalance", market.address, "latest")) == (0, hex(10**18))

    # Within the hour, a deposit that has been ended still counts, and the vault doesn't settle.
    for each in (vault, other):
        each.send("end", 0)
    assert b"ended".hex() in vault.refusal("end", 0)[0]
    market.send("borrow", 0, block, half)
    assert b"not ended".hex() in vault.refusal("settle", 1)[0]
    assert b"STORAGE_PROOF_TIMESTAMP".hex() in vault.refusal("settle", 0)[0]
    service.rpc("evm_increaseTime", 7201)
    service.mine()
    assert refused(block, 0) == "BlockNotRecent"
    # A later repayment doesn't count, whatever block is proven, and nobody pays for another deposit.
    pay(market, half, "repay", 0)
    prove_end(vault, 0)
    prove_end(other, 0)
    for _ in range(2):
        vault.send("settle", 0)
        assert [vault.call("balances", each) for each in (BOB, SENDER)] == [half, half]
    assert b"no market of this vault".hex() in other.refusal("settle", 0)[0]
    vault.send("end", 1)
    service.rpc("evm_increaseTime", 7201)
    service.mine()
    prove_end(vault, 1)
    vault.send("settle", 1)
    assert [vault.call("balances", each) for each in (BOB, SENDER)] == [half, half + 10**18]
    vault.send("withdraw")
    assert int(service.rpc("eth_getBalance", vault.address, "latest"), 16) == half
    # The lender's money comes back, and nobody else gets it.
    market.send("withdraw", 10**18)
    assert int(service.rpc("eth_getBalance", market.address, "latest"), 16) == 0
    # Both answer for one chain alone.
    for name, arguments in (("LendingMarket", (vault.address,)), ("Vault", (market.address, BOB))):
        with pytest.raises(Reverted) as reverted:
            Deployed(service, name, reader, 1, *arguments, artifact=compiled[name])
        assert reverted.value.error == ("UnknownSourceChain", 1)


@pytest.mark.long
def test_past_votes_are_those_that_the_token_tells(service: DevChain, key, reader: str, compiled):
    token = Deployed(service, "Votes", artifact=compiled["Votes"])
    sent(token, "mint", SENDER, 100)
    first = sent(token, "delegate", ALICE)
    second = sent(token, "mint", SENDER, 2**100)
    third = sent(token, "delegate", BOB)
    service.mine()
    recipe = Deployed(service, "PastVotes", reader, CHAIN, token.address, artifact=compiled["PastVotes"])
    told = {}
    for block in (first, second, third):
        prove(key, service, block, {"accounts": {token.address: {"props": ["STORAGE_ROOT"]}}})
        for voter in (ALICE, BOB, SENDER):
            checkpoints = keccak(bytes(12) + bytes.fromhex(voter[2:]) + (9).to_bytes(32))
            count = int(service.rpc("eth_getStorageAt", token.address, "0x" + checkpoints.hex(), hex(block)), 16)
            last = int.from_bytes(keccak(checkpoints)) + max(count - 1, 0)
            slots = ["0x" + checkpoints.hex(), hex(last)]
            told[block, voter] = recipe.call(
                "votes", voter, block, count, merged(key, token, block, slots[: count + 1])
            )
            assert told[block, voter] == token.call("getPastVotes", voter, block)
            # An earlier checkpoint doesn't pass for the last one, and no number for another.
            if count > 1:
                earlier = merged(key, token, block, [slots[0], hex(last - 1)])
                assert recipe.refusal("votes", voter, block, count, earlier) == ("InvalidProof",)
                differs = recipe.refusal("votes", voter, block, count - 1, earlier)
                assert b"another number of checkpoints".hex() in differs[0]
    assert (told[first, ALICE], told[second, ALICE], told[third, ALICE]) == (100, 2**100 + 100, 0)
    assert (told[second, BOB], told[third, BOB]) == (0, 2**100 + 100)


@pytest.mark.long
def test_the_owner_of_an_nft(service: DevChain, key, reader: str, compiled):
    token = Deployed(service, "Picture", artifact=compiled["Picture"])
    block = sent(token, "mint", ALICE, 5)
    sent(token, "mint", BOB, 6)
    recipe = Deployed(service, "TokenOwner", reader, CHAIN, token.address, artifact=compiled["TokenOwner"])
    slots = {id_: "0x" + keccak(id_.to_bytes(32) + (2).to_bytes(32)).hex() for id_ in (5, 6)}
    unproven = recipe.refusal("ownerOf", 5, block)
    assert b"STORAGE_PROOF_SLOT_NOT_SAVED".hex() in unproven[0]
    prove(key, service, block, {"accounts": {token.address: {"slots": [*slots.values()]}}})
    owners = [recipe.call("ownerOf", id_, block) for id_ in (5, 6)]
    assert owners == [ALICE.lower(), "0x" + "0" * 40]


@pytest.mark.long
def test_a_log_counts_once(service: DevChain, key, reader: str, compiled):
    token, other = (Deployed(service, "Votes", artifact=compiled["Votes"]) for _ in range(2))
    recipe = Deployed(service, "TransferredOnce", reader, CHAIN, token.address, artifact=compiled["TransferredOnce"])
    blocks = [sent(contract, "mint", ALICE, 5) for contract in (token, token, other)]
    shown = {}
    for block in blocks:
        requested = {"transactions": {"0": {"logs": ["0"]}}}
        (shown[block],) = proofs(key, block, requested)
        assert b"STORAGE_PROOF_HEADER_FIELD_NOT_SAVED".hex() in recipe.refusal("count", block, 0, 0, shown[block])[0]
        prove(key, service, block, {"header": ["RECEIPTS_ROOT"]})
    # Two transfers are equal, and count each once. One of another token doesn't.
    for block in blocks[:2]:
        recipe.send("count", block, 0, 0, shown[block])
        assert b"counted before".hex() in recipe.refusal("count", block, 0, 0, shown[block])[0]
    assert recipe.call("received", ALICE) == 10
    assert recipe.refusal("count", blocks[2], 0, 0, shown[blocks[2]])[0] == "LogDiffers"
    no_such_log = keccak(text="NoSuchLog(uint256,uint256,uint256,uint256)")[:4].hex()
    assert recipe.refusal("count", blocks[0], 0, 1, shown[blocks[0]])[0].startswith(no_such_log)


@pytest.mark.long
def test_a_withdrawal_counts_once(service: DevChain, compiled):
    """Development chains have no withdrawals: a header names the root of two."""
    amounts = {9_000_000: 18_012_345, 9_000_001: 32 * 10**9}
    withdrawals = [rlp.encode([index, 700_000, bytes.fromhex(ALICE[2:]), amount]) for index, amount in amounts.items()]
    trie = receipt_trie(dict(enumerate(withdrawals)))
    number, fields = 77, list(rlp.decode(header_of(77, b"\1" * 32)))
    fields += [b"\7", trie.root_hash][len(fields) - 15 :]
    block = rlp.encode(fields)
    source = Deployed(service, "test/SettableBlockHashSource", 1)
    registry = Deployed(service, "FactsRegistry", 1, source.address, 8191, NO_CONTRACT)
    reader = Deployed(service, "FactsReader", [registry.address])
    source.send("set", number, keccak(block))
    recipe = Deployed(service, "WithdrawnOnce", reader.address, artifact=compiled["WithdrawnOnce"])
    shown = [rlp.encode(receipt_nodes(trie, place)) for place in (0, 1)]
    assert b"STORAGE_PROOF_HEADER_FIELD_NOT_SAVED".hex() in recipe.refusal("count", number, 0, shown[0])[0]
    registry.send_raw(pack(block, fields[3], header_fields=[16]))
    for place in (0, 1):
        recipe.send("count", number, place, shown[place])
        assert b"counted before".hex() in recipe.refusal("count", number, place, shown[place])[0]
    assert recipe.call("received", ALICE) == sum(amounts.values()) * 10**9
    assert recipe.refusal("count", number, 1, shown[0]) == (INVALID_PROOF,)
