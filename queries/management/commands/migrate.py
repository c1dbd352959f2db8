"""`manage.py migrate`, which alone makes SQLite's file, for its owner alone."""

from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connection

from database import statements
from queries.storage import sqlite_file


class Command(migrate.Command):
    # Only the operator's settings are checked. Other checks load pages and API, and need SQLite's file.
    requires_system_checks = ["settings"]

    def handle(self, *arguments: Any, **options: Any) -> None:
        if connection.vendor == "sqlite" and not (file := sqlite_file()).exists():
            log = file.with_name(f"{file.name}-wal")
            if log.exists() and log.stat().st_size:
                raise CommandError(
                    f"{file} is gone, and {log.name} has what was written last: put the file back beside it."
                )
            try:
                # SQLite gives the files beside it the same mode.
                file.touch(mode=0o600)
            except OSError as error:
                raise CommandError(f"{file} can't be made: {error.strerror}.") from None
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                # Django computes between the statements of a migration, for seconds where the machine is busy.
                cursor.execute("SET idle_in_transaction_session_timeout = '1min'")
        # A migration locks several tables, of which workers of the last version may have some, and want others. Where
        # they are busy, that happens often: each time the database waits for a second before it ends one of both.
        statements.retried(partial(super().handle, *arguments, **options), tries=60)
