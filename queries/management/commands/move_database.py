"""`manage.py move_database <file>`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError
from django.db import connection

from queries import database_move
from queries.database_move import MoveRefused


class Command(BaseCommand):
    help = (
        "Moves an installation from SQLite into the PostgreSQL that DATABASE_URL names, and compares all that was "
        "moved. The service must be stopped, and the new database migrated and empty. The file stays as it is."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="SQLite's file, such as .state/db.sqlite3")

    def handle(self, *, file: Path, **_: Any) -> None:
        if connection.vendor != "postgresql":
            raise CommandError("Set DATABASE_URL to the PostgreSQL database to move to.")
        try:
            moved = database_move.move(file)
        except MoveRefused as refused:
            raise CommandError(f"{refused} Nothing was moved.") from None
        except DatabaseError as error:
            raise CommandError(f"Nothing was moved: {' '.join(str(error).split())}") from None
        width = max(len(one.table) for one in moved)
        for one in moved:
            said = "same" if one.is_same else "DIFFERS"
            before, after = one.before, one.after
            self.stdout.write(f"{one.table:{width}} {before.rows:>10} {after.rows:>10}  {after.checksum[:16]}  {said}")
        different = [one.table for one in moved if not one.is_same]
        if different:
            raise CommandError(f"Nothing was moved: these tables came out different: {', '.join(different)}.")
        rows = sum(one.before.rows for one in moved)
        self.stdout.write(f"{len(moved)} tables with {rows} rows were moved, and hold the same in PostgreSQL.")
