"""Checkpoints, which are blocks whose state roots a registry trusts. Paths begin there. Also: upkeep of registries.

The rows are hints, and the planner of a path checks them on the chain. They may come from a transaction that failed, or
from a chain that was reorganised. They are stored for the service's own transactions. While self-funded batches wait,
they are also stored from the registry's newest events.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db.models import QuerySet
from django.db.models.functions import Now
from eth_utils.crypto import keccak

from chains.encoding import hex_data
from chains.nodes.node_errors import NodeUnavailable, RpcRefused
from chains.nodes.questions import Log, Topic
from chains.nodes.rpc import LogReader
from chains.tries.header import Header
from chains.tries.packed import HeaderParts
from config.configured_chains import get_chains
from config.database import due_rows
from config.database.statements import chunks
from proving import connections
from proving.connections import OpenConnection
from proving.models import FactsRegistry
from proving.registries.deployments import Unusable
from proving.sources import Start
from proving.working import counters, heads, lanes
from proving.working.heads import Heads, poll_seconds
from proving.working.lanes import HeldLane
from queries import submission, waits
from queries.models import OPEN_STATUSES, PROVABLE_STEPS, Batch, Block, Query, Sender

logger = logging.getLogger(__name__)

_HEADER = keccak(text="HeaderAccumulated(uint256,bytes32)")
# Maximum number of checkpoints to ask the registry about, the nearest first.
_NEAREST = 20
# Number of the destination's newest blocks whose events are read, to find what others have sent for a batch.
_BLOCKS_READ = 2000
# Maximum requests for the events of a range, where nodes answer only parts of it.
_MOST_REQUESTS = 20
# Maximum rows named in one statement.
_PER_STATEMENT = 2000
# Seconds after the confirmation of an event's block, during which the event makes blocks due.
_NOTICED_SECONDS = 30
# Seconds until a registry is due again: usually, and if it can't be used.
_PAUSE, _UNUSABLE_PAUSE = 30, 60


@dataclass(frozen=True)
class Jump:
    """A jump to a block of any age."""

    origin: Header | None = None
    """The header at which the jump begins. None if it begins at a constant."""
    start: Start | None = None
    """The calls that make the origin trusted. None: none are needed."""
    by_roots: bool = False
    """True if it leads through the last block roots in the origin's state, and not through that state's summaries."""
    parts: HeaderParts = ()
    """The origin's header and the branch, which come before the header of the block. Empty until they are fetched."""


def rows(connection: OpenConnection) -> QuerySet[Block]:
    """Return the checkpoints of this connection whose hashes are known, in any order."""
    known = Block.objects.filter(
        destination_chain_id=connection.config.destination_id,
        source_chain_id=connection.config.source_id,
        is_checkpoint=True,
    )
    return known.exclude(hash="")


def headers(connection: OpenConnection, numbers: Sequence[int]) -> list[Header]:
    """Return the current headers of these numbers on the source chain. They may differ from stored headers."""
    return [header for header in connection.source_rpc.headers(numbers) if header is not None]


def nearest(connection: OpenConnection, target: int, hints: Collection[int]) -> int | None:
    """Return the number of the nearest block above whose state root the registry trusts at the newest block.

    Pending transactions don't count. They may fail, or another signer's may be mined before them.
    """
    above = rows(connection).filter(number__gt=target).order_by("number")
    numbers = {*above.values_list("number", flat=True)[:_NEAREST], *(number for number in hints if number > target)}
    candidates, contract = headers(connection, sorted(numbers)[:_NEAREST]), connection.registry.contract
    roots = connection.destination_rpc.eth_calls([contract.state_root(header.number) for header in candidates])
    trusted = (header.number for header, root in zip(candidates, roots, strict=True) if root == header.state_root)
    return next(trusted, None)


def note(connection: OpenConnection, headers: Collection[Header]) -> None:
    source = connection.config.source_id
    ids = submission.ensure_blocks(connection.config.destination_id, {(source, header.number) for header in headers})
    # Rows are written in the order of their ids, as `config.database.statements` requires.
    for header in sorted(headers, key=lambda header: ids[source, header.number]):
        row = Block.objects.filter(pk=ids[source, header.number])
        # A row with a hash belongs to a block with queries. Reconcile keeps that row up to date.
        row.filter(hash="").update(
            hash=hex_data(header.hash),
            header_rlp=header.encode(),
            state_root=hex_data(header.state_root),
            timestamp=header.timestamp,
        )
        row.update(is_checkpoint=True)


def note_origin(registry_id: int, origin: Header) -> None:
    """Store that jumps begin at this block."""
    FactsRegistry.objects.filter(pk=registry_id).exclude(jump_origin=origin.number).update(jump_origin=origin.number)


# --- Transactions of others -------------------------------------------------------------------------------------------


def newest(connection: OpenConnection, latest: int) -> list[int]:
    """Return numbers of source blocks that were accumulated recently, up to the destination's block `latest`.

    Nothing is stored. Empty if nodes refuse to answer. Raises `NodeUnavailable`.
    """
    first = max(0, latest - _BLOCKS_READ + 1)
    try:
        logs = _reader(connection, [_HEADER, None]).read_all(first, latest)
    except RpcRefused:
        return []
    return [int.from_bytes(log.topics[1]) for log in logs]


def _reader(connection: OpenConnection, topics: Sequence[Topic]) -> LogReader:
    contract = connection.registry.contract
    return LogReader(connection.destination_rpc, contract.address, topics, requests=_MOST_REQUESTS)


def wake_waiting(lane: HeldLane, connection: OpenConnection, heads: Heads) -> bool:
    """Make blocks of self-funded batches due if recent events name them. Return whether any such blocks wait.

    Blocks that the events accumulated are stored as checkpoints. Events count until some time after their block's
    confirmation, because steps are completed only then. Raises `NodeUnavailable`, `RpcRefused`.
    """
    config = connection.config
    left_to_others = Query.objects.filter(
        batch__in=Batch.objects.filter(status__in=OPEN_STATUSES, sender=Sender.SELF),
        step__in=PROVABLE_STEPS,
        block__destination_chain_id=config.destination_id,
        block__source_chain_id=config.source_id,
    )
    waiting = list(left_to_others.values_list("block", "block__number", "block__hash").distinct())
    if waiting:
        margin = 10 + int(_NOTICED_SECONDS / connection.destination_rpc.chain.block_seconds)
        first = max(0, heads.confirmed.number - margin)
        logs = _reader(connection, []).read_all(first, heads.latest.number)
        _note_accumulated(connection, logs)
        named = {topic for log in logs for topic in log.topics[1:]}
        woken = [pk for pk, number, of_block in waiting if {number.to_bytes(32), bytes.fromhex(of_block[2:])} & named]
        for chunk in chunks(woken, _PER_STATEMENT):
            lane.write(partial(Block.objects.filter(pk__in=chunk, due_at__gt=Now()).update, due_at=Now()))
    return bool(waiting)


def _note_accumulated(connection: OpenConnection, logs: Sequence[Log]) -> None:
    roots = {int.from_bytes(log.topics[1]): log.data for log in logs if log.topics[0] == _HEADER}
    known = rows(connection).filter(number__in=roots).values_list("number", flat=True)
    unknown = headers(connection, sorted(roots.keys() - set(known)))
    # Roots differ if the source chain was reorganised, or if nodes report false ones. No path may begin there.
    note(connection, [header for header in unknown if header.state_root == roots[header.number]])


# --- Upkeep of registries ---------------------------------------------------------------------------------------------


def wake() -> None:
    """Make registries due that were deployed meanwhile."""
    deployed().filter(due_at=None).update(due_at=Now())


def deployed() -> QuerySet[FactsRegistry]:
    """Return the registries that need upkeep."""
    return FactsRegistry.in_use.exclude(deployed_at=None)


def look_after(lane: HeldLane, key: object) -> None:
    """Check whether a registry may be used, and read the events of others' transactions. A worker calls this."""
    claim = lane.write(partial(due_rows.claim, deployed(), [key]))
    for row in claim.rows:
        attempts, reason, seconds = 0, None, float(_PAUSE)
        chain = get_chains().chain(row.destination_chain_id)
        about = {"chain": chain.id, "source": row.source_chain_id}
        with lanes.in_hand(lane, claim, [row]), counters.job_run("registry", **about) as job_run:
            try:
                connection = connections.open_unless_stopped(chain.id, row.source_chain_id)
                if wake_waiting(lane, connection, heads.read(chain, connection.destination_rpc)):
                    seconds = min(seconds, poll_seconds(chain))
            except Unusable as why:
                reason, seconds = why.reason, _UNUSABLE_PAUSE
            except (NodeUnavailable, RpcRefused) as error:
                logger.warning("the upkeep of %s waits: %s", row, error.for_operators)
                reason, seconds = waits.fault(error), due_rows.backoff(row.attempts).total_seconds()
                attempts = row.attempts + 1
            pause = timedelta(seconds=seconds)
            lane.write(partial(claim.end, [row], pause, attempts=attempts, wait=reason))
            job_run.outcome = "fails" if attempts else "waits" if reason else "done"
