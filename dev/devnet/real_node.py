"""Execution clients of other projects. Each runs as a process on this machine within a `with` block."""

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from devnet.guarded_process import GuardedProcess
from devnet.json_rpc import NodeErrorReply, post
from devnet.ports import free_port

READY_SECONDS = 60
_NODE = Path(sys.executable).with_name("node")


class RealNode:
    """An npm program that Node runs, with JSON-RPC on 127.0.0.1. Subclasses give its arguments."""

    def __init__(self, chain_id: int) -> None:
        self.chain_id = chain_id
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def arguments(self, folder: Path) -> Sequence[str]:
        """Return the script and its arguments. `folder` is for this process only."""
        raise NotImplementedError

    def mine(self) -> None:
        """Make a block."""
        self.rpc("evm_mine")

    def __enter__(self) -> Self:
        folder = tempfile.mkdtemp(prefix="real-node-")
        self._log = Path(folder) / "log"
        with self._log.open("wb") as log:
            self._process = GuardedProcess(
                [str(_NODE), *self.arguments(Path(folder))],
                env={**os.environ, "HOME": folder},
                stdout=log,
                folder=folder,
                cwd=Path(folder),
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            raise NodeErrorReply(f"{type(self).__name__} has ended: {self._log.read_text()[-800:]}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            with suppress(OSError):
                assert int(self.rpc("eth_chainId"), 16) == self.chain_id
                return
            if self._process.has_ended() or time.monotonic() > deadline:
                raise NodeErrorReply(f"{type(self).__name__} did not start: {self._log.read_text()[-800:]}")
            time.sleep(0.1)
