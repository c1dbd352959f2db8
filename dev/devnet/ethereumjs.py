"""EthereumJS, an execution client, as a process on this machine. A consensus client drives it by the Engine API."""

import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from devnet.devchain import PROJECT
from devnet.genesis import genesis
from devnet.guarded_process import GuardedProcess
from devnet.json_rpc import NodeErrorReply, post
from devnet.ports import free_port

READY_SECONDS = 60
_NODE = Path(sys.executable).with_name("node")
_CLIENT = PROJECT / "node_modules/@ethereumjs/client/dist/esm/bin/cli.js"


class EthereumJs:
    """A chain after the Merge, which runs within a `with` block, with JSON-RPC on 127.0.0.1. It takes 350 MB of memory.

    It follows Cancun's rules up to `prague_time`. Times are in seconds since 1970. By default Prague's rules apply from
    the first block.
    """

    def __init__(self, chain_id: int, *, genesis_time: int | None = None, prague_time: int = 0) -> None:
        self.chain_id = chain_id
        self._port, self._engine_port = free_port(), free_port()
        self.url, self.engine_url = f"http://127.0.0.1:{self._port}", f"http://127.0.0.1:{self._engine_port}"
        self.secret = secrets.token_bytes(32)
        self._genesis = genesis(chain_id, int(time.time()) - 600 if genesis_time is None else genesis_time, prague_time)

    def __enter__(self) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="ethereumjs-"))
        self._log = folder / "log"
        # EthereumJS would listen for peers on all addresses. If its peer port is taken, it runs without.
        with socket.create_server(("127.0.0.1", 0)) as taken, self._log.open("wb") as log:
            self._process = GuardedProcess(
                [str(_NODE), *self._arguments(folder, taken.getsockname()[1])],
                env={**os.environ, "HOME": str(folder)},
                stdout=log,
                folder=str(folder),
                cwd=folder,
            )
            try:
                self._wait_until_ready()
            except BaseException:
                self._process.stop()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def rpc(self, method: str, *params: Any) -> Any:
        """Return the `result` of one call. Raises `NodeErrorReply`."""
        return post(self.url, method, params)

    def head(self) -> int:
        """Return the number of the latest block."""
        return int(self.rpc("eth_blockNumber"), 16)

    def require_running(self) -> None:
        """Raise `NodeErrorReply` if the process has ended."""
        if self._process.has_ended():
            raise NodeErrorReply(f"EthereumJS has ended: {self._log.read_text()[-800:]}")

    def _arguments(self, folder: Path, peer_port: int) -> Sequence[str]:
        """Return the script and its arguments. `folder` is for this process only."""
        (folder / "jwt.hex").write_text(self.secret.hex())
        (folder / "genesis.json").write_text(json.dumps(self._genesis))
        (folder / "data").mkdir()
        options = {
            "gethGenesis": folder / "genesis.json",
            "dataDir": folder / "data",
            "jwtSecret": folder / "jwt.hex",
            "rpcAddr": "127.0.0.1",
            "rpcPort": self._port,
            "rpcEngineAddr": "127.0.0.1",
            "rpcEnginePort": self._engine_port,
            "port": peer_port,
            "discDns": "false",
            "discV4": "false",
            "maxPeers": 0,
            "sync": "none",
            "logLevel": "warn",
        }
        flags = ("--rpc", "--rpcEngine", "--isSingleNode", "--no-logFile")
        return [str(_CLIENT), *flags, *(f"--{name}={value}" for name, value in options.items())]

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            with suppress(OSError):
                assert int(self.rpc("eth_chainId"), 16) == self.chain_id
                return
            if self._process.has_ended() or time.monotonic() > deadline:
                raise NodeErrorReply(f"EthereumJS did not start: {self._log.read_text()[-800:]}")
            time.sleep(0.1)
