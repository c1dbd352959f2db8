"""An Arbitrum rollup of two development chains: one has the Outbox, the other has headers with send roots.

The Outbox is Arbitrum's own code, from the npm package @arbitrum/nitro-contracts. Stand-ins replace the contracts
around it: the bridge only returns the rollup's address, and the rollup is a development account that can confirm any
block.
"""

import gzip
import json

from devnet.devchain import DevChain
from devnet.foreign_contracts import OWNER, bytecode, create, create_behind_proxy, send

_OUTBOX = "@arbitrum/nitro-contracts/build/contracts/src/bridge/Outbox.sol/Outbox.json"
# Code that returns the rollup's address to any call: PUSH20, MSTORE, RETURN. The first part deploys these 27 bytes.
_BRIDGE = f"601b80600a5f395ff30073{OWNER[2:]}5f5260205ff3"


def set_send_root(chain: DevChain, send_root: bytes) -> bytes:
    """Put a send root into the newest block's header, as its extra data. Return the block's new hash."""
    state = json.loads(gzip.decompress(bytes.fromhex(chain.rpc("anvil_dumpState", True)[2:])))
    number = hex(chain.head())
    for block in state["blocks"]:
        if block["header"]["number"] == number:
            block["header"]["extraData"] = "0x" + send_root.hex()
    # The chain still has the originals of blocks that were replaced earlier, and would restore them.
    replaced = {block["header"]["number"] for block in state["blocks"] if block["header"]["extraData"] != "0x"}
    state["blocks"] = [
        block
        for block in state["blocks"]
        if block["header"]["extraData"] != "0x" or block["header"]["number"] not in replaced
    ]
    chain.rpc("anvil_loadState", "0x" + gzip.compress(json.dumps(state).encode()).hex())
    return bytes.fromhex(chain.rpc("eth_getBlockByNumber", number, False)["hash"][2:])


class ArbitrumOutbox:
    def __init__(self, chain: DevChain) -> None:
        self.chain = chain
        self.address = create_behind_proxy(chain, bytecode(_OUTBOX))
        send(chain, self.address, "initialize(address)", create(chain, _BRIDGE))

    def confirm(self, send_root: bytes, block_hash: bytes) -> int:
        """Confirm the block that has this hash and send root, as the rollup does.

        Return the number of the parent's block that has the confirmation.
        """
        receipt = send(self.chain, self.address, "updateSendRoot(bytes32,bytes32)", send_root, block_hash)
        return int(receipt["blockNumber"], 16)
