"""The processes that gunicorn supervises, as config/gunicorn.py names them: waitress, with bounds.

One loop reads and writes all connections of a process, and threads get only complete requests. So a slow client holds a
connection, but never a thread. What each client may hold is bounded:

- In time: a header, a body, an answer that isn't read, and a connection without a request each have a total deadline,
  which a trickle of data does not extend.
- In number: a process has `settings.MAX_CONNECTIONS`, or as many as its limit of open files allows, and a client's
  address `settings.MAX_CONNECTIONS_PER_ADDRESS` of them. Beyond that, the server closes the connection that has waited
  longest for its client. If all are at work, it answers the newcomer's request with 503.
- In bytes: unread answers and incomplete bodies have a total limit, and one for each client. Beyond that, the server
  closes the connection that has waited longest for its client.
- In turns: client addresses take turns for the threads, and one address gets at most all threads but one.

A request that waits for news (`config.parked_requests`) holds a connection, and no thread. Half of the connections may
be those of such requests. Where there is no room, the one that has waited longest is answered, and then closed.

The server refuses requests whose end is ambiguous (RFC 9112, sections 6.1 and 6.3), and chunked bodies, because the API
needs a length. It drops data that comes together with a request but after it, and closes the connection; clients then
send that data again (RFC 9112, section 9.3.2).

Errors found here are JSON on `settings.API_PATHS`, and a sentence elsewhere, or a page where a form is too large. The
server trusts no header of a request: `SCRIPT_NAME` is always empty, the scheme is http, and headers with an underscore
in their name are dropped.
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
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from django.conf import settings
from django.template.loader import render_to_string
from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.buffers import OverflowableBuffer, ReadOnlyFileBasedBuffer
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import BaseWSGIServer, TcpWSGIServer, UnixWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask
from waitress.utilities import Error

from config import client_networks, node_waits, parked_requests, process_metrics
from config.error_answers import error_body
from config.request_log import ENVIRON

HEADER_SECONDS = 10
# A request with a body, and reading an answer, may take as long as a header, plus what this rate (bytes/s) takes.
SLOWEST_RATE = 32 * 1024
# More than the 60 s for which nginx keeps its connections to us: we must not close one while a request is on its way.
IDLE_SECONDS = 75
# After an error's answer, the server reads and drops what the client is still sending for so long. Otherwise a client
# that sends everything before it reads would see a reset instead of the answer (RFC 9112, section 9.6).
LINGER_SECONDS = 30
LINGER_BYTES = 64 * 1024 * 1024
# In bytes: the request line (about as nginx and gunicorn), and the whole header.
MAX_REQUEST_LINE = 4094
MAX_HEADER = 32 * 1024
MAX_HEADER_FIELDS = 60
# Besides its socket, a connection may have a file for a large body or a large answer. A process also opens the database
# for each thread, the log, connections to nodes, and modules.
_FILES_PER_CONNECTION, _OTHER_FILES = 2, 100
# The longest body outside the API, in bytes: far more than the signature of a sign-in. Decoding a form of megabytes
# would hold the interpreter, and with it all threads.
MAX_PAGE_BODY = 128 * 1024
# The longest form, in bytes, on `settings.LARGE_FORM_PATHS`: 10,000 addresses as CSV, each with its block and four
# properties, are 900,000. As multipart/form-data alone, of which a megabyte is read in 2 ms. The same url-encoded takes
# 0.6 s where all of it is percent signs.
MAX_FORM_BODY = 1024 * 1024
# In bytes, in memory and in temporary files, for each process: in total, and for one client, of whom one connection may
# always keep what it has. The largest answers, bundles of thousands of slots, have tens of megabytes.
MOST_KEPT = 256 * 1024 * 1024
MOST_KEPT_FOR_CLIENT = 64 * 1024 * 1024
# The longest time between two looks at the deadlines, and between two signs of life to the supervisor.
_TICK_SECONDS = 1
# In bytes. A longer answer takes longer to copy behind its header than to send apart.
_MOST_AT_ONCE = 64 * 1024

# In characters. The service's own are shorter; the log writes control characters with four.
_MOST_LOGGED_OF_PATH = 200

_TRANSFER_ENCODING = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_FOLDED_LINE = re.compile(rb"\r\n[ \t]")

# By status: the code and the sentence.
_ERRORS = {
    400: ("bad_request", "The request is malformed."),
    408: ("request_timeout", "The request took too long to arrive."),
    411: ("length_required", "The body's length must be announced with Content-Length."),
    413: ("too_large", "The body is larger than {max_body} bytes."),
    414: ("uri_too_long", f"The request line is longer than {MAX_REQUEST_LINE} bytes."),
    417: ("expectation_failed", "The only expectation that this server meets is 100-continue."),
    431: ("header_too_large", f"The header has more than {MAX_HEADER} bytes or {MAX_HEADER_FIELDS} fields."),
    500: ("internal_error", "Something went wrong here; it has been logged."),
    501: ("not_implemented", "This server does not support this transfer encoding."),
    503: ("overloaded", "There are too many requests at once; try again in a moment."),
    505: ("version_not_supported", "This server speaks HTTP/1.0 and HTTP/1.1."),
}

_access = logging.getLogger("gunicorn.access")
_errors = logging.getLogger("gunicorn.error")


class _Refusal(Error):
    def __init__(self, status: int) -> None:
        super().__init__("")
        self.code = status


# --- A request --------------------------------------------------------------------------------------------------------


class _Request(HTTPRequestParser):
    """A request that is being read. It must be complete `seconds` after it `began`. Empty lines do not begin one."""

    path = ""
    start = b""
    """The request line, or what has come of it so far."""
    has_waited = False
    """Whether it was parked, and woken again."""

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
        # Otherwise waitress would ask for a body that is refused or does not exist.
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
        if self.content_length > _max_body(self):
            return _Refusal(413)
        return None


def _max_body(request: _Request) -> int:
    most: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    path = request.asked_path()
    if path in settings.API_PATHS:
        return most
    is_multipart = request.headers.get("CONTENT_TYPE", "").startswith("multipart/form-data")
    return min(most, MAX_FORM_BODY if is_multipart and path in settings.LARGE_FORM_PATHS else MAX_PAGE_BODY)


def _too_large(header: bytes) -> _Refusal | None:
    """Checks what has come of a header so far, without the empty line that ends it."""
    if len(header.partition(b"\r\n")[0]) > MAX_REQUEST_LINE:
        return _Refusal(414)
    if len(header) > MAX_HEADER or header.count(b"\r\n") > MAX_HEADER_FIELDS:
        return _Refusal(431)
    return None


class _UnwelcomeRequest(_Request):
    """A request for which there is no room."""

    def _refusal(self, header: bytes) -> _Refusal | None:
        return super()._refusal(header) or _Refusal(503)


# --- An answer --------------------------------------------------------------------------------------------------------


class _IsParked(BaseException):
    """What was answered is to be dropped, because the request waits. Not an `Exception`: waitress catches those."""

    def __init__(self, parked: "_ParkedRequest") -> None:
        super().__init__()
        self.parked = parked


class _Parking:
    """Where the request that a channel answers may wait, see `config.parked_requests`."""

    def __init__(self, channel: "_Channel", request: _Request) -> None:
        self._channel = channel
        self.has_waited = request.has_waited
        self.parked: _ParkedRequest | None = None

    @property
    def is_parked(self) -> bool:
        return self.parked is not None

    def park(self) -> "_ParkedRequest | None":
        self.parked = self._channel.server.waiting_room.enter(self._channel)
        return self.parked


class _Task(WSGITask):
    wrote_header: bool
    chunked_response: bool

    def service(self) -> None:
        began = time.monotonic()
        try:
            super().service()
        except _IsParked:
            raise
        except BaseException:
            self.channel.has_been_answered()
            raise
        self.channel.has_been_answered()
        _log(self, self.request.path, began)

    def get_environment(self) -> WSGIEnvironment:
        environ: WSGIEnvironment = super().get_environment()
        environ[parked_requests.ENVIRON] = _Parking(self.channel, self.request)
        # waitress drops all but one of the leading slashes, but no path may exist twice.
        environ["PATH_INFO"] = self.request.path
        return environ

    def set_close_on_finish(self) -> None:
        # An answer that can have no body ends with its header (RFC 9112, section 6.3). waitress would close the
        # connection after it all the same, and whoever polls would need another one each time.
        client_closes = self.version == "1.0" or self.request.headers.get("CONNECTION", "").lower() == "close"
        if self.has_body or client_closes:
            super().set_close_on_finish()

    def finish(self) -> None:
        if not self.wrote_header:
            self.write(b"")
        # waitress would send the end of a body that an answer to HEAD doesn't have.
        self.chunked_response = self.chunked_response and self.request.command != "HEAD"
        super().finish()

    def write(self, data: bytes) -> None:
        # waitress would send the body of an answer to HEAD (RFC 9110, section 9.3.2).
        if self.request.command == "HEAD":
            data = b""
        is_whole_body = self.has_body and 0 < len(data) == self.content_length
        if self.wrote_header or not is_whole_body or len(data) > _MOST_AT_ONCE:
            super().write(data)
            return
        # Header and body at once: to send twice takes twice the time.
        header: bytes = self.build_response_header()
        self.wrote_header = True
        self.content_bytes_written = len(data)
        self.channel.write_soon(header + data)


class _ErrorTask(ErrorTask):
    def __init__(self, channel: "_Channel", request: _Request) -> None:
        # For an error during an answer, waitress makes a request that doesn't know what was asked.
        request.start = channel.requests[0].start
        super().__init__(channel, request)

    def service(self) -> None:
        began = time.monotonic()
        try:
            super().service()
        finally:
            self.channel.has_been_answered()
        # What the application answers, it counts.
        process_metrics.REQUESTS.labels("none", self.request.error.code).inc()
        _log(self, self.request.asked_path(), began)

    def execute(self) -> None:
        status, path = HTTPStatus(self.request.error.code), self.request.asked_path()
        code, sentence = _ERRORS[status]
        sentence = sentence.format(max_body=_max_body(self.request))
        if path in settings.API_PATHS:
            kind, body = "application/json", json.dumps(error_body(code, sentence))
            # As on all answers of the API: otherwise a browser hides the answer from the page that asked.
            self.response_headers.append(("Access-Control-Allow-Origin", "*"))
        elif status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and path in settings.LARGE_FORM_PATHS:
            kind, body = "text/html; charset=utf-8", render_to_string("413.html")
        else:
            kind, body = "text/plain; charset=utf-8", sentence + "\n"
        self.response_headers += [("Content-Type", kind), ("Cache-Control", "no-store")]
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.response_headers.append(("Retry-After", "1"))
        self.status = f"{status.value} {status.phrase}"
        encoded = body.encode()
        self.content_length = len(encoded)
        self.set_close_on_finish()
        self.channel.lingers = True
        self.write(b"" if self.request.start.startswith(b"HEAD ") else encoded)


def _log(task: _Task | _ErrorTask, path: str, began: float) -> None:
    """Logs neither the query string nor the referrer, which may hold an API key."""
    method = task.request.start.partition(b" ")[0].decode("latin-1")[:20]
    milliseconds = (time.monotonic() - began) * 1000
    status, sent = task.status.partition(" ")[0], task.content_bytes_written
    shown = path if len(path) <= _MOST_LOGGED_OF_PATH else f"{path[:_MOST_LOGGED_OF_PATH]}..."
    # None before an application was asked, and a refusal never has one.
    environ = getattr(task, "environ", None) or {}
    fields = {"client": task.channel.addr[0], "method": method, "path": shown, "status": int(status)}
    fields |= {"bytes": sent, "milliseconds": round(milliseconds), "request": environ.get(ENVIRON)}
    _access.info(
        '%s "%s %s" %s %s %.0fms',
        *(task.channel.addr[0], method, shown, status, sent or "-", milliseconds),
        extra={name: value for name, value in fields.items() if value is not None},
    )


def _whole(application: WSGIApplication) -> WSGIApplication:
    """Joins each body into one piece, except files. So waitress knows its length, and can keep the connection.

    What the application streams because it is large goes on in its pieces, within the same bounds of what is kept. Its
    length is known to nobody before its end, so that waitress closes the connection then.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = application(environ, start_response)
        is_file = isinstance(body, ReadOnlyFileBasedBuffer)
        if is_file and environ["REQUEST_METHOD"] != "HEAD":
            return body
        # Django's name for it.
        if getattr(body, "streaming", False):
            return _nothing_of(body) if environ["REQUEST_METHOD"] == "HEAD" else body
        try:
            whole = b"".join(body)
        finally:
            if close := getattr(body, "close", None):
                close()
        if (parking := environ.get(parked_requests.ENVIRON)) and parking.parked:
            raise _IsParked(parking.parked)
        return [whole]

    return answer


def _nothing_of(body: Iterable[bytes]) -> Iterable[bytes]:
    """Of an answer to HEAD, which need not be made, and whose length nobody knows."""
    if close := getattr(body, "close", None):
        close()
    return iter(())


# --- Requests that wait -----------------------------------------------------------------------------------------------


class _WaitingRoom:
    """The requests of a process that wait for news, at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[_ParkedRequest, None] = {}

    def enter(self, channel: "_Channel") -> "_ParkedRequest | None":
        with self._lock:
            if len(self._waiting) >= self._most:
                return None
            parked = _ParkedRequest(channel, self)
            self._waiting[parked] = None
            return parked

    def leave(self, parked: "_ParkedRequest") -> None:
        with self._lock:
            self._waiting.pop(parked, None)

    def here(self) -> "list[_ParkedRequest]":
        """Who has waited longest comes first."""
        with self._lock:
            return list(self._waiting)


class _ParkedRequest:
    """One of them. Its channel keeps it as the first of its `requests`."""

    def __init__(self, channel: "_Channel", room: _WaitingRoom) -> None:
        self.channel, self._room = channel, room
        self._lock = threading.Lock()
        self._is_kept = self._is_woken = False

    @property
    def is_gone(self) -> bool:
        return not self.channel.connected

    @property
    def waits(self) -> bool:
        """Whether no thread has to do with it."""
        return self._is_kept and not self._is_woken

    def keep(self) -> None:
        """Its answer was dropped."""
        with self._lock:
            self._is_kept = True
            is_woken = self._is_woken
        if is_woken:
            self._answer()
        else:
            # From now on the loop sees whether the client closes the connection.
            self.channel.server.pull_trigger()

    def wake(self) -> None:
        with self._lock:
            was_woken, self._is_woken = self._is_woken, True
            is_kept = self._is_kept
        self._room.leave(self)
        if is_kept and not was_woken:
            self._answer()

    def _answer(self) -> None:
        self.channel.requests[0].has_waited = True
        self.channel.server.add_task(self.channel)


# --- A connection -----------------------------------------------------------------------------------------------------


class _Channel(HTTPChannel):
    """A connection. While it has `requests`, the first of them is being answered."""

    parser_class = _Request
    task_class = _Task
    error_task_class = _ErrorTask
    request: _Request | None
    requests: list[_Request]
    outbufs: list[OverflowableBuffer]
    total_outbufs_len: int

    lingers = False
    """Whether to read on after the answer, before it closes."""
    _left_to_drop: int | None = None
    """Bytes. None until it lingers."""
    _has_answered = False
    _unread = 0
    """Bytes of the answer that the client had not taken when the answer was complete."""
    _kept_of_answer = 0
    """Bytes: all of an answer until its last byte is taken, because a file doesn't shrink."""
    _answered = ""
    """The client who got the last answer."""
    parked: _ParkedRequest | None = None
    """The request that waits, or the last one that did."""
    _has_sent_more = False

    def __init__(self, server: "_Bounded", sock: socket.socket, addr: Any, adj: Adjustments, map: Any = None) -> None:  # noqa: A002 (waitress's name)
        self._since = time.monotonic()
        self.peer = client_networks.client(str(addr[0]))
        super().__init__(server, sock, addr, adj, map=map)
        server.arrived.append(self)

    def client(self) -> str:
        """The client of the request that is being answered, as `accounts.client_address` tells it."""
        return self._sender(self.requests[0])

    def _sender(self, request: _Request) -> str:
        header = settings.CLIENT_ADDRESS_HEADER.upper().replace("-", "_")
        from_proxy = client_networks.client(request.headers.get(header, "").rpartition(",")[2]) if header else ""
        return from_proxy or self.peer

    def has_been_answered(self) -> None:
        self._answered = self.client()
        self._since, self._has_answered, self._unread = time.monotonic(), True, self.total_outbufs_len

    def service(self) -> None:
        try:
            super().service()
        except _IsParked as waiting:
            self.parked = waiting.parked
            self.parked.keep()

    def waits_for_news(self) -> bool:
        return self.parked is not None and self.parked.waits

    def end_wait(self) -> None:
        """Answer now, and then close."""
        assert self.parked
        self.requests[0].headers["CONNECTION"] = "close"
        self.parked.wake()

    def handle_close(self) -> None:
        super().handle_close()
        if self.parked:
            self.parked.wake()

    # While it has no `requests`, it waits for its client.

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
        self._refuse(request, 408)

    def _refuse(self, request: _Request, status: int) -> None:
        """Answer with this error what hasn't come whole."""
        request.error, request.completed, request.expect_continue = _Refusal(status), True, False
        with self.requests_lock:
            self.request, self.requests = None, [request]
        self.server.add_task(self)

    # What is kept for its client.

    def kept(self) -> int:
        """In bytes."""
        requests = [*self.requests, *([self.request] if self.request else [])]
        bodies = [request.body_rcv for request in requests if request.body_rcv is not None and not request.error]
        return self._kept_of_answer + sum(map(len, bodies))

    def keeper(self) -> str:
        """The client for whom that is."""
        # A thread may end the first of them meanwhile.
        if under_way := list(self.requests):
            return self._sender(under_way[0])
        request = self._begun()
        return self._answered if self.total_outbufs_len or request is None else self._sender(request)

    def give_up(self) -> None:
        """Keep no more for the client, who is told if an answer can still come."""
        request = None if self.total_outbufs_len else self._begun()
        what = "an unread answer" if request is None else "an incomplete body"
        _errors.warning("Too much is kept for clients: %s of %s is dropped, %d bytes.", what, self.addr[0], self.kept())
        if request:
            self._refuse(request, 503)
        else:
            self.handle_close()

    def write_soon(self, data: bytes | ReadOnlyFileBasedBuffer) -> int:
        with self.outbuf_lock:
            if not isinstance(data, ReadOnlyFileBasedBuffer):
                self._kept_of_answer += len(data)
            try:
                written: int = super().write_soon(data)
            except OSError as error:
                # No room for its file: what was kept of the answer before is not whole any more. waitress catches what
                # sending raises, and would go on after this.
                self._break_off(error)
                raise ClientDisconnected from error
        if self.total_outbufs_len:
            self.server.keeps_more = True
        return written

    def _break_off(self, error: OSError) -> None:
        path = self.requests[0].asked_path()
        _errors.warning(
            "An answer is broken off, because it can't be kept until it is read: %s (%s of %s).",
            error.strerror,
            path[:_MOST_LOGGED_OF_PATH],
            self.addr[0],
        )
        for buffer in self.outbufs:
            with suppress(OSError):  # Once more, of what the file couldn't take.
                buffer.close()
        self.outbufs = [OverflowableBuffer(self.adj.outbuf_overflow)]
        self.total_outbufs_len, self._kept_of_answer, self.will_close = 0, 0, True
        self.server.pull_trigger()

    def _flush_some(self, do_close: bool = True) -> bool:  # noqa: FBT001, FBT002 (waitress's)
        has_sent: bool = super()._flush_some(do_close=do_close)
        if self._kept_of_answer and not self.total_outbufs_len:
            # waitress would keep the file until the next answer.
            self._kept_of_answer = 0
            self.outbufs[-1].close()
            self.outbufs[-1] = OverflowableBuffer(self.adj.outbuf_overflow)
        return has_sent

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
        return self._left_to_drop is not None or self._watches_client() or super().readable()

    def _watches_client(self) -> bool:
        """Whether to see if the client goes, while its request waits. What it sends instead is dropped."""
        return self.waits_for_news() and not self._has_sent_more

    def handle_read(self) -> None:
        if self._watches_client():
            with suppress(OSError):
                # It closes the channel where the client is gone.
                self._has_sent_more = bool(self.recv(self.adj.recv_bytes))
            if self._has_sent_more:
                self.requests[0].headers["CONNECTION"] = "close"
            return
        if self._left_to_drop is None:
            super().handle_read()
            # Of smaller ones no number of connections makes much.
            if self.request and self.request.content_length > self.adj.recv_bytes:
                self.server.keeps_more = True
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
        # HTTP does not use urgent data (RFC 6093), and it would be announced again and again.
        self.handle_close()


# --- All connections --------------------------------------------------------------------------------------------------


class _Bounded(BaseWSGIServer):
    """Keeps the connections of a waitress server within bounds. `tend` is called between its polls."""

    channel_class = _Channel
    active_channels: dict[int, _Channel]

    def __init__(self, *args: Any, most: int, waiting_room: _WaitingRoom, **kwargs: Any) -> None:
        self._most, self.waiting_room = most, waiting_room
        self.arrived: list[_Channel] = []
        self._next_tick = 0.0
        self.keeps_more = False
        """Whether more is kept for a client than when it was last looked at."""
        super().__init__(*args, **kwargs)

    def add_task(self, channel: _Channel) -> None:
        if channel.requests[0].error:
            # The loop answers it when it comes round: that needs no thread, and the channel is locked now.
            self.trigger.pull_trigger(channel.service)
        else:
            super().add_task(channel)

    def maintenance(self, now: float) -> None:
        """Does nothing. waitress calls it during a poll, when closing a connection could hit its successor."""

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
        if self.keeps_more:
            self.keeps_more = not self._keep_less()

    def _crowd(self) -> list[_Channel]:
        """Of all that this process listens to."""
        return [each for each in self._map.values() if isinstance(each, _Channel)]

    def _make_room(self, newcomer: _Channel) -> None:
        crowd = self._crowd()
        of_peer = [channel for channel in crowd if channel.peer == newcomer.peer]
        # Behind a Unix socket there are no addresses.
        if newcomer.peer and len(of_peer) > settings.MAX_CONNECTIONS_PER_ADDRESS:
            crowd = of_peer
        elif len(crowd) <= self._most:
            return
        waiting = [channel for channel in crowd if channel is not newcomer and not channel.requests]
        if waiting:
            min(waiting, key=_Channel.waits_since).handle_close()
        elif parked := next((each for each in self.waiting_room.here() if each.waits and each.channel in crowd), None):
            parked.channel.end_wait()
        else:
            newcomer.parser_class = _UnwelcomeRequest

    def _keep_less(self) -> bool:
        """End what has waited longest for its client until enough is dropped; whether enough is."""
        kept = {channel: size for channel in self._crowd() if (size := channel.kept())}
        of_client: Counter[str] = Counter()
        connections: Counter[str] = Counter()
        for channel, size in kept.items():
            of_client[channel.keeper()] += size
            connections[channel.keeper()] += 1
        waiting = sorted((channel for channel in kept if not channel.requests), key=_Channel.waits_since)

        def is_too_much_for(client: str) -> bool:
            # Behind a Unix socket there are no addresses.
            return bool(client) and of_client[client] > MOST_KEPT_FOR_CLIENT and connections[client] > 1

        def is_too_much(_: str) -> bool:
            return of_client.total() > MOST_KEPT and connections.total() > 1

        for is_over in (is_too_much_for, is_too_much):
            for channel in list(waiting):
                client = channel.keeper()
                if is_over(client):
                    of_client[client] -= kept[channel]
                    connections[client] -= 1
                    waiting.remove(channel)
                    channel.give_up()
        return not any(map(is_too_much_for, of_client)) and not is_too_much("")

    def stop_listening(self) -> None:
        # Not `close`, which also closes the means by which threads wake the loop.
        wasyncore.dispatcher.close(self)

    def dismiss(self) -> None:
        """Closes idle connections, and those of requests that wait once they are answered."""
        for channel in list(self.active_channels.values()):
            if channel.is_idle():
                channel.handle_close()
            elif channel.waits_for_news():
                channel.end_wait()


class _TcpServer(_Bounded, TcpWSGIServer):
    pass


class _UnixServer(_Bounded, UnixWSGIServer):
    pass


class _Asked(Protocol):
    def client(self) -> str: ...

    def service(self) -> None: ...

    def cancel(self) -> None: ...


class Turns:
    """The requests that wait for a thread, as a queue for waitress's dispatcher: clients take turns.

    At most `most` requests of one client run at once. The queue is false while only clients at that limit wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[str, deque[_Asked]] = OrderedDict()
        self._running: Counter[str] = Counter()
        # The dispatcher holds a lock when it calls, but not when a request ends.
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
        # The thread that ran it asks for the next request itself, so no other needs to be woken.
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
    """How many connections the process may hold. Raises its limit of open files for them, as far as the system allows.

    Without a free file the process could accept no connection, and those that wait would keep the loop busy.
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
    """Serves gunicorn's sockets until it is told to stop or gunicorn is gone, and then finishes what has begun."""

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
            # The announced length bounds a body, and so what is kept of it.
            max_request_body_size=settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1,
            # `_too_large` bounds it, and knows the path.
            max_request_header_size=2 * MAX_HEADER,
            # The view bounds an answer. No thread waits until a client has read it.
            outbuf_high_watermark=2**62,
            connection_limit=2**62,
            log_socket_errors=False,
            # Django reads them where the settings say so.
            clear_untrusted_proxy_headers=False,
        )
        application, most = _whole(self.wsgi), _most_connections()
        waiting_room = _WaitingRoom(most // 2)
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
                waiting_room=waiting_room,
            )
            for sock in (listener.sock for listener in self.sockets)
        ]

    def _loop(self, servers: list[_Bounded], connections: dict[int, Any], goes_on: Callable[[], bool]) -> None:
        next_sign = 0.0
        while goes_on():
            if (now := time.monotonic()) >= next_sign:
                self.notify()
                next_sign = now + _TICK_SECONDS
            wasyncore.poll2(_TICK_SECONDS, connections)
            for server in servers:
                server.tend()
