"""Where a destination's trust in blocks of a source chain begins: a file for each kind of block hash source.

Each has a contract (`contracts/src/IBlockHashSource.sol`), and a class here that knows what to send to it. From a block
that a source vouches for, `proving.paths.planning` leads to all blocks before.
"""

from chains.chains_file import BlockHashSourceName, Connection
from proving.sources.arbitrum import Arbitrum
from proving.sources.arbitrum_buffer import ArbitrumBuffer
from proving.sources.arbitrum_slot import ArbitrumSlot
from proving.sources.attested import Attested
from proving.sources.base import BlockHashSource, NotYet, Preparation, Start
from proving.sources.beacon_roots import BeaconRoots
from proving.sources.native import Native
from proving.sources.op_stack import OpStack
from proving.sources.op_stack_games import OpStackGames

__all__ = ["BlockHashSource", "NotYet", "Preparation", "Start", "of"]


def of(connection: Connection) -> BlockHashSource:
    return _SOURCES[connection.block_hash_source]


_SOURCES: dict[BlockHashSourceName, BlockHashSource] = {
    "native": Native(),
    "attested": Attested(),
    "op-stack": OpStack(),
    "op-stack-games": OpStackGames(),
    "beacon-roots": BeaconRoots(),
    "arbitrum": Arbitrum(),
    "arbitrum-buffer": ArbitrumBuffer(),
    "arbitrum-slot": ArbitrumSlot(of),
}
