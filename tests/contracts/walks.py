"""Proofs of plain nodes for `FactsReader`'s views, and a model of what the views answer.

The model reads a proof's list, and leaves the nodes to `chains.trie`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from chains.encoding import decode_rlp
from chains.trie import EMPTY_CODE_HASH, InvalidProof, verify_account, verify_slot
from tests.contracts import tries
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Outcome, Simulator

REFUSAL = keccak(text="InvalidProof()")[:4]
_SLOT = keccak(text="verifyOnlyStorage(bytes32,bytes32,bytes)")[:4]
_ACCOUNT = keccak(text="verifyOnlyAccount(uint256,address,bytes32,bytes)")[:4]


@dataclass(frozen=True)
class Walk:
    """A proof for a pure view. A `name` of 32 bytes is a slot, one of 20 an account."""

    name: bytes
    root: bytes
    proof: bytes

    @property
    def key(self) -> bytes:
        return keccak(self.name)

    @property
    def calldata(self) -> bytes:
        if len(self.name) == 32:
            return _SLOT + encode(["bytes32", "bytes32", "bytes"], [self.name, self.root, self.proof])
        arguments = [1, self.name, self.root, self.proof]
        return _ACCOUNT + encode(["uint256", "address", "bytes32", "bytes"], arguments)

    def answer(self) -> bytes:
        """Return what the view must answer. Raise InvalidProof if it must revert."""
        nodes = nodes_of(self.proof)
        if len(self.name) == 32:
            return verify_slot(self.root, int.from_bytes(self.name), nodes).to_bytes(32)
        account = verify_account(self.root, self.name, nodes)
        code_hash = account.code_hash if account.exists else EMPTY_CODE_HASH
        return account.nonce.to_bytes(32) + account.balance.to_bytes(32) + code_hash + account.storage_root


def nodes_of(proof: bytes) -> list[bytes]:
    """Return the nodes in a proof. Raise InvalidProof if it isn't the RLP of a list of byte strings."""
    try:
        items = decode_rlp(proof)
    except ValueError:
        raise InvalidProof("The proof is no RLP.") from None
    if isinstance(items, bytes) or not all(isinstance(item, bytes) for item in items):
        raise InvalidProof("The proof is no list of byte strings.")
    return [bytes(item) for item in items if isinstance(item, bytes)]


def walk(name: bytes, root: bytes, nodes: Sequence[bytes]) -> Walk:
    return Walk(name, root, tries.encode(list(nodes)))


def difference(walk: Walk, outcome: Outcome) -> tuple[str, str]:
    """Return the model's refusal, and how the contract's outcome differs from the model's; empty where it doesn't."""
    try:
        answer, refusal = walk.answer(), ""
    except InvalidProof as error:
        answer, refusal = REFUSAL, str(error)
    agrees = outcome.succeeded == (not refusal) and outcome.data == answer
    shown = f"The model: {refusal or answer.hex()}. The contract: {outcome.succeeded} {outcome.data.hex()}. {walk}"
    return refusal, "" if agrees else shown


def refusals(simulator: Simulator, reader: Deployed, walks: Iterable[Walk]) -> list[str]:
    """Return the model's refusal of each walk, empty where it answers. The contract must agree."""
    all_walks = list(walks)
    outcomes = simulator.run([Call(reader.address, each.calldata) for each in all_walks])
    differences = [difference(each, outcome) for each, outcome in zip(all_walks, outcomes, strict=True)]
    assert [how for _, how in differences if how] == []
    return [refusal for refusal, _ in differences]
