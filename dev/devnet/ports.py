"""Free ports on this machine.

`dev/devnet/ports.py PORT=8000 BIND=127.0.0.1:8001` tells whether these ports can be used, before anything is installed.
This module may import only the standard library, and runs on a Python that is too old for the rest.
"""

from __future__ import annotations

import errno
import re
import secrets
import socket
import sys


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


def chosen_port(name: str, port: str | None, usual: int) -> int:
    """Return the chosen port, or else the usual port, or else a free port. Raises `PortInUse`."""
    if port is None:
        return usual if _is_free(usual) else free_port()
    return _required_port(name, port)


def _required_port(name: str, address: str) -> int:
    """Return the port of an address such as 8000, 127.0.0.1:8000 or [::1]:8000. Raises `PortInUse`."""
    host, colon, port = address.rpartition(":")
    if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 2**16:
        raise PortInUse(f"{name} is {address!r}, and must {'end with' if colon else 'be'} a port from 1 to 65535.")
    if not _is_free(int(port), host.strip("[]") or "127.0.0.1"):
        another = f"{name}={host}{colon}{free_port()}"
        raise PortInUse(f"Port {port} is in use. Stop what uses it, or choose another one, such as {another}.")
    return int(port)


def _is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # Servers set this option too. With it, a port whose last connections are closing counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


if __name__ == "__main__":
    try:
        for setting in sys.argv[1:]:
            _required_port(*setting.split("=", 1))
    except PortInUse as error:
        sys.exit(str(error))
