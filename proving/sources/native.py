"""A chain vouches for its own blocks (`NativeBlockHashSource.sol`): source and destination are the same chain."""

from typing import Any

from chains.chains_file import Connection
from chains.nodes import questions
from chains.nodes.rpc import result
from proving.connections import OpenConnection
from proving.registries.deployments import call
from proving.sources import BlockHashSource, NotYet, Start, WrongHash, not_there
from queries.waits import wait

# Number of blocks that `blockhash` serves, on chains without the history contract (EIP-2935).
_BLOCKHASH_WINDOW = 256
# Maximum window of the contract, even if the chain's history is larger.
_MAX_WINDOW = 8191


class Native(BlockHashSource):
    contract = "NativeBlockHashSource"
    title = "Native: the chain's own history of block hashes"

    def trust(self, connection: Connection) -> str:
        return "Nobody beyond the chain itself, which knows its own block hashes."

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        return (_window(connection),)

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        head = connection.source_rpc.head().number
        # A block at the edge of a window may have left it when the transaction is mined.
        starts = sorted({max(target, safe, 0) for _, safe in _edges(connection.config, head)})
        source, chain = connection.registry.block_hash_source, connection.config.destination_id
        calls = [questions.call(*call(self.contract, source, "blockHash", start), "pending") for start in starts]
        block_hashes, headers = connection.destination_rpc.ask(calls, [questions.header(start) for start in starts])
        wrong: list[int] = []
        for start, answer, header in zip(starts, map(result, block_hashes), map(result, headers), strict=True):
            if header is not None and answer == header.hash:
                return Start(start)
            if header is not None and any(answer):
                wrong.append(start)
        if wrong:
            return WrongHash(wait("wrong_block_hash", contract=source, chain=chain, block=wrong[0]))
        lacking = [start for start, header in zip(starts, headers, strict=True) if header is None]
        if lacking:
            return not_there(connection.config, lacking[0])
        return NotYet(wait("not_vouched_for", chain=chain, block=starts[0]))

    def begin(self, connection: OpenConnection, start: int) -> Start:
        return Start(start)

    def vouches_for_long(self, connection: Connection, number: int, head: int) -> bool:
        return all(not oldest <= number < safe for oldest, safe in _edges(connection, head))

    def vouched(self, connection: Connection, *, keeps_hashes: bool) -> int:
        window = _window(connection)
        return window if keeps_hashes else min(window, _BLOCKHASH_WINDOW)

    def newest(self, connection: OpenConnection) -> int:
        # The head itself is left out, because a reorganisation is most likely to replace it.
        return max(0, connection.source_rpc.head().number - min(8, connection.config.window // 8))


def _edges(connection: Connection, head: int) -> list[tuple[int, int]]:
    """Return, for each possible window of the chain, its oldest block, and the oldest that stays for some time."""
    window = _window(connection)
    sizes = (window, min(window, _BLOCKHASH_WINDOW))
    return [(head + 1 - size, head + 1 - size + min(size // 8, 64)) for size in sizes]


def _window(connection: Connection) -> int:
    return min(connection.window, _MAX_WINDOW)


SOURCE = Native()
