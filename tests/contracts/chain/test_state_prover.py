"""State provers over a registry, and what receivers of messages do with them (ERC-7888)."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import rlp
from eth_abi.abi import decode, encode
from eth_account import Account
from eth_utils.abi import abi_to_signature, event_abi_to_log_topic, function_abi_to_4byte_selector
from eth_utils.crypto import keccak

from chains.attestation import AttestationRequest, Domain, sign
from chains.contract_artifacts import NO_CONTRACT, earlier_registry, load_artifact
from chains.encoding import HISTORY_WINDOW
from chains.tries import packed
from contracts import build
from devnet.devchain import ACCOUNTS, DevChain
from tests.chain_fixtures import chain_fixture
from tests.contracts.block_hash_buffer import BlockHashBuffer
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.simulator import Call
from tests.contracts.state_provers import (
    KINDS,
    POINTER_SLOT,
    Home,
    Kind,
    Payload,
    ReadArguments,
    ShownSlot,
    head,
    header_of,
    home_of,
    mapping_slot,
    message_slot,
    payload,
    payload_names,
    pointer,
    prover,
    receiver_on,
    remote_id,
    show,
)

# Another chain than that of all tests of this folder.
other = chain_fixture(chain_id=8453)

SEPOLIA = 11_155_111
MESSAGE = "message-sepolia-9496454"
FOREIGN = "negative-foreign-account-proof-sepolia"
# The only header of a payload that has as many fields as a branch has.
SHANGHAI = "message-taiko-l2-1581"
NOBODY = "0x" + "ee" * 20

VALID = [name for name in payload_names() if name != FOREIGN]
WITH_HEADER = [name for name in VALID if not name.startswith("stateroot-")]
KNOWN: list[tuple[str, Kind]] = [*((name, "ROOT") for name in VALID), *((name, "HASH") for name in WITH_HEADER)]

each_known = pytest.mark.parametrize(("name", "kind"), KNOWN)
each_kind = pytest.mark.parametrize("kind", KINDS)
each_header = pytest.mark.parametrize("name", WITH_HEADER)


@pytest.fixture(scope="module")
def provers(chain: DevChain) -> dict[Kind, Deployed]:
    """Return provers of which only `verifyStorageSlot` is called."""
    return {kind: prover(chain, 1, NOBODY, kind) for kind in KINDS}


# --- The interfaces ---------------------------------------------------------------------------------------------------


def test_functions_and_events_are_those_of_the_standard():
    contracts = ("package/RegistryStateProver", "package/FixedStateProverPointer", "test/Receiver", "test/Broadcaster")
    abi = [entry for name in contracts for entry in load_artifact(name).abi]
    selectors = {
        abi_to_signature(entry): "0x" + function_abi_to_4byte_selector(entry).hex()
        for entry in abi
        if entry["type"] == "function"
    }
    topics = {entry["name"]: event_abi_to_log_topic(entry).hex()[:8] for entry in abi if entry["type"] == "event"}
    read = "(address[],bytes[],bytes)"
    assert (
        selectors.items()
        >= {
            "verifyTargetStateCommitment(bytes32,bytes)": "0x0b7b6ff8",
            "getTargetStateCommitment(bytes)": "0xaaec21a8",
            "verifyStorageSlot(bytes32,bytes)": "0x65ecb397",
            "version()": "0x54fd4d50",
            "implementationCodeHash()": "0xbc0a3981",
            "implementationAddress()": "0xb97a2319",
            f"verifyBroadcastMessage({read},bytes32,address)": "0xb040209f",
            f"updateStateProverCopy({read},address)": "0xcd233ac4",
            "stateProverCopy(bytes32)": "0x4ae19434",
            "broadcastMessage(bytes32)": "0x08940b0a",
        }.items()
    )
    assert topics == {"ImplementationAddressSet": "610578e8", "MessageBroadcast": "688e3605"}
    assert f"{POINTER_SLOT:x}" == "ee72f8a02087d3307bd38f55854a433976910dab504e72b626e32d8d187b5aca"


@pytest.mark.long
def test_the_storage_of_a_registry_is_where_provers_prove_it():
    sources = build.needed(build.read_sources("src"), "src/FactsRegistry.sol")
    output = build.run_compiler(sources, {"src/FactsRegistry.sol": {"FactsRegistry": ["storageLayout"]}})
    layout = output["contracts"]["src/FactsRegistry.sol"]["FactsRegistry"]["storageLayout"]
    places = {entry["label"]: (entry["slot"], entry["offset"], entry["type"]) for entry in layout["storage"]}
    assert places["stateRoot"] == ("0", 0, "t_mapping(t_uint256,t_bytes32)")
    assert places["_blockHashes"] == ("4", 0, "t_mapping(t_bytes32,t_bool)")


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["solc-0.8.20", "solc"])
@pytest.mark.parametrize("optimizer", [{"enabled": False}, {"enabled": True, "runs": 200}], ids=["plain", "optimized"])
def test_the_contracts_compile_without_the_settings_of_this_project(compiler, optimizer):
    sources = build.read_sources()
    paths = [f"{build.LIBRARY}erc7888/{name}.sol" for name in ("RegistryStateProver", "FixedStateProverPointer")]
    output = build.run_compiler(
        build.needed(sources, *paths),
        {path: {"*": ["evm.deployedBytecode.object"]} for path in paths},
        settings={"optimizer": optimizer},
        solc=build.ROOT_DIR / "node_modules" / compiler / "solc.js",
    )
    assert output.get("errors", []) == []


@each_kind
def test_the_code_is_the_same_on_every_chain_and_differs_by_what_is_proven(chain, other, kind):
    here, there = (prover(each, 1, NOBODY, kind) for each in (chain, other))
    assert here.code == there.code
    [other_kind] = [each for each in KINDS if each != kind]
    others = (
        *(prover(chain, 2, NOBODY, kind), prover(chain, 1, SENDER, kind), prover(chain, 1, NOBODY, other_kind)),
        prover(chain, 1, NOBODY, kind, target_chain_id=10),
    )
    assert len({here.code, *(each.code for each in others)}) == 5


@each_kind
def test_at_home_a_prover_has_a_registry_of_its_target(chain, other, kind):
    """A copy on a chain without the registry is the prover's equal."""
    registry = home_of(chain, 10).registry.address
    named = prover(chain, chain.chain_id, registry, kind, target_chain_id=10)
    assert named.call("targetChainId") == 10
    for address, target, error in [
        (NOBODY, 10, ("NoCode", NOBODY)),
        (registry, 11, ("WrongSourceChain", 11, 10)),
    ]:
        with pytest.raises(Reverted) as reverted:
            prover(chain, chain.chain_id, address, kind, target_chain_id=target)
        assert reverted.value.error == error
    assert other.rpc("eth_getCode", registry, "latest") == "0x"
    assert prover(other, chain.chain_id, registry, kind, target_chain_id=10).code == named.code


# --- Slots ------------------------------------------------------------------------------------------------------------


@each_known
def test_a_recorded_slot_is_told_at_home_and_elsewhere(chain, other, name, kind):
    shown = payload(name).shown
    assert any(shown.value)
    registry = home_of(chain, SEPOLIA).registry.address
    for where, home in ((chain, chain.chain_id), (chain, other.chain_id), (other, chain.chain_id)):
        told = prover(where, home, registry, kind).call(
            "verifyStorageSlot", shown.commitment(kind), shown.slot_input(kind)
        )
        assert told == (shown.account, shown.slot, shown.value)


@pytest.mark.parametrize("name", [name for name in VALID if name.startswith("pointer-")])
def test_a_recorded_pointer_tells_its_code_hash(provers, name):
    recorded = payload(name)
    assert recorded.shown.slot == POINTER_SLOT
    told = provers["HASH"].call(
        "verifyStorageSlot", recorded.shown.commitment("HASH"), recorded.shown.slot_input("HASH")
    )
    assert told[2].hex() == recorded.details["value"][2:]


def malformed(shown: ShownSlot) -> Iterator[ShownSlot]:
    """Yield the slot with proofs of which one isn't right."""
    chance = random.Random(shown.slot)
    foreign = payload("target-buffer-arbitrum-207485678").shown.account_nodes[1]
    if foreign in shown.account_nodes:
        foreign = payload(MESSAGE).shown.account_nodes[1]
    yield replace(shown, account_nodes=shown.storage_nodes, storage_nodes=shown.account_nodes)
    yield replace(shown, account_nodes=[])
    for nodes in spoilt(shown.account_nodes, foreign, chance):
        yield replace(shown, account_nodes=nodes)
    for nodes in spoilt(shown.storage_nodes, foreign, chance):
        yield replace(shown, storage_nodes=nodes)


def spoilt(nodes: Sequence[bytes], foreign: bytes, chance: random.Random) -> Iterator[list[bytes]]:
    yield [*nodes[:-1]]
    yield [*nodes, foreign]
    for place, node in enumerate(nodes):
        bit = 1 << chance.randrange(8 * len(node))
        with_other_bit = (int.from_bytes(node) ^ bit).to_bytes(len(node))
        for instead in ([node, node], [foreign], [foreign, node], [with_other_bit], []):
            yield [*nodes[:place], *instead, *nodes[place + 1 :]]


@each_known
def test_a_slot_is_refused_if_a_node_is_not_right(provers, simulator, name, kind):
    shown = payload(name).shown
    asked, error = provers[kind], keccak(text="InvalidProof()")[:4]
    calls = [
        Call(asked.address, asked.calldata("verifyStorageSlot", shown.commitment(kind), each.slot_input(kind)))
        for each in malformed(shown)
    ]
    assert len(calls) > 5 * (len(shown.account_nodes) + len(shown.storage_nodes))
    outcomes = simulator.run(calls)
    assert {(outcome.succeeded, outcome.data[:4]) for outcome in outcomes} == {(False, error)}


@each_kind
def test_a_proof_of_another_account_or_of_another_block_is_refused(provers, kind):
    foreign, right = payload(FOREIGN).shown, payload(MESSAGE).shown
    later = payload("pointer-sepolia-9561476").shown
    for shown in (
        foreign,
        replace(right, account=later.account),
        replace(right, account=NOBODY),
        replace(right, account_nodes=later.account_nodes),
        replace(right, account=later.account, account_nodes=later.account_nodes),
        replace(right, storage_nodes=later.storage_nodes),
    ):
        refusal = provers[kind].refusal("verifyStorageSlot", shown.commitment(kind), shown.slot_input(kind))
        assert refusal == ("InvalidProof",)


@each_header
def test_a_header_of_another_block_or_of_another_chain_is_refused(provers, name):
    shown = payload(name).shown
    others = [payload(each).shown.header for each in [*WITH_HEADER, FOREIGN] if each != name]
    for header in (*others, shown.header[:-1], shown.header + b"\0", b""):
        refusal = provers["HASH"].refusal(
            "verifyStorageSlot", shown.block_hash, replace(shown, header=header).slot_input("HASH")
        )
        assert refusal == ("HeaderOfAnotherBlock", shown.block_hash)


def test_the_header_that_could_be_a_branch_has_as_many_items():
    assert len(rlp.decode(payload(SHANGHAI).shown.header)) == 17


@each_header
def test_a_block_hash_is_no_state_root(provers, name):
    shown = payload(name).shown
    for nodes in ([shown.header], [shown.header, *shown.account_nodes]):
        refusal = provers["ROOT"].refusal(
            "verifyStorageSlot", shown.block_hash, replace(shown, account_nodes=nodes).slot_input("ROOT")
        )
        assert refusal == ("InvalidProof",)


@each_header
def test_a_state_root_is_no_block_hash(provers, name):
    shown = payload(name).shown
    as_header = replace(shown, header=shown.account_nodes[0])
    assert as_header.block_hash == shown.state_root
    for nodes in (shown.account_nodes, shown.account_nodes[1:]):
        refusal = provers["HASH"].refusal(
            "verifyStorageSlot", shown.state_root, replace(as_header, account_nodes=nodes).slot_input("HASH")
        )
        assert refusal == ("InvalidProof",)


@each_known
def test_nothing_is_told_under_a_commitment_of_zero(provers, name, kind):
    shown = payload(name).shown
    expected = ("InvalidProof",) if kind == "ROOT" else ("HeaderOfAnotherBlock", bytes(32))
    assert provers[kind].refusal("verifyStorageSlot", bytes(32), shown.slot_input(kind)) == expected


@each_kind
def test_a_slot_or_an_account_that_is_absent_is_told_to_be_zero(chain, provers, kind):
    broadcaster = Deployed(chain, "test/Broadcaster")
    broadcaster.send("broadcastMessage", b"\1" * 32)
    for account in (broadcaster.address, NOBODY):
        shown = show(chain, account, 0, head(chain))
        told = provers[kind].call("verifyStorageSlot", shown.commitment(kind), shown.slot_input(kind))
        assert told == (account.lower(), 0, bytes(32))


@each_kind
def test_an_input_that_ends_early_is_refused(provers, simulator, kind):
    shown = payload(MESSAGE).shown
    whole = shown.slot_input(kind)
    asked = provers[kind]
    # The last word of the encoding may be padding.
    cuts = [whole[:size] for size in (0, 31, 32, 64, 96, 128, 159, len(whole) - 64)]
    # Offsets and sizes that reach beyond the input.
    place = 32 * (2 if kind == "ROOT" else 3)
    beyond = [
        whole[:place] + value.to_bytes(32) + whole[place + 32 :]
        for value in (len(whole), len(whole) - 31, 2**64, 2**256 - 1, 2**256 - 32)
    ]
    calls = [
        Call(asked.address, asked.calldata("verifyStorageSlot", shown.commitment(kind), each))
        for each in [*cuts, *beyond]
    ]
    assert not any(outcome.succeeded for outcome in simulator.run(calls))


# --- Commitments ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sepolia() -> Payload:
    return payload(MESSAGE)


@pytest.fixture(scope="module")
def parent_hash(sepolia: Payload) -> bytes:
    return bytes(rlp.decode(sepolia.shown.header)[0])


@pytest.fixture(scope="module")
def home(chain: DevChain, sepolia: Payload) -> Home:
    """Return a registry that has the state root of the message's block, and the hash of the block before."""
    home = home_of(chain, SEPOLIA)
    home.know(sepolia.shown.header, sepolia.number)
    home.registry.send_raw(packed.encode_parent_hash([sepolia.shown.header]))
    return home


def test_at_home_a_state_root_is_told_if_the_registry_has_it(home, sepolia):
    asked = prover(home.chain, home.chain.chain_id, home.registry.address)
    root = asked.call("getTargetStateCommitment", encode(["uint256"], [sepolia.number]))
    assert root == sepolia.shown.state_root
    shown = sepolia.shown
    assert asked.call("verifyStorageSlot", root, shown.slot_input("ROOT"))[2] == shown.value
    for number in (sepolia.number - 1, sepolia.number + 1, 0, 2**256 - 1):
        refusal = asked.refusal("getTargetStateCommitment", encode(["uint256"], [number]))
        assert refusal == ("BlockNotKnown", number.to_bytes(32))


def test_at_home_a_block_hash_is_told_if_the_registry_vouches_for_it(home, sepolia, parent_hash):
    asked = prover(home.chain, home.chain.chain_id, home.registry.address, "HASH")
    block_hash = sepolia.shown.block_hash
    for number, known in ((sepolia.number, block_hash), (sepolia.number - 1, parent_hash)):
        assert asked.call("getTargetStateCommitment", encode(["uint256", "bytes32"], [number, known])) == known
    for number, unknown in (
        (sepolia.number, sepolia.shown.state_root),
        (sepolia.number - 1, block_hash),
        (sepolia.number, bytes(32)),
        (0, bytes(32)),
    ):
        refusal = asked.refusal("getTargetStateCommitment", encode(["uint256", "bytes32"], [number, unknown]))
        assert refusal == ("BlockNotKnown", unknown)


@each_kind
def test_a_registry_is_asked_on_its_own_chain_only(home, other, sepolia, kind):
    chain = home.chain
    value = encode(["uint256", "bytes32"], [sepolia.number, sepolia.shown.block_hash])
    away = prover(other, chain.chain_id, home.registry.address, kind)
    assert away.refusal("getTargetStateCommitment", value) == ("NotOnHomeChain", chain.chain_id)
    # A registry of this address here, of a prover for another chain.
    elsewhere = prover(chain, other.chain_id, home.registry.address, kind)
    assert elsewhere.refusal("getTargetStateCommitment", value) == ("NotOnHomeChain", other.chain_id)


@dataclass(frozen=True)
class Proven:
    """A copy of a prover, and a proof of its registry's storage."""

    copy: Deployed
    shown: ShownSlot
    asked: int | bytes
    """A block's number, or its hash."""
    expected: bytes

    def target(self, commitment: bytes, header: bytes = b"", **changes: Any) -> Any:
        return self.copy.call("verifyTargetStateCommitment", commitment, self._input(header, **changes))

    def refusal(self, commitment: bytes, header: bytes = b"", **changes: Any) -> tuple[Any, ...]:
        return self.copy.refusal("verifyTargetStateCommitment", commitment, self._input(header, **changes))

    def _input(self, header: bytes, shown: ShownSlot | None = None, asked: int | bytes | None = None) -> bytes:
        return (shown or self.shown).target_input(self.asked if asked is None else asked, header=header)


@pytest.fixture(params=KINDS)
def proven(request: Any, home: Home, other: DevChain, sepolia: Payload, parent_hash: bytes) -> Proven:
    kind: Kind = request.param
    copy = prover(other, home.chain.chain_id, home.registry.address, kind)
    asked: int | bytes = sepolia.number if kind == "ROOT" else parent_hash
    shown = shown_entry(home, asked)
    expected = sepolia.shown.state_root if kind == "ROOT" else parent_hash
    assert int.from_bytes(shown.value) == (int.from_bytes(expected) if kind == "ROOT" else 1)
    return Proven(copy, shown, asked, expected)


def test_a_registry_of_version_0_3_0_has_its_storage_at_the_same_places(chain, sepolia, parent_hash):
    home = home_of(chain, SEPOLIA, earlier_registry())
    home.know(sepolia.shown.header, sepolia.number)
    home.registry.send_raw(packed.encode_parent_hash([sepolia.shown.header]))
    assert shown_entry(home, sepolia.number).value == sepolia.shown.state_root
    assert shown_entry(home, parent_hash).value == (1).to_bytes(32)
    asked = prover(chain, chain.chain_id, home.registry.address, "HASH")
    known = encode(["uint256", "bytes32"], [sepolia.number - 1, parent_hash])
    assert asked.call("getTargetStateCommitment", known) == parent_hash


def shown_entry(home: Home, asked: int | bytes) -> ShownSlot:
    """Return where the registry's storage has a state root by its block's number, or a block's hash."""
    slot = mapping_slot(asked, 4 if isinstance(asked, bytes) else 0)
    return show(home.chain, home.registry.address, slot, head(home.chain))


def test_elsewhere_a_commitment_is_proven_by_the_home_chains_state_root_or_block_hash(proven):
    shown = proven.shown
    assert proven.target(shown.state_root) == proven.expected
    assert proven.target(shown.block_hash, shown.header) == proven.expected


def test_a_proof_is_refused_at_home(proven, home):
    kind = KINDS[proven.copy.call("kind")]
    at_home = replace(proven, copy=prover(home.chain, home.chain.chain_id, home.registry.address, kind))
    assert at_home.refusal(proven.shown.state_root) == ("OnHomeChain",)
    for home_id in (home.chain.chain_id - 1, home.chain.chain_id + 1):
        elsewhere = replace(proven, copy=prover(home.chain, home_id, home.registry.address, kind))
        assert elsewhere.target(proven.shown.state_root) == proven.expected


def test_it_is_the_first_version(chain):
    assert prover(chain, 1, NOBODY).call("version") == 1


def test_a_block_that_the_registry_does_not_know_is_not_proven(proven, home):
    unknown: int | bytes = b"\7" * 32 if isinstance(proven.asked, bytes) else proven.asked + 1
    shown = shown_entry(home, unknown)
    word = unknown if isinstance(unknown, bytes) else unknown.to_bytes(32)
    assert proven.refusal(shown.state_root, shown=shown, asked=unknown) == ("BlockNotKnown", word)
    # The proof of another block's slot.
    assert proven.refusal(shown.state_root, shown=shown) == ("InvalidProof",)


def test_a_commitment_is_refused_if_a_node_is_not_right(proven):
    shown = proven.shown
    for each in malformed(shown):
        assert proven.refusal(shown.state_root, shown=each) == ("InvalidProof",)
        assert proven.refusal(shown.block_hash, shown.header, shown=each) == ("InvalidProof",)


def test_storage_of_another_account_is_not_the_registrys(proven, home):
    """The source maps numbers of blocks to their hashes in its slot 0."""
    shown = show(home.chain, home.source.address, proven.shown.slot, head(home.chain))
    assert proven.refusal(shown.state_root, shown=shown) == ("InvalidProof",)
    elsewhere = prover(proven.copy.chain, home.chain.chain_id, home.source.address, KINDS[proven.copy.call("kind")])
    assert replace(proven, copy=elsewhere).refusal(proven.shown.state_root) == ("InvalidProof",)


def test_a_home_commitment_is_of_the_kind_that_its_input_says(proven, sepolia):
    shown = proven.shown
    as_root = replace(shown, account_nodes=[shown.header, *shown.account_nodes])
    assert proven.refusal(shown.block_hash, shown=as_root) == ("InvalidProof",)
    assert proven.refusal(shown.state_root, shown.account_nodes[0]) == ("InvalidProof",)
    assert proven.refusal(shown.block_hash) == ("InvalidProof",)
    assert proven.refusal(bytes(32)) == ("InvalidProof",)
    for commitment, header in (
        (shown.state_root, shown.header),
        (shown.block_hash, sepolia.shown.header),
        (bytes(32), shown.header),
    ):
        assert proven.refusal(commitment, header) == ("HeaderOfAnotherBlock", commitment)


# --- Pointers ---------------------------------------------------------------------------------------------------------


@each_kind
def test_a_pointer_tells_its_prover_for_good(chain, kind):
    named = prover(chain, 1, NOBODY, kind)
    block = head(chain) + 1
    found = pointer(named)
    code_hash = keccak(named.code)
    assert found.call("implementationAddress") == named.address.lower()
    assert found.call("implementationCodeHash") == code_hash
    assert chain.rpc("eth_getStorageAt", found.address, hex(POINTER_SLOT), "latest") == "0x" + code_hash.hex()
    logs = chain.rpc("eth_getLogs", {"address": found.address, "fromBlock": hex(block)})
    assert found.logged({"logs": logs}) == [
        ("ImplementationAddressSet", named.call("version"), named.address.lower(), code_hash, NO_CONTRACT)
    ]
    abi = load_artifact("package/FixedStateProverPointer").abi
    functions = {entry["name"] for entry in abi if entry["type"] == "function"}
    assert functions == {"implementationAddress", "implementationCodeHash"}


@pytest.mark.parametrize("delegates", [False, True])
def test_a_pointer_names_no_account_without_code_of_its_own(chain, delegates):
    account = "0x" + "de" * 20
    to = prover(chain, 1, NOBODY).address.removeprefix("0x")
    chain.rpc("anvil_setCode", account, f"0xef0100{to}" if delegates else "0x")
    code = load_artifact("package/FixedStateProverPointer").bytecode + encode(["address"], [account])
    answer = chain.ask("eth_call", {"from": SENDER, "data": "0x" + code.hex()}, "latest")
    data = bytes.fromhex(answer["error"]["data"][2:])
    assert data[:4] == keccak(text="NoCode(address)")[:4]
    assert decode(["address"], data[4:]) == (account,)
    # Other code that can't tell its version fails as code.
    chain.rpc("anvil_setCode", account, "0xfe")
    answer = chain.ask("eth_call", {"from": SENDER, "data": "0x" + code.hex()}, "latest")
    assert answer["error"].get("data", "0x") == "0x"


# --- Messages ---------------------------------------------------------------------------------------------------------


def number_input(block: int) -> bytes:
    return encode(["uint256"], [block])


def test_a_message_is_taken_over_one_hop(chain, other):
    """Two of two attesters vouch for the block in which it was broadcast."""
    attesters = sorted((Account.from_key(key) for _, key in ACCOUNTS[:2]), key=lambda each: int(each.address, 16))
    source = Deployed(other, "AttestedBlockHashSource", chain.chain_id, [each.address.lower() for each in attesters], 2)
    registry = Deployed(other, "FactsRegistry", chain.chain_id, source.address, HISTORY_WINDOW, NO_CONTRACT)
    hop = pointer(prover(other, other.chain_id, registry.address, target_chain_id=chain.chain_id))
    receiver = receiver_on(other)
    broadcaster = Deployed(chain, "test/Broadcaster")
    message = keccak(text="a message")
    broadcaster.send("broadcastMessage", message)
    assert broadcaster.refusal("broadcastMessage", message) == ("AlreadyBroadcast", message, SENDER.lower())
    block = head(chain)
    header = header_of(chain, block)

    def taken(shown: ShownSlot, what: bytes, publisher: str = SENDER, block: int = block) -> tuple[Any, ...]:
        return ([hop.address], [number_input(block)], shown.slot_input("ROOT")), what, publisher

    shown = show(chain, broadcaster.address, message_slot(message, SENDER), block)
    unknown = receiver.refusal("verifyBroadcastMessage", *taken(shown, message))
    assert unknown == ("BlockNotKnown", block.to_bytes(32))

    question = AttestationRequest(Domain(other.chain_id, source.address), chain.chain_id, block)
    signatures = b"".join(sign(each, question.message(header.hash)) for each in attesters)
    source.send("attest", block, header.hash, signatures)
    registry.send_raw(packed.encode(header.encode(), header.state_root))
    told = receiver.call("verifyBroadcastMessage", *taken(shown, message))
    assert told == (remote_id(hop.address, broadcaster.address), header.timestamp)

    absent = show(chain, broadcaster.address, message_slot(keccak(text="no message"), SENDER), block)
    for arguments, refusal in (
        (taken(shown, keccak(text="no message")), "NotTheMessage"),
        (taken(shown, message, NOBODY), "NotTheMessage"),
        (taken(absent, keccak(text="no message")), "NotBroadcast"),
        (taken(absent, message), "NotTheMessage"),
    ):
        assert receiver.refusal("verifyBroadcastMessage", *arguments) == (refusal,)
    later = receiver.refusal("verifyBroadcastMessage", *taken(shown, message, block=block + 1))
    assert later == ("BlockNotKnown", (block + 1).to_bytes(32))
    # Somebody else's broadcaster has an id of its own.
    copy = Deployed(chain, "test/Broadcaster")
    assert remote_id(hop.address, copy.address) != told[0]


@dataclass(frozen=True)
class Hops:
    """A receiver, and a route whose first hop leads to the chain of a second pointer.

    `first_kind` is that of the commitments that the first prover gives.
    """

    receiver: Deployed
    first: Deployed
    first_kind: Kind
    first_input: bytes
    block: int
    second: Deployed
    """The pointer of the second hop, on its own chain."""

    @property
    def second_id(self) -> bytes:
        return remote_id(self.first.address, self.second.address)

    def read(self, account: str, slot: int) -> ReadArguments:
        """Return how the receiver reads a slot after the first hop."""
        shown = show(self.second.chain, account, slot, self.block)
        return [self.first.address], [self.first_input], shown.slot_input(self.first_kind)

    def read_beyond(self, second_input: bytes, proof: bytes) -> ReadArguments:
        """Return how the receiver reads after both hops."""
        return [self.first.address, self.second.address], [self.first_input, second_input], proof


def hops_to(second: Deployed, other: DevChain, first_kind: Kind, *, by_buffer: bool = False) -> Hops:
    """Let a chain know the newest block of the other pointer's chain, by a registry or by a buffer."""
    chain = second.chain
    block = head(chain)
    header = header_of(chain, block)
    if by_buffer:
        buffer = BlockHashBuffer(other)
        buffer.push(block, [header.hash])
        named = Deployed(other, "test/BufferStateProver", other.chain_id, buffer.contract.address, 1)
        first_input = number_input(block)
    else:
        known = home_of(other, chain.chain_id)
        known.know(header.encode(), block)
        named = prover(other, other.chain_id, known.registry.address, first_kind, target_chain_id=chain.chain_id)
        first_input = number_input(block)
        if first_kind == "HASH":
            first_input = encode(["uint256", "bytes32"], [block, header.hash])
    return Hops(receiver_on(other), pointer(named), first_kind, first_input, block, second)


@pytest.mark.parametrize(
    ("first_kind", "by_buffer"),
    [("ROOT", False), ("HASH", False), ("HASH", True)],
    ids=["state root", "block hash", "somebody else's prover"],
)
def test_a_message_is_taken_over_two_hops(home, other, sepolia, first_kind, by_buffer):
    named = prover(home.chain, home.chain.chain_id, home.registry.address)
    hops = hops_to(pointer(named), other, first_kind, by_buffer=by_buffer)
    entry = show(home.chain, home.registry.address, mapping_slot(sepolia.number, 0), hops.block)
    second_input = entry.target_input(sepolia.number, header=b"" if first_kind == "ROOT" else entry.header)
    details = sepolia.details
    arguments = (
        hops.read_beyond(second_input, sepolia.shown.slot_input("ROOT")),
        bytes.fromhex(details["message"][2:]),
        details["publisher"],
    )
    assert hops.receiver.call("stateProverCopy", hops.second_id) == NO_CONTRACT
    assert hops.receiver.refusal("verifyBroadcastMessage", *arguments) == ("NoCopy", hops.second_id)

    copy = prover(other, home.chain.chain_id, home.registry.address)
    hops.receiver.send("updateStateProverCopy", hops.read(hops.second.address, POINTER_SLOT), copy.address)
    assert hops.receiver.call("stateProverCopy", hops.second_id) == copy.address.lower()
    assert hops.receiver.call("verifyBroadcastMessage", *arguments) == (
        remote_id(hops.first.address, hops.second.address, sepolia.shown.account),
        int(details["value"], 16),
    )


def test_a_route_goes_on_by_somebody_elses_prover(chain, other, sepolia):
    """It wants a header, so the first commitment is a block hash."""
    buffer = BlockHashBuffer(chain)
    buffer.push(sepolia.number, [sepolia.shown.block_hash])
    named = Deployed(chain, "test/BufferStateProver", chain.chain_id, buffer.contract.address, 1)
    hops = hops_to(pointer(named), other, "HASH")
    copy = Deployed(other, "test/BufferStateProver", chain.chain_id, buffer.contract.address, 1)
    hops.receiver.send("updateStateProverCopy", hops.read(hops.second.address, POINTER_SLOT), copy.address)
    entry = show(chain, buffer.contract.address, mapping_slot(sepolia.number, 1), hops.block)
    second_input = entry.target_input(sepolia.number, header=entry.header)
    told = hops.receiver.call(
        "verifyBroadcastMessage",
        hops.read_beyond(second_input, sepolia.shown.slot_input("HASH")),
        bytes.fromhex(sepolia.details["message"][2:]),
        sepolia.details["publisher"],
    )
    assert told[1] == int(sepolia.details["value"], 16)


def test_what_the_buffer_of_an_arbitrum_chain_holds_is_a_recorded_target(other):
    """Somebody else's prover takes a recorded proof after a commitment as ours gives it."""
    recorded = payload("target-buffer-arbitrum-207485678")
    details = recorded.details
    copy = Deployed(other, "test/BufferStateProver", 1, recorded.shown.account, details["mappingSlot"])
    told = copy.call(
        "verifyTargetStateCommitment",
        recorded.shown.block_hash,
        recorded.shown.target_input(details["targetBlockNumber"], header=recorded.shown.header),
    )
    assert told.hex() == details["targetBlockHash"][2:]


def test_a_copy_gives_way_to_one_of_a_higher_version_only(chain, other):
    """A pointer of somebody who changes it is a fixed one whose storage the node changes."""
    registry = home_of(chain, SEPOLIA).registry.address
    first, later = prover(chain, chain.chain_id, registry), Deployed(chain, "test/BufferStateProver", 1, NOBODY, 1)
    copies = {
        each: Deployed(other, name, *arguments)
        for each, name, arguments in (
            (first, "package/RegistryStateProver", (chain.chain_id, SEPOLIA, registry, 0)),
            (later, "test/BufferStateProver", (1, NOBODY, 1)),
        )
    }
    changed = pointer(first)
    known = home_of(other, chain.chain_id)
    over_known = prover(other, other.chain_id, known.registry.address, target_chain_id=chain.chain_id)
    receiver, hop = receiver_on(other), pointer(over_known)

    def shown_in(account: str, copy: str, *, slot: int = POINTER_SLOT) -> tuple[ReadArguments, str]:
        chain.rpc("anvil_mine")
        block = head(chain)
        known.know(header_of(chain, block).encode(), block)
        shown = show(chain, account, slot, block)
        return ([hop.address], [number_input(block)], shown.slot_input("ROOT")), copy

    def update(code_hash: bytes, copy: str, *, slot: int = POINTER_SLOT) -> tuple[ReadArguments, str]:
        """Return the arguments that tell what the pointer names from now on."""
        chain.rpc("anvil_setStorageAt", changed.address, f"0x{POINTER_SLOT:064x}", "0x" + code_hash.hex())
        return shown_in(changed.address, copy, slot=slot)

    of_first, of_later = keccak(first.code), keccak(later.code)
    pointer_id = remote_id(hop.address, changed.address)
    for code_hash, copy, refusal in (
        (of_first, copies[later].address, ("NotACopy", of_first)),
        (of_first, NOBODY, ("NotACopy", of_first)),
    ):
        assert receiver.refusal("updateStateProverCopy", *update(code_hash, copy)) == refusal
    # A pointer that was never set, and an account that was never touched.
    unset = Deployed(chain, "test/Broadcaster").address
    refusal = receiver.refusal("updateStateProverCopy", *shown_in(unset, "0x" + "ed" * 20))
    assert refusal == ("NotACopy", bytes(32))
    elsewhere = update(of_first, copies[first].address, slot=POINTER_SLOT + 1)
    assert receiver.refusal("updateStateProverCopy", *elsewhere) == ("NotThePointerSlot",)

    versions = [(of_first, first, True), (of_first, first, False), (of_later, later, True), (of_first, first, False)]
    for code_hash, named, is_taken in versions:
        arguments = update(code_hash, copies[named].address)
        if is_taken:
            receiver.send("updateStateProverCopy", *arguments)
            assert receiver.call("stateProverCopy", pointer_id) == copies[named].address.lower()
        else:
            refusal = receiver.refusal("updateStateProverCopy", *arguments)
            assert refusal == ("VersionNotHigher", copies[named].call("version"))


def test_a_route_has_an_input_for_each_pointer(other):
    receiver = receiver_on(other)
    for route, inputs in itertools.product(([], [NOBODY]), ([], [b""] * 2)):
        refusal = receiver.refusal("verifyBroadcastMessage", (route, inputs, b""), bytes(32), NOBODY)
        assert refusal == ("InvalidRoute",)
