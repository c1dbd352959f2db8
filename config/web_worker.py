"""Serve gunicorn's sockets by waitress as it is: gunicorn supervises the processes, waitress reads and writes.

One loop of a process reads and writes all connections, and threads get only complete requests. So a slow client holds a
connection, and never a thread. docs/developing/why.md has what was measured.
"""

import os
import resource
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from django.conf import settings
from gunicorn.workers.base import Worker
from waitress import create_server, wasyncore

from config import long_polls, rpc_bulkhead
from config.loopback import LISTENS_ON_LOOPBACK, is_loopback

# The longest time between two signs of life to the supervisor.
_TICK_SECONDS = 1
# nginx keeps its connections to us for 60 s: we must not close one while a request is on its way.
_IDLE_SECONDS = 75
# A process that ends keeps a silent connection for so long, because a request may be on its way.
_IDLE_SECONDS_AT_END = 2
_MAX_HEADER = 32 * 1024
# Besides its socket, a connection may have a file for a large body and one for a large answer. A process also opens the
# database for each thread, the log, connections to nodes, and modules.
_FILES_PER_CONNECTION, _OTHER_FILES = 3, 100


class WebWorker(Worker):
    """Serve until gunicorn says to stop or is gone, and then answer what has come."""

    def run(self) -> None:
        rpc_bulkhead.share(self.cfg.threads)
        long_polls.share(self.cfg.threads)
        connections: dict[int, Any] = {}
        create_server(
            _application(
                self.wsgi, lambda: not self.alive, on_loopback=all(_is_on_loopback(one.sock) for one in self.sockets)
            ),
            map=connections,
            sockets=[listener.sock for listener in self.sockets],
            threads=self.cfg.threads,
            backlog=self.cfg.backlog,
            # waitress counts each listener, and that by which threads wake the loop, as connections.
            connection_limit=_most_connections() + 2 * len(self.sockets),
            channel_timeout=_IDLE_SECONDS,
            cleanup_interval=5,
            max_request_header_size=_MAX_HEADER,
            max_request_body_size=settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1,
            # A thread never waits until a client has read its answer. Views bound how large an answer is.
            outbuf_high_watermark=2**62,
            # So a long poll sees that its client has gone.
            channel_request_lookahead=1,
            recv_bytes=64 * 1024,
            ident=None,
            log_socket_errors=False,
            # Django reads them where the settings say so.
            clear_untrusted_proxy_headers=False,
        )
        listeners = [each for each in connections.values() if each.accepting]
        while self.alive and self.ppid == os.getppid():
            self._serve(connections)
        self._finish(listeners, connections)

    def _serve(self, connections: dict[int, Any], seconds: float = _TICK_SECONDS) -> None:
        self.notify()
        wasyncore.loop(seconds, use_poll=True, map=connections, count=1)

    def _finish(self, listeners: list[Any], connections: dict[int, Any]) -> None:
        """Accept who has connected already, answer, and close each connection after its answer."""
        self.alive = False
        long_polls.end()
        began = time.monotonic()
        while time.monotonic() < began + _TICK_SECONDS and _are_asked(listeners):
            self._serve(connections, 0)
        for listener in listeners:
            # Not the server's own `close`, which also closes that by which threads wake the loop.
            wasyncore.dispatcher.close(listener)
            listener.adj.channel_timeout = _IDLE_SECONDS_AT_END
        while any(listener.active_channels for listener in listeners):
            if time.monotonic() > began + self.cfg.graceful_timeout:
                break
            self._serve(connections, 0.1)
            for listener in listeners:
                listener.maintenance(time.time())


def _are_asked(listeners: list[Any]) -> bool:
    """Return whether a client waits to be accepted."""
    return bool(select.select([listener.socket for listener in listeners], [], [], 0)[0])


def _most_connections() -> int:
    """Raise the limit of open files to what the connections need, as far as the system allows."""
    wanted = _FILES_PER_CONNECTION * settings.MAX_CONNECTIONS + _OTHER_FILES
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < wanted:
        files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(settings.MAX_CONNECTIONS, (files - _OTHER_FILES) // _FILES_PER_CONNECTION))


def _is_on_loopback(listener: socket.socket) -> bool:
    return listener.family in {socket.AF_INET, socket.AF_INET6} and is_loopback(listener.getsockname()[0])


def _application(application: WSGIApplication, ends: Callable[[], bool], *, on_loopback: bool) -> WSGIApplication:
    """Leave out what waitress would send wrongly: the body of an answer to HEAD, and lengths when the process ends.

    waitress says `Connection: close` with an answer whose length it doesn't know, and the client connects anew. Each
    request is told whether the server listens `on_loopback` addresses alone.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        closes = False

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            nonlocal closes
            if closes := ends():
                headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            return start_response(status, headers, *error)

        environ[LISTENS_ON_LOOPBACK] = on_loopback
        body = application(environ, start)
        if environ["REQUEST_METHOD"] == "HEAD":
            if close := getattr(body, "close", None):
                close()
            return []
        return _pieces(body) if closes else body

    return answer


def _pieces(body: Iterable[bytes]) -> Iterator[bytes]:
    """Yield an answer whose length can't be seen."""
    try:
        yield from body
    finally:
        if close := getattr(body, "close", None):
            close()
