"""Clients that keep a server busy."""

import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from typing import Self

from tests.serving.process import read_answer

GET = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Load:
    """Clients that send requests without pause, each over one connection while it lasts.

    A connection also counts as refused if it is reset before its first answer, or if nginx answers for a missing
    server.
    """

    def __init__(
        self, connect: Callable[[], socket.socket], request: bytes, *, clients: int = 8, pause: float = 0.002
    ) -> None:
        self.took: list[float] = []
        """The seconds of each answer."""
        self.lost: list[str] = []
        self.refused = 0
        self._connect, self._request, self._pause = connect, request, pause
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def __str__(self) -> str:
        slowest = f", the slowest in {max(self.took):.2f} s" if self.took else ""
        return f"{len(self.took)} of {len(self.took) + len(self.lost) + self.refused} answered{slowest}"

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                connection = self._connect()
            except OSError:
                self.refused += 1
                self._over.wait(0.05)
                continue
            with connection:
                # If nobody listens, a client may get the server's port as its own, and connect to itself.
                if connection.getsockname() == connection.getpeername():
                    self.refused += 1
                else:
                    self._ask(connection)

    def _ask(self, connection: socket.socket) -> None:
        is_new = True
        while not self._over.wait(self._pause):
            began = time.monotonic()
            try:
                connection.sendall(self._request)
                answer = read_answer(connection)
            except (OSError, HTTPException) as error:
                if is_new and isinstance(error, ConnectionResetError):
                    self.refused += 1
                else:
                    self.lost.append(repr(error))
                return
            is_new = False
            if answer.status == HTTPStatus.OK:
                self.took.append(time.monotonic() - began)
            elif answer.status == HTTPStatus.BAD_GATEWAY:
                self.refused += 1
            else:
                self.lost.append(str(answer.status))
            if answer.headers["Connection"] == "close":
                return
