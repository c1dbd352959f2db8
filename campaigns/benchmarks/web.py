"""The web server's processor time per request, compared with `peer.py`, which has the same endpoints in FastAPI.

Both use equal databases and get the same requests over eight connections. The figure is the user and system time of all
processes of a server, divided by the number of requests.
"""

import json
import os
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

import requests

from campaigns.bodies import balances
from demo import client
from demo.installation import CHAIN_ID, CHAINS_TOML, SIGNER_KEY, WALLET_ADDRESS, WALLET_KEY, Service
from devnet.devchain import PROJECT
from devnet.guarded_process import GuardedProcess
from devnet.ports import free_port

UNLIMITED = dict.fromkeys(
    ("MAX_BATCHES_PER_MINUTE", "MAX_QUERIES_PER_MINUTE", "MAX_OPEN_BATCHES", "MAX_OPEN_QUERIES"), "1000000"
)
_PEER = PROJECT / ".venv-peer" / "bin" / "uvicorn"
_CONNECTIONS, _SECONDS, _ROUNDS = 8, 5, 3
_NO_NODE = "http://127.0.0.1:1"
_BODY = balances([12])


class CheckedOut(Service):
    """The service of a checkout."""

    def __init__(
        self, project: Path, running: ExitStack, folder: Path, chains_toml: str, variables: dict[str, str]
    ) -> None:
        self.project = project
        super().__init__(running, folder, chains_toml, SIGNER_KEY, free_port(), **variables)


@dataclass(frozen=True)
class _Server:
    """A web server, and a user's key and batch."""

    port: int
    pid: int
    key: str
    batch: str

    def milliseconds(self, kind: str) -> float:
        """Return the processor time of a status request or a submission, in milliseconds."""
        before, end = self._processor_seconds(), time.monotonic() + _SECONDS
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            answers = sum(pool.map(lambda _: self._answers(kind, end), range(_CONNECTIONS)))
        return 1000 * (self._processor_seconds() - before) / answers

    def _answers(self, kind: str, end: float) -> int:
        """Send the request repeatedly over one connection, and return the number of answers. Each must be 200."""
        request = "POST", "/submit-batch-query", json.dumps(_BODY)
        if kind == "status":
            request = "GET", f"/batch-query-status?batchQueryId={self.batch}", ""
        count = 0
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=client.TIMEOUT)) as connection:
            while time.monotonic() < end:
                connection.request(*request, headers={"api-key": self.key, "Content-Type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
                assert answer.status == 200, content
                count += 1
        return count

    def _processor_seconds(self) -> float:
        return sum(map(processor_seconds, _with_children(self.pid)))


def processor_seconds(pid: int) -> float:
    """Return the user and system time of a process so far."""
    # The process name is in parentheses and may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from _with_children(int(child))


def multiples_of_a_peer(before: Path | None, kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the processor time as a multiple of the peer's, by kind of request and by checkout."""
    with ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory()))
        servers = {"now": _serve(running, PROJECT, folder / "now")}
        servers["peer"] = _serve_peer(running, servers["now"], folder)
        if before:
            servers["before"] = _serve(running, before, folder / "before")
        # The servers take turns, so that other load on the machine affects all of them equally.
        rounds = [
            {kind: {name: server.milliseconds(kind) for name, server in servers.items()} for kind in kinds}
            for _ in range(_ROUNDS)
        ]
    medians = {
        kind: {name: statistics.median(measured[kind][name] for measured in rounds) for name in servers}
        for kind in kinds
    }
    return {kind: {name: of[name] / of["peer"] for name in of} for kind, of in medians.items()}


def _serve(running: ExitStack, project: Path, folder: Path) -> _Server:
    service = CheckedOut(project, running, folder, CHAINS_TOML % _NO_NODE, UNLIMITED)
    service.start_web()
    service.wait_until(lambda: _answers(service.port))
    key = client.take_api_key(service.base_url, WALLET_ADDRESS, WALLET_KEY, CHAIN_ID)
    return _Server(service.port, service.process("web").pid, key, client.submit(service.base_url, key, _BODY))


def _serve_peer(running: ExitStack, like: _Server, folder: Path) -> _Server:
    port, file = free_port(), folder / "peer.sqlite3"
    with (
        closing(sqlite3.connect(folder / "now" / "db.sqlite3")) as original,
        closing(sqlite3.connect(file)) as copy,
        (folder / "peer.log").open("wb") as log,
    ):
        original.backup(copy)
        command = [str(_PEER), "--app-dir", str(Path(__file__).parent), "--port", str(port), "peer:app"]
        peer = GuardedProcess(command, env={"PATH": os.environ["PATH"], "SQLITE_FILE": str(file)}, stdout=log)
    running.callback(peer.stop)
    deadline = time.monotonic() + client.TIMEOUT
    while not _answers(port):
        assert time.monotonic() < deadline, (folder / "peer.log").read_text()
        time.sleep(0.1)
    return replace(like, port=port, pid=peer.pid)


def _answers(port: int) -> bool:
    try:
        requests.get(f"http://127.0.0.1:{port}/batch-query-status", timeout=client.TIMEOUT)
    except requests.ConnectionError:
        return False
    return True
