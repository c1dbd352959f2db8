"""An Arbitrum chain vouches for blocks of its parent chain that someone has pushed into its buffer.

The contract is `ArbitrumBufferBlockHashSource.sol`, and the buffer is OffchainLabs' block-hash-pusher. Each push adds
256 blocks, and paths lead from one of them to all earlier blocks.
"""

from eth_utils.crypto import keccak

from chains.chains_file import Connection
from chains.nodes.node_errors import Reverted
from proving.connections import OpenConnection
from proving.registries.deployments import call
from proving.sources import BlockHashSource, NotYet, Start, ends, not_there, trust_in_rollup
from queries.waits import wait

# Addresses of the two contracts, which are the same on all chains. Source: OffchainLabs/block-hash-pusher.
BUFFER, PUSHER = "0x0000000048C4Ed10cF14A02B9E0AbDDA5227b071", "0x5a5C4f3D0F0Efaeed2aEc9B59B67eC62a4666D88"
_NEWEST = keccak(text="newestBlockNumber()")[:4]


class ArbitrumBuffer(BlockHashSource):
    contract = "ArbitrumBufferBlockHashSource"
    title = "Arbitrum: blocks of the parent chain that were pushed to the destination"

    def trust(self, connection: Connection) -> str:
        return trust_in_rollup(connection)

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        newest = self.newest(connection)
        if isinstance(newest, NotYet):
            return newest
        if newest < target:
            return NotYet(wait("not_pushed", newest=newest, block=target, pusher=PUSHER, **ends(connection.config)))
        return Start(newest)

    def begin(self, connection: OpenConnection, start: int) -> Start | NotYet:
        header, source = connection.source_rpc.header(start), connection.registry.block_hash_source
        held = connection.destination_rpc.eth_call(*call(self.contract, source, "blockHash", start))
        if header is None:
            return not_there(connection.config, start)
        if held != header.hash:
            return NotYet(wait("buffer_differs", block=start, **ends(connection.config)))
        return Start(start)

    def newest(self, connection: OpenConnection) -> int | NotYet:
        # This function may disappear, unlike the function that the contract calls.
        (answer,) = connection.destination_rpc.eth_calls([(BUFFER, _NEWEST)])
        if isinstance(answer, Reverted) or len(answer) != 32 or not any(answer):
            return NotYet(wait("no_buffer", chain=connection.config.destination_id, buffer=BUFFER))
        return int.from_bytes(answer)


SOURCE = ArbitrumBuffer()
