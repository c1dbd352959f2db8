"""A new installation's migrated database and collected static files, made once in a test run."""

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from demo.installation import Installation, Service
from devnet.devchain import PROJECT


@dataclass(frozen=True)
class FreshInstallation:
    database: Path
    """SQLite's file. Each process gets a copy."""
    static: Path
    """The folder of collected files. A process links it as `static` in `STATE_DIR`."""

    def copy_database(self, state: Path) -> None:
        """Copy the database into `state`, a process's future `STATE_DIR`."""
        shutil.copy(self.database, state / "db.sqlite3")


def fresh_installation(folder: Path) -> FreshInstallation:
    """Return the installation. `folder` is pytest's temporary folder; other processes of the run have
    theirs beside it.
    """
    made = folder.parents[1 if "PYTEST_XDIST_WORKER" in os.environ else 0] / "fresh-installation"
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            begun = made.with_suffix(".begun")
            # A process that was killed here leaves the folder unfinished.
            begun.mkdir(exist_ok=True)
            for command in ("migrate", "collectstatic"):
                _manage(begun, command)
            begun.rename(made)
    return FreshInstallation(made / "db.sqlite3", made / "static")


def _manage(state: Path, command: str) -> None:
    subprocess.run(
        [sys.executable, "manage.py", command, "--no-input", "-v", "0"],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], "STATE_DIR": str(state)},
        check=True,
    )


class FreshService(Service):
    """A web server and a worker with a copy of the fresh installation. `folder` is as for `fresh_installation`."""

    def __init__(
        self, running: ExitStack, folder: Path, chains_toml: str, key: str, port: int, **variables: str
    ) -> None:
        self.port, self.base_url = port, f"http://127.0.0.1:{port}"
        own = {"BASE_URL": self.base_url, "WEBHOOK_ALLOW": "127.0.0.1", "PUBLIC_BATCH_LIST": "true"}
        Installation.__init__(self, running, folder / "state", chains_toml, key, **own | variables)
        fresh = fresh_installation(folder)
        fresh.copy_database(self.folder)
        (self.folder / "static").symlink_to(fresh.static)

    def serve(self) -> None:
        self.start_web()
        self.start_worker()
        self.wait_until(self.is_healthy)
