"""EthereumJS, an execution client. A consensus client drives it by the Engine API."""

import json
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from devnet.devchain import PROJECT
from devnet.genesis import genesis
from devnet.ports import free_port
from devnet.real_node import RealNode

_CLIENT = PROJECT / "node_modules/@ethereumjs/client/dist/esm/bin/cli.js"


class EthereumJs(RealNode):
    """A chain after the Merge, in a process that takes 350 MB of memory. It follows Cancun's rules up to `prague_time`.

    Times are in seconds since 1970. By default Prague's rules apply from the first block.
    """

    def __init__(self, chain_id: int, *, genesis_time: int | None = None, prague_time: int = 0) -> None:
        super().__init__(chain_id)
        self.secret = secrets.token_bytes(32)
        self._engine_port = free_port()
        self.engine_url = f"http://127.0.0.1:{self._engine_port}"
        self._genesis = genesis(chain_id, int(time.time()) - 600 if genesis_time is None else genesis_time, prague_time)

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
        # EthereumJS would listen for peers on all addresses. If its peer port is taken, it runs without.
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._peer_port = taken.getsockname()[1]
            super().__enter__()
        return self
