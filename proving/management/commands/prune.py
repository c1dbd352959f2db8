"""`manage.py prune [--vacuum]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from proving.working import pruning


class Command(BaseCommand):
    help = (
        "Deletes data that is older than the settings KEEP_..._DAYS, as workers also do. You may stop the command at "
        "any time."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--vacuum",
            action="store_true",
            help="return free space in SQLite's file to the disk. Nobody can write during that time, and the command "
            "temporarily needs as much space again as the remaining data",
        )

    def handle(self, *, vacuum: bool, **_: Any) -> None:
        counts = pruning.prune_now()
        if counts is None:
            raise CommandError("A worker is pruning now. Try again in a minute.")
        for name, count in counts.items():
            self.stdout.write(f"{name}: {count} rows")
        if vacuum and connection.vendor != "sqlite":
            raise CommandError("--vacuum is for SQLite only: PostgreSQL's autovacuum makes the space usable again.")
        if vacuum:
            with connection.cursor() as cursor:
                cursor.execute("VACUUM")
                # VACUUM writes the new pages to the write-ahead log, where they stay until a checkpoint.
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
