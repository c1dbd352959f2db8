"""The package's adapters, asked as the contracts of others ask: Curve's storage proofs and Unruggable's gateways."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rlp
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from chains.contract_artifacts import Artifact, load_artifact
from devnet.devchain import ACCOUNTS, PROJECT
from tests import headers
from tests.contracts import tries
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.simulator import Call
from tests.contracts.walks import REFUSAL
from tests.fixtures_folder import RECORDED, unhex

GATEWAYS = PROJECT / "node_modules" / "@unruggable" / "gateways" / "artifacts"
VYPER = Path(__file__).parents[1] / "vyper"
# Proofs of public chains that were shown to contracts of others.
PAYLOADS = RECORDED / "crosschain"
BLOCK, ROOT = 1234, b"\x05" * 32
HEADER = headers.encode(headers.PRAGUE, number=BLOCK, stateRoot=ROOT)
NOBODY = "0x" + "ee" * 20


# --- Curve ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def oracle(chain, registry) -> Deployed:
    return Deployed(chain, "package/CurveBlockHashOracle", registry.address, 1)


@pytest.fixture(scope="module")
def vyper_caller(chain) -> str:
    """Return the address of a contract that was compiled by vyper 0.4.3."""
    code = bytes.fromhex((VYPER / "OracleCaller.hex").read_text().strip().removeprefix("0x"))
    return Deployed(chain, "", artifact=Artifact(abi=[], bytecode=code, runtime=b"", immutables={})).address


def asked(chain, caller: str, function: str, oracle: Deployed, number: int) -> bytes | None:
    """Return what a caller in Vyper answers, None if it reverts."""
    data = keccak(text=f"{function}(address,uint256)")[:4] + encode(["address", "uint256"], [oracle.address, number])
    reply = chain.ask("eth_call", {"to": caller, "data": "0x" + data.hex()}, "latest")
    return unhex(reply["result"]) if "result" in reply else None


def test_curves_oracle_knows_accumulated_roots_and_vouched_hashes(chain, source, registry, oracle, vyper_caller):
    user = Deployed(chain, "test/PackageUser")
    source.send("set", BLOCK, keccak(HEADER))
    # The hash is known before the header is accumulated, and the root after.
    assert asked(chain, vyper_caller, "block_hash", oracle, BLOCK) == keccak(HEADER)
    assert asked(chain, vyper_caller, "state_root", oracle, BLOCK) is None
    assert user.call("stateRootBy", oracle.address, BLOCK) == (False, bytes(32))
    registry.send_raw(HEADER + b"\x37")
    assert asked(chain, vyper_caller, "state_root", oracle, BLOCK) == ROOT
    assert user.call("stateRootBy", oracle.address, BLOCK) == (True, ROOT)
    assert user.call("blockHashBy", oracle.address, BLOCK) == keccak(HEADER)
    # The source has forgotten the block. What was accumulated stays.
    source.send("set", BLOCK, bytes(32))
    assert asked(chain, vyper_caller, "block_hash", oracle, BLOCK) is None
    assert asked(chain, vyper_caller, "state_root", oracle, BLOCK) == ROOT
    assert asked(chain, vyper_caller, "known_block_number", oracle, BLOCK) is None


@pytest.mark.parametrize("function", ["get_block_hash", "get_state_root"])
@pytest.mark.parametrize("number", [0, BLOCK, 2**64, 2**256 - 1])
def test_curves_oracle_reverts_where_it_knows_nothing(oracle, function, number):
    assert oracle.refusal(function, number) == ("UnknownBlock", number)


def test_curves_oracle_does_not_search(oracle):
    assert oracle.refusal("find_known_block_number", BLOCK) == ("SearchUnsupported",)


def test_curves_oracle_refuses_a_registry_of_another_chain(chain, registry):
    with pytest.raises(Reverted) as reverted:
        Deployed(chain, "package/CurveBlockHashOracle", registry.address, 10)
    assert reverted.value.error == ("WrongSourceChain", 10, 1)


def test_curves_oracle_can_be_tested_over_the_mock(chain):
    mock = Deployed(chain, "test/FactsMock", 10)
    oracle = Deployed(chain, "package/CurveBlockHashOracle", mock.address, 10)
    assert oracle.refusal("get_state_root", BLOCK) == oracle.refusal("get_block_hash", BLOCK)
    mock.send("setStateRoot", BLOCK, ROOT)
    mock.send("vouchFor", BLOCK, keccak(HEADER))
    assert (oracle.call("get_state_root", BLOCK), oracle.call("get_block_hash", BLOCK)) == (ROOT, keccak(HEADER))


# --- Unruggable -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A slot of an account under a state root, with the nodes of both proofs."""

    root: bytes
    account: bytes
    slot: int
    account_nodes: Sequence[bytes]
    slot_nodes: Sequence[bytes]

    @property
    def proofs(self) -> list[bytes]:
        return [encode(["bytes[]"], [nodes]) for nodes in (self.account_nodes, self.slot_nodes)]

    @property
    def program(self) -> bytes:
        """Two outputs: whether the account has code (operation 36), and the slot's word (60)."""
        target = b"\x02\x14" + self.account + b"\x32\x24\x00\x33"
        return target + b"\x20" + self.slot.to_bytes(32) + b"\x46\x3c\x01\x01\x33"


@dataclass(frozen=True)
class Side:
    """A verifier of theirs, over their hooks or ours."""

    verifier: Deployed
    hooks: Deployed

    def answers(self, question: Question) -> list[bytes] | None:
        """Return the outputs, None if it reverts."""
        arguments = (question.program,), question.root, question.proofs, b"\x00\x01"
        try:
            outputs, code = self.verifier.call("verify", *arguments)
        except Reverted:
            return None
        assert code == 0
        return list(outputs)


def theirs(name: str, libraries: Sequence[str] = ()) -> Artifact:
    """Return an artifact of the published package, with the addresses of its libraries."""
    stored = json.loads((GATEWAYS / f"{name}.sol" / f"{name}.json").read_text())
    code = stored["bytecode"]["object"].removeprefix("0x")
    places = [
        place
        for files in stored["bytecode"]["linkReferences"].values()
        for places in files.values()
        for place in places
    ]
    assert len(places) == len(libraries)
    for place, address in zip(places, libraries, strict=True):
        start = 2 * place["start"]
        code = code[:start] + address[2:].lower() + code[start + 40 :]
    return Artifact(abi=stored["abi"], bytecode=bytes.fromhex(code), runtime=b"", immutables={})


@pytest.fixture(scope="module")
def sides(chain) -> tuple[Side, Side]:
    machine = Deployed(chain, "", artifact=theirs("GatewayVM")).address
    verifier = theirs("SelfVerifier", [machine])
    hooks = (
        Deployed(chain, "", artifact=theirs("EthVerifierHooks")),
        Deployed(chain, "package/UnruggableHooks"),
    )
    their_side, our_side = (
        Side(Deployed(chain, "", [], 1000, each.address, artifact=verifier), each) for each in hooks
    )
    return their_side, our_side


def shown(chain, account: str, slot: int) -> Question:
    """Return a question about the latest block of the development chain, with the node's own answer."""
    root = unhex(chain.rpc("eth_getBlockByNumber", "latest", False)["stateRoot"])
    answer = chain.rpc("eth_getProof", account, [f"0x{slot:064x}"], "latest")
    nodes = [list(map(unhex, each)) for each in (answer["accountProof"], answer["storageProof"][0]["proof"])]
    return Question(root, unhex(account), slot, *nodes)


@pytest.fixture(scope="module")
def filled(chain) -> tuple[Deployed, list[int]]:
    """Return a contract with some slots set, and these slots."""
    source = Deployed(chain, "test/SettableBlockHashSource", 1)
    values = [1, 127, 128, 2**64, 2**256 - 1, *range(2, 30)]
    for number, value in enumerate(values):
        source.send("set", number, value.to_bytes(32))
    return source, [int.from_bytes(keccak(number.to_bytes(32) + bytes(32))) for number in range(len(values))]


def payload(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_text())
    return content


def recorded(name: str) -> Question:
    content = payload(name)
    nodes = [[bytes(node) for node in rlp.decode(unhex(content[key]))] for key in ("accountProof", "storageProof")]
    return Question(unhex(content["stateRoot"]), unhex(content["account"]), int(content["slot"], 16), *nodes)


def test_their_verifier_answers_by_our_hooks_as_by_theirs(chain, sides, filled):
    contract, slots = filled
    empty = Deployed(chain, "test/PackageUser").address
    questions = [shown(chain, contract.address, slot) for slot in [*slots, 0, 1, 2**255]]
    words = [
        bytes(32),
        *(unhex(chain.rpc("eth_getStorageAt", contract.address, hex(slot), "latest")) for slot in slots),
    ]
    for account in (empty, SENDER, ACCOUNTS[3][0], NOBODY):
        questions += [shown(chain, account, slot) for slot in (0, slots[0])]
    answers = [side.answers(question) for side in sides for question in questions]
    by_theirs, by_ours = answers[: len(questions)], answers[len(questions) :]
    assert by_ours == by_theirs
    has_code, no_code = (number.to_bytes(32) for number in (1, 0))
    expected = [*words[1:], *[bytes(32)] * 3]
    assert by_ours[: len(expected)] == [[has_code, word] for word in expected]
    assert by_ours[len(expected) :] == [*[[has_code, bytes(32)]] * 2, *[[no_code, bytes(32)]] * 6]


@pytest.mark.parametrize("name", sorted(path.stem for path in PAYLOADS.glob("*.json") if "negative" not in path.stem))
def test_recorded_proofs_of_other_chains_are_answered_alike(sides, name):
    question, content = recorded(name), payload(name)
    value = unhex(content["value"])
    assert [side.answers(question) for side in sides] == [[(1).to_bytes(32), value]] * 2
    hooks = sides[1].hooks
    root = hooks.call("verifyAccountState", question.root, content["account"], question.proofs[0])
    assert root == unhex(content["storageRoot"])


def faults(question: Question, other: Question) -> list[Question]:
    """Return questions whose proofs show nothing: of another account or trie, too short, too long, or changed."""
    account, slot = question.account_nodes, question.slot_nodes

    def spoilt(nodes: Sequence[bytes]) -> list[list[bytes]]:
        changed = [[*nodes[:-1], nodes[-1][:-1] + bytes([nodes[-1][-1] ^ 1])], nodes[:-1], nodes[1:], []]
        changed += [[*nodes[:place], *nodes[place : place + 1], *nodes[place:]] for place in range(len(nodes))]
        return [list(each) for each in [*changed, [*nodes, b"\x01" * 32]]]

    def changed(account_nodes: Sequence[bytes], slot_nodes: Sequence[bytes], root: bytes = question.root) -> Question:
        return Question(root, question.account, question.slot, account_nodes, slot_nodes)

    return [
        changed(account, slot, bytes(32)),
        changed(account, slot, b"\1" * 32),
        changed(slot, account),
        changed(other.account_nodes, slot),
        *(changed(each, slot) for each in spoilt(account)),
        *(changed(account, each) for each in spoilt(slot)),
    ]


def test_each_bad_proof_is_refused_by_name(simulator, sides, chain, filled):
    contract, slots = filled
    questions = [shown(chain, contract.address, slots[4]), recorded("target-buffer-arbitrum-207485678")]
    other = recorded("message-taiko-l2-1581")
    hooks = sides[1].hooks
    for question in questions:
        storage_root = hooks.call("verifyAccountState", question.root, question.account, question.proofs[0])
        bad = faults(question, other)
        assert [sides[1].answers(each) for each in bad] == [None] * len(bad)
        calls = []
        for each in bad:
            if each.root != question.root or list(each.account_nodes) != list(question.account_nodes):
                calls.append(hooks.calldata("verifyAccountState", each.root, each.account, each.proofs[0]))
            if list(each.slot_nodes) != list(question.slot_nodes):
                calls.append(
                    hooks.calldata("verifyStorageValue", storage_root, each.account, each.slot, each.proofs[1])
                )
        calls.append(hooks.calldata("verifyStorageValue", bytes(32), question.account, 0, question.proofs[1]))
        outcomes = simulator.run([Call(hooks.address, data) for data in calls])
        assert {(outcome.succeeded, outcome.data) for outcome in outcomes} == {(False, REFUSAL)}


def test_a_proof_of_another_block_is_refused_by_both(sides):
    question = recorded("negative-foreign-account-proof-sepolia")
    assert [side.answers(question) for side in sides] == [None, None]


def test_nothing_is_looked_at_under_the_empty_root(sides):
    for side in sides:
        for proof in (b"", b"\1", encode(["bytes[]"], [[b"\x80"]]), encode(["bytes[]"], [[]])):
            assert side.hooks.call("verifyStorageValue", tries.EMPTY_ROOT, NOBODY, 7, proof) == bytes(32)


@pytest.mark.parametrize(
    "proof",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(63), id="too short"),
        pytest.param((32).to_bytes(32), id="an offset alone"),
        pytest.param((2**256 - 1).to_bytes(32) + bytes(64), id="an offset that overflows"),
        pytest.param((64).to_bytes(32) + bytes(32), id="an offset to the end"),
        pytest.param((32).to_bytes(32) + (2).to_bytes(32) + bytes(32), id="a node too few"),
        pytest.param((32).to_bytes(32) + (2**251).to_bytes(32), id="a size that overflows"),
        pytest.param((32).to_bytes(32) + (1).to_bytes(32) + (2**255).to_bytes(32), id="a node elsewhere"),
    ],
)
def test_what_is_no_array_of_nodes_is_refused(sides, proof):
    for root in (ROOT, tries.EMPTY_ROOT):
        if root != tries.EMPTY_ROOT or len(proof) < 64:
            assert sides[1].hooks.refusal("verifyAccountState", root, NOBODY, proof) == ("InvalidProof",)
    assert sides[1].hooks.refusal("verifyStorageValue", ROOT, NOBODY, 7, proof) == ("InvalidProof",)


@pytest.mark.parametrize("offset", [32, 33, 63, 64, 100])
def test_the_array_of_nodes_lies_within_the_proof(simulator, sides, offset):
    """All of it follows in the calldata, but the proof may be said to be shorter."""
    hooks = sides[1].hooks
    leaf = tries.leaf(keccak(bytes(32)), tries.encode(7))
    array = encode(["bytes[]"], [[leaf]])[32:]
    proof = offset.to_bytes(32) + bytes(offset - 32) + array
    data = hooks.calldata("verifyStorageValue", keccak(leaf), NOBODY, 0, proof)
    place = data.index(len(proof).to_bytes(32) + proof)
    sizes = range(len(proof) + 1)
    calls = [Call(hooks.address, data[:place] + size.to_bytes(32) + data[place + 32 :]) for size in sizes]
    outcomes = simulator.run(calls)
    assert {outcome.data for outcome in outcomes} == {(7).to_bytes(32), REFUSAL}
    # The array's size and the place of its node count. The node's hash decides where it may be.
    taken = [size for size, outcome in zip(sizes, outcomes, strict=True) if outcome.succeeded]
    assert taken == list(range(offset + 64, len(proof) + 1))


def test_no_node_shows_an_account_absent_under_the_empty_root(sides):
    proof = encode(["bytes[]"], [[]])
    assert sides[1].hooks.call("verifyAccountState", tries.EMPTY_ROOT, NOBODY, proof) == bytes(32)


def test_accounts_of_other_chains_forms_are_refused(sides):
    """Blast's have seven items."""
    account = tries.encode([1, 0, 2, 3, 4, tries.EMPTY_ROOT, b"\x0c" * 32])
    leaf = tries.leaf(keccak(unhex(NOBODY)), account)
    proof = encode(["bytes[]"], [[leaf]])
    their_side, our_side = sides
    assert their_side.hooks.call("verifyAccountState", keccak(leaf), NOBODY, proof) == tries.EMPTY_ROOT
    assert our_side.hooks.refusal("verifyAccountState", keccak(leaf), NOBODY, proof) == ("InvalidProof",)


def test_the_interfaces_are_those_of_others():
    """Curve's oracle by the selectors of its interface, and the hooks by those of the published package."""
    selectors = {
        name: {
            keccak(text=f"{entry['name']}({','.join(each['type'] for each in entry['inputs'])})")[:4].hex()
            for entry in abi
            if entry["type"] == "function"
        }
        for name, abi in [
            ("oracle", load_artifact("package/CurveBlockHashOracle").abi),
            ("hooks", load_artifact("package/UnruggableHooks").abi),
            ("theirs", theirs("EthVerifierHooks").abi),
        ]
    }
    assert {"9724283f", "0dfe6810", "7df0b844"} < selectors["oracle"]
    assert selectors["hooks"] == selectors["theirs"]
