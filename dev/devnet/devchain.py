"""A development chain: a real anvil process that runs within a `with` block.

anvil has EIP-2935, proofs of old states, and reorgs on demand, so demos and tests need no other node.
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import urllib3

from devnet.guarded_process import GuardedProcess

PROJECT = Path(__file__).resolve().parents[2]

# The first accounts (address, private key) of the mnemonic "test test test test test test test test test test test
# junk". All development nodes have them. The keys are public, so real money must never be sent there.
ACCOUNTS: tuple[tuple[str, str], ...] = (
    (
        "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
        "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    ),
    (
        "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    ),
    (
        "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
        "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    ),
    (
        "0x90F79bf6EB2c4f870365E785982E1f101E93b906",
        "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    ),
)

READY_SECONDS = 60
STOP_SECONDS = 5


class DevChainError(Exception):
    """The development chain can't be started, or it refused a request. The message is one sentence."""


class DevChain:
    """A new chain on this machine that listens only on 127.0.0.1.

    `block_seconds=None` mines a block for each transaction. `port=0` takes a free port. `hardfork=None` is the newest
    that anvil knows. With `slots_in_an_epoch=1` the `finalized` block is two blocks below the head.
    """

    def __init__(
        self,
        *,
        chain_id: int = 31337,
        block_seconds: float | None = None,
        port: int = 0,
        hardfork: str | None = None,
        slots_in_an_epoch: int = 1,
        extra_args: Sequence[str] = (),
    ) -> None:
        self.chain_id = chain_id
        self.url = ""
        self._arguments = [
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--chain-id", str(chain_id), "--slots-in-an-epoch", str(slots_in_an_epoch)),
            *(() if block_seconds is None else ("--block-time", f"{block_seconds:g}")),
            *(() if hardfork is None else ("--hardfork", hardfork)),
            *extra_args,
        ]
        self._port = port
        self._home = ""
        self._process: GuardedProcess | None = None
        self._reader: threading.Thread | None = None
        self._last_lines: deque[str] = deque(maxlen=20)
        self._listening = threading.Event()
        # Tests send a chain tens of thousands of requests, so connections are kept, and no session
        # with cookies and redirects is beside them, which took half of the time.
        self._connections = urllib3.PoolManager(maxsize=16)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start anvil and wait until it answers. Raises `DevChainError`, after which no process is left."""
        if self._process is not None:
            raise DevChainError("The development chain runs already.")
        program = _find_anvil()
        # anvil stores old states below HOME, and would leave gigabytes there.
        self._home = tempfile.mkdtemp(prefix="devchain-")
        try:
            self._process = GuardedProcess(
                [program, *self._arguments],
                env={**os.environ, "HOME": self._home},
                stdout=subprocess.PIPE,
                folder=self._home,
                stop_seconds=STOP_SECONDS,
            )
            self._reader = threading.Thread(target=self._read_output, name="devchain-output", daemon=True)
            self._reader.start()
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop anvil for good and remove its folder. Does nothing if anvil isn't running."""
        if self._process is not None:
            self._process.stop()
            if self._reader is not None:
                self._reader.join(STOP_SECONDS)
            self._process.output.close()
            self._process = self._reader = None
        shutil.rmtree(self._home, ignore_errors=True)
        self._home = ""
        self._listening.clear()
        self._connections.clear()
        self.url = ""

    def ask(self, method: str, *params: Any) -> Any:
        """Return the reply to one JSON-RPC call as the node sent it. It may be an error."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            return self._connections.request("POST", self.url, json=request, timeout=60, retries=False).json()
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise DevChainError(f"The development chain doesn't answer {method}: {type(error).__name__}.") from error

    def rpc(self, method: str, *params: Any) -> Any:
        """Return the `result` of one JSON-RPC call as the node sent it."""
        reply = self.ask(method, *params)
        if "error" in reply:
            raise DevChainError(f"The development chain refused {method}: {reply['error'].get('message')}")
        return reply["result"]

    def mine(self, blocks: int = 1) -> None:
        self.rpc("anvil_mine", hex(blocks))

    def head(self) -> int:
        """Return the number of the latest block."""
        return int(self.rpc("eth_blockNumber"), 16)

    def _read_output(self) -> None:
        # The output is read to its end, because a full pipe would block anvil.
        assert self._process is not None
        for raw in self._process.output:
            line = raw.decode(errors="replace")
            self._last_lines.append(line.strip())
            if not self._listening.is_set() and (match := re.match(r"Listening on (127\.0\.0\.1:\d+)", line)):
                self.url = f"http://{match[1]}"
                self._listening.set()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_SECONDS
        while not self._listening.wait(0.02):
            if self._process.has_ended():
                raise DevChainError(self._why_it_ended())
            if time.monotonic() > deadline:
                raise DevChainError(f"anvil did not start within {READY_SECONDS} seconds.")
        # If another program had the port, anvil would have ended. So the answer comes from anvil.
        if int(self.rpc("eth_chainId"), 16) != self.chain_id:
            raise DevChainError(f"anvil at {self.url} answers with another chain id than {self.chain_id}.")

    def _why_it_ended(self) -> str:
        assert self._reader is not None
        self._reader.join(STOP_SECONDS)
        output = " ".join(line for line in self._last_lines if line)
        if "Address already in use" in output:
            return f"Port {self._port} is in use by another program."
        return f"anvil ended at once: {output[-500:] or 'it printed nothing'}."


def _find_anvil() -> str:
    local = PROJECT / "node_modules" / ".bin" / "anvil"
    program = str(local) if local.exists() else shutil.which("anvil")
    if program is None:
        raise DevChainError("anvil is missing: `make node_modules/ready-for-demo` installs it.")
    return program
