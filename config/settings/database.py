"""The database, and how it locks."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from config.environment import env_hidden, env_int, env_str
from config.settings.state_and_secrets import STATE_DIR


def _folder_of_tests() -> Path:
    """Return a folder in memory where there is room: a disk makes each of the tests' thousands of commits wait."""
    memory = Path("/dev/shm")  # noqa: S108 (it is only where there is one)
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30
    return memory if has_room else Path(tempfile.gettempdir())


def _sqlite() -> dict[str, Any]:
    return {
        "ENGINE": "config.sqlite",
        "NAME": env_str("SQLITE_FILE", str(STATE_DIR / "db.sqlite3")),
        # Each thread keeps its connection; `config.database_connections` says until when.
        "CONN_MAX_AGE": None,
        # How SQLite locks, which the whole service relies on. One lock covers the whole database, and one process holds
        # it at a time; there are no locks of rows, so `select_for_update` does nothing here: it is for databases that
        # have them. Each transaction takes the lock at its beginning (BEGIN IMMEDIATE) and keeps it until its end:
        # transactions run one after another, and what one reads stays true until it ends. Without IMMEDIATE, a
        # transaction that reads first and writes later would fail at once where another has written. A statement
        # outside a transaction takes the lock for itself. WAL lets readers go on meanwhile, each with the database as
        # it was when its reading began. FULL: what was answered or broadcast survives a power cut.
        "OPTIONS": {
            # How long to wait for the lock, in seconds. The web server sets less: clients are told to try again.
            "timeout": env_int("SQLITE_TIMEOUT_SECONDS", 20, minimum=1),
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        },
        # A file in tests as well: a worker in a process of its own must see the same database. Its folder, which
        # tests/conftest.py makes, is locked by each process that migrates it, and by no other.
        "TEST": {"NAME": _folder_of_tests() / f"batch-query-service-test-{os.getpid()}" / "db.sqlite3"},
    }


def _postgresql(url: str) -> dict[str, Any]:
    # No command waits for them where the database is SQLite.
    import dj_database_url  # noqa: PLC0415
    from psycopg import IsolationLevel  # noqa: PLC0415

    # Its message would quote the URL, which holds a password.
    try:
        parsed: dict[str, Any] = {**dj_database_url.parse(url)}
    except Exception:  # noqa: BLE001 (whatever it can't read)
        parsed = {}
    if parsed.get("ENGINE") != "django.db.backends.postgresql" or not parsed["NAME"]:
        raise ImproperlyConfigured("DATABASE_URL must be postgresql://user:password@host:port/database.")
    seconds = env_int("DATABASE_TIMEOUT_SECONDS", 20, minimum=1)
    options = {
        "connect_timeout": 10,
        # How PostgreSQL locks. Transactions run side by side: each statement reads what was committed before it began,
        # and what one has read may change before the next. So rows are locked before what is written depends on them,
        # in the order that `queries.row_locks` says. Whatever the server's defaults are, the code is written for this.
        "isolation_level": IsolationLevel.READ_COMMITTED,
        # No transaction here waits for anything but the database. One whose process is frozen, or whose machine is
        # gone, must not keep its locks: others wait for less than `lock_timeout`, and go on.
        "options": f"-c lock_timeout={seconds}s -c idle_in_transaction_session_timeout=5s",
        # Each process has its pool. A thread takes a connection from it when it first asks, and gives it back at the
        # end of its request or its group of tasks.
        "pool": {
            "min_size": 0,
            "max_size": env_int("DATABASE_POOL_SIZE", 16, minimum=2),
            "timeout": seconds,
            # By default it tries for minutes, ever more seldom, and nobody else may meanwhile.
            "reconnect_timeout": 1,
        },
    }
    return parsed | {"ENGINE": "config.postgresql", "CONN_MAX_AGE": 0, "OPTIONS": options | parsed.get("OPTIONS", {})}


_URL = env_hidden("DATABASE_URL")
DATABASES = {"default": _postgresql(_URL) if _URL else _sqlite()}
