"""Blocks that a registry has come to trust, by their state roots or their hashes: where paths begin.

The rows are hints, which the planner of a path checks on the chain: they may be of a transaction that failed, or of a
chain that was reorganised.
"""

from collections.abc import Collection, Sequence

from django.db.models import QuerySet

from chains.encoding import hex_data
from chains.header import Header
from proving.connections import OpenConnection
from queries import submission
from queries.models import Block


def rows(connection: OpenConnection) -> QuerySet[Block]:
    """Return the checkpoints of this connection whose hashes are known, in no order."""
    known = Block.objects.filter(
        destination_chain_id=connection.config.destination_id,
        source_chain_id=connection.config.source_id,
        is_checkpoint=True,
    )
    return known.exclude(hash="")


def headers(connection: OpenConnection, numbers: Sequence[int]) -> list[Header]:
    """Return the blocks of these numbers as the source chain has them now. Others may have been noted before."""
    found = connection.source_rpc.headers(numbers)
    return [header for header in found if header is not None]


def note(connection: OpenConnection, headers: Collection[Header]) -> None:
    source = connection.config.source_id
    found = submission.find_blocks(connection.config.destination_id, {(source, header.number) for header in headers})
    # In the order of their rows, as `database.row_locks` says.
    for header in sorted(headers, key=lambda header: found[source, header.number]):
        row = Block.objects.filter(pk=found[source, header.number])
        # What is there already is of a block that queries are about, and reconcile keeps that row right.
        row.filter(hash="").update(
            hash=hex_data(header.hash),
            header_rlp=header.encode(),
            state_root=hex_data(header.state_root),
            timestamp=header.timestamp,
        )
        row.update(is_checkpoint=True)
