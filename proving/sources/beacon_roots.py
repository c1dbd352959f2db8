"""The destination vouches for blocks of a chain whose beacon roots it holds (`BeaconBlockHashSource.sol`, EIP-4788).

An OP Stack chain holds the roots that are in the L1 blocks from which its own blocks are derived. So each L1 block of
the last hours can be recorded directly, without a hop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from chains.beacon import jumps
from chains.beacon.jumps import CannotProve
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
    contract = "BeaconBlockHashSource"
    title = "Beacon roots that the destination holds"
    recording_gas = Amount(41_900, 66_900)
    knows = "holds the beacon roots of"

    def trust(self, connection: Connection) -> str:
        return trust_in_rollup(connection)

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        beacon_chain = get_chains().chain(connection.source_id).beacon_chain
        assert beacon_chain is not None, "chains.toml was checked"
        return (beacon_chain.arguments,)

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        if any(self.recorded(connection, target)) or _held_root(connection, target):
            return Start(target)
        return super().reach(connection, target)

    def record(self, connection: OpenConnection, header: Header) -> Start | NotYet:
        config, start = connection.config, header.number
        held = _held_root(connection, start)
        if held is None:
            return NotYet(wait("beacon_root_not_held", block=start, **ends(config)))
        source, branch = connection.registry.block_hash_source, _own_branch(config.source_id, held.root, header)
        record = call(self.contract, source, "record", held.time, branch, header.encode())
        return Start(start, (record,), self.gas(config).expected)

    def vouched(self, connection: Connection, *, keeps_hashes: bool) -> int:
        there, here = (get_chains().chain(chain_id) for chain_id in (connection.source_id, connection.destination_id))
        return int(_RELIED_ON * here.block_seconds / there.block_seconds)

    def newest(self, connection: OpenConnection) -> int | NotYet:
        return newest_told(connection.source_rpc, connection.destination_rpc)


def newest_told(source_rpc: RpcClient, destination_rpc: RpcClient) -> int | NotYet:
    """Return the newest source block whose beacon root the destination holds.

    The next source block's header has the root.

    Return `NotYet` if the destination's beacon roots are those of another chain. Raises `NodeUnavailable`,
    `RpcRefused`.
    """
    (root,) = _held(destination_rpc, [destination_rpc.head().timestamp])
    head, lacking = source_rpc.head().number, 0
    for last in range(head, max(0, head - _HEADERS * _LOOKS), -_HEADERS) if root else ():
        numbers = range(max(1, last - _HEADERS + 1), last + 1)
        for number, header in zip(reversed(numbers), reversed(source_rpc.headers(numbers)), strict=True):
            if header and header.beacon_root == root:
                return number - 1
            lacking = lacking or (0 if header else number)
    chain, source = destination_rpc.chain.id, source_rpc.chain.id
    if lacking:
        return NotYet(wait("source_without_block", chain=source, block=lacking))
    return NotYet(wait("no_beacon_root", contract=BEACON_ROOTS, chain=chain, source=source))


@dataclass(frozen=True)
class _HeldRoot:
    """A beacon root that the destination holds."""

    time: int
    """The time of the destination's block by which its contract finds the root."""
    root: bytes


def _held_root(connection: OpenConnection, number: int) -> _HeldRoot | None:
    """Return a block's beacon root if the destination holds it, and will for a while."""
    after = connection.source_rpc.header(number + 1)
    root = after.beacon_root if after else b""
    if not after or not root:
        return None
    rpc = connection.destination_rpc
    head = rpc.head()
    before = rpc.header(head.number - 1) if head.number else None
    # Seconds between blocks, if these are regular.
    step = max(1, head.timestamp - before.timestamp) if before else 1
    oldest = max(after.timestamp, head.timestamp - step * _RELIED_ON)
    first = head.timestamp - (head.timestamp - oldest) // step * step
    times = range(first, min(head.timestamp, first + _DRIFT) + 1, step)
    # Consecutive blocks of a rollup are derived from the same L1 block, so some of their times are enough.
    moments = [*times[:: max(1, -(-len(times) // _MOMENTS))], head.timestamp]
    held = zip(moments, _held(rpc, moments), strict=True)
    return next((_HeldRoot(time, root) for time, held_root in held if held_root == root), None)


def _held(destination_rpc: RpcClient, times: Sequence[int]) -> list[bytes]:
    """Return the roots that the destination holds for these times of its blocks. Empty where it holds none."""
    answers = destination_rpc.eth_calls([(BEACON_ROOTS, time.to_bytes(32)) for time in times])
    return [answer if isinstance(answer, bytes) and any(answer) else b"" for answer in answers]


@lru_cache(maxsize=64)
def _own_branch(source_id: int, root: bytes, header: Header) -> bytes:
    """Return the branch from a block's hash to the root of its beacon block. Raises `NodeUnavailable`."""
    chain, client = get_chains().chain(source_id), get_beacon_client(source_id)
    assert chain.beacon_chain is not None, "chains.toml was checked"
    assert client is not None, "chains.toml was checked"
    try:
        block = client.block(root, chain.beacon_chain.slot_at(header.timestamp))
    except CannotProve as cannot:
        raise NodeUnavailable(f"Block {header.number} of {chain.label} can't be proven: {cannot}") from None
    if block.block_hash != header.hash:
        raise NodeUnavailable(f"The nodes of {chain.label} have another block {header.number} than its beacon nodes.")
    return jumps.own(block)


SOURCE = BeaconRoots()
