"""Measure what web servers make of slow clients, large bodies and signals, with nginx and without: `make bench-web`.

Each serves the whole service with a process of 8 threads. nginx is as docs/operating/nginx.conf says, without its
limits for an address. The command of another one has {port} in it: `--also "granian=granian --port {port} ..."`.
"""

import argparse
import os
import shlex
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import requests
import urllib3

from campaigns.benchmarks.http.__main__ import processor_seconds
from tests.serving.askers import askers
from tests.serving.batches import a_key
from tests.serving.load import GET, Load
from tests.serving.nginx import TRUSTING, running_nginx
from tests.serving.process import WebServer, serving

_GUNICORN = "-m gunicorn --config config/gunicorn.py --bind 127.0.0.1:{port} --threads 8 config.wsgi"
_SLOW, _WAITING, _SECONDS = 200, 600, 6
_HOST = b"Host: 127.0.0.1\r\n"
_PROBE = GET % b"/livez"
_NO_LIMITS = {"rate=20r/s": "rate=100000r/s", "connections_of_subscriber 20": "connections_of_subscriber 65000"}


@dataclass(frozen=True)
class Entrance:
    """The place where clients come in: the web server itself, or nginx before it."""

    server: WebServer
    port: int
    has_tls: bool

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), 20)
        return TRUSTING.wrap_socket(connection) if self.has_tls else connection

    def probes(self, request: bytes = _PROBE) -> Load:
        return Load(self.connect, request, clients=1, pause=0.1)

    @property
    def url(self) -> str:
        return f"{'https' if self.has_tls else 'http'}://127.0.0.1:{self.port}"


def _slow(start: bytes) -> Callable[[Entrance], str]:
    """Let clients begin a request, and send a byte of it every half second."""

    def measure(entrance: Entrance) -> str:
        with ExitStack() as opened, entrance.probes() as probes:
            slow = [opened.enter_context(entrance.connect()) for _ in range(_SLOW)]
            for each in slow:
                each.sendall(start)
            until = time.monotonic() + _SECONDS
            while time.monotonic() < until:
                for each in slow:
                    with suppress(OSError):
                        each.send(b"a")
                time.sleep(0.5)
        return str(probes)

    return measure


def _unread(entrance: Entrance) -> str:
    with ExitStack() as opened, entrance.probes() as probes:
        for _ in range(_SLOW):
            connection = opened.enter_context(entrance.connect())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.sendall(GET % b"/static/admin/js/vendor/xregexp/xregexp.js")
        time.sleep(_SECONDS)
    return str(probes)


def _body(megabytes: int) -> Callable[[Entrance], str]:
    """Let python's requests, which read only after they have sent, send a body that is too large."""

    def measure(entrance: Entrance) -> str:
        said = Counter[str]()
        url, key = f"{entrance.url}/submit-batch-query", {"api-key": a_key(entrance.server)}
        for _ in range(5):
            try:
                answer = requests.post(url, bytes(megabytes << 20), headers=key, verify=False, timeout=60)
                said[str(answer.status_code)] += 1
            except requests.RequestException as error:
                said[type(error).__name__] += 1
        return ", ".join(f"{count} x {word}" for word, count in said.items())

    return measure


def _waiting(entrance: Entrance) -> str:
    """Let many ask with `wait`, while another user asks for a status."""
    *users, other = askers(entrance.server)
    with ExitStack() as opened:
        for number in range(_WAITING):
            connection = opened.enter_context(entrance.connect())
            connection.sendall(users[number % len(users)].request(25))
        with entrance.probes(other.request(0)) as probes:
            time.sleep(_SECONDS)
    return str(probes)


def _busy(entrance: Entrance) -> str:
    """Let clients ask for pages all the time."""
    with ExitStack() as opened:
        for _ in range(32):
            opened.enter_context(Load(entrance.connect, GET % b"/explorer", clients=1))
        with entrance.probes() as probes:
            time.sleep(_SECONDS)
    return str(probes)


def _processor(entrance: Entrance) -> str:
    """Return the processor time of a status."""
    asker, (supervisor, processes) = askers(entrance.server)[0], entrance.server.pids()

    def seconds() -> float:
        return sum(map(processor_seconds, (supervisor, *processes)))

    before = seconds()
    with Load(entrance.connect, asker.request(0), pause=0) as load:
        time.sleep(_SECONDS)
    return f"{1000 * (seconds() - before) / len(load.took):.2f} ms"


def _signal(number: int) -> Callable[[Entrance], str]:
    def measure(entrance: Entrance) -> str:
        with Load(entrance.connect, _PROBE) as load:
            time.sleep(1)
            os.kill(entrance.server.pids()[0], number)
            time.sleep(_SECONDS)
        return f"{len(load.lost)} lost, {load.refused} refused, {len(load.took)} answered"

    return measure


_MEASURED: Mapping[str, Callable[[Entrance], str]] = {
    f"probes beside {_SLOW} slow headers": _slow(b"GET / HTTP/1.1\r\n" + _HOST),
    f"beside {_SLOW} slow bodies": _slow(
        b"POST /submit-batch-query HTTP/1.1\r\n" + _HOST + b"Content-Length: 1000\r\n\r\n"
    ),
    f"beside {_SLOW} slow readers": _unread,
    f"a status beside {_WAITING} that wait": _waiting,
    "/livez beside 32 clients that ask for pages": _busy,
    "processor time of a status": _processor,
    "a body of 10 MB by requests": _body(10),
    "a body of 30 MB by requests": _body(30),
    "SIGHUP under load": _signal(signal.SIGHUP),
    "SIGTERM under load": _signal(signal.SIGTERM),
}


@contextmanager
def _entrance(command: str, folder: Path, *, behind_nginx: bool) -> Iterator[Entrance]:
    folder.mkdir()
    with ExitStack() as running:
        server = running.enter_context(serving(folder, command=shlex.split(command)))
        port = server.port
        if behind_nginx:
            (folder / "nginx").mkdir()
            port = running.enter_context(running_nginx(folder / "nginx", port, 4096, _NO_LIMITS.items()))
        yield Entrance(server, port, behind_nginx)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND", help="another web server")
    parser.add_argument("--only", default="", help="what is measured and has this in its name")
    options = parser.parse_args()
    urllib3.disable_warnings()
    commands = {"gthread": f"{sys.executable} {_GUNICORN}"}
    commands |= dict(other.split("=", 1) for other in options.also)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for number, ((name, command), behind_nginx, (what, measure)) in enumerate(
            product(commands.items(), (False, True), _MEASURED.items())
        ):
            if options.only in what:
                with _entrance(command, Path(folder) / str(number), behind_nginx=behind_nginx) as entrance:
                    said = measure(entrance)
                print(f"{name} | {'nginx' if behind_nginx else 'alone'} | {what} | {said}", flush=True)


if __name__ == "__main__":
    main()
