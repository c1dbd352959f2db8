"""Arguments by which a receiver of messages reads a slot on another chain (ERC-7888)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batch_query_client.answers import ReadProof


@dataclass(frozen=True)
class RemoteRead:
    """The `RemoteReadArgs` of ERC-7888."""

    route: tuple[str, ...]
    """Addresses of pointers, each on the chain that the ones before lead to."""
    scp_inputs: tuple[bytes, ...]
    proof: bytes


@dataclass(frozen=True)
class ShownSlot:
    """A slot with its proofs, as `/read-proofs` answers a STORAGE_ROOT and a SLOT of one account."""

    block_number: int
    account: str
    slot: int
    account_proof: bytes
    storage_proof: bytes
    is_known: bool
    """The facts registry holds the block's state root, so a prover over it answers."""


def shown_slot(answers: Sequence[ReadProof]) -> ShownSlot:
    """Return the slot. Raises `ValueError` if the answers are about anything else."""
    by_property = {answer.property: answer for answer in answers}
    if len(answers) != 2 or by_property.keys() != {"STORAGE_ROOT", "SLOT"}:
        raise ValueError("Name one account and one slot.")
    root, slot = by_property["STORAGE_ROOT"], by_property["SLOT"]
    return ShownSlot(
        slot.block_number, slot.account, int(slot.slot, 16), root.proof, slot.proof, is_known=root.root.is_fact
    )


def state_root_slot(block_number: int) -> int:
    """Return the slot in which a facts registry stores the state root of a block."""
    from eth_utils.crypto import keccak  # noqa: PLC0415 (slow to load, and few commands need it)

    return int.from_bytes(keccak(block_number.to_bytes(32) + bytes(32)))


def remote_read(pointer: str, shown: ShownSlot) -> RemoteRead:
    """Return how a receiver reads the slot over one hop. The pointer is on the receiver's chain."""
    proof = _encode(int(shown.account, 16), shown.slot, shown.account_proof, shown.storage_proof)
    return RemoteRead((pointer,), (_encode(shown.block_number),), proof)


def remote_read_beyond(pointer: str, entry: ShownSlot, beyond: RemoteRead, block_number: int) -> RemoteRead:
    """Return how a receiver makes a read that begins on another chain.

    `entry` is the slot of the block's state root, in the registry there.
    """
    first = remote_read(pointer, entry)
    # The home chain's commitment is a state root, so there is no header.
    second = _encode(b"", block_number, entry.account_proof, entry.storage_proof)
    return RemoteRead(first.route + beyond.route, (*first.scp_inputs, second, *beyond.scp_inputs[1:]), beyond.proof)


def _encode(*values: int | bytes) -> bytes:
    """Return Solidity's `abi.encode` of numbers and byte strings."""
    head = tail = b""
    for value in values:
        if isinstance(value, bytes):
            head += (32 * len(values) + len(tail)).to_bytes(32)
            tail += len(value).to_bytes(32) + value + bytes(-len(value) % 32)
        else:
            head += value.to_bytes(32)
    return head + tail
