"""`manage.py run_attester`."""

import argparse
import os
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError

from attesting.attest import own_account
from chains.chains_file import ChainsError
from chains.configured_signers import SignerError


class Command(BaseCommand):
    help = "Vouches for block hashes over HTTP until SIGTERM or SIGINT. The chains file's [attester] names the key."
    # The system checks are about the service. An attester isn't part of it.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--bind", default="127.0.0.1:8100", help="address and port (default: %(default)s)")
        parser.add_argument(
            "--threads", type=_threads, default=4, help="number of requests answered at the same time (default: 4)"
        )

    def handle(self, *, bind: str, threads: int, **_: Any) -> None:
        try:
            address = own_account().address
            call_command("migrate", "attesting", interactive=False, verbosity=0)
        except (ChainsError, SignerError) as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"The database in {settings.STATE_DIR} can't be used: {error}.") from None
        listener = _listen(bind)
        host, port = listener.getsockname()[:2]
        self.stdout.write(f"Attester {address} listens on http://{f'[{host}]' if ':' in host else host}:{port}")
        self.stdout.flush()
        _become_gunicorn(listener, threads)


def _threads(written: str) -> int:
    threads = int(written)
    if threads < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return threads


def _listen(bind: str) -> socket.socket:
    # The socket is opened here, because gunicorn retries a used port for five seconds and logs many lines.
    try:
        parts = urlsplit(f"//{bind}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise CommandError(f"--bind must look like 127.0.0.1:8100 or [::1]:8100, not {bind!r}.")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise CommandError(f"The attester can't listen on {bind}: {os.strerror(error.errno or 0)}.") from None


def _become_gunicorn(listener: socket.socket, threads: int) -> None:
    """Replace this process by gunicorn, which handles the signals and has its own settings."""
    listener.set_inheritable(True)
    command = [
        *(sys.executable, "-m", "gunicorn"),
        *("--config", str(settings.BASE_DIR / "config" / "gunicorn.py"), "--pythonpath", str(settings.BASE_DIR)),
        *("--bind", f"fd://{listener.fileno()}", "--workers", "1", "--threads", str(threads)),
        "attesting.wsgi",
    ]
    os.execve(sys.executable, command, {**os.environ, "DJANGO_SETTINGS_MODULE": "attesting.settings"})
