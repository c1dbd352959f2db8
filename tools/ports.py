"""Says before anything is installed that a chosen port is in use: `python3 tools/ports.py PORT=8000 RPC_PORT=`.

Nothing but the standard library may be imported here. A Python that is too old must get through: `make` says so next.
"""

from __future__ import annotations

import errno
import socket
import sys

_NO_PORT = "{} is no port: choose one from 1 to 65535 by {}."


class PortInUse(Exception):
    """A port that was chosen can't be had; one plain sentence."""


def main() -> int:
    try:
        for setting in sys.argv[1:]:
            name, _, place = setting.partition("=")
            _look_at(name, place)
    except PortInUse as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _look_at(name: str, place: str) -> None:
    """Refuse a port that can't be had. Raises `PortInUse`."""
    host, _, port = place.rpartition(":")
    if port.isdecimal():
        require_free(name, int(port), host or "127.0.0.1")
    # BIND may be something else, such as a Unix socket, which is the web server's to refuse.
    elif place and name != "BIND":
        raise PortInUse(_NO_PORT.format(place, name))


def chosen(name: str, port: int | None, usual: int) -> int:
    """Return the chosen port, else the usual one, or a free one where that is in use. Raises `PortInUse`."""
    if port is not None:
        require_free(name, port)
        return port
    if is_free(usual):
        return usual
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free: int = listener.getsockname()[1]
        return free


def require_free(name: str, port: int, host: str = "127.0.0.1") -> None:
    """Refuse a port in use, and a number that is no port. Raises `PortInUse`."""
    if not 0 < port < 2**16:
        raise PortInUse(_NO_PORT.format(port, name))
    if not is_free(port, host):
        raise PortInUse(f"Port {port} is in use. Stop what uses it, or choose another one by {name}.")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers bind: a port whose last connections are only winding down is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


if __name__ == "__main__":
    sys.exit(main())
