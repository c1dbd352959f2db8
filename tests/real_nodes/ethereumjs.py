"""EthereumJS, an execution client, and what a consensus client does for it: choose each block by the Engine API.

Each block is what the client itself builds.
"""

import base64
import hashlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from demo.installation import free_port
from devnet.devchain import PROJECT
from tests.real_nodes.genesis import genesis
from tests.real_nodes.node import NodeRefused, RealNode, post

_CLIENT = PROJECT / "node_modules/@ethereumjs/client/dist/esm/bin/cli.js"
# So many blocks behind the head are final.
_FINAL_BEHIND = 6


class EthereumJs(RealNode):
    """A chain after the Merge, at Prague's rules. It takes 350 MB of memory."""

    def __init__(self, chain_id: int) -> None:
        super().__init__(chain_id)
        self._engine_port = free_port()
        self._secret = secrets.token_bytes(32)
        self._chain: list[tuple[str, int]] = []
        """Hashes and times of the blocks up to the head."""

    def arguments(self, folder: Path) -> Sequence[str]:
        (folder / "jwt.hex").write_text(self._secret.hex())
        (folder / "genesis.json").write_text(json.dumps(genesis(self.chain_id, int(time.time()) - 600)))
        (folder / "data").mkdir()
        options = {
            "gethGenesis": folder / "genesis.json",
            "dataDir": folder / "data",
            "jwtSecret": folder / "jwt.hex",
            "rpcAddr": "127.0.0.1",
            "rpcPort": self.port,
            "rpcEngineAddr": "127.0.0.1",
            "rpcEnginePort": self._engine_port,
            "port": self._peer_port,
            "discDns": "false",
            "discV4": "false",
            "maxPeers": 0,
            "sync": "none",
            "logLevel": "warn",
        }
        flags = ("--rpc", "--rpcEngine", "--isSingleNode", "--no-logFile")
        return [str(_CLIENT), *flags, *(f"--{name}={value}" for name, value in options.items())]

    def __enter__(self) -> Self:
        # It would listen for peers on all addresses. Where it can't have its port, it goes on without.
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._peer_port = taken.getsockname()[1]
            super().__enter__()
        head = self.rpc("eth_getBlockByNumber", "latest", False)
        self._chain = [(head["hash"], int(head["timestamp"], 16))]
        return self

    def mine(self) -> None:
        """Have the client build the next block, and make it the head."""
        parent_hash, parent_time = self._chain[-1]
        beacon_root = "0x" + hashlib.sha256(parent_hash.encode()).hexdigest()
        payload_id = self._choose(
            {
                "timestamp": hex(max(parent_time + 1, int(time.time()))),
                # Another block takes the place of one that was dropped.
                "prevRandao": "0x" + secrets.token_hex(32),
                "suggestedFeeRecipient": "0x" + "fe" * 20,
                "withdrawals": [],
                "parentBeaconBlockRoot": beacon_root,
            }
        )
        built = self._engine("engine_getPayloadV4", payload_id)
        payload = built["executionPayload"]
        said = self._engine("engine_newPayloadV4", payload, [], beacon_root, built["executionRequests"])
        if said["status"] != "VALID":
            raise NodeRefused(f"Its own block is {said}")
        self._chain.append((payload["blockHash"], int(payload["timestamp"], 16)))
        self._choose(None)

    def drop(self, blocks: int) -> None:
        """Reorganise the chain: as many blocks as this, and one more, take the place of the newest."""
        del self._chain[len(self._chain) - blocks :]
        for _ in range(blocks + 1):
            self.mine()

    def _choose(self, attributes: dict[str, Any] | None) -> str | None:
        """Tell the client what the head is; with attributes it begins to build the next block, whose id is returned."""
        final = self._chain[max(0, len(self._chain) - 1 - _FINAL_BEHIND)][0]
        state = {"headBlockHash": self._chain[-1][0], "safeBlockHash": final, "finalizedBlockHash": final}
        said = self._engine("engine_forkchoiceUpdatedV3", state, attributes)
        if said["payloadStatus"]["status"] != "VALID":
            raise NodeRefused(f"The head is {said['payloadStatus']}")
        payload_id: str | None = said.get("payloadId")
        return payload_id

    def _engine(self, method: str, *params: Any) -> Any:
        signed = _part({"alg": "HS256", "typ": "JWT"}) + b"." + _part({"iat": int(time.time())})
        token = signed + b"." + _base64(hmac.digest(self._secret, signed, "sha256"))
        url = f"http://127.0.0.1:{self._engine_port}"
        return post(url, method, params, {"Authorization": f"Bearer {token.decode()}"})


def _part(value: dict[str, Any]) -> bytes:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")
