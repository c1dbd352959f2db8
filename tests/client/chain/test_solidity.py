"""The Solidity library, compiled, deployed and called with proven facts."""

import io
import subprocess
from typing import Any

import pytest
import rlp
from django.core.management import call_command

from chains.contract_artifacts import Artifact, load_artifact
from devnet.devchain import PROJECT, DevChain
from proving.models import FactsRegistry
from tests.client.library import SOURCES, compile_library
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.proving import tokens
from tests.service import BOB, a_key, submit, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

BALANCE = 10**18
SLOT_OF_BALANCES = 0
# The reader's constructor, which has no name, and its errors: users never meet them.
OF_DEPLOYMENTS = {None, "InvalidCount", "InvalidRegistry"}


@pytest.fixture(scope="module")
def compiled() -> dict[str, Artifact]:
    return compile_library()


@pytest.fixture
def reads(service: DevChain, compiled) -> Deployed:
    artifact = compiled["ReadsOfEveryKind"]
    return Deployed(service, "ReadsOfEveryKind", registry(), SENDER, BALANCE, artifact=artifact)


def registry() -> str:
    return str(FactsRegistry.in_use.get().address)


@pytest.fixture
def reader(service: DevChain) -> str:
    call_command("deploy_reader", 31337, stdout=(output := io.StringIO()))
    return output.getvalue().split()[-1]


def shown(chain: DevChain, account: str, slot: bytes, block: int) -> tuple[list[bytes], list[bytes]]:
    """Return the nodes of an account and of its slot."""
    proof = chain.rpc("eth_getProof", account, ["0x" + slot.hex()], hex(block))
    of_account, of_slot = (
        [bytes.fromhex(node[2:]) for node in nodes]
        for nodes in (proof["accountProof"], proof["storageProof"][0]["proof"])
    )
    return of_account, of_slot


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
    assert of_interface.keys() <= shared.keys()
    assert {key: of_interface[key] for key in shared} == shared
    # Readers of facts need all events, and the errors that a missing fact gives.
    told = [(kind, name) for kind, name in of_registry if kind == "event" or name.endswith("NotProven")]
    assert set(told) <= of_interface.keys()


@pytest.mark.story
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


def test_a_vote_by_what_each_voter_shows(service: DevChain, reads: Deployed, reader: str, compiled):
    """Only the token's storage root is proven. A voter's proof is made by any node."""
    block = service.head()
    vote = Deployed(
        service,
        "SnapshotVoteByProof",
        *(reader, 31337, reads.address, SLOT_OF_BALANCES, block),
        artifact=compiled["SnapshotVoteByProof"],
    )
    (slot, _, _) = reads.call("slots", SENDER)
    _, nodes = shown(service, reads.address, slot, block)
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
    # The older order of arguments has functions of the same names.
    abis = (load_artifact("FactsReader").abi, compiled["IFactsReader"].abi, compiled["IEarlierSatellite"].abi)
    of_reader, of_interface, of_older = (
        {str(described([entry])) for entry in abi if entry.get("name") not in OF_DEPLOYMENTS} for abi in abis
    )
    assert of_interface | of_older == of_reader
    assert not of_interface & of_older


@pytest.mark.long
def test_typed_reads_of_what_the_caller_shows(service: DevChain, reads: Deployed, reader: str):
    reads.call("requireSourceChain", reader, 31337)
    with pytest.raises(Reverted) as unknown:
        reads.call("requireSourceChain", reader, 1)
    assert unknown.value.error == ("UnknownSourceChain", 1)

    # The block of the token's deployment has one transaction with two logs.
    logs = service.rpc("eth_getLogs", {"address": reads.address, "fromBlock": "0x0"})
    receipt = service.rpc("eth_getTransactionReceipt", logs[0]["transactionHash"])
    block, (slot, _, _) = int(logs[0]["blockNumber"], 16), reads.call("slots", SENDER)
    prove(service, block, {reads.address: {"props": ["STORAGE_ROOT"]}}, ["RECEIPTS_ROOT"])
    at, token = (reader, 31337, block), reads.address.lower()

    of_account, of_slot = map(rlp.encode, shown(service, reads.address, slot, block))
    reads.call("requireSlotByProof", *at, reads.address, slot, BALANCE.to_bytes(32), of_slot)
    with pytest.raises(Reverted) as differs:
        reads.call("requireSlotByProof", *at, reads.address, slot, bytes(32), of_slot)
    assert differs.value.error == ("SlotDiffers", token, block, slot, bytes(32), BALANCE.to_bytes(32))
    assert reads.call("requireBalanceByProof", *at, reads.address, 0, of_account) == 0
    with pytest.raises(Reverted) as too_low:
        reads.call("requireBalanceByProof", *at, reads.address, 1, of_account)
    assert too_low.value.error == ("BalanceTooLow", token, block, 1, 0)

    (topics, data), other = (
        ([bytes.fromhex(topic[2:]) for topic in log["topics"]], bytes.fromhex(log["data"][2:])) for log in logs
    )
    bloom, gas = bytes.fromhex(receipt["logsBloom"][2:]), int(receipt["cumulativeGasUsed"], 16)
    fields = [1, gas, bloom, [[bytes.fromhex(token[2:]), topics, data], [bytes.fromhex(token[2:]), *other]]]
    # A leaf whose key is the RLP of the index 0.
    leaf = [b"\x20\x80", bytes([int(receipt["type"], 16)]) + rlp.encode(fields)]
    of_log = rlp.encode([rlp.encode(leaf)])
    assert reads.call("requireLogByProof", reader, (*at[1:], 0, 0), token, topics[0], of_log) == (tuple(topics), data)
    for index, emitter, topic in ((0, SENDER, topics[0]), (0, token, topics[1]), (1, token, bytes(32))):
        with pytest.raises(Reverted) as another:
            reads.call("requireLogByProof", reader, (*at[1:], 0, index), emitter, topic, of_log)
        assert another.value.error == ("LogDiffers", token, bytes(32) if index else topics[0])


@pytest.mark.long
def test_a_contract_that_was_written_for_satellite(service: DevChain, reads: Deployed, reader: str, compiled):
    satellite = Deployed(service, "SatelliteReads", reader, artifact=compiled["SatelliteReads"])
    (slot, _, _) = reads.call("slots", SENDER)
    service.rpc("anvil_setBalance", reads.address, hex(7))
    service.mine()
    block = service.head()
    time = int(service.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"], 16)
    service.rpc("evm_increaseTime", 1)
    service.mine()
    names = ["HEADER_FIELD", "ACCOUNT_FIELD", "SLOT", "TIMESTAMP", "ACCOUNT_FIELD", "SLOT"]
    place = (31337, block, time, reads.address, slot)
    unsaved = tuple(f"STORAGE_PROOF_{name}_NOT_SAVED" for name in names)
    for at in (place, (1, *place[1:])):
        assert satellite.call("reasonsOf", at) == unsaved
        assert satellite.call("readSafe", at) == ((False,) * 6, (bytes(32),) * 6)

    account = {"props": ["BALANCE"], "slots": ["0x" + slot.hex()]}
    data = {
        f"block:{block}": {"header": ["TIMESTAMP"], "accounts": {reads.address: account}},
        f"timestamp:{time}": {"header": ["BLOCK_NUMBER"]},
    }
    work_until_done(submit(a_key(), {"destinationChainId": "31337", "fee": "0", "data": {"31337": data}}), service)
    facts = tuple(value.to_bytes(32) for value in (time, 7, BALANCE, block, 7, BALANCE))
    assert satellite.call("read", place) == facts
    assert satellite.call("readSafe", place) == ((True,) * 6, facts)
    assert satellite.call("reasonsOf", place) == ("",) * 6


@pytest.mark.long
def test_a_compiler_by_its_own_defaults_has_room_on_the_stack(tmp_path):
    """Users' compilers don't go by the intermediate language, as this project's does."""
    command = [".venv/bin/node", "node_modules/.bin/solcjs", "--bin", "--base-path", "."]
    paths = [str(path.relative_to(PROJECT)) for path in SOURCES]
    made = subprocess.run(
        [*command, "--output-dir", tmp_path, *paths], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, ""), made.stdout


def test_a_registry_of_another_chain_is_refused(service: DevChain, reads: Deployed, compiled):
    with pytest.raises(Reverted) as refused:
        Deployed(service, "SnapshotVote", registry(), 1, reads.address, 0, 1, artifact=compiled["SnapshotVote"])
    assert refused.value.error == ("WrongSourceChain", 1, 31337)


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_slots_of_other_compilers_are_those_of_compiled_tokens(service: DevChain, reads: Deployed):
    """Vyper 0.4.3 declares `balanceOf` at slot 3."""
    made = tokens.deploy(service).addresses
    of_solidity, of_vyper, of_word, of_solady = reads.call("slotsOfOthers", 3, SENDER)
    assert of_vyper == of_word
    for name, slot in {"Vyper 0.4.3": of_vyper, "SoladyToken": of_solady, "SolmateToken": of_solidity}.items():
        service.rpc("anvil_setStorageAt", made[name], "0x" + slot.hex(), f"0x{987654321:064x}")
        call = {"to": made[name], "data": "0x70a08231" + f"{SENDER[2:]:0>64}"}
        assert int(service.rpc("eth_call", call, "latest"), 16) == 987654321, name


def test_parts_of_a_word_are_numbers(reads: Deployed):
    word = 0xF23456789ABCDEF00FEDCBA9876543218123456789ABCDEF7EDCBA9876543219
    for offset, size in [(0, 256), (0, 255), (255, 1), (48, 208), (3, 13), (0, 1), (128, 128), (64, 64)]:
        number = word >> offset & (1 << size) - 1
        signed = number - (1 << size) * (number >> size - 1)
        assert reads.call("parts", word.to_bytes(32), offset, size) == (number, signed)
    for offset, size in [(1, 256), (256, 1), (2**256 - 1, 2), (0, 257)]:
        with pytest.raises(Reverted):
            reads.call("parts", word.to_bytes(32), offset, size)
