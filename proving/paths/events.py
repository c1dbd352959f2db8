"""Learns which headers others have accumulated in a registry of ours: paths may begin there.

It reads events of final blocks only, once each. What it notes are hints, as all checkpoints are: whoever plans a path
asks the chain.
"""

from eth_utils.crypto import keccak

from chains.rpc import Log, RpcRefused
from proving.connections import OpenConnection
from proving.heads import Heads
from proving.models import FactsRegistry
from proving.paths import checkpoints
from queries.chunks import chunks
from queries.leases import Lease

_EVENT = keccak(text="HeaderAccumulated(uint256,bytes32)")
# Blocks of the destination in one request, which nodes bound, and requests in one `read`.
_BLOCKS_PER_REQUEST = 2000
_REQUESTS_PER_READ = 20
_HEADERS_PER_REQUEST = 50


def read(lease: Lease[FactsRegistry], connection: OpenConnection, heads: Heads) -> bool:
    """Note what was accumulated since the last read, as far as one read goes; whether that was all.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    first = lease.row.events_read_to
    if first is None:
        first = heads.final
    most = _BLOCKS_PER_REQUEST
    for _ in range(_REQUESTS_PER_READ):
        if first > heads.final:
            break
        last = min(heads.final, first + most - 1)
        try:
            logs = connection.destination_rpc.logs(connection.registry.contract.address, [_EVENT, None], first, last)
        except RpcRefused:
            if most == 1:
                raise
            # Nodes bound the range, some to ten blocks.
            most = max(1, most // 4)
            continue
        _note(connection, logs)
        first = last + 1
        with lease.writing() as row:
            row.events_read_to = first
            row.save(update_fields=["events_read_to"])
    return first > heads.final


def _note(connection: OpenConnection, logs: list[Log]) -> None:
    roots = {int.from_bytes(log.topics[1]): log.data for log in logs}
    for chunk in chunks(sorted(roots), _HEADERS_PER_REQUEST):
        known = checkpoints.rows(connection).filter(number__in=chunk).values_list("number", flat=True)
        headers = [
            header
            for header in connection.source_rpc.headers(sorted(set(chunk).difference(known)))
            if header is not None
        ]
        # Another root is that of a source chain that was reorganised, or of nodes that lie: no path begins there.
        checkpoints.note(connection, [header for header in headers if header.state_root == roots[header.number]])
