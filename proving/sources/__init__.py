"""Block hash sources, by which a destination trusts blocks of a source chain. Each kind has a module.

Each kind has a contract (`contracts/src/IBlockHashSource.sol`), and a class here that makes the calls to the contract.
Paths (`proving.paths.planning`) lead from a block that a source vouches for to all earlier blocks.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, Protocol

from django.db.models.functions import Now
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.chains_file import Connection
from chains.nodes.node_errors import InvalidReply
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from config.configured_chains import get_rpc
from proving.connections import OpenConnection
from proving.models import FactsRegistry
from proving.packing.gas import Amount
from proving.registries.deployments import Call, call
from proving.working import destination_prices
from queries.waits import WaitReason, chain_of, joined, wait

logger = logging.getLogger(__name__)

# Storage slot with the address of a proxy's implementation (EIP-1967).
_IMPLEMENTATION_SLOT = int.from_bytes(keccak(text="eip1967.proxy.implementation")) - 1


@dataclass(frozen=True)
class Start:
    """A block that the block hash source vouches for after `calls`, in the same transaction or a later one."""

    number: int
    calls: tuple[Call, ...] = ()
    gas: int = 0
    """The expected gas of the calls."""


@dataclass(frozen=True)
class Preparation:
    """A transaction that must be mined before a start can be known."""

    calls: tuple[Call, ...]
    gas: int
    """The expected gas of the transaction."""


@dataclass(frozen=True)
class NotYet:
    """The block hash source can't vouch for a suitable block now."""

    reason: WaitReason
    expected_at: datetime | None = None  # the earliest time; None if it isn't known


class WrongHash(NotYet):
    """A history of block hashes has a wrong hash of the block. Waiting doesn't help."""


class BlockHashSource(Protocol):
    """A kind of block hash source. It keeps no state: it asks the chains, and sends nothing.

    `title` and `trust` are for people: a name, and a sentence that says who must be trusted for what. `recording_gas`
    is the measured gas of a transaction that records one block, without the transaction's own gas and without the word
    that it stores. None: nothing is recorded.
    """

    contract: str
    title: str
    recording_gas: Amount | None = None

    def trust(self, connection: Connection) -> str:
        """Return a sentence that says who must be trusted for what."""

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        """Return the arguments of the contract's constructor."""
        return (connection.source_id,)

    def gas(self, connection: Connection) -> Amount:
        """Return the gas to record one block, at the destination's prices."""
        if self.recording_gas is None:
            return Amount()
        prices = destination_prices.for_estimates(get_rpc(connection.destination_id))
        of_word = prices.call + prices.new_word
        return Amount(self.recording_gas.expected + of_word, self.recording_gas.bound + of_word)

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        """Return where a path to the block `target` could start: there, or above. `begin` then returns the calls.

        Raises `NodeUnavailable`, `RpcRefused`.
        """
        newest, config = self.newest(connection), connection.config
        if isinstance(newest, NotYet):
            return newest
        if newest < target:
            return NotYet(wait("known_up_to", newest=newest, block=target, **ends(config)))
        return Start(newest)

    def begin(self, connection: OpenConnection, start: int) -> Start | Preparation | NotYet:
        """Return the block `start` with the calls that vouch for it.

        `reach` returned `start`. Raises the errors of `reach`.
        """

    def vouches_for_long(self, connection: Connection, number: int, head: int) -> bool:
        """Return whether it continues to vouch for a block for some time after the destination's block `head`."""
        return True  # recorded blocks stay

    def vouched(self, connection: Connection, *, keeps_hashes: bool) -> int | None:
        """Return how many of the source's newest blocks need no path. None if no final block needs one.

        `keeps_hashes` is True if the source's state has a history of block hashes (EIP-2935).
        """
        return 1

    def newest(self, connection: OpenConnection) -> int | NotYet:
        """Return the number of the newest block at which a path could start now. Raises the errors of `reach`."""


class Recorder(BlockHashSource, Protocol):
    """A kind whose contract records headers that its callers present."""

    def recorded(self, connection: OpenConnection, number: int) -> bytes:
        """Return the recorded hash of a block, or zeros."""
        source = connection.registry.block_hash_source
        return connection.destination_rpc.eth_call(*call(self.contract, source, "blockHash", number))

    def begin(self, connection: OpenConnection, start: int) -> Start | Preparation | NotYet:
        header = connection.source_rpc.header(start)
        if header is None:
            return not_there(connection.config, start)
        recorded = self.recorded(connection, start)
        if recorded == header.hash:
            return Start(start)
        if any(recorded):
            return NotYet(wait("other_block_known", chain=connection.config.source_id, block=start))
        return self.record(connection, header)

    def record(self, connection: OpenConnection, header: Header) -> Start | Preparation | NotYet:
        """Return the block with the calls that record it, or the transaction that must come before."""


def read_words(connection: OpenConnection, contract: str, *functions: str) -> list[bytes]:
    """Return the answer of each function of the block hash source's contract. An answer is one word.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    address = connection.registry.block_hash_source
    calls = [call(contract, address, function) for function in functions]
    return words(connection.destination_rpc, calls, f"There is no {contract} at {address}.")


def words(rpc: RpcClient, calls: Sequence[Call], fault: str) -> list[bytes]:
    """Return the answer to each call, which is one word.

    Raises the errors of `RpcClient.eth_calls`, and `InvalidReply` with the fault for other answers.
    """
    answers = rpc.eth_calls(calls)
    read = [answer for answer in answers if isinstance(answer, bytes) and len(answer) == 32]
    if len(read) < len(calls):
        raise InvalidReply(fault)
    return read


def ends(connection: Connection) -> dict[str, int]:
    """Return the ids of both chains of a connection as values of a wait."""
    return {"chain": connection.destination_id, "source": connection.source_id}


def trust_in_rollup(connection: Connection) -> str:
    """Return the sentence about trust if a rollup vouches for the chain from which it is derived."""
    destination, source = named(connection.destination_id), named(connection.source_id)
    return f"Whoever can upgrade {destination}; and its sequencer, until the block is derived from {source}."


def named(chain_id: int) -> str:
    return chain_of(chain_id).in_words


def behind(rpc: RpcClient, contracts: Mapping[str, str]) -> dict[str, str]:
    """Return the address of the code that each contract runs, by name.

    It is the implementation if the contract is a proxy.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    slots = rpc.storages([(address, _IMPLEMENTATION_SLOT, "latest") for address in contracts.values()])
    return {
        name: to_checksum_address(slot.to_bytes(32)[12:]) if slot else address
        for (name, address), slot in zip(contracts.items(), slots, strict=True)
    }


def why_unknown(
    connection: OpenConnection, chain_id: int, present: Callable[[], Mapping[str, str]]
) -> WaitReason | None:
    """Return a wait if chains.toml names known implementations and the chain runs others. Also tell the operator."""
    known, source = connection.config.known_implementations, connection.config.source_id
    others = [f"{name}: {code}" for name, code in present().items() if code not in known] if known else []
    names = ", ".join(others)
    reason = wait("implementation_changed", chain=chain_id, source=source, names=names) if others else None
    note(connection, [reason] if reason else [])
    return reason


def note(connection: OpenConnection, reasons: Sequence[WaitReason]) -> None:
    """Tell the operator what is wrong, or that all is well again."""
    risk = joined(reasons)
    rows = FactsRegistry.objects.filter(pk=connection.registry.row_id)
    if risk is None:
        rows.exclude(risk=None).update(risk=None)
        return
    if rows.exclude(risk=risk).exists():
        source, destination = connection.config.source_id, connection.config.destination_id
        logger.error("%s: %s", f"from chain {source} to chain {destination}", risk)
    rows.update(risk=risk, risk_seen_at=Now())


def not_there(connection: Connection, number: int) -> NotYet:
    """Return the wait for a block that the source chain's nodes don't have."""
    return NotYet(wait("source_without_block", chain=connection.source_id, block=number))


def of(connection: Connection) -> BlockHashSource:
    """Return a connection's block hash source: `SOURCE` of the module with its kind's name.

    Modules are imported only if a connection needs them.
    """
    module = import_module(f"{__name__}.{connection.block_hash_source.replace('-', '_')}")
    source: BlockHashSource = module.SOURCE
    return source
