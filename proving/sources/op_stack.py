"""An OP Stack chain vouches for blocks of its L1 by its `L1Block` predeploy (`OpStackBlockHashSource.sol`).

The predeploy only knows the current L1 block. That block is recorded, and paths lead from it to all earlier blocks.
"""

from chains.chains_file import Connection
from proving.connections import OpenConnection
from proving.packing.gas import Amount
from proving.registries.deployments import call
from proving.sources import BlockHashSource, NotYet, Preparation, Start, trust_in_rollup
from queries.waits import wait

# Source: OP Stack specification, "Predeploys".
L1_BLOCK = "0x4200000000000000000000000000000000000015"
_NUMBER_SELECTOR = bytes.fromhex("8381f58a")  # number()


class OpStack(BlockHashSource):
    contract = "OpStackBlockHashSource"
    title = "OP Stack: the destination's own view of the chain below"
    recording_gas = Amount(32_900, 56_900)

    def trust(self, connection: Connection) -> str:
        return trust_in_rollup(connection)

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        recorded = self._recorded(connection)
        return Start(recorded) if recorded >= target else super().reach(connection, target)

    def begin(self, connection: OpenConnection, start: int) -> Start | Preparation | NotYet:
        # The current block may change until a transaction is mined. So it is recorded first, and a later transaction
        # uses it.
        if self._recorded(connection) == start:
            return Start(start)
        record = call(self.contract, connection.registry.block_hash_source, "record")
        return Preparation((record,), self.gas(connection.config).expected)

    def newest(self, connection: OpenConnection) -> int | NotYet:
        answer = connection.destination_rpc.eth_call(L1_BLOCK, _NUMBER_SELECTOR)
        if not answer:
            return NotYet(wait("no_l1_block", chain=connection.config.destination_id))
        return int.from_bytes(answer)

    def _recorded(self, connection: OpenConnection) -> int:
        address, data = call(self.contract, connection.registry.block_hash_source, "newest")
        return int.from_bytes(connection.destination_rpc.eth_call(address, data))


SOURCE = OpStack()
