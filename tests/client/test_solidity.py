"""The Solidity library, compiled, deployed and called with proven facts."""

import io
from pathlib import Path
from typing import Any

import pytest
import rlp
from django.core.management import call_command

from contracts import Artifact, load_artifact
from contracts.build import CODE, code_of, run_compiler
from devnet.devchain import PROJECT, DevChain
from proving.models import FactsRegistry
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.service import BOB, a_key, submit, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

SOLIDITY = PROJECT / "client" / "solidity"
SOURCES = [*sorted(SOLIDITY.rglob("*.sol")), Path(__file__).with_name("ReadsOfEveryKind.sol")]
BALANCE = 10**18
SLOT_OF_BALANCES = 0


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """Return each contract's artifact by name. The ABI includes the registry's errors, which pass
    through the contract.
    """
    texts = {path.relative_to(PROJECT).as_posix(): path.read_text() for path in SOURCES}
    output = run_compiler(texts, {"*": {"": ["ast"], "*": ["abi", *CODE]}})
    assert not output.get("errors"), [message["formattedMessage"] for message in output["errors"]]
    errors = [entry for entry in load_artifact("FactsRegistry").abi if entry["type"] == "error"]
    artifacts: dict[str, Any] = {}
    for source, contracts in output["contracts"].items():
        for name, contract in contracts.items():
            code = code_of(output, source, name)
            abi = [*contract["abi"], *(entry for entry in errors if entry not in contract["abi"])]
            bytecode, runtime = (bytes.fromhex(code[key][2:]) for key in ("bytecode", "deployedBytecode"))
            artifacts[name] = Artifact(abi=abi, bytecode=bytecode, runtime=runtime, immutables=code["immutables"])
    return artifacts


@pytest.fixture
def reads(service: DevChain, compiled) -> Deployed:
    artifact = compiled["ReadsOfEveryKind"]
    return Deployed(service, "ReadsOfEveryKind", registry(), SENDER, BALANCE, artifact=artifact)


def registry() -> str:
    return str(FactsRegistry.in_use.get().address)


def prove(chain: DevChain, block: int, accounts: dict[str, Any], header: list[str] | None = None) -> None:
    requested = {"accounts": accounts} | ({"header": header} if header else {})
    body = {"destinationChainId": "31337", "fee": "0", "data": {"31337": {f"block:{block}": requested}}}
    work_until_done(submit(a_key(), body), chain)


def described(abi: Any) -> dict[tuple[str, str], Any]:
    """Return an ABI's parts by kind and name, without Solidity's internal types."""

    def plain(entry: Any) -> Any:
        if isinstance(entry, list):
            return [plain(each) for each in entry]
        if isinstance(entry, dict):
            return {key: plain(value) for key, value in entry.items() if key not in {"internalType", "name"}}
        return entry

    return {(entry["type"], entry["name"]): plain(entry) for entry in abi if "name" in entry}


def test_the_interface_is_that_of_the_registry(compiled):
    of_registry = described(load_artifact("FactsRegistry").abi)
    of_interface = described(compiled["IFactsRegistry"].abi)
    shared = {key: part for key, part in of_registry.items() if key in of_interface}
    assert of_interface.keys() - {key for key in of_registry if key[0] == "error"} <= shared.keys()
    assert {key: of_interface[key] for key in shared} == shared
    # Readers of facts need all events, and the errors that a missing fact gives.
    told = [(kind, name) for kind, name in of_registry if kind == "event" or name.endswith("NotProven")]
    assert set(told) <= of_interface.keys()


def test_a_vote_by_what_another_chain_held(service: DevChain, reads: Deployed, compiled):
    block = service.head()
    artifact = compiled["SnapshotVote"]
    vote = Deployed(
        service, "SnapshotVote", registry(), 31337, reads.address, SLOT_OF_BALANCES, block, artifact=artifact
    )
    (slot, _, _) = reads.call("slots", SENDER)
    with pytest.raises(Reverted) as unproven:
        vote.send("vote", True)
    assert unproven.value.error == ("SlotNotProven", reads.address.lower(), block, slot)

    prove(service, block, {reads.address: {"slots": ["0x" + slot.hex()]}})
    assert vote.logged(vote.send("vote", True)) == [("Voted", SENDER.lower(), True, BALANCE)]
    assert (vote.call("votesFor"), vote.call("votesAgainst")) == (BALANCE, 0)
    with pytest.raises(Reverted) as twice:
        vote.send("vote", False)
    assert twice.value.error == ("HasVoted", SENDER.lower())


def test_a_vote_by_what_each_voter_shows(service: DevChain, reads: Deployed, compiled):
    """Only the token's storage root is proven. A voter's proof is made by any node."""
    call_command("deploy_reader", 31337, stdout=(output := io.StringIO()))
    reader, block = output.getvalue().split()[-1], service.head()
    vote = Deployed(
        service,
        "SnapshotVoteByProof",
        *(reader, 31337, reads.address, SLOT_OF_BALANCES, block),
        artifact=compiled["SnapshotVoteByProof"],
    )
    (slot, _, _) = reads.call("slots", SENDER)
    proof = service.rpc("eth_getProof", reads.address, ["0x" + slot.hex()], hex(block))["storageProof"][0]["proof"]
    nodes = [bytes.fromhex(node[2:]) for node in proof]
    with pytest.raises(Reverted) as unproven:
        vote.send("vote", True, rlp.encode(nodes))
    assert b"STORAGE_PROOF_ACCOUNT_FIELD_NOT_SAVED".hex() in unproven.value.error[0]

    prove(service, block, {reads.address: {"props": ["STORAGE_ROOT"]}})
    for wrong in (nodes[:-1], [*nodes, nodes[-1]], nodes[1:]):
        with pytest.raises(Reverted):
            vote.send("vote", True, rlp.encode(wrong))
    assert vote.logged(vote.send("vote", True, rlp.encode(nodes))) == [("Voted", SENDER.lower(), True, BALANCE)]
    with pytest.raises(Reverted) as twice:
        vote.send("vote", False, rlp.encode(nodes))
    assert twice.value.error == ("HasVoted", SENDER.lower())


def test_the_interface_of_the_reader_is_its_own(compiled):
    # Both have functions of one name with several orders of arguments.
    of_reader = [described([entry]) for entry in load_artifact("FactsReader").abi]
    of_registry = {entry["name"] for entry in load_artifact("FactsRegistry").abi if entry["type"] == "error"}
    for entry in compiled["IFactsReader"].abi:
        assert described([entry]) in of_reader or entry["name"] in of_registry


def test_a_registry_of_another_chain_is_refused(service: DevChain, reads: Deployed, compiled):
    with pytest.raises(Reverted) as refused:
        Deployed(service, "SnapshotVote", registry(), 1, reads.address, 0, 1, artifact=compiled["SnapshotVote"])
    assert refused.value.error == ("WrongSourceChain", 1, 31337)


def test_typed_reads_are_what_the_chain_held(service: DevChain, reads: Deployed):
    block = service.head()
    slots = reads.call("slots", SENDER)
    props = ["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"]
    prove(
        service,
        block,
        {SENDER: {"props": props}, reads.address: {"props": props, "slots": ["0x" + slot.hex() for slot in slots]}},
        ["TIMESTAMP", "MIX_HASH"],
    )
    at = hex(block)
    header = service.rpc("eth_getBlockByNumber", at, False)
    assert reads.call("timestampOf", block) == int(header["timestamp"], 16)
    assert "0x" + reads.call("prevRandaoOf", block).hex() == header["mixHash"]
    for account in (SENDER, reads.address):
        proof = service.rpc("eth_getProof", account, [], at)
        assert reads.call("balanceAt", account, block) == int(proof["balance"], 16)
        assert reads.call("nonceAt", account, block) == int(proof["nonce"], 16)
        assert "0x" + reads.call("codeHashAt", account, block).hex() == proof["codeHash"]
        assert "0x" + reads.call("storageRootAt", account, block).hex() == proof["storageHash"]
    for slot, value in zip(slots, (BALANCE, int(SENDER, 16), 5), strict=True):
        assert int(service.rpc("eth_getStorageAt", reads.address, "0x" + slot.hex(), at), 16) == value
        reads.call("requireSlotAt", reads.address, block, slot, value.to_bytes(32))
        with pytest.raises(Reverted) as differs:
            reads.call("requireSlotAt", reads.address, block, slot, bytes(32))
        assert differs.value.error == ("SlotDiffers", reads.address.lower(), block, slot, bytes(32), value.to_bytes(32))


def test_a_balance_is_required(service: DevChain, reads: Deployed):
    block = service.head()
    with pytest.raises(Reverted) as unproven:
        reads.call("requireBalanceAt", BOB, block, 0)
    assert unproven.value.error == ("NotProven", BOB.lower(), block, 1)
    prove(service, block, {BOB: {"props": ["BALANCE"]}})
    balance = int(service.rpc("eth_getBalance", BOB, hex(block)), 16)
    assert reads.call("requireBalanceAt", BOB, block, balance) == balance
    with pytest.raises(Reverted) as too_low:
        reads.call("requireBalanceAt", BOB, block, balance + 1)
    assert too_low.value.error == ("BalanceTooLow", BOB.lower(), block, balance + 1, balance)
