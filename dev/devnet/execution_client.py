"""An execution client as a process on this machine. A consensus client drives it by the Engine API."""

import json
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from devnet.json_rpc import NodeErrorReply, post
from devnet.ports import free_port
from devnet.servers import LocalServer


class ExecutionClient(LocalServer):
    """A chain after the Merge, which runs within a `with` block, with JSON-RPC on 127.0.0.1."""

    def __init__(self, chain_id: int, genesis: dict[str, Any]) -> None:
        super().__init__()
        self.chain_id, self.genesis = chain_id, genesis
        self._engine_port = free_port()
        self.url, self.engine_url = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._engine_port}"
        self.secret = secrets.token_bytes(32)

    @property
    def building_log(self) -> Path | None:
        """The log that says when the client has built a block, if it builds after its answer."""
        return None

    def rpc(self, method: str, *params: Any) -> Any:
        """Return the `result` of one call. Raises `NodeErrorReply`."""
        return post(self.url, method, params)

    def head(self) -> int:
        """Return the number of the latest block."""
        return int(self.rpc("eth_blockNumber"), 16)

    def require_running(self) -> None:
        """Raise `NodeErrorReply` if the process has ended."""
        if self._process is None or self._process.has_ended():
            log = (self.folder / "log").read_text(errors="replace")
            raise NodeErrorReply(f"{self.name} has ended: {log[-800:]}")

    def _prepare(self) -> None:
        (self.folder / "jwt.hex").write_text(self.secret.hex())
        (self.folder / "genesis.json").write_text(json.dumps(self.genesis))
        (self.folder / "data").mkdir()

    def _answers(self) -> bool:
        with suppress(OSError):
            return int(self.rpc("eth_chainId"), 16) == self.chain_id
        return False
