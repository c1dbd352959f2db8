"""The destination vouches for blocks of a chain whose beacon roots it holds (EIP-4788).

An OP Stack chain holds the roots that are in the L1 blocks from which its own blocks are derived. So each L1 block of
the last hours can be recorded directly, without a hop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from chains.beacon import jumps
from chains.beacon.blocks import ExecutionBranch
from chains.chains_file import Connection
from chains.nodes.node_errors import NodeUnavailable
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from config.configured_chains import get_beacon_client, get_chains
from proving.connections import OpenConnection
from proving.packing.gas import Amount
from proving.registries.deployments import call
from proving.sources import NotYet, Recorder, Start, ends, trust_in_rollup
from queries.waits import wait

BEACON_ROOTS = "0x000F3df6D732807Ef1319fB7B8bB8522d0Beac02"
# Number of roots that the contract holds (HISTORY_BUFFER_LENGTH), and number that is relied on, because a transaction
# may be mined later.
_HELD, _RELIED_ON = 8191, 7168
# Seconds by which a rollup's block may be younger than its L1 block (Fjord), and maximum number of times within them
# for which the rollup is asked for its root.
_DRIFT, _MOMENTS = 1800, 150
# Headers in one search for the newest held root, and maximum number of searches.
_HEADERS, _LOOKS = 32, 5


class BeaconRoots(Recorder):
    contract = "GloasBeaconBlockHashSource"
    title = "Beacon roots that the destination holds"
    recording_gas = Amount(41_900, 66_900)

    def trust(self, connection: Connection) -> str:
        return trust_in_rollup(connection)

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        beacon_chain = get_chains().chain(connection.source_id).beacon_chain
        assert beacon_chain is not None, "chains.toml was checked"
        return (beacon_chain.arguments,)

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        if any(self.recorded(connection, target)):
            return Start(target)
        naming = _naming(connection, target)
        if not isinstance(naming, NotYet):
            return Start(naming.number)
        newest = self.newest(connection)
        if isinstance(newest, NotYet):
            return newest
        return naming if newest < target else Start(newest)

    def record(self, connection: OpenConnection, header: Header) -> Start | NotYet:
        naming = _naming(connection, header.number)
        if isinstance(naming, NotYet) or naming.number != header.number:
            return NotYet(wait("beacon_root_not_held", block=header.number, **ends(connection.config)))
        block, chain = _block(connection.config.source_id, naming.root), connection.source_rpc.chain
        if block.block_hash != header.hash:
            raise NodeUnavailable(
                f"The nodes of {chain.label} have another block {header.number} than its beacon nodes."
            )
        source = connection.registry.block_hash_source
        arguments = (naming.time, jumps.own(block), header.encode())
        record = call(self.contract, source, "record", *arguments)
        return Start(header.number, (record,), self.gas(connection.config).expected)

    def vouched(self, connection: Connection, *, keeps_hashes: bool) -> int:
        there, here = (get_chains().chain(chain_id) for chain_id in (connection.source_id, connection.destination_id))
        return int(_RELIED_ON * here.block_seconds / there.block_seconds)

    def newest(self, connection: OpenConnection) -> int | NotYet:
        """Return the newest block that a held root names, which is in the header of the next block or the one after."""
        header = newest_held(connection.source_rpc, connection.destination_rpc)
        if isinstance(header, NotYet):
            return header
        return _why_unknown(connection, header) or _named_by(connection.source_rpc, header)


def newest_held(source_rpc: RpcClient, destination_rpc: RpcClient) -> Header | NotYet:
    """Return the newest source header whose beacon root the destination holds.

    Return `NotYet` if the destination's beacon roots are those of another chain. Raises `NodeUnavailable`,
    `RpcRefused`.
    """
    (root,) = _held(destination_rpc, [destination_rpc.head().timestamp])
    head, lacking = source_rpc.head().number, 0
    for last in range(head, max(0, head - _HEADERS * _LOOKS), -_HEADERS) if root else ():
        numbers = range(max(1, last - _HEADERS + 1), last + 1)
        for number, header in zip(reversed(numbers), reversed(source_rpc.headers(numbers)), strict=True):
            if header and header.beacon_root == root:
                return header
            lacking = lacking or (0 if header else number)
    chain, source = destination_rpc.chain.id, source_rpc.chain.id
    if lacking:
        return NotYet(wait("source_without_block", chain=source, block=lacking))
    return NotYet(wait("no_beacon_root", contract=BEACON_ROOTS, chain=chain, source=source))


# --- Which root names a block -----------------------------------------------------------------------------------------
# The root in a header is that of the beacon block before the header's own. Before Gloas, that block contains the block
# before. Since Gloas it names an execution block: the one before, or the one before that. No header has the root of a
# beacon block whose successor has no execution block. So the roots in the next two headers tell all: one of them names
# the block, or the second one names the next block, from which a parent hash leads on.


@dataclass(frozen=True)
class _Naming:
    """A beacon root that the destination holds, and the source block that it names."""

    number: int
    root: bytes
    time: int
    """The time of the destination's block by which its contract finds the root."""


def _naming(connection: OpenConnection, number: int) -> _Naming | NotYet:
    """Return the held root that names a block, or the next block if none names it."""
    rpc, is_named = connection.source_rpc, False
    for header in rpc.headers([number + 1, number + 2]):
        if header is None or not header.beacon_root:
            break
        named = _named_by(rpc, header)
        if named < number or (is_named and named > number):
            continue
        is_named = True
        if why := _why_unknown(connection, header):
            return why
        if (time := _held_time(connection, header)) is not None:
            return _Naming(named, header.beacon_root, time)
    return NotYet(wait("beacon_root_not_held", block=number, **ends(connection.config)))


def _why_unknown(connection: OpenConnection, header: Header) -> NotYet | None:
    """Return the wait for another registry if this one doesn't know the beacon block whose root is in a header.

    The beacon block's slot decides. It may be before a fork though the header is after.
    """
    chain, why = connection.beacon_chain, connection.registry.why_history_ends
    if chain is None or why is None or header.timestamp <= chain.time_of(chain.end):
        return None
    assert header.beacon_root is not None, "the callers have looked"
    is_known = _block(connection.config.source_id, header.beacon_root).header.slot < chain.end
    return None if is_known else NotYet(why)


def _named_by(source_rpc: RpcClient, header: Header) -> int:
    """Return the number of the block that the beacon root in a header names.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    chain = source_rpc.chain
    beacon_chain = chain.beacon_chain
    assert beacon_chain is not None, "chains.toml was checked"
    assert header.beacon_root is not None, "the callers have looked"
    if header.timestamp <= beacon_chain.time_of(beacon_chain.gloas):
        return header.number - 1
    block = _block(chain.id, header.beacon_root)
    if block.block_hash == header.parent_hash:
        return header.number - 1
    if block.block_hash == source_rpc.known_header(header.number - 1).parent_hash:
        return header.number - 2
    raise NodeUnavailable(f"The nodes of {chain.label} have other blocks before {header.number} than its beacon nodes.")


@lru_cache(maxsize=64)
def _block(source_id: int, root: bytes) -> ExecutionBranch:
    """Return the beacon block with this root, verified. Raises `NodeUnavailable`."""
    client = get_beacon_client(source_id)
    assert client is not None, "chains.toml was checked"
    return client.block(root)


def _held_time(connection: OpenConnection, header: Header) -> int | None:
    """Return the time by which the destination's contract finds the root in a header, if it will for a while."""
    rpc = connection.destination_rpc
    head = rpc.head()
    before = rpc.header(head.number - 1) if head.number else None
    # Seconds between blocks, if these are regular.
    step = max(1, head.timestamp - before.timestamp) if before else 1
    oldest = max(header.timestamp, head.timestamp - step * _RELIED_ON)
    first = head.timestamp - (head.timestamp - oldest) // step * step
    times = range(first, min(head.timestamp, first + _DRIFT) + 1, step)
    # Consecutive blocks of a rollup are derived from the same L1 block, so some of their times are enough.
    moments = [*times[:: max(1, -(-len(times) // _MOMENTS))], head.timestamp]
    held = zip(moments, _held(rpc, moments), strict=True)
    return next((time for time, root in held if root == header.beacon_root), None)


def _held(destination_rpc: RpcClient, times: Sequence[int]) -> list[bytes]:
    """Return the roots that the destination holds for these times of its blocks. Empty where it holds none."""
    answers = destination_rpc.eth_calls([(BEACON_ROOTS, time.to_bytes(32)) for time in times])
    return [answer if isinstance(answer, bytes) and any(answer) else b"" for answer in answers]


SOURCE = BeaconRoots()
