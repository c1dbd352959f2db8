"""Slots of accounts under a state commitment, shown as state provers take them (ERC-7888)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import rlp
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT, Artifact, load_artifact
from chains.encoding import HISTORY_WINDOW
from chains.tries import packed
from chains.tries.header import Header
from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed
from tests.fixtures_folder import RECORDED, unhex

Kind = Literal["ROOT", "HASH"]
KINDS: tuple[Kind, ...] = ("ROOT", "HASH")

ReadArguments = tuple[list[str], list[bytes], bytes]
"""The route by which a receiver reads a slot, the provers' inputs, and the proof."""

POINTER_SLOT = int.from_bytes(keccak(text="eip7888.pointer.slot")) - 1

_PAYLOADS = RECORDED / "crosschain"


@dataclass(frozen=True)
class ShownSlot:
    """A slot of an account at a block, with proofs of both."""

    header: bytes
    """Empty: only the block's state root is known."""
    state_root: bytes
    account: str
    slot: int
    value: bytes
    """32 bytes."""
    account_nodes: Sequence[bytes]
    storage_nodes: Sequence[bytes]

    @property
    def block_hash(self) -> bytes:
        return keccak(self.header)

    @property
    def proofs(self) -> tuple[bytes, bytes]:
        """Return the proofs of the account and of the slot, as `TrieWalk` takes them."""
        return rlp.encode(self.account_nodes), rlp.encode(self.storage_nodes)

    def commitment(self, kind: Kind) -> bytes:
        return self.state_root if kind == "ROOT" else self.block_hash

    def slot_input(self, kind: Kind) -> bytes:
        """Return the input of `verifyStorageSlot`."""
        types, values = ["address", "uint256", "bytes", "bytes"], [self.account, self.slot, *self.proofs]
        return encode(types, values) if kind == "ROOT" else encode(["bytes", *types], [self.header, *values])

    def target_input(self, number_or_hash: int | bytes, *, header: bytes = b"") -> bytes:
        """Return the input of `verifyTargetStateCommitment`."""
        word = number_or_hash if isinstance(number_or_hash, bytes) else number_or_hash.to_bytes(32)
        return encode(["bytes", "bytes32", "bytes", "bytes"], [header, word, *self.proofs])


@dataclass(frozen=True)
class Payload:
    """A recorded slot, and what it is of."""

    name: str
    shown: ShownSlot
    number: int
    details: dict[str, Any]


def payload(name: str) -> Payload:
    """Return the recorded payload whose file has this name."""
    told = json.loads((_PAYLOADS / f"{name}.json").read_text())
    account_nodes, storage_nodes = (rlp.decode(unhex(told[key])) for key in ("accountProof", "storageProof"))
    shown = ShownSlot(
        unhex(told.get("header", "")),
        unhex(told["stateRoot"]),
        told["account"],
        int(told["slot"], 16),
        unhex(told.get("value", "")),
        account_nodes,
        storage_nodes,
    )
    return Payload(name, shown, told.get("blockNumber", 0), told)


def payload_names() -> list[str]:
    return sorted(path.stem for path in _PAYLOADS.glob("*.json"))


def show(chain: DevChain, account: str, slot: int, block: int) -> ShownSlot:
    """Return a slot of an account with what the node shows of it."""
    header = header_of(chain, block)
    answer = chain.rpc("eth_getProof", account, [f"0x{slot:064x}"], hex(block))
    [of_slot] = answer["storageProof"]
    account_nodes, storage_nodes = (
        # The node lists embedded nodes once more.
        [node for place, node in enumerate(map(unhex, nodes)) if place == 0 or len(node) >= 32]
        for nodes in (answer["accountProof"], of_slot["proof"])
    )
    value = int(of_slot["value"], 16).to_bytes(32)
    return ShownSlot(header.encode(), header.state_root, account, slot, value, account_nodes, storage_nodes)


def header_of(chain: DevChain, block: int) -> Header:
    return Header.from_rpc(chain.rpc("eth_getBlockByNumber", hex(block), False))


def head(chain: DevChain) -> int:
    return int(chain.rpc("eth_blockNumber"), 16)


def prover(
    chain: DevChain, home_chain_id: int, registry: str, kind: Kind = "ROOT", *, target_chain_id: int = 11_155_111
) -> Deployed:
    arguments = home_chain_id, target_chain_id, registry, KINDS.index(kind)
    return Deployed(chain, "package/RegistryStateProver", *arguments)


def pointer(prover: Deployed) -> Deployed:
    return Deployed(prover.chain, "package/FixedStateProverPointer", prover.address)


def message_slot(message: bytes, publisher: str) -> int:
    """Return the slot of a message in its broadcaster."""
    return mapping_slot(message, int(publisher, 16))


def mapping_slot(key: int | bytes, place: int) -> int:
    """Return the slot of a mapping's value. `place` is the slot of the mapping."""
    word = key if isinstance(key, bytes) else key.to_bytes(32)
    return int.from_bytes(keccak(word + place.to_bytes(32)))


def remote_id(*addresses: str) -> bytes:
    """Return the id of the account at the end of a route."""
    found = bytes(32)
    for address in addresses:
        found = keccak(encode(["bytes32", "address"], [found, address]))
    return found


@dataclass(frozen=True)
class Home:
    """A registry that knows blocks of a chain, and its source."""

    source: Deployed
    registry: Deployed

    @property
    def chain(self) -> DevChain:
        return self.registry.chain

    def know(self, header: bytes, number: int) -> None:
        """Let the source vouch for a block, and accumulate its header."""
        self.source.send("set", number, keccak(header))
        self.registry.send_raw(packed.encode(header, b""))


def home_of(chain: DevChain, source_chain_id: int, artifact: Artifact | None = None) -> Home:
    """Deploy a registry, or `artifact` as an earlier version of it."""
    source = Deployed(chain, "test/SettableBlockHashSource", source_chain_id)
    arguments = source_chain_id, source.address, HISTORY_WINDOW, NO_CONTRACT
    return Home(source, Deployed(chain, "FactsRegistry", *arguments, artifact=artifact))


def receiver_on(chain: DevChain) -> Deployed:
    """Deploy a receiver. What its provers refuse is told by name, too."""
    artifact = load_artifact("test/Receiver")
    names = ("package/RegistryStateProver", "test/BufferStateProver")
    errors = [entry for name in names for entry in load_artifact(name).abi if entry["type"] == "error"]
    return Deployed(chain, "test/Receiver", artifact=replace(artifact, abi=[*artifact.abi, *errors]))
