"""Servers whose TLS does not come about, and what is told of each."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "proving" / "hooks.example.pem"
_NONE = "speaks no TLS, or no version that this machine knows ({})"


def _answers(content: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(content)

    return answer


def _resets(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _speaks_tls(connection: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.wrap_socket(connection, server_side=True).recv(1)


def _alert(code: int) -> bytes:
    return bytes([21, 3, 3, 0, 2, 2, code])


FAILURES: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "http": (_answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"), _NONE.format("wrong version number")),
    "ssh": (_answers(b"SSH-2.0-OpenSSH_9.6\r\n"), _NONE.format("wrong version number")),
    "another name": (_answers(_alert(112)), _NONE.format("tlsv1 unrecognized name")),
    "an old protocol": (_answers(_alert(70)), _NONE.format("tlsv1 alert protocol version")),
    "no common cipher": (_answers(_alert(40)), _NONE.format("sslv3 alert handshake failure")),
    "a reset": (_resets, "ended the connection before TLS came about"),
    "a certificate that nobody signed": (_speaks_tls, "has no valid TLS certificate (self-signed certificate)"),
}


@contextmanager
def failing(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve connections so, and yield the URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        behave(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
