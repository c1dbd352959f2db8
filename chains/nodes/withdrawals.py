"""The withdrawals of a block (EIP-4895) as its trie holds them, compared with the header's root.

OP Stack chains keep another root in that field since Isthmus: of the storage of the contract that passes messages to
the chain below. No list makes that root.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rlp

from chains.encoding import decode_rlp, read_data, read_list, read_number, read_object
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError, OtherRoot, other_root
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.rpc import RpcClient
from chains.tries import packed_entries
from chains.tries.header import Header
from chains.tries.packed import HASH_BYTES
from chains.tries.trie import EMPTY_TRIE_ROOT

# Maximum withdrawals of a block that are read. Ethereum has 16, and Gnosis 8.
_MOST = 1024
# The OP Stack's L2ToL1MessagePasser.
_MESSAGE_PASSER = "0x4200000000000000000000000000000000000016"


@dataclass(frozen=True)
class Withdrawal:
    """A withdrawal from the beacon chain."""

    index: int
    """Counted over all blocks."""
    validator_index: int
    address: bytes
    amount: int
    """In Gwei."""

    def encode(self) -> bytes:
        """Return the trie's value."""
        fields = (self.index, self.validator_index, self.address, self.amount)
        encoded: bytes = rlp.encode(fields)
        return encoded


def of_blocks(rpc: RpcClient, headers: Sequence[Header]) -> list[Sequence[Withdrawal] | ChainError]:
    """Return the withdrawals of each block, or why they aren't known.

    The headers have a root of withdrawals. It is `OtherRoot` where no node's list makes it.
    """
    asked = [header for header in headers if header.withdrawals_root != EMPTY_TRIE_ROOT]
    answers = dict(zip((header.hash for header in asked), rpc.ask([_of_block(each) for each in asked]), strict=True))
    return [answers.get(header.hash, ()) for header in headers]


def _of_block(header: Header) -> Question[Sequence[Withdrawal]]:
    def read(result: Any) -> Sequence[Withdrawal]:
        block = read_object(result)
        if read_data(block.get("hash"), HASH_BYTES) != header.hash:
            raise ValueError("another block than the requested one")
        told = read_list(block.get("withdrawals"))
        if len(told) > _MOST:
            raise ValueError(f"a block with more than {_MOST:,} withdrawals")
        withdrawals = [_read(read_object(each)) for each in told]
        if packed_entries.root([each.encode() for each in withdrawals]) != header.withdrawals_root:
            raise OtherRoot(other_root("withdrawals", header.number))
        return withdrawals

    return Question(("eth_getBlockByNumber", [hex(header.number), False]), read)


def _read(told: Mapping[str, Any]) -> Withdrawal:
    index, validator, amount = (read_number(told.get(name)) for name in ("index", "validatorIndex", "amount"))
    if max(index, validator, amount) >= 1 << 64:
        raise ValueError("a withdrawal with a number of more than 64 bits")
    return Withdrawal(index, validator, read_data(told.get("address"), 20), amount)


def is_root_of_storage(rpc: RpcClient, header: Header) -> bool:
    """Return whether a proof shows that the root is that of OP Stack's message passer. Raises `ChainError`."""
    request = ProofRequest(header.number, header.hash, header.state_root, _MESSAGE_PASSER)
    (proof,) = rpc.proofs([request])
    return isinstance(proof, VerifiedAccountProof) and proof.account.storage_root == header.withdrawals_root


def nodes(withdrawals: Sequence[Withdrawal], places: Collection[int]) -> dict[int, list[bytes]]:
    """Return the trie's nodes on the way to each place, the root first."""
    return packed_entries.nodes([each.encode() for each in withdrawals], places)


def are_readable(way: Sequence[bytes]) -> bool:
    """Return whether the view takes these nodes: none is short enough to be embedded in a node above."""
    return all(len(node) >= HASH_BYTES and all(isinstance(item, bytes) for item in decode_rlp(node)) for node in way)
