"""Clients that keep a server busy."""

import socket
import threading
from http.client import HTTPException

from tests.serving.process import WebServer, connect, read_answer

GET = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Load:
    """Eight clients that ask again and again, each by one connection as long as that lasts.

    Refused is also a connection that is reset before its first answer: the system took it in the moment between the
    server's last look at its queue and the end of the socket. No process had it.
    """

    def __init__(self, server: WebServer) -> None:
        self.answered = self.refused = 0
        self.lost: list[str] = []
        self._server, self._over = server, threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(8)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                connection = connect(self._server.port)
            except OSError:
                self.refused += 1
                self._over.wait(0.05)
                continue
            with connection:
                # Where nobody listens, a client whose own port is the server's reaches itself.
                if connection.getsockname() == connection.getpeername():
                    self.refused += 1
                else:
                    self._ask(connection)

    def _ask(self, connection: socket.socket) -> None:
        is_new = True
        while not self._over.wait(0.002):
            try:
                connection.sendall(GET % b"/mine")
                answer = read_answer(connection)
            except (OSError, HTTPException) as error:
                if is_new and isinstance(error, ConnectionResetError):
                    self.refused += 1
                else:
                    self.lost.append(repr(error))
                return
            is_new = False
            self.answered += answer.body == b"/mine"
            if answer.headers["Connection"] == "close":
                return
