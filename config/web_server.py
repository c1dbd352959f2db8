"""The processes that gunicorn supervises, as config/gunicorn.py names them: waitress, with bounds.

One loop reads all connections of a process and writes to them, and threads get whole requests. So a client that is slow
holds a connection and never a thread. What each may hold is bounded:

- In time: a header, a body, an answer that isn't read, and a connection without a request have deadlines in all, which
  no drop of data puts off.
- In number: a process has `settings.MAX_CONNECTIONS`, or so many as its limit of open files allows, and a client's
  address `settings.MAX_CONNECTIONS_PER_ADDRESS` of them. Above that the connection closes that has waited longest for
  its client. Where all are at work, the newcomer's request is answered 503.
- In turns: of the requests that wait for a thread, each client's address has one in turn, and at most all threads
  but one.

Whatever is ambiguous about where a request ends is refused (RFC 9112, sections 6.1 and 6.3), and so are chunked bodies,
because the API wants a length. What comes together with a request and behind it is dropped and the connection closed,
after which clients send it again (RFC 9112, section 9.3.2).

Errors that are found here are JSON on `settings.API_PATHS` and a sentence elsewhere. Nothing is believed of a request's
headers: `SCRIPT_NAME` is always empty and the scheme http, and headers with an underscore in their name are dropped.
"""

import json
import logging
import os
import re
import resource
import socket
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from django.conf import settings
from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.buffers import ReadOnlyFileBasedBuffer
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import BaseWSGIServer, TcpWSGIServer, UnixWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask
from waitress.utilities import Error

from config import client_networks, node_waits
from config.error_answers import error_body

HEADER_SECONDS = 10
# For a request with a body, and for reading an answer: as long as for a header, and what this rate (bytes/s) takes.
SLOWEST_RATE = 32 * 1024
# More than the 60 s for which nginx keeps its connections to us: a request must not meet our closing of one.
IDLE_SECONDS = 75
# After an error's answer what the client is still sending is read and dropped for so long: a client that sends all
# before it reads would otherwise see a reset and not the answer (RFC 9112, section 9.6).
LINGER_SECONDS = 30
LINGER_BYTES = 64 * 1024 * 1024
# In bytes: of the request line (as nginx and gunicorn, about), and of a header in all.
MAX_REQUEST_LINE = 4094
MAX_HEADER = 32 * 1024
MAX_HEADER_FIELDS = 60
# A connection may have a file beside it, of a large body or of a large answer. What else a process opens: the database,
# for each thread, the log, connections to nodes, modules.
_FILES_PER_CONNECTION, _OTHER_FILES = 2, 100
# Of what isn't for the API, in bytes: far more than a sign-in, whose signature is the longest that a page takes. A form
# of megabytes would hold the interpreter, and with it all threads, while it is decoded.
MAX_PAGE_BODY = 128 * 1024
# How often deadlines are looked at, and the supervisor is told that this process lives, at least.
_TICK_SECONDS = 1

_TRANSFER_ENCODING = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_FOLDED_LINE = re.compile(rb"\r\n[ \t]")

# By status: the code and the sentence.
_ERRORS = {
    400: ("bad_request", "The request is malformed."),
    408: ("request_timeout", "The request took too long to come."),
    411: ("length_required", "The body's length must be announced with Content-Length."),
    413: ("too_large", "The body is larger than {max_body} bytes."),
    414: ("uri_too_long", f"The request line is longer than {MAX_REQUEST_LINE} bytes."),
    417: ("expectation_failed", "Of expectations only 100-continue is met."),
    431: ("header_too_large", f"The header has more than {MAX_HEADER} bytes or {MAX_HEADER_FIELDS} fields."),
    500: ("internal_error", "Something went wrong here; it has been logged."),
    501: ("not_implemented", "This transfer encoding isn't known here."),
    503: ("overloaded", "Too much is being asked at once; try again in a moment."),
    505: ("version_not_supported", "This speaks HTTP/1.0 and HTTP/1.1."),
}

_access = logging.getLogger("gunicorn.access")
_errors = logging.getLogger("gunicorn.error")


class _Refusal(Error):
    def __init__(self, status: int) -> None:
        super().__init__("")
        self.code = status


# --- A request --------------------------------------------------------------------------------------------------------


class _Request(HTTPRequestParser):
    """A request while it is read. It must be complete `seconds` after it `began`; empty lines begin none."""

    path = ""
    start = b""
    """The request line as it came, or so much of it as has come."""

    def __init__(self, adj: Adjustments) -> None:
        super().__init__(adj)
        self.began, self.seconds = time.monotonic(), float(HEADER_SECONDS)

    def asked_path(self) -> str:
        """Without the query string; empty where the request line has none."""
        _, _, rest = self.start.partition(b" ")
        path, _, _ = rest.partition(b" ")[0].partition(b"?")
        return unquote_to_bytes(path).decode("latin-1")

    def received(self, data: bytes) -> int:
        """How many bytes of `data` belong to this request; all of them when it is complete."""
        if self.body_rcv is not None:
            consumed = self._parse(data)
        else:
            header, ended, _ = (self.header_plus + data).lstrip(b"\r\n").partition(b"\r\n\r\n")
            if not self.start:
                self.began = time.monotonic()
            self.start = header.partition(b"\r\n")[0]
            self.error = _too_large(header)
            consumed = 0 if self.error else self._parse(data)
            if ended and not self.error and not self.empty:
                self.error = self._refusal(header)
                self.seconds += self.content_length / SLOWEST_RATE
        if self.error:
            self.completed = True
        if not self.completed or self.empty:
            return consumed
        # Else waitress would ask for a body that is refused, or that there isn't.
        self.expect_continue = False
        if data[consumed:].strip(b"\r\n"):
            self.headers["CONNECTION"] = "close"
        return len(data)

    def _parse(self, data: bytes) -> int:
        try:
            consumed: int = super().received(data)
        except ValueError:  # Of urlsplit, and of an integer with thousands of digits.
            self.error = _Refusal(400)
            return 0
        except OSError:  # No room for the file of a large body.
            self.error = _Refusal(503)
            return 0
        return consumed

    def _refusal(self, header: bytes) -> _Refusal | None:
        if self.version not in {"1.0", "1.1"}:
            return _Refusal(505)
        if _TRANSFER_ENCODING.search(header):
            return _Refusal(400 if "CONTENT_LENGTH" in self.headers or self.version == "1.0" else 411)
        names_one_host = "HOST" in self.headers and "," not in self.headers["HOST"]
        if _FOLDED_LINE.search(header) or (self.version == "1.1" and not names_one_host):
            return _Refusal(400)
        if self.headers.get("EXPECT", "100-continue").lower() != "100-continue":
            return _Refusal(417)
        if self.content_length > _max_body(self.asked_path()):
            return _Refusal(413)
        return None


def _max_body(path: str) -> int:
    most: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return most if path in settings.API_PATHS else min(most, MAX_PAGE_BODY)


def _too_large(header: bytes) -> _Refusal | None:
    """Of what has come of a header without the empty line that ends it."""
    if len(header.partition(b"\r\n")[0]) > MAX_REQUEST_LINE:
        return _Refusal(414)
    if len(header) > MAX_HEADER or header.count(b"\r\n") > MAX_HEADER_FIELDS:
        return _Refusal(431)
    return None


class _UnwelcomeRequest(_Request):
    """One for which there is no room."""

    def _refusal(self, header: bytes) -> _Refusal | None:
        return super()._refusal(header) or _Refusal(503)


# --- An answer --------------------------------------------------------------------------------------------------------


class _Task(WSGITask):
    def service(self) -> None:
        began = time.monotonic()
        try:
            super().service()
        finally:
            self.channel.has_been_answered()
        _log(self, self.request.path, began)

    def get_environment(self) -> WSGIEnvironment:
        environ: WSGIEnvironment = super().get_environment()
        # waitress drops all but one of the slashes that it begins with; no path may exist twice.
        environ["PATH_INFO"] = self.request.path
        return environ

    def write(self, data: bytes) -> None:
        # waitress would send the body of an answer to HEAD (RFC 9110, section 9.3.2).
        super().write(b"" if self.request.command == "HEAD" else data)


class _ErrorTask(ErrorTask):
    def __init__(self, channel: "_Channel", request: _Request) -> None:
        # For an error while one is answered, waitress makes a request that doesn't know what was asked.
        request.start = channel.requests[0].start
        super().__init__(channel, request)

    def service(self) -> None:
        began = time.monotonic()
        try:
            super().service()
        finally:
            self.channel.has_been_answered()
        _log(self, self.request.asked_path(), began)

    def execute(self) -> None:
        status, path = HTTPStatus(self.request.error.code), self.request.asked_path()
        code, sentence = _ERRORS[status]
        sentence = sentence.format(max_body=_max_body(path))
        if path in settings.API_PATHS:
            kind, body = "application/json", json.dumps(error_body(code, sentence))
            # As on all of the API's answers: else a browser keeps them from the page that asked.
            self.response_headers.append(("Access-Control-Allow-Origin", "*"))
        else:
            kind, body = "text/plain; charset=utf-8", sentence + "\n"
        self.response_headers += [("Content-Type", kind), ("Cache-Control", "no-store")]
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.response_headers.append(("Retry-After", "1"))
        self.status = f"{status.value} {status.phrase}"
        self.content_length = len(body)
        self.set_close_on_finish()
        self.channel.lingers = True
        self.write(b"" if self.request.start.startswith(b"HEAD ") else body.encode())


def _log(task: _Task | _ErrorTask, path: str, began: float) -> None:
    """No query string and no referrer, which may hold an API key."""
    method = task.request.start.partition(b" ")[0].decode("latin-1")[:20]
    milliseconds = (time.monotonic() - began) * 1000
    status, sent = task.status.partition(" ")[0], task.content_bytes_written
    _access.info('%s "%s %s" %s %s %.0fms', task.channel.addr[0], method, path, status, sent or "-", milliseconds)


def _whole(application: WSGIApplication) -> WSGIApplication:
    """Makes one piece of each body but a file's: waitress announces its length, and need not close after it."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = application(environ, start_response)
        is_file = isinstance(body, ReadOnlyFileBasedBuffer)
        if is_file and environ["REQUEST_METHOD"] != "HEAD":
            return body
        try:
            return [b"".join(body)]
        finally:
            if close := getattr(body, "close", None):
                close()

    return answer


# --- A connection -----------------------------------------------------------------------------------------------------


class _Channel(HTTPChannel):
    """A connection. While it has `requests`, the first of them is being answered."""

    parser_class = _Request
    task_class = _Task
    error_task_class = _ErrorTask
    request: _Request | None
    requests: list[_Request]
    total_outbufs_len: int

    lingers = False
    """Whether to read on after the answer, before it closes."""
    _left_to_drop: int | None = None
    """Bytes. None until it lingers."""
    _has_answered = False
    _unread = 0
    """Bytes of the answer that the client hadn't taken when it was complete."""

    def __init__(self, server: "_Bounded", sock: socket.socket, addr: Any, adj: Adjustments, map: Any = None) -> None:  # noqa: A002 (waitress's name)
        self._since = time.monotonic()
        self.peer = client_networks.client(str(addr[0]))
        super().__init__(server, sock, addr, adj, map=map)
        server.arrived.append(self)

    def client(self) -> str:
        """Who sent the request that is to be answered, as `accounts.client_address` tells it."""
        header = settings.CLIENT_ADDRESS_HEADER.upper().replace("-", "_")
        from_proxy = (
            client_networks.client(self.requests[0].headers.get(header, "").rpartition(",")[2]) if header else ""
        )
        return from_proxy or self.peer

    def has_been_answered(self) -> None:
        self._since, self._has_answered, self._unread = time.monotonic(), True, self.total_outbufs_len

    # What it waits for its client to do, while it has no `requests`.

    def _begun(self) -> _Request | None:
        return self.request if self.request and self.request.start else None

    def waits_since(self) -> float:
        request = self._begun()
        return request.began if request else self._since

    def deadline(self) -> float:
        if self._left_to_drop is not None:
            seconds: float = LINGER_SECONDS
        elif self.total_outbufs_len:
            seconds = HEADER_SECONDS + self._unread / SLOWEST_RATE
        elif request := self._begun():
            seconds = request.seconds
        else:
            seconds = IDLE_SECONDS if self._has_answered else HEADER_SECONDS
        return self.waits_since() + seconds

    def is_idle(self) -> bool:
        return not self.requests and not self._begun() and not self.total_outbufs_len

    def expire(self) -> None:
        request = self._begun()
        if request is None or self.total_outbufs_len:
            self.handle_close()
            return
        request.error, request.completed, request.expect_continue = _Refusal(408), True, False
        with self.requests_lock:
            self.request, self.requests = None, [request]
        self.server.add_task(self)

    # Closing, after an error.

    def handle_write(self) -> None:
        if not (self.lingers and self.close_when_flushed):
            super().handle_write()
            return
        self._flush_exception(self._flush_some)
        if self.will_close:
            self.handle_close()
        elif self.connected and not self.total_outbufs_len:
            self._linger()

    def _linger(self) -> None:
        self.close_when_flushed, self._left_to_drop, self._since = False, LINGER_BYTES, time.monotonic()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.handle_close()

    def readable(self) -> bool:
        return self._left_to_drop is not None or super().readable()

    def handle_read(self) -> None:
        if self._left_to_drop is None:
            super().handle_read()
            return
        try:
            dropped = len(self.recv(self.adj.recv_bytes))
        except OSError:
            self.handle_close()
            return
        self._left_to_drop -= dropped
        if self._left_to_drop < 0:
            self.handle_close()

    def handle_expt(self) -> None:
        # Urgent data (RFC 6093), which HTTP knows nothing of: it would be announced again and again.
        self.handle_close()


# --- All connections --------------------------------------------------------------------------------------------------


class _Bounded(BaseWSGIServer):
    """What a server of waitress's needs to keep its connections within bounds; `tend` goes between its polls."""

    channel_class = _Channel
    active_channels: dict[int, _Channel]

    def __init__(self, *args: Any, most: int, **kwargs: Any) -> None:
        self._most = most
        self.arrived: list[_Channel] = []
        self._next_tick = 0.0
        super().__init__(*args, **kwargs)

    def add_task(self, channel: _Channel) -> None:
        if channel.requests[0].error:
            # By this loop, as soon as it comes round: no thread is needed, and the channel is locked just now.
            self.trigger.pull_trigger(channel.service)
        else:
            super().add_task(channel)

    def maintenance(self, now: float) -> None:
        """Nothing. waitress calls it in the middle of a poll, when closing a connection could hit its successor."""

    def tend(self) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + _TICK_SECONDS
            for channel in list(self.active_channels.values()):
                if not channel.requests and channel.deadline() <= now:
                    channel.expire()
        arrived, self.arrived = self.arrived, []
        for channel in arrived:
            if channel.connected:
                self._make_room(channel)

    def _make_room(self, newcomer: _Channel) -> None:
        # Of all that this process listens to.
        crowd = [each for each in self._map.values() if isinstance(each, _Channel)]
        of_peer = [channel for channel in crowd if channel.peer == newcomer.peer]
        # Behind a Unix socket there are no addresses.
        if newcomer.peer and len(of_peer) > settings.MAX_CONNECTIONS_PER_ADDRESS:
            crowd = of_peer
        elif len(crowd) <= self._most:
            return
        waiting = [channel for channel in crowd if channel is not newcomer and not channel.requests]
        if waiting:
            min(waiting, key=_Channel.waits_since).handle_close()
        else:
            newcomer.parser_class = _UnwelcomeRequest

    def stop_listening(self) -> None:
        # Not `close`, which also closes what threads wake the loop by.
        wasyncore.dispatcher.close(self)

    def dismiss(self) -> None:
        """Close the connections on which nothing is under way."""
        for channel in list(self.active_channels.values()):
            if channel.is_idle():
                channel.handle_close()


class _TcpServer(_Bounded, TcpWSGIServer):
    pass


class _UnixServer(_Bounded, UnixWSGIServer):
    pass


class _Asked(Protocol):
    def client(self) -> str: ...

    def service(self) -> None: ...

    def cancel(self) -> None: ...


class Turns:
    """What waits for a thread, in the form of the queue of waitress's dispatcher: each client has one in turn.

    Of one client `most` run at once. It is false while all that waits is of clients of whom so many run.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[str, deque[_Asked]] = OrderedDict()
        self._running: Counter[str] = Counter()
        # The dispatcher holds a lock while it calls, but not when a request ends.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __bool__(self) -> bool:
        with self._lock:
            return self._next() is not None

    def _next(self) -> str | None:
        return next((client for client in self._waiting if self._running[client] < self._most), None)

    def append(self, asked: _Asked) -> None:
        with self._lock:
            self._waiting.setdefault(asked.client(), deque()).append(asked)

    def popleft(self) -> "_Turn":
        with self._lock:
            client = self._next()
            if client is None:
                raise IndexError("No client may have another thread.")
            waiting = self._waiting.pop(client)
            first = waiting.popleft()
            if waiting:
                self._waiting[client] = waiting
            self._running[client] += 1
        return _Turn(first, lambda: self._ended(client))

    def _ended(self, client: str) -> None:
        # The thread that ran it asks for the next one itself, so that nobody need be woken.
        with self._lock:
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]


@dataclass(frozen=True)
class _Turn:
    """A request that has a thread."""

    asked: _Asked
    ended: Callable[[], None]

    def service(self) -> None:
        try:
            self.asked.service()
        finally:
            self.ended()

    def cancel(self) -> None:
        self.ended()
        self.asked.cancel()


# --- The process ------------------------------------------------------------------------------------------------------


def _most_connections() -> int:
    """How many the process may hold. Its limit of open files is raised for them as far as the system lets it.

    Without a free file nobody's connection could be accepted, and those that wait for it would keep the loop busy.
    """
    wanted = _FILES_PER_CONNECTION * settings.MAX_CONNECTIONS + _OTHER_FILES
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < wanted:
        files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        if files < wanted:
            most = max(1, (files - _OTHER_FILES) // _FILES_PER_CONNECTION)
            _errors.warning(
                "This process may open %d files (ulimit -n), so it holds %d connections at most. The %d of "
                "MAX_CONNECTIONS need %d.",
                files,
                most,
                settings.MAX_CONNECTIONS,
                wanted,
            )
            return most
    return settings.MAX_CONNECTIONS


class WebWorker(Worker):
    """Serves gunicorn's sockets until it is told to stop or gunicorn is gone, and then what is under way."""

    def run(self) -> None:
        node_waits.share(self.cfg.threads)
        connections: dict[int, Any] = {}
        servers = self._servers(connections)
        self._loop(servers, connections, lambda: self.alive and self.ppid == os.getppid())
        for server in servers:
            server.stop_listening()
        end = time.monotonic() + self.cfg.graceful_timeout

        def is_needed() -> bool:
            for server in servers:
                server.dismiss()
            return any(server.active_channels for server in servers) and time.monotonic() < end

        self._loop(servers, connections, is_needed)

    def _servers(self, connections: dict[int, Any]) -> list[_Bounded]:
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.queue = Turns(max(1, self.cfg.threads - 1))
        dispatcher.set_thread_count(self.cfg.threads)
        adjustments = Adjustments(
            ident=None,
            recv_bytes=64 * 1024,
            # A body is bounded by what is announced, and so is what is held of it.
            max_request_body_size=settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1,
            # Bounded by `_too_large`, which knows of which path it was.
            max_request_header_size=2 * MAX_HEADER,
            # An answer is bounded by what makes it. No thread waits until a client has read.
            outbuf_high_watermark=2**62,
            connection_limit=2**62,
            log_socket_errors=False,
            # The settings decide about them, and Django reads them.
            clear_untrusted_proxy_headers=False,
        )
        application, most = _whole(self.wsgi), _most_connections()
        return [
            (_UnixServer if sock.family == socket.AF_UNIX else _TcpServer)(
                application,
                connections,
                True,
                sock,
                dispatcher=dispatcher,
                adj=adjustments,
                sockinfo=(sock.family, sock.type, sock.proto, sock.getsockname()),
                bind_socket=False,
                most=most,
            )
            for sock in (listener.sock for listener in self.sockets)
        ]

    def _loop(self, servers: list[_Bounded], connections: dict[int, Any], goes_on: Callable[[], bool]) -> None:
        while goes_on():
            self.notify()
            wasyncore.poll2(_TICK_SECONDS, connections)
            for server in servers:
                server.tend()
