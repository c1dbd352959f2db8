"""`manage.py backup <file>`."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from config.database.sqlite import sqlite_file
from config.private_files import new_private_file


class Command(BaseCommand):
    help = (
        "Copies this installation's database into a new file with mode 0600, at any time, and checks the copy. The "
        "copy has no secrets."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="the new file; the command never replaces a file")

    def handle(self, *, file: Path, **_: Any) -> None:
        if connection.vendor != "sqlite":
            raise CommandError("The database is PostgreSQL. Use pg_dump: docs/operating/database.md has the command.")
        database = sqlite_file()
        if not database.is_file():
            raise CommandError(
                f"There is no database at {database}: set STATE_DIR or SQLITE_FILE to the service's value."
            )
        try:
            with new_private_file(file) as draft:
                # VACUUM INTO copies a consistent state, even while others read and write.
                with _open(database, "rw") as source:
                    source.execute("VACUUM INTO ?", [str(draft)])
                faults = _faults(draft)
                if faults:
                    raise CommandError(f"The copy is damaged, and was removed: {faults}")
        except FileExistsError as error:
            raise CommandError(str(error)) from None
        except sqlite3.Error as error:
            raise CommandError(f"{database} can't be copied: {error}.") from None
        except OSError as error:
            raise CommandError(f"{error.filename} can't be written: {error.strerror}.") from None
        self.stdout.write(f"{database} was copied to {file} ({file.stat().st_size} bytes), and the copy is sound.")


def _open(path: Path, mode: str) -> "closing[sqlite3.Connection]":
    timeout = connection.settings_dict["OPTIONS"]["timeout"]
    # Without the URI's mode, SQLite would create a missing database.
    return closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode={mode}", uri=True, timeout=timeout))


def _faults(path: Path) -> str:
    """Return the faults of a copy as text; empty if there are none."""
    with _open(path, "ro") as copy:
        results = [row[0] for row in copy.execute("PRAGMA integrity_check")]
        if results != ["ok"]:
            return " ".join(results)
        if not copy.execute("SELECT count(*) FROM sqlite_master WHERE name = 'django_migrations'").fetchone()[0]:
            return "it is not a database of this service."
    return ""
