"""EthereumJS, an execution client. What a consensus client does for it is choose each block by the Engine API.

Each block is what the client itself builds.
"""

import hashlib
import json
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from devnet.devchain import PROJECT
from devnet.genesis import genesis
from devnet.json_rpc import EngineApi
from devnet.ports import free_port
from devnet.real_node import RealNode

_CLIENT = PROJECT / "node_modules/@ethereumjs/client/dist/esm/bin/cli.js"
# So many blocks behind the head are final.
_FINAL_BEHIND = 6


class EthereumJs(RealNode):
    """A chain after the Merge, which takes 350 MB of memory. It is at Cancun's rules up to `prague_time`.

    Times are in seconds since 1970; by default Prague's rules hold from the first block on.
    """

    def __init__(self, chain_id: int, *, genesis_time: int | None = None, prague_time: int = 0) -> None:
        super().__init__(chain_id)
        self.secret = secrets.token_bytes(32)
        self._engine_port = free_port()
        self.engine_url = f"http://127.0.0.1:{self._engine_port}"
        self._engine = EngineApi(self.engine_url, self.secret)
        self._genesis = genesis(chain_id, int(time.time()) - 600 if genesis_time is None else genesis_time, prague_time)
        self._chain: list[tuple[str, int]] = []
        """Hashes and times of the blocks up to the head."""

    def arguments(self, folder: Path) -> Sequence[str]:
        (folder / "jwt.hex").write_text(self.secret.hex())
        (folder / "genesis.json").write_text(json.dumps(self._genesis))
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
        payload_id = self._engine.choose(
            parent_hash,
            self._final(),
            {
                "timestamp": hex(max(parent_time + 1, int(time.time()))),
                # Another block takes the place of one that was dropped.
                "prevRandao": "0x" + secrets.token_hex(32),
                "suggestedFeeRecipient": "0x" + "fe" * 20,
                "withdrawals": [],
                "parentBeaconBlockRoot": beacon_root,
            },
        )
        payload = self._engine.take(payload_id, beacon_root, prague=True)
        self._chain.append((payload["blockHash"], int(payload["timestamp"], 16)))
        self._engine.choose(payload["blockHash"], self._final())

    def drop(self, blocks: int) -> None:
        """Reorganise the chain: as many blocks as this, and one more, take the place of the newest."""
        del self._chain[len(self._chain) - blocks :]
        for _ in range(blocks + 1):
            self.mine()

    def _final(self) -> str:
        return self._chain[max(0, len(self._chain) - 1 - _FINAL_BEHIND)][0]
