"""The parent chain vouches for blocks of an Arbitrum chain that the rollup has confirmed there.

The contract is `ArbitrumBlockHashSource.sol`. The rollup's Outbox holds block hashes by the send roots in their
headers. About every hour a block is added, which is days old by then. A block is recorded by its header, and paths lead
from it to all earlier blocks.
"""

from datetime import UTC, datetime
from typing import Any

from chains.arbitrum_outbox import ConfirmedBlock, Outbox
from chains.chains_file import Connection
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from config.configured_chains import get_rpc
from proving.connections import OpenConnection
from proving.packing.gas import Amount
from proving.registries.deployments import call
from proving.sources import (
    NotYet,
    Preparation,
    Recorder,
    Start,
    behind,
    named,
    not_there,
    read_words,
    why_unknown,
)
from queries import clock
from queries.waits import wait

# Seconds without a confirmation after which the operator is told. Rollups confirm about every hour.
_LONG_SILENCE = 86_400


class Arbitrum(Recorder):
    contract = "ArbitrumBlockHashSource"
    title = "Arbitrum: blocks that the rollup has confirmed on the destination"
    recording_gas = Amount(23_900, 56_900)

    def trust(self, connection: Connection) -> str:
        return (
            f"The fault proofs of {named(connection.source_id)}, and whoever can upgrade its rollup contracts on "
            f"{named(_parent_id(connection))}. A block counts when the rollup has confirmed it, after some days."
        )

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        return connection.source_id, connection.outbox

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        (newest_recorded,) = read_words(connection, self.contract, "newest")
        recorded, window = int.from_bytes(newest_recorded), connection.config.window
        if target <= recorded <= target + window:
            return Start(recorded)
        outbox = self._outbox(connection)
        header = connection.source_rpc.header(target)
        if header is None:
            return not_there(connection.config, target)
        # The Outbox has only one confirmed block for a send root, so events need not be searched.
        held = outbox.held(header)
        confirmed = outbox.by_hash(held) if any(held) else None
        if confirmed is None or confirmed.number < target:
            newest = outbox.newest()
            if newest is None:
                return _nothing_confirmed(connection.config)
            if newest.header.number < target:
                return self._not_confirmed(connection, header, newest)
            # Any block within the window is near enough, because one hop covers the whole window.
            confirmed = outbox.lowest(header, newest, within=window).header
            # The event's block may have been replaced by another confirmed block.
            held = outbox.held(confirmed)
            confirmed = outbox.by_hash(held) if any(held) else confirmed
        return Start(min(number for number in (confirmed.number, recorded) if number >= target))

    def record(self, connection: OpenConnection, header: Header) -> Start | Preparation | NotYet:
        parent_id = _parent_id(connection.config)
        if unknown := why_unknown(connection, parent_id, lambda: implementations(connection)):
            return NotYet(unknown)
        if self._outbox(connection).held(header) != header.hash:
            source = connection.config.source_id
            return NotYet(wait("outbox_differs", chain=parent_id, block=header.number, source=source))
        return self._by_outbox(connection, header)

    def _by_outbox(self, connection: OpenConnection, header: Header) -> Start | Preparation | NotYet:
        record = call(self.contract, connection.registry.block_hash_source, "record", header.encode())
        return Start(header.number, (record,), self.gas(connection.config).expected)

    def newest(self, connection: OpenConnection) -> int | NotYet:
        newest = self._outbox(connection).newest()
        return newest.header.number if newest else _nothing_confirmed(connection.config)

    def _parent_rpc(self, connection: OpenConnection) -> RpcClient:
        """Return the client of the chain that has the Outbox."""
        return connection.destination_rpc

    def _outbox(self, connection: OpenConnection) -> Outbox:
        return Outbox(self._parent_rpc(connection), connection.source_rpc, str(connection.config.outbox))

    def _not_confirmed(self, connection: OpenConnection, target: Header, newest: ConfirmedBlock) -> NotYet:
        config, parent = connection.config, self._parent_rpc(connection)
        confirmed_at = parent.known_header(newest.at).timestamp
        delay, silence = confirmed_at - newest.header.timestamp, parent.head().timestamp - confirmed_at
        expected = min(max(0, target.timestamp + delay), clock.LAST_SECOND)
        known = {"source": config.source_id, "chain": _parent_id(config), "newest": newest.header.number}
        long_silence = silence if silence > _LONG_SILENCE else None
        reason = wait(
            "not_confirmed", block=target.number, expected=expected, delay=delay, silence=long_silence, **known
        )
        return NotYet(reason, expected_at=datetime.fromtimestamp(expected, UTC))


def implementations(connection: OpenConnection) -> dict[str, str]:
    """Return the address of the code that the Outbox runs, by the contract's name.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    return behind(get_rpc(_parent_id(connection.config)), {"Outbox": str(connection.config.outbox)})


def _parent_id(config: Connection) -> int:
    return config.parent_id or config.destination_id


def _nothing_confirmed(config: Connection) -> NotYet:
    ends = {"chain": _parent_id(config), "source": config.source_id}
    return NotYet(wait("nothing_confirmed", outbox=str(config.outbox), **ends))


SOURCE = Arbitrum()
