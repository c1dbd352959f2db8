"""The parent chain vouches for blocks of an Arbitrum chain that the rollup has confirmed there.

The contract is `ArbitrumBlockHashSource.sol`. The rollup's Outbox holds hashes of blocks by the send roots in their
headers: of one block about every hour, days after it was made. It is recorded by its header, and everything before is
reached from it.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.chains_file import Connection
from chains.header import Header
from chains.rpc import InvalidReply, Log, RpcClient, RpcRefused
from proving.connections import OpenConnection
from proving.gas_model.proof_gas import Likely
from proving.registry.contract import call
from proving.sources.base import NotYet, Preparation, Start, days, told_by

# Of the Outbox: the send root and the block's hash. A later block takes the place of one with the same send root.
_CONFIRMED = keccak(text="SendRootUpdated(bytes32,bytes32)")
_ROOTS = keccak(text="roots(bytes32)")[:4]
# Place in a header of the extra data, which is the send root, and its size.
EXTRA_DATA, _SEND_ROOT_BYTES = 12, 32
# Blocks of the destination in one request, which nodes bound, and requests: Ethereum's last five days.
_BLOCKS_PER_REQUEST, _REQUESTS = 2000, 20
# Of recording a block, as measured.
_GAS = Likely(67_000, 100_000)


class Arbitrum:
    contract = "ArbitrumBlockHashSource"
    title = "Arbitrum: blocks that the rollup has confirmed on the destination"

    def trust(self, connection: Connection) -> str:
        return (
            f"The fault proofs of chain {connection.source_id}, and whoever can upgrade the contracts of its rollup on "
            f"chain {_parent_id(connection)}. A block counts when the rollup has confirmed it, which takes days."
        )

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        return connection.source_id, connection.outbox

    def gas(self, connection: Connection) -> Likely:
        return _GAS

    def reach(self, connection: OpenConnection, target: int, others: Collection[int]) -> Start | NotYet:
        outbox, recorded = self._state(connection)
        if outbox != connection.config.outbox:
            return NotYet(
                f"The block hash source of chain {connection.config.source_id} reads the Outbox {outbox}, and "
                f"chains.toml names {connection.config.outbox}. The operator must write the former there, or deploy "
                "another registry."
            )
        window = connection.config.window
        if target <= recorded <= target + window:
            return Start(recorded)
        lowest: int | None = None
        for logs in confirmations(self._parent_rpc(connection), outbox):
            newest, oldest = self._header(connection, logs[0]).number, self._header(connection, logs[-1]).number
            if lowest is None and newest < target:
                return self._not_confirmed(connection, target, logs[0])
            # One hop leads over a whole window, however far the block is.
            if oldest > target + window:
                lowest = oldest
                continue
            for log in logs:
                number = self._header(connection, log).number
                if number < target:
                    break
                lowest = number
            break
        starts = [number for number in (lowest, recorded) if number is not None and number >= target]
        return Start(min(starts)) if starts else self._nothing_confirmed(connection.config)

    def begin(self, connection: OpenConnection, start: int) -> Start | Preparation | NotYet:
        header = connection.source_rpc.header(start)
        if header is None:
            return NotYet(f"Block {start} of chain {connection.config.source_id} is not there.")
        source = connection.registry.block_hash_source
        known = connection.destination_rpc.eth_call(*call(self.contract, source, "blockHash", start))
        if known == header.hash:
            return Start(start)
        send_root = header.fields[EXTRA_DATA]
        held = self._parent_rpc(connection).eth_call(
            str(connection.config.outbox), _ROOTS + send_root[:_SEND_ROOT_BYTES]
        )
        if held != header.hash or len(send_root) != _SEND_ROOT_BYTES or any(known):
            return NotYet(
                f"Chain {_parent_id(connection.config)} holds another hash than that of block {start} of chain "
                f"{connection.config.source_id}, or none: waiting for the next block that its rollup confirms."
            )
        return self._record(connection, header)

    def _record(self, connection: OpenConnection, header: Header) -> Start | Preparation | NotYet:
        """Return the block with the calls that record it; or what must be sent before."""
        source = connection.registry.block_hash_source
        return Start(header.number, (call(self.contract, source, "record", header.encode()),))

    def vouches_for_long(self, connection: Connection, number: int, head: int) -> bool:
        return True  # What is recorded stays.

    def vouched(self, connection: Connection, *, keeps_hashes: bool) -> int:
        return 1  # The newest that is confirmed.

    def newest(self, connection: OpenConnection) -> int | NotYet:
        outbox = str(connection.config.outbox)
        logs = next(confirmations(self._parent_rpc(connection), outbox), None)
        return self._header(connection, logs[0]).number if logs else self._nothing_confirmed(connection.config)

    def _parent_rpc(self, connection: OpenConnection) -> RpcClient:
        """Return the client of the chain that the Outbox is on."""
        return connection.destination_rpc

    def _state(self, connection: OpenConnection) -> tuple[str, int]:
        """Return the Outbox that the contract reads, and the highest block that is recorded."""
        outbox, recorded = told_by(connection, self.contract, "outbox", "newest")
        return to_checksum_address(outbox[12:]), int.from_bytes(recorded)

    def _header(self, connection: OpenConnection, log: Log) -> Header:
        """Return the header of the block that was confirmed."""
        header = connection.source_rpc.header_by_hash(log.topics[2])
        if header is None:
            raise InvalidReply(
                f"A node of chain {connection.config.source_id} doesn't have block 0x{log.topics[2].hex()}, which the "
                "rollup has confirmed."
            )
        return header

    def _not_confirmed(self, connection: OpenConnection, target: int, log: Log) -> NotYet:
        config, newest = connection.config, self._header(connection, log)
        confirmed_at = self._parent_rpc(connection).known_header(log.block_number).timestamp
        return NotYet(
            f"Block {target} of chain {config.source_id} is not confirmed on chain {_parent_id(config)} yet; the "
            f"newest confirmed block is {newest.number}, which was confirmed {days(confirmed_at - newest.timestamp)} "
            "after it was made."
        )

    def _nothing_confirmed(self, config: Connection) -> NotYet:
        return NotYet(
            f"The Outbox {config.outbox} on chain {_parent_id(config)} has confirmed no block of chain "
            f"{config.source_id} lately."
        )


def _parent_id(config: Connection) -> int:
    return config.parent_id or config.destination_id


def confirmations(rpc: RpcClient, outbox: str) -> Iterator[Sequence[Log]]:
    """Yield what the Outbox still holds of what was confirmed in the last blocks, the newest first, some at a time.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    last, most = rpc.head().number, _BLOCKS_PER_REQUEST
    replaced: set[bytes] = set()
    for _ in range(_REQUESTS):
        first = max(0, last - most + 1)
        try:
            logs = rpc.logs(outbox, [_CONFIRMED, None, None], first, last)
        except RpcRefused:
            if most == 1:
                raise
            # Nodes bound the range, some to ten blocks.
            most = max(1, most // 4)
            continue
        held = []
        for log in reversed(logs):
            if log.topics[1] not in replaced:
                replaced.add(log.topics[1])
                held.append(log)
        if held:
            yield held
        if first == 0:
            return
        last = first - 1
