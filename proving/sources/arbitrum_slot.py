"""A chain with a registry of the parent chain vouches for blocks that an Arbitrum rollup has confirmed there.

The contract is `ArbitrumSlotBlockHashSource.sol`. It reads the slot of the rollup's Outbox as a fact of that registry.
So a path begins with a proof about the parent chain. In the same transaction, the parent's block is vouched for, the
slot is proven, and then the header is recorded.
"""

from typing import Any

from eth_utils.crypto import keccak

from chains.arbitrum_outbox import send_root
from chains.chains_file import Connection
from chains.nodes.node_errors import ChainError, RpcRefused
from chains.nodes.questions import ProofRequest
from chains.nodes.rpc import RpcClient
from chains.tries import packed
from chains.tries.header import Header
from chains.tries.packed import AccountToProve
from config.configured_chains import get_chains, get_rpc
from proving import sources
from proving.connections import OpenConnection, open_unless_stopped
from proving.packing.gas import Amount, of_header, of_hop
from proving.registries import deployments
from proving.registries.deployments import Call, call
from proving.sources import BlockHashSource, NotYet, Preparation, Start
from proving.sources.arbitrum import Arbitrum
from queries.waits import wait

# Storage slot of the Outbox's mapping from send roots to hashes. Source: nitro-contracts, AbsOutbox.
_ROOTS_SLOT = 3
# The gas of the parent's header and the slot's proof, of the size that mainnet's have.
_PROOF_GAS = Amount(238_000, 320_000)


class ArbitrumSlot(Arbitrum):
    contract = "ArbitrumSlotBlockHashSource"
    title = "Arbitrum: blocks that the rollup has confirmed on its parent chain"
    # Without the proof of the parent's block.
    recording_gas = Arbitrum.recording_gas + _PROOF_GAS

    def trust(self, connection: Connection) -> str:
        parent = _of_parent(connection)
        return f"{super().trust(connection)} For that chain: {sources.of(parent).trust(parent)}"

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        parent = _of_parent(connection)
        row = deployments.deployed(parent.destination_id, parent.source_id)
        # Estimates need an address before the registry is deployed.
        return *super().arguments(connection), row.address if row else "0x" + "ff" * 20

    def gas(self, connection: Connection) -> Amount:
        parent = _of_parent(connection)
        return super().gas(connection) + sources.of(parent).gas(parent)

    def _parent_rpc(self, connection: OpenConnection) -> RpcClient:
        return get_rpc(_of_parent(connection.config).source_id)

    def _by_outbox(self, connection: OpenConnection, header: Header) -> Start | Preparation | NotYet:
        try:
            parent = open_unless_stopped(connection.config.destination_id, _of_parent(connection.config).source_id)
        except deployments.Unusable as error:
            return NotYet(error.reason)
        confirmed_at = self._confirmed_at(connection, header)
        if confirmed_at is not None:
            recorded = self._recorded_at(connection, parent, header, confirmed_at)
            if recorded is not None:
                return recorded
        # Nodes no longer serve events or states of that age. The Outbox still holds the hash at later blocks.
        newest = sources.of(parent.config).newest(parent)
        if isinstance(newest, NotYet):
            return newest
        return self._recorded_at(connection, parent, header, newest) or NotYet(
            wait("outbox_not_proven", chain=parent.config.source_id, block=newest)
        )

    def _recorded_at(
        self, connection: OpenConnection, parent: OpenConnection, header: Header, number: int
    ) -> Start | Preparation | NotYet | None:
        """Return the calls that record the header, by the Outbox's state at this block of the parent or a later one.

        None if nodes don't serve that state.
        """
        outbox, contract = str(connection.config.outbox), connection.registry.block_hash_source
        begun = _vouched_for(parent, sources.of(parent.config), number)
        if not isinstance(begun, Start):
            return begun
        proof = _call_to_prove(parent, begun.number, outbox, header)
        if not isinstance(proof, tuple):
            return proof
        prove, of_proof = proof
        calls = (*begun.calls, prove, call(self.contract, contract, "record", begun.number, header.encode()))
        of_record = super().gas(connection.config).expected - _PROOF_GAS.expected
        return Start(header.number, calls, begun.gas + of_proof + of_record)

    def _confirmed_at(self, connection: OpenConnection, header: Header) -> int | None:
        """Return the number of the parent's block that confirmed the header's block. None if there is no event."""
        outbox = self._outbox(connection)
        newest = outbox.newest()
        if newest is None:
            return None
        confirmed = outbox.lowest(header, newest)
        return confirmed.at if confirmed.header.hash == header.hash else None


def _of_parent(connection: Connection) -> Connection:
    """Return the connection from the parent chain to the same destination."""
    parent = get_chains().connection(connection.parent_id or 0, connection.destination_id)
    assert parent is not None, "chains.toml was checked"
    return parent


def _vouched_for(parent: OpenConnection, source: BlockHashSource, number: int) -> Start | Preparation | NotYet:
    """Return this block of the parent chain or a later one, with the calls that make the registry trust it."""
    start = source.reach(parent, number)
    if isinstance(start, NotYet):
        return start
    header = parent.source_rpc.known_header(start.number)
    if all(deployments.vouches(parent.destination_rpc, parent.registry, [(header.number, header.hash)])):
        return start
    return source.begin(parent, start.number)


def _call_to_prove(
    parent: OpenConnection, number: int, outbox: str, confirmed: Header
) -> tuple[Call, int] | NotYet | None:
    """Return the call that proves that the Outbox holds this header's hash at the parent's block, and its gas.

    None if no node serves that block's state.
    """
    header, slot = parent.source_rpc.known_header(number), _slot(confirmed)
    (answer,) = parent.source_rpc.proofs([ProofRequest(number, header.hash, header.state_root, outbox, [slot])])
    if isinstance(answer, RpcRefused) and not answer.may_pass:
        return None
    if isinstance(answer, ChainError):
        raise answer
    (proof,) = answer.slots
    if proof.value != int.from_bytes(confirmed.hash):
        return NotYet(wait("outbox_differed", chain=parent.config.source_id, block=number))
    account = AccountToProve(bytes.fromhex(outbox[2:]), 0, answer.nodes, {slot: proof.nodes})
    data = packed.encode(header.encode(), header.state_root, [account], takes_masks=parent.registry.takes_masks)
    gas = int(parent.prices.gas_of(of_header(header) + of_hop(answer)))
    return (parent.registry.contract.address, data), gas


def _slot(header: Header) -> int:
    """Return the slot in which the Outbox holds the hash of this header."""
    return int.from_bytes(keccak((send_root(header) or b"") + _ROOTS_SLOT.to_bytes(32)))


SOURCE = ArbitrumSlot()
