"""Free ports on this machine."""

import errno
import secrets
import socket


class PortInUse(Exception):
    """The chosen port can't be used. The message is one sentence."""


def free_port() -> int:
    """Return a free port of 127.0.0.1.

    The port is below the range that systems assign to clients (from 32768), because a client could take it before the
    server does.
    """
    while not _is_free(port := 10_000 + secrets.randbelow(20_000)):
        pass
    return port


def chosen_port(name: str, port: int | None, usual: int) -> int:
    """Return the chosen port, or else the usual port, or else a free port. Raises `PortInUse`."""
    if port is None:
        return usual if _is_free(usual) else free_port()
    if not 0 < port < 2**16:
        raise PortInUse(f"{port} is no port: choose one from 1 to 65535 by {name}.")
    if not _is_free(port):
        raise PortInUse(f"Port {port} is in use. Stop what uses it, or choose another one by {name}.")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Servers set this option too. With it, a port whose last connections are closing counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
