"""The L1Block predeploy of OP Stack chains on a development chain, which has none of its own."""

from eth_utils.address import to_checksum_address

from devnet.devchain import DevChain
from devnet.foreign_contracts import send
from tests.contracts import supersim

ADDRESS = to_checksum_address("0x4200000000000000000000000000000000000015")
_DEPOSITOR = "0xDeaDDEaDDeAdDeAdDEAdDEaddeAddEAdDEAd0001"


class L1Block:
    """The predeploy, made of the OP Stack's own code and proxy."""

    def __init__(self, chain: DevChain) -> None:
        self._chain = chain
        supersim.place(chain, supersim.L2, [ADDRESS[2:]], {})
        chain.rpc("anvil_setBalance", _DEPOSITOR, hex(10**18))
        chain.rpc("anvil_impersonateAccount", _DEPOSITOR)

    def tell(self, number: int, block_hash: bytes, *, timestamp: int = 0) -> None:
        """Make this the known L1 block, as a deposit transaction of the protocol would."""
        # Bedrock's setter, which later versions keep. Their own setters take packed values with fee scalars.
        setter = "setL1BlockValues(uint64,uint64,uint256,bytes32,uint64,bytes32,uint256,uint256)"
        values = number, timestamp, 0, block_hash, 0, bytes(32), 0, 0
        send(self._chain, ADDRESS, setter, *values, sender=_DEPOSITOR)

    def tell_of(self, l1: DevChain, number: int | None = None) -> int:
        """Make a block of this L1 the known one, by default its newest. Return its number."""
        block = l1.rpc("eth_getBlockByNumber", "latest" if number is None else hex(number), False)
        self.tell(number := int(block["number"], 16), bytes.fromhex(block["hash"][2:]))
        return number
