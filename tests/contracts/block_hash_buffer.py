"""A stand-in for the buffer of parent block hashes on an Arbitrum chain, for development chains."""

from collections.abc import Sequence

from eth_utils.address import to_checksum_address

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed

ADDRESS = to_checksum_address("0x0000000048C4Ed10cF14A02B9E0AbDDA5227b071")
PLACES = 393_168


class BlockHashBuffer:
    """The deployed stand-in. `contract` has its public functions."""

    def __init__(self, chain: DevChain) -> None:
        self._chain = chain
        self.contract = Deployed(chain, "test/BlockHashBufferStandIn")
        chain.rpc("anvil_setCode", ADDRESS, chain.rpc("eth_getCode", self.contract.address, "latest"))
        self.contract.address = ADDRESS
        self._pusher = self.contract.call("aliasedPusher")
        chain.rpc("anvil_setBalance", self._pusher, hex(10**18))
        chain.rpc("anvil_impersonateAccount", self._pusher)

    def push(self, first: int, hashes: Sequence[bytes]) -> None:
        """Store hashes of blocks from `first` on, like a message from the pusher on the parent chain."""
        data = "0x" + self.contract.calldata("receiveHashes", first, hashes).hex()
        receipt = self._chain.rpc("eth_sendTransactionSync", {"from": self._pusher, "to": ADDRESS, "data": data})
        assert receipt["status"] == "0x1"
