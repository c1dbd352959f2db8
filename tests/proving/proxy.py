"""A TCP proxy before a node, which can go down and come back."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Forward connections to a node while it is up. When it goes down, refuse new connections and reset open ones."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname, target.port)
        self._port = 0
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port), reuse_port=False)
        self._port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=[listener], daemon=True).start()

    def down(self) -> None:
        assert self._listener is not None
        # Closing alone would not wake a thread in accept(), so the socket is shut down first.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            self._close(connection)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client = listener.accept()[0]
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=[source, sink], daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        self._close(source)
        self._close(sink)

    def _close(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
