"""Answer the operator in a thread of its own, in processes that must not wait for their work."""

import logging
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

logger = logging.getLogger(__name__)

_SECONDS = 10


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


Page = Callable[[str, Message], Answer]
"""Answer a GET request, by the address of its client and its headers."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    pages: Mapping[str, Page]

    def handle_error(self, *_: object) -> None:
        """Say nothing about a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _SECONDS
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path)
        if page is None:
            self.send_error(404)
            return
        status, content_type, body = page(self.client_address[0], self.headers)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no line for each scrape: it would help nobody."""


def listen(host: str, port: int, pages: Mapping[str, Page], what: str) -> _Server | None:
    """Serve the pages, by their paths, until the process ends. If the port is taken, log it and return None."""
    try:
        server = _Server((host, port), _Handler)
    except OSError as error:
        logger.error("no %s: can't listen on port %d: %s", what, port, error.strerror)  # noqa: TRY400 (all is said)
        return None
    server.pages = pages
    threading.Thread(target=server.serve_forever, name="operator-listener", daemon=True).start()
    return server
