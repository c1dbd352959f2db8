"""Learns which blocks others have made a registry of ours trust: paths may begin there.

`read` reads events of final blocks, once each, and notes what they tell. Those are hints, as all checkpoints are:
the planner of a path asks the chain.
"""

from collections.abc import Collection, Sequence
from functools import partial

from django.db.models.functions import Now
from eth_utils.crypto import keccak

from chains import together
from chains.encoding import hex_data
from chains.header import Header
from chains.rpc import Log, RpcRefused
from database import row_locks
from database.chunks import chunks
from database.leases import Lease
from proving.connections import OpenConnection
from proving.heads import Heads
from proving.models import FactsRegistry
from proving.paths import checkpoints
from queries.models import OPEN_STATUSES, PROVABLE_STEPS, Batch, Block, Query, Sender

_HEADER = keccak(text="HeaderAccumulated(uint256,bytes32)")
_HASH = keccak(text="BlockHashProven(bytes32)")
# Blocks of the destination in one request, which nodes bound, and requests in one `read`.
_BLOCKS_PER_REQUEST = 2000
_REQUESTS_PER_READ = 20
_HEADERS_PER_REQUEST = 50
# For how long after its block is confirmed an event makes blocks due, in seconds.
_NOTICED_SECONDS = 30
# The maximum that `unread` reads: blocks of the destination, and events that name a block by its hash only.
_MOST_UNREAD, _MOST_HASHES = 2 * _BLOCKS_PER_REQUEST, 200


def read(lease: Lease[FactsRegistry], connection: OpenConnection, heads: Heads) -> bool:
    """Note what was proven since the last read, as far as one read goes; whether that was all.

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
            logs = _logs(connection, first, last)
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


def unread(connection: OpenConnection, latest: int) -> list[int]:
    """Return numbers of blocks that came to be trusted since the last `read`, up to the destination's block `latest`.

    It notes nothing. Where nodes refuse to tell, there are none. Raises `NodeUnavailable`.
    """
    read_to = FactsRegistry.objects.values_list("events_read_to", flat=True).get(pk=connection.registry.row_id)
    first = max(latest - _MOST_UNREAD + 1, latest if read_to is None else read_to, 0)
    numbers: list[int] = []
    try:
        for start in range(first, latest + 1, _BLOCKS_PER_REQUEST):
            logs = _logs(connection, start, min(latest, start + _BLOCKS_PER_REQUEST - 1))
            numbers += [int.from_bytes(log.topics[1]) for log in logs if log.topics[0] == _HEADER]
            hashes = [log.topics[1] for log in logs if log.topics[0] == _HASH][-_MOST_HASHES:]
            numbers += [header.number for header in _by_hash(connection, hashes)]
    except RpcRefused:
        pass
    return numbers


def wake_waiting(connection: OpenConnection, heads: Heads) -> bool:
    """Make the blocks due that recent events name and whose transactions others send; return whether any wait.

    Events count until some time after their block is confirmed: then the steps that they complete are completed.
    Raises `NodeUnavailable`, `RpcRefused`.
    """
    config = connection.config
    left_to_others = Query.objects.filter(
        batch__in=Batch.objects.filter(status__in=OPEN_STATUSES, sender=Sender.SELF),
        step__in=PROVABLE_STEPS,
        block__destination_chain_id=config.destination_id,
        block__source_chain_id=config.source_id,
    )
    rows = list(left_to_others.values_list("block", "block__number", "block__hash").distinct())
    if rows:
        margin = 10 + int(_NOTICED_SECONDS / connection.destination_rpc.chain.block_seconds)
        first, address = max(0, heads.confirmed.number - margin), connection.registry.contract.address
        logs = connection.destination_rpc.logs(address, [], first, heads.latest.number)
        named = {topic for log in logs for topic in log.topics[1:]}
        found = [pk for pk, number, block_hash in rows if {number.to_bytes(32), bytes.fromhex(block_hash[2:])} & named]
        for chunk in chunks(found, _BLOCKS_PER_REQUEST):
            row_locks.update(Block.objects.filter(pk__in=chunk, due_at__gt=Now()), due_at=Now())
    return bool(rows)


def _logs(connection: OpenConnection, first: int, last: int) -> list[Log]:
    topics = [(_HEADER, _HASH), None]
    return connection.destination_rpc.logs(connection.registry.contract.address, topics, first, last)


def _note(connection: OpenConnection, logs: Sequence[Log]) -> None:
    roots = {int.from_bytes(log.topics[1]): log.data for log in logs if log.topics[0] == _HEADER}
    for chunk in chunks(sorted(roots), _HEADERS_PER_REQUEST):
        known = checkpoints.rows(connection).filter(number__in=chunk).values_list("number", flat=True)
        headers = checkpoints.headers(connection, sorted(set(chunk).difference(known)))
        # Another root is that of a source chain that was reorganised, or of nodes that lie: no path begins there.
        checkpoints.note(connection, [header for header in headers if header.state_root == roots[header.number]])
    for hashes in chunks([log.topics[1] for log in logs if log.topics[0] == _HASH], _HEADERS_PER_REQUEST):
        named = checkpoints.rows(connection).filter(hash__in=map(hex_data, hashes)).values_list("hash", flat=True)
        noted = set(named)
        headers = _by_hash(connection, [block_hash for block_hash in hashes if hex_data(block_hash) not in noted])
        checkpoints.note(connection, headers)


def _by_hash(connection: OpenConnection, hashes: Collection[bytes]) -> list[Header]:
    """Return the headers that the source chain has of these hashes."""
    found = together.each(partial(connection.source_rpc.header_by_hash, block_hash) for block_hash in hashes)
    return [header for header in found if header is not None]
