"""The files that earlier versions have written, in a folder of `baseline/` for each: a database on each engine, and the
states of the two chains that it is about. `system/test_forked_geth.py` has its own.
"""

import gzip
import json
import lzma
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, connections

from devnet.devchain import DevChain
from devnet.servers import postgres_home

_FOLDER = Path(__file__).parent / "baseline"
VERSIONS = sorted(path.name for path in _FOLDER.iterdir())
APPS = {"accounts", "attesting", "queries", "proving"}
_OTHERS = {"django_admin_log", "django_session"}
# Number of the newest blocks whose states and receipts are kept. Those of all blocks take most of the space.
_KEPT_BLOCKS = 40


def read(version: str, name: str = "") -> bytes:
    """Return the version's database on this engine, or the state of the chain of this name."""
    return lzma.decompress(_file(version, name).read_bytes())


@contextmanager
def database_of(content: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use a database of its own with this content: SQLite's file, or statements for PostgreSQL."""
    connections.close_all()
    if connection.vendor == "sqlite":
        name = str(folder / f"{uuid.uuid4().hex}.sqlite3")
        Path(name).write_bytes(content)
    else:
        name = f"old_{uuid.uuid4().hex}"
        server = "postgresql://{USER}@{HOST}:{PORT}/".format(**connection.settings_dict)
        for database, statements in (("postgres", f"CREATE DATABASE {name}".encode()), (name, content)):
            with closing(psycopg.connect(server + database, autocommit=True)) as opened:
                opened.execute(statements)
        connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL's
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "NAME", name)
        try:
            yield
        finally:
            connection.close()
            if connection.vendor == "postgresql":
                connection.close_pool()  # type: ignore[attr-defined]  # same


def keep(version: str, folder: Path, **chains: DevChain) -> None:
    """Write the database and the chains as those of the version. `folder` is for temporary files."""
    (_FOLDER / version).mkdir(exist_ok=True)
    for name, content in {"": _database(folder), **{name: _state(chain) for name, chain in chains.items()}}.items():
        _file(version, name).write_bytes(lzma.compress(content, preset=9))


def empty_tables() -> list[str]:
    """Return the tables without rows: those of our apps, the log of operators, and sessions."""
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        ours = [name for name in tables if name.partition("_")[0] in APPS or name in _OTHERS]
        assert {name.partition("_")[0] for name in ours} >= APPS
        return [name for name in ours if not _has_rows(cursor, name)]


def _has_rows(cursor: Any, table: str) -> bool:
    cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")
    return cursor.fetchone() is not None


def _file(version: str, name: str) -> Path:
    return _FOLDER / version / ".".join(filter(None, (connection.vendor, name, "xz")))


def _state(chain: DevChain) -> bytes:
    """Return the chain's state, with all blocks, for anvil's --load-state."""
    state = json.loads(gzip.decompress(bytes.fromhex(chain.rpc("anvil_dumpState", True)[2:])))
    oldest = chain.head() - _KEPT_BLOCKS
    kept = {chain.rpc("eth_getBlockByNumber", hex(number), False)["hash"] for number in range(oldest, chain.head() + 1)}
    state["historical_states"] = [each for each in state["historical_states"] if each[0] in kept]
    state["transactions"] = [each for each in state["transactions"] if each["block_hash"] in kept]
    return json.dumps(state).encode()


def _database(folder: Path) -> bytes:
    """Return SQLite's file, or statements that psycopg executes."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM INTO %s", [str(folder / "copy")])
        return (folder / "copy").read_bytes()
    url = "postgresql://{USER}@{HOST}:{PORT}/{NAME}".format(**connection.settings_dict)
    program = [str(Path(postgres_home()) / "bin" / "pg_dump"), "--no-owner", "--no-privileges", "--inserts", url]
    lines = subprocess.run(program, capture_output=True, check=True).stdout.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith((b"\\", b"--")))
