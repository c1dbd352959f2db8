"""Any chain that has a registry of the parent chain vouches for blocks that an Arbitrum rollup has confirmed there.

The contract is `ArbitrumSlotBlockHashSource.sol`. It reads the slot of the rollup's Outbox as a fact of that registry.
So a path begins with a proof about the parent chain, in the same transaction: its block is vouched for, the slot is
proven, and then the header is recorded.
"""

from collections.abc import Callable
from typing import Any

from eth_utils.crypto import keccak

from chains.chains_file import Connection
from chains.header import Header
from chains.packed import AccountToProve
from chains.rpc import ChainError, InvalidReply, ProofRequest, RpcClient
from chains.trie import InvalidProof, verify_account, verify_slot
from config.configured_chains import get_chains, get_rpc
from proving.connections import OpenConnection, open_unless_paused
from proving.gas_model.proof_gas import Likely
from proving.models import FactsRegistry
from proving.registry import deployments
from proving.registry.contract import Call, call
from proving.sources.arbitrum import EXTRA_DATA, Arbitrum, confirmations
from proving.sources.base import BlockHashSource, NotYet, Preparation, Start

# The Outbox's mapping of send roots to hashes. Source: nitro-contracts, AbsOutbox.
_ROOTS_SLOT = 3
# Of the parent's header, the proof of the slot, and recording, as measured; beside what vouches for the parent's block.
_GAS = Likely(305_000, 420_000)


class ArbitrumSlot(Arbitrum):
    contract = "ArbitrumSlotBlockHashSource"
    title = "Arbitrum: blocks that the rollup has confirmed on its parent chain"

    def __init__(self, source_of: Callable[[Connection], BlockHashSource]) -> None:
        """`source_of` returns the block hash source of a connection, here the parent's."""
        self._source_of = source_of

    def trust(self, connection: Connection) -> str:
        parent = _of_parent(connection)
        return f"{super().trust(connection)} For that chain: {self._source_of(parent).trust(parent)}"

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        parent = _of_parent(connection)
        rows = FactsRegistry.in_use.filter(destination_chain_id=parent.destination_id, source_chain_id=parent.source_id)
        row = rows.exclude(deployed_at=None).first()
        # Before it is deployed, for estimates.
        return *super().arguments(connection), row.address if row else "0x" + "ff" * 20

    def gas(self, connection: Connection) -> Likely:
        parent = _of_parent(connection)
        return _GAS + self._source_of(parent).gas(parent)

    def _parent_rpc(self, connection: OpenConnection) -> RpcClient:
        return get_rpc(_of_parent(connection.config).source_id)

    def _record(self, connection: OpenConnection, header: Header) -> Start | Preparation | NotYet:
        source = connection.registry.block_hash_source
        try:
            parent = open_unless_paused(connection.config.destination_id, _of_parent(connection.config).source_id)
        except deployments.Unusable as error:
            return NotYet(str(error))
        registry = connection.destination_rpc.eth_call(*call(self.contract, source, "registry"))
        if registry[12:].hex() != parent.registry.contract.address[2:].lower():
            return NotYet(
                f"The block hash source of chain {connection.config.source_id} reads another registry of chain "
                f"{parent.config.source_id} than the one in use. The operator must deploy another registry."
            )
        confirmed_at = self._confirmed_at(connection, header)
        if confirmed_at is None:
            return NotYet(f"Waiting for a later block of chain {connection.config.source_id} to be confirmed.")
        begun = _vouched_for(parent, self._source_of(parent.config), confirmed_at)
        if not isinstance(begun, Start):
            return begun
        proof = _prove(parent, begun.number, str(connection.config.outbox), header)
        if isinstance(proof, NotYet):
            return proof
        record = call(self.contract, source, "record", begun.number, header.encode())
        return Start(header.number, (*begun.calls, proof, record))

    def _confirmed_at(self, connection: OpenConnection, header: Header) -> int | None:
        """Return the parent's block in which the rollup has confirmed this one; None if that was long ago."""
        for logs in confirmations(self._parent_rpc(connection), str(connection.config.outbox)):
            for log in logs:
                if log.topics[2] == header.hash:
                    return log.block_number
        return None


def _of_parent(connection: Connection) -> Connection:
    """Return the connection from the parent chain to the same destination."""
    parent = get_chains().connection(connection.parent_id or 0, connection.destination_id)
    assert parent is not None, "chains.toml was checked"
    return parent


def _vouched_for(parent: OpenConnection, source: BlockHashSource, number: int) -> Start | Preparation | NotYet:
    """Return a block of the parent chain, this one or a later, with the calls that make its registry trust it."""
    start = source.reach(parent, number, ())
    if isinstance(start, NotYet):
        return start
    header = parent.source_rpc.known_header(start.number)
    if all(deployments.vouches(parent.destination_rpc, parent.registry, [(header.number, header.hash)])):
        return start
    return source.begin(parent, start.number)


def _prove(parent: OpenConnection, number: int, outbox: str, confirmed: Header) -> Call | NotYet:
    """Return the call that proves that the Outbox holds this header's hash at the parent's block."""
    header = parent.source_rpc.known_header(number)
    slot = int.from_bytes(keccak(confirmed.fields[EXTRA_DATA] + _ROOTS_SLOT.to_bytes(32)))
    (answer,) = parent.source_rpc.proofs([ProofRequest(number, header.hash, outbox, [slot])])
    if isinstance(answer, ChainError):
        raise answer
    nodes = {one.slot: one.nodes for one in answer.slots}
    try:
        account = verify_account(header.state_root, outbox, answer.nodes)
        value = verify_slot(account.storage_root, slot, nodes[slot])
    except InvalidProof as invalid:
        raise InvalidReply(
            f"A node sent a proof of the Outbox at block {number} of chain {parent.config.source_id} that does not "
            f"verify: {invalid}"
        ) from None
    if value != int.from_bytes(confirmed.hash):
        return NotYet(
            f"The Outbox held another hash at block {number} of chain {parent.config.source_id}: waiting for the next "
            "block that the rollup confirms."
        )
    asked = AccountToProve(bytes.fromhex(outbox[2:]), 0, answer.nodes, {slot: nodes[slot]})
    window = parent.source_rpc.chain.history_window
    contract = parent.registry.contract
    return contract.address, contract.prove(header.encode(), header.state_root, [asked], history_window=window)
