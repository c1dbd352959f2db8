"""`manage.py migrate`. Only this command creates SQLite's file. It gives only the owner access to the file."""

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connection

from config.database import one_connection
from config.database.sqlite import sqlite_file


class Command(migrate.Command):
    # Only the operator's settings are checked. Other checks load pages and the API, and need SQLite's file.
    requires_system_checks = ["settings"]

    def execute(self, *arguments: Any, **options: Any) -> Any:
        if connection.vendor == "postgresql":
            one_connection.connect()
        return super().execute(*arguments, **options)

    def handle(self, *arguments: Any, **options: Any) -> None:
        if connection.vendor == "sqlite" and not (file := sqlite_file()).exists():
            log = file.with_name(f"{file.name}-wal")
            if log.exists() and log.stat().st_size:
                raise CommandError(f"{file} is gone, and {log.name} has the last changes: put the file back beside it.")
            try:
                # SQLite gives its additional files the same mode.
                file.touch(mode=0o600)
            except OSError as error:
                raise CommandError(f"{file} can't be made: {error.strerror}.") from None
        super().handle(*arguments, **options)
