"""EIP-4788's contract on a development chain, which has none of its own."""

from devnet.devchain import DevChain

ADDRESS = "0x000F3df6D732807Ef1319fB7B8bB8522d0Beac02"
# The runtime code in EIP-4788.
CODE = (
    "0x3373fffffffffffffffffffffffffffffffffffffffe14604d57602036146024575f5ffd5b5f35801560495762001fff810690815414603c57"
    "5f5ffd5b62001fff01545f5260205ff35b5f5ffd5b62001fff42064281555f359062001fff015500"
)
WINDOW = 8191


class BeaconRoots:
    def __init__(self, chain: DevChain) -> None:
        self.chain = chain
        self.run(CODE)

    def run(self, code: str) -> None:
        """Replace the contract's code."""
        self.chain.rpc("anvil_setCode", ADDRESS, code)

    def tell(self, time: int, root: bytes) -> None:
        """Store a root as the protocol does: its time in a ring buffer, and the root in the ring buffer behind it."""
        index = time % WINDOW
        for slot, word in ((index, time.to_bytes(32)), (index + WINDOW, root)):
            self.chain.rpc("anvil_setStorageAt", ADDRESS, f"0x{slot:064x}", "0x" + word.hex())
