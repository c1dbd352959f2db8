"""A consensus client: a process that makes a beacon chain (`devnet.beacon_chain`) with an execution client."""

import json
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from devnet.devchain import PROJECT
from devnet.execution_client import ExecutionClient
from devnet.guarded_process import GuardedProcess
from devnet.json_rpc import NodeErrorReply

ENVIRONMENT = PROJECT / ".venv-beacon"
# Numbers of slots in the minimal preset.
SLOTS_PER_EPOCH, SLOTS_PER_PERIOD = 8, 64
_SECONDS = 300


class ConsensusClient:
    """A consensus client that drives `node` within a `with` block.

    `genesis_time` is in seconds since 1970. `forks` has the first epoch of each fork after Deneb, in order. `slots` has
    the kind of each slot that is not full (see `devnet.beacon_chain`). If it is `live`, it makes each slot when its
    time comes, besides the slots that `advance` makes.
    """

    def __init__(
        self,
        node: ExecutionClient,
        *,
        genesis_time: int,
        slot_seconds: int,
        forks: Mapping[str, int],
        slots: Mapping[int, str] | None = None,
        live: bool = False,
    ) -> None:
        self.url = ""
        """The URL of its beacon API."""
        self._settings = {
            "chain_id": node.chain_id,
            "rpc_url": node.url,
            "engine_url": node.engine_url,
            "secret": node.secret.hex(),
            "genesis_time": genesis_time,
            "slot_seconds": slot_seconds,
            "forks": forks,
            "execution_forks": node.genesis["config"],
            "log": str(node.building_log or ""),
            "slots": {str(slot): kind for slot, kind in (slots or {}).items()},
            "live": live,
        }

    def __enter__(self) -> Self:
        """Start the process. Raises `NodeErrorReply` if it doesn't start."""
        folder = tempfile.mkdtemp(prefix="consensus-client-")
        self._log = Path(folder) / "log"
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_SECONDS)
        self._lines = self._control.makefile()
        with theirs, self._log.open("wb") as log:
            command = [str(ENVIRONMENT / "bin" / "python"), "-m", "devnet.beacon_chain", str(theirs.fileno())]
            self._process = GuardedProcess(
                command, env=os.environ, stdout=log, folder=folder, cwd=PROJECT / "dev", pass_fds=[theirs.fileno()]
            )
        try:
            self._control.sendall(json.dumps(self._settings).encode() + b"\n")
            self.url = self._answer()["url"]
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def advance(self, slots: int | str = 1) -> int:
        """Make the next slots immediately, and return the newest. A text has their kinds. Raises `NodeErrorReply`."""
        self._control.sendall(json.dumps(slots).encode() + b"\n")
        slot: int = self._answer()["slot"]
        return slot

    def mine(self) -> None:
        """Let the execution client build a block, in the next slot that isn't missed."""
        self.advance()

    def require_running(self) -> None:
        """Raise `NodeErrorReply` if the process has ended."""
        if self._process.has_ended():
            raise NodeErrorReply(f"The consensus client has ended: {self._log.read_text()[-800:]}")

    def _answer(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise NodeErrorReply(f"The consensus client ended: {self._log.read_text()[-800:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _stop(self) -> None:
        self._process.stop()
        self._lines.close()
        self._control.close()
