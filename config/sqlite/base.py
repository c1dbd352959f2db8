"""Where Django looks for the engine's connection."""

import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db.backends.sqlite3.base import DatabaseWrapper as DjangosWrapper
from django.db.backends.sqlite3.features import DatabaseFeatures


class FileGone(sqlite3.OperationalError):
    """The database's file is not where it belongs."""

    sqlite_errorcode = sqlite3.SQLITE_CANTOPEN


class _Features(DatabaseFeatures):
    # Django would ask the database, at each check of the models, and commands are checked where there is none.
    supports_json_field = True


class DatabaseWrapper(DjangosWrapper):
    """Uses the file that is there, and makes none: an empty one would be taken for the database.

    Beside an empty file, SQLite would also throw away the log (WAL) of the one that is gone, with what was committed
    last. So a file that is gone is an outage. The connection is kept, and leads to the same file when that is back.
    Where another file is in its place, as from a backup, that is the database: a connection is to a file, not to a
    name.
    """

    features_class = _Features

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._opened: tuple[int, int] | None = None

    def make_file(self) -> None:
        """Make an empty database where there is none. Raises `FileGone`, `OSError`."""
        path = Path(self.settings_dict["NAME"])
        log = path.with_name(f"{path.name}-wal")
        if self.is_in_memory_db() or path.exists():
            return
        if log.exists() and log.stat().st_size:
            raise FileGone(f"{path} is gone, and {log.name} has what was written last: put the file back beside it.")
        path.touch()

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        if not self.is_in_memory_db():
            params["database"] = f"file:{quote(str(Path(params['database']).absolute()))}?mode=rw"
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        self._opened = self._file()
        return super().get_new_connection(conn_params)

    def _cursor(self, name: str | None = None) -> Any:
        if self.connection is not None and (found := self._file()) != self._opened:
            if found is None:
                with self.wrap_database_errors:
                    raise FileGone("the database's file is gone")
            # What is in a transaction goes on in the file where it began.
            if not self.in_atomic_block:
                self.close()
        return super()._cursor(name)  # type: ignore[misc]  # the stubs lack it

    def _file(self) -> tuple[int, int] | None:
        """Return the file's device and inode. None for a database in memory, and for a file that is gone."""
        try:
            found = os.stat(self.settings_dict["NAME"])  # noqa: PTH116 (a path object for each statement)
        except OSError:
            return None
        return found.st_dev, found.st_ino
