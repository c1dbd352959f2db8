"""Where a destination's trust in blocks of a source chain begins: a file for each kind of block hash source.

Each has a contract (`contracts/src/IBlockHashSource.sol`), and a class here that knows what to send to it. From a block
that a source vouches for, `proving.paths.planning` leads to all blocks before.
"""

from importlib import import_module

from chains.chains_file import Connection
from proving.sources.base import BlockHashSource, NotYet, Preparation, Start

__all__ = ["BlockHashSource", "NotYet", "Preparation", "Start", "of"]


def of(connection: Connection) -> BlockHashSource:
    """Return a connection's block hash source: `SOURCE` of the module that has its kind's name.

    It is imported when a connection names it: no other kind's contracts and chains are needed.
    """
    module = import_module(f"{__name__}.{connection.block_hash_source.replace('-', '_')}")
    source: BlockHashSource = module.SOURCE
    return source
