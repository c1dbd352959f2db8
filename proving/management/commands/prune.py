"""`manage.py prune [--vacuum]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from proving import pruning


class Command(BaseCommand):
    help = (
        "Prunes what is older than the settings KEEP_..._DAYS say, as workers do each hour. Stop it at any moment: "
        "nothing is half."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--vacuum",
            action="store_true",
            help="give what is free in SQLite's file back to the disk. Nobody can write meanwhile, and it takes as "
            "much room again as what is left",
        )

    def handle(self, *, vacuum: bool, **_: Any) -> None:
        counts = pruning.prune_now()
        if counts is None:
            raise CommandError("A worker prunes at this moment. Try again in a minute.")
        for name, count in counts.items():
            self.stdout.write(f"{name}: {count} rows")
        if vacuum and connection.vendor != "sqlite":
            raise CommandError("Only SQLite is vacuumed here: PostgreSQL's autovacuum makes the room usable again.")
        if vacuum:
            with connection.cursor() as cursor:
                cursor.execute("VACUUM")
                # Until then its pages are in the log.
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
