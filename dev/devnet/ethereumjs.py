"""EthereumJS, an execution client, as a process on this machine."""

import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from devnet.devchain import PROJECT
from devnet.execution_client import ExecutionClient
from devnet.genesis import genesis

_NODE = Path(sys.executable).with_name("node")
_CLIENT = PROJECT / "node_modules/@ethereumjs/client/dist/esm/bin/cli.js"


class EthereumJs(ExecutionClient):
    """It takes 350 MB of memory.

    It follows Cancun's rules up to `prague_time`. Times are in seconds since 1970. By default Prague's rules apply from
    the first block.
    """

    name = "ethereumjs"

    def __init__(self, chain_id: int, *, genesis_time: int | None = None, prague_time: int = 0) -> None:
        start = int(time.time()) - 600 if genesis_time is None else genesis_time
        super().__init__(chain_id, genesis(chain_id, start, prague_time))

    def start(self) -> None:
        # EthereumJS would listen for peers on all addresses. If its peer port is taken, it runs without.
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._peer_port = taken.getsockname()[1]
            super().start()

    def _command(self) -> Sequence[str]:
        options = {
            "gethGenesis": "genesis.json",
            "dataDir": self.folder / "data",
            "jwtSecret": "jwt.hex",
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
        return [str(_NODE), str(_CLIENT), *flags, *(f"--{name}={value}" for name, value in options.items())]
