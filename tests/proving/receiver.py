"""A receiver of webhooks: an HTTP server that records requests, with answers from a test."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

OPERATOR_SECRET = "whsec_" + base64.b64encode(b"the operator's own secret, 32 by").decode()


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]  # by lower-case name
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def type(self) -> str:
        return str(self.data("type"))

    def data(self, name: str) -> Any:
        document = json.loads(self.body)
        return document.get(name) or document["data"].get(name)


@dataclass
class Receiver:
    url: str = ""
    received: list[Received] = field(default_factory=list)

    @property
    def types(self) -> list[str]:
        return [request.type.removeprefix("batch_query.") for request in self.received]


Answer = Callable[[Received], int]


@contextmanager
def receiver(
    answer: Answer = lambda _: 204, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    """Serve on a free port of 127.0.0.1. `answer` returns each answer's status."""
    this = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got = Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            this.received.append(got)
            # The sender closes the connection at its time-out.
            with suppress(OSError):
                self.send_response(answer(got))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 100

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls:
            # Each connection's thread does its own handshake, so a failed one can't stop the server.
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        this.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield this
        finally:
            server.shutdown()
            thread.join()


def tell_operator(settings: Any, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Set the operator's webhook of this process, and of the processes that the test starts."""
    for name, value in (("OPERATOR_WEBHOOK_URL", url), ("OPERATOR_WEBHOOK_SECRET", OPERATOR_SECRET)):
        setattr(settings, name, value)
        monkeypatch.setenv(name, value)
