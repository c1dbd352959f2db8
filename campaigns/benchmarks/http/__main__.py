"""How much processor time the web server takes for a request, and what the same takes a peer: `make bench-http`.

The peer is `peer.py`, which FastAPI answers. Both run two processes on databases alike, and get the same requests over
eight connections. The time is that of all processes of a server, user's and system's, divided by the requests. With
`--before`, another checkout of this project is measured in the same run.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from socket import create_server

from demo.installation import CHAINS_TOML, KEY_FILE, write_private
from devnet.devchain import ACCOUNTS, PROJECT
from devnet.guarded_process import GuardedProcess

_HERE = Path(__file__).parent
_PEER = PROJECT / ".venv-peer" / "bin"
_CONNECTIONS, _PROCESSES, _THREADS = 8, 2, 4
_TICKS = os.sysconf("SC_CLK_TCK")
_NO_LIMIT = str(10**9)
_LIMITS = (
    "BATCHES_PER_MINUTE",
    "QUERIES_PER_MINUTE",
    "OPEN_BATCHES",
    "OPEN_QUERIES",
    "OPEN_BLOCKS",
)


@dataclass(frozen=True)
class Asked:
    """A request that is sent again and again, and the status of its answer."""

    what: str
    request: bytes
    status: int
    peer_has_it: bool = False


@dataclass(frozen=True)
class _Installation:
    """A folder with a database and all that a server of `project` needs, made by `state.py`."""

    project: Path
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.project),
            "STATE_DIR": str(self.folder),
            "SQLITE_FILE": str(self.folder / "db.sqlite3"),
            "CHAINS_FILE": str(self.folder / "chains.toml"),
            "BASE_URL": "http://127.0.0.1",
        } | {f"MAX_{limit}": _NO_LIMIT for limit in _LIMITS}

    def make(self) -> None:
        write_private(self.folder / KEY_FILE, ACCOUNTS[3][1])
        (self.folder / "chains.toml").write_text(CHAINS_TOML % "http://127.0.0.1:1")
        command = [sys.executable, str(_HERE / "state.py")]
        made = subprocess.run(command, cwd=self.project, env=self.env, check=True, stdout=subprocess.PIPE)
        (self.folder / "asked.json").write_bytes(made.stdout.splitlines()[-1])

    def copy(self, folder: Path) -> "_Installation":
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return _Installation(self.project, folder)

    @property
    def asked(self) -> dict[str, str]:
        """Return what `state.py` printed: a key, the ids of two batches, and a body."""
        found: dict[str, str] = json.loads((self.folder / "asked.json").read_text())
        return found


class Server:
    """A web server with a database of its own."""

    def __init__(self, running: ExitStack, name: str, installation: _Installation, *, is_peer: bool = False) -> None:
        self.name, self.is_peer = name, is_peer
        with create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        self.state = installation.asked
        self.log = installation.folder / "log"
        project = installation.project
        with self.log.open("wb") as log:
            self._process = GuardedProcess(self._command(project), env=installation.env, stdout=log, cwd=project)
        running.callback(self._process.stop)
        self._wait()

    def _command(self, project: Path) -> list[str]:
        if self.is_peer:
            uvicorn = [str(_PEER / "uvicorn"), "--app-dir", str(_HERE), "--workers", str(_PROCESSES)]
            return [*uvicorn, "--port", str(self.port), "peer:app"]
        gunicorn = [sys.executable, "-m", "gunicorn", "--config", "config/gunicorn.py", "--chdir", str(project)]
        gunicorn += ["--bind", f"127.0.0.1:{self.port}"]
        return [*gunicorn, "--workers", str(_PROCESSES), "--threads", str(_THREADS), "config.wsgi"]

    def _wait(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with _connect(self.port) as connection:
                    connection.request("GET", "/batch-query-status")
                    connection.getresponse().read()
            except OSError:
                time.sleep(0.1)
            else:
                return
        sys.exit(f"{self.name} did not come up: {self.log.read_text()[-2000:]}")

    def get(self, path: str) -> str:
        with _connect(self.port) as connection:
            connection.request("GET", path)
            return connection.getresponse().read().decode()

    def cpu(self) -> float:
        """In seconds, so far, of all its processes."""
        return sum(processor_seconds(pid) for pid in _with_children(self._process.pid))

    def milliseconds(self, asked: Asked, seconds: int) -> float:
        """For each request."""
        load = [sys.executable, str(_HERE / "load.py"), str(self.port)]
        before = self.cpu()
        done = subprocess.run(
            [*load, str(seconds), str(_CONNECTIONS), str(asked.status)],
            input=asked.request,
            check=False,
            stdout=subprocess.PIPE,
        )
        if done.returncode:
            sys.exit(f"{self.name}, {asked.what}: {self.log.read_text()[-5000:]}")
        return 1000 * (self.cpu() - before) / int(done.stdout)


def _connect(port: int) -> closing[HTTPConnection]:
    return closing(HTTPConnection("127.0.0.1", port, timeout=10))


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from _with_children(int(child))


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process so far, the user's and the system's."""
    # The name, in parentheses, may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _asked(server: Server) -> list[Asked]:
    state = server.state
    key = f"api-key: {state['key']}\r\n"
    status, page = f"/batch-query-status?batchQueryId={state['open']}", f"/explorer/query/{state['open']}"
    body = state["body"]
    posted = f"{key}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    asked = [
        Asked("status", _request(f"GET {status}", key), 200, peer_has_it=True),
        Asked("submission of one account", _request("POST /submit-batch-query", posted, body), 200, peer_has_it=True),
    ]
    if not server.is_peer:
        found = re.search(r'hx-get="([^"]+)"', server.get(page))
        assert found
        poll = found[1].replace("&amp;", "&")
        asked += [
            Asked("page of an open batch", _request(f"GET {page}"), 200),
            Asked("page of a batch that is DONE", _request(f"GET /explorer/query/{state['done']}"), 200),
            Asked("poll of a page, nothing new", _request(f"GET {poll}", "HX-Request: true\r\n"), 204),
        ]
    return asked


def _request(line: str, headers: str = "", body: str = "") -> bytes:
    return f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n{headers}\r\n{body}".encode()


def _installation(project: Path, folder: Path) -> _Installation:
    folder.mkdir()
    made = _Installation(project, folder)
    made.make()
    return made


def requests_beside_a_peer(
    before: Path | None, *, no_peer: bool = False, seconds: int = 5, rounds: int = 3, only: str = ""
) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds of each kind of request, by the names of the servers, one for each round."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        servers = []
        if before:
            servers.append(Server(running, "before", _installation(before.resolve(), folder / "before")))
        of_service = _installation(PROJECT, folder / "service")
        of_peer = of_service.copy(folder / "peer")
        servers.append(Server(running, "service", of_service))
        if not no_peer:
            servers.append(Server(running, "peer", of_peer, is_peer=True))
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(rounds):
            # In turns, so that what else the machine does falls on all alike.
            for server in servers:
                for asked in _asked(server):
                    if only in asked.what:
                        figures = found.setdefault(asked.what, {}).setdefault(server.name, [])
                        figures.append(server.milliseconds(asked, seconds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="the folder of another checkout")
    parser.add_argument("--no-peer", action="store_true", help="measure this project alone")
    parser.add_argument("--seconds", type=int, default=5, help="for each figure (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are printed (%(default)s)")
    parser.add_argument("--only", default="", help="requests whose name contains this")
    options = parser.parse_args()
    found = requests_beside_a_peer(
        options.before, no_peer=options.no_peer, seconds=options.seconds, rounds=options.rounds, only=options.only
    )
    names = list(dict.fromkeys(name for figures_of in found.values() for name in figures_of))
    print(f"{'milliseconds of processor time':<32}" + "".join(f"{name:>10}" for name in names))
    for what, figures_of in found.items():
        cells = [f"{statistics.median(figures_of[name]):.2f}" if name in figures_of else "" for name in names]
        print(f"{what:<32}" + "".join(f"{cell:>10}" for cell in cells))


if __name__ == "__main__":
    main()
