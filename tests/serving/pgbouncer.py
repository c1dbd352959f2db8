"""PgBouncer before a PostgreSQL. The system has it: apt-get install pgbouncer, or brew install pgbouncer."""

import shutil
from collections.abc import Sequence

import psycopg

from devnet.servers import LocalServer, Postgres

PGBOUNCER = shutil.which("pgbouncer")


class PgBouncer(LocalServer):
    """A pooler with the settings that docs/operating/database.md names, and the usual rest."""

    name = "pgbouncer"

    def __init__(self, server: Postgres, *settings: str) -> None:
        self._server, self._settings = server, settings
        super().__init__()

    def url(self, database: str = "postgres") -> str:
        """Return the value of `DATABASE_URL` for this pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def _owner(self) -> str | None:
        return self._server._owner()

    def _prepare(self) -> None:
        lines = [
            "[databases]",
            f"postgres = host=127.0.0.1 port={self._server.port}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = trust",
            "auth_file = users",
            *self._settings,
        ]
        (self.folder / "pgbouncer.ini").write_text("\n".join(lines))
        (self.folder / "users").write_text('"postgres" ""\n')
        if self._user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, self._user)

    def _command(self) -> Sequence[str]:
        return ["pgbouncer", "pgbouncer.ini"]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True
