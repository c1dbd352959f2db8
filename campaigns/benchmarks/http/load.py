"""Sends one request again and again over several connections, and counts the answers.

It is a process of its own, so that its time is nobody else's: `python load.py PORT SECONDS CONNECTIONS STATUS`, with
the bytes of the request as its standard input. It prints how many answers came. A connection that the server closes
after an answer is opened anew.
"""

import re
import select
import socket
import sys
import time

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class _Load:
    def __init__(self, port: int, request: bytes, status: int) -> None:
        self._port, self._request, self._begin = port, request, b"HTTP/1.1 %d " % status
        self._poll = select.epoll()
        self._connections: dict[int, socket.socket] = {}
        self._received: dict[int, bytes] = {}

    def open(self) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[connection.fileno()] = connection
        self._poll.register(connection, select.EPOLLIN)
        self._send(connection.fileno())

    def _send(self, number: int) -> None:
        self._received[number] = b""
        try:
            self._connections[number].sendall(self._request)
        except ConnectionError:
            self._open_anew(number)

    def _open_anew(self, number: int) -> None:
        self._connections.pop(number).close()
        self.open()

    def run(self, seconds: int) -> int:
        """Send requests for `seconds` seconds, and return how many answers came."""
        answers, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            for number, _ in self._poll.poll(1):
                try:
                    data = self._connections[number].recv(1 << 20)
                except ConnectionError:
                    data = b""
                if not data:
                    self._open_anew(number)
                    continue
                self._received[number] += data
                if _is_whole(self._received[number]):
                    if not self._received[number].startswith(self._begin):
                        sys.exit(f"It answered: {self._received[number][:1000]!r}")
                    answers += 1
                    self._send(number)
        return answers


def _is_whole(answer: bytes) -> bool:
    head, ended, body = answer.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(ended) and len(body) >= (int(length[1]) if length else 0)


def main() -> None:
    port, seconds, connections, status = (int(argument) for argument in sys.argv[1:])
    load = _Load(port, sys.stdin.buffer.read(), status)
    for _ in range(connections):
        load.open()
    print(load.run(seconds))


main()
