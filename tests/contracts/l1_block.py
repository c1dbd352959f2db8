"""The L1Block predeploy of an OP Stack chain, on a development chain that has none."""

from eth_utils.address import to_checksum_address

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed

ADDRESS = to_checksum_address("0x4200000000000000000000000000000000000015")
DEPOSITOR = "0xDeaDDEaDDeAdDeAdDEAdDEaddeAddEAdDEAd0001"


class L1Block:
    """`contract` is the predeploy as anybody may call it."""

    def __init__(self, chain: DevChain) -> None:
        self._chain = chain
        self.contract = Deployed(chain, "test/L1BlockStandIn")
        chain.rpc("anvil_setCode", ADDRESS, chain.rpc("eth_getCode", self.contract.address, "latest"))
        self.contract.address = ADDRESS
        chain.rpc("anvil_setBalance", DEPOSITOR, hex(10**18))
        chain.rpc("anvil_impersonateAccount", DEPOSITOR)

    def tell(self, number: int, block_hash: bytes, *, timestamp: int = 0) -> None:
        """From now on this is the L1 block, as if it had come with a block of this chain."""
        values = (number, timestamp, 0, block_hash, 0, bytes(32), 0, 0)
        data = "0x" + self.contract.calldata("setL1BlockValues", *values).hex()
        receipt = self._chain.rpc("eth_sendTransactionSync", {"from": DEPOSITOR, "to": ADDRESS, "data": data})
        assert receipt["status"] == "0x1"

    def tell_of(self, l1: DevChain, number: int | None = None) -> int:
        """Tell of a block of this L1, its newest if none is named. Returns its number."""
        block = l1.rpc("eth_getBlockByNumber", "latest" if number is None else hex(number), False)
        self.tell(number := int(block["number"], 16), bytes.fromhex(block["hash"][2:]))
        return number
