"""The web server as operators run it, and clients that control each byte."""

import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from demo.installation import CHAINS_TOML, Installation
from devnet.devchain import ACCOUNTS, PROJECT
from devnet.ports import free_port
from tests.fresh_installation import fresh_installation

# Nothing listens on port 1. These tests need no chain.
NO_NODE = "http://127.0.0.1:1"
ANSWER_SECONDS = 60


@dataclass(frozen=True)
class WebServer:
    port: int
    installation: Installation

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self, until: str) -> str:
        """Return the log once it contains `until`. A request is logged only after its answer."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while until not in (log := self.installation.log("web").read_text()):
            assert time.monotonic() < deadline, log
            time.sleep(0.05)
        return log

    def pids(self) -> tuple[int, list[int]]:
        """Return the process ids of gunicorn and of its workers."""
        supervisor = self.installation._processes["web"]._process.pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return supervisor, list(map(int, children))

    def processor_seconds(self) -> float:
        """Return the processor time of the only worker so far."""
        fields = Path(f"/proc/{self._worker}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Return the bytes of the only worker that no other process has."""
        rollup = Path(f"/proc/{self._worker}/smaps_rollup").read_text()
        return 1024 * sum(map(int, re.findall(r"^Private_\w+: +(\d+) kB$", rollup, re.MULTILINE)))

    @property
    def _worker(self) -> int:
        (worker,) = self.pids()[1]
        return worker

    def answers(self) -> bool:
        try:
            return ask(self.port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").status > 0
        except OSError:
            return False


@contextmanager
def serving(
    folder: Path,
    *,
    app: str = "config.wsgi",
    threads: int = 4,
    host: str = "127.0.0.1",
    node: str = NO_NODE,
    command: Sequence[str] = (),
    options: Sequence[str] = (),
    static: str = "",
    **environment: str,
) -> Iterator[WebServer]:
    """Start the server, and wait until it is ready. `BASE_URL` is http://127.0.0.1 without the port.

    An address's share is unlimited, because all tests have the same address. A `command` other than gunicorn contains
    {port}. `options` are additional ones of gunicorn. `static` is another folder of collected files than the fresh
    installation's.
    """
    with ExitStack() as running:
        environment = {"BASE_URL": "http://127.0.0.1", "PROCESSOR_PERCENT": "1000"} | environment
        installation = Installation(
            running, folder / "state", CHAINS_TOML % node, ACCOUNTS[3][1], PYTHONPATH=str(PROJECT), **environment
        )
        if app == "config.wsgi":
            fresh = fresh_installation(folder)
            fresh.copy_database(installation.folder)
            (installation.folder / "static").symlink_to(static or fresh.static)
        port = free_port()
        arguments = ("--config", "config/gunicorn.py", "--bind", f"{host}:{port}", "--threads", str(threads), *options)
        gunicorn = (sys.executable, "-m", "gunicorn", *arguments, app)
        installation.start("web", *(word.format(port=port) for word in command or gunicorn))
        server = WebServer(port, installation)
        installation.wait_until(server.answers)
        yield server


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    body: bytes


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)


def read_answer(connection: socket.socket) -> Answer:
    """Return the next answer. Raise `OSError` if the connection breaks; http.client's errors are converted."""
    with HTTPResponse(connection) as response:
        response.begin()
        return Answer(response.status, response.headers, response.read())


def ask(port: int, request: bytes) -> Answer:
    with connect(port) as connection:
        connection.sendall(request)
        return read_answer(connection)
