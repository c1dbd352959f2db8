"""A rollup as Arbitrum's, of two development chains: the Outbox on one, and headers with send roots on the other.

The Outbox is Arbitrum's own code, from the npm package @arbitrum/nitro-contracts. What surrounds it are stand-ins: the
bridge only names the rollup, and the rollup is an account of the development chain, which confirms whatever it is told.
"""

import gzip
import json

from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.address import to_checksum_address

from devnet.devchain import ACCOUNTS, PROJECT, DevChain

_ARTIFACT = PROJECT / "node_modules/@arbitrum/nitro-contracts/build/contracts/src/bridge/Outbox.sol/Outbox.json"
_ROLLUP = ACCOUNTS[0][0]
# EIP-1167, before and after the address: the Outbox must be initialised behind a proxy.
_PROXY = "3d602d80600a3d3981f3363d3d373d3d3d363d73", "5af43d82803e903d91602b57fd5bf3"
# Answers the rollup's address, whatever it is asked: PUSH20, MSTORE, RETURN; before it, what copies these 27 bytes.
_BRIDGE = f"601b80600a5f395ff30073{_ROLLUP[2:]}5f5260205ff3"


def set_send_root(chain: DevChain, send_root: bytes) -> bytes:
    """Put a send root into the newest block's header, as its extra data. Returns the block's new hash."""
    state = json.loads(gzip.decompress(bytes.fromhex(chain.rpc("anvil_dumpState", True)[2:])))
    number = hex(chain.head())
    for block in state["blocks"]:
        if block["header"]["number"] == number:
            block["header"]["extraData"] = "0x" + send_root.hex()
    # The chain still has the blocks that were replaced so before, and would take them back.
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
        implementation = self._create(json.loads(_ARTIFACT.read_text())["bytecode"])
        bridge = self._create("0x" + _BRIDGE)
        self.address = self._create("0x" + _PROXY[0] + implementation[2:] + _PROXY[1])
        self._send("initialize(address)", ["address"], bridge)

    def confirm(self, send_root: bytes, block_hash: bytes) -> int:
        """Confirm the block with this hash, as the rollup does; its header holds this send root.

        Returns the number of the block in which that is.
        """
        return self._send("updateSendRoot(bytes32,bytes32)", ["bytes32", "bytes32"], send_root, block_hash)

    def _send(self, signature: str, types: list[str], *arguments: object) -> int:
        data = function_signature_to_4byte_selector(signature) + encode(types, arguments)
        return int(self._mined({"to": self.address, "data": "0x" + data.hex()})["blockNumber"], 16)

    def _create(self, code: str) -> str:
        return to_checksum_address(self._mined({"data": code})["contractAddress"])

    def _mined(self, transaction: dict[str, str]) -> dict[str, str]:
        receipt: dict[str, str] = self.chain.rpc("eth_sendTransactionSync", {"from": _ROLLUP, **transaction})
        assert receipt["status"] == "0x1"
        return receipt
