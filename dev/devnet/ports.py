"""Ports of this machine."""

import errno
import secrets
import socket


class PortInUse(Exception):
    """A port that was chosen can't be had; one plain sentence."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing uses.

    It is below those that systems give to clients (from 32768 up): a client could take it before the server does.
    """
    while not _is_free(port := 10_000 + secrets.randbelow(20_000)):
        pass
    return port


def chosen_port(name: str, port: int | None, usual: int) -> int:
    """Return the chosen port, else the usual one, or a free one where that is in use. Raises `PortInUse`."""
    if port is None:
        return usual if _is_free(usual) else free_port()
    if not 0 < port < 2**16:
        raise PortInUse(f"{port} is no port: choose one from 1 to 65535 by {name}.")
    if not _is_free(port):
        raise PortInUse(f"Port {port} is in use. Stop what uses it, or choose another one by {name}.")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers bind: a port whose last connections are only winding down is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
