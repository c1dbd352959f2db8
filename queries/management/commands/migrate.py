"""`manage.py migrate`, which alone makes SQLite's file."""

from typing import Any

from django.core.checks import Tags
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connections

from config.sqlite.base import DatabaseWrapper, FileGone


class Command(migrate.Command):
    # What it works on, and what operators set. For the rest, pages and API would have to be loaded.
    requires_system_checks = [Tags.database, Tags.models, "settings"]

    def handle(self, *arguments: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if isinstance(connection, DatabaseWrapper):
            try:
                connection.make_file()
            except FileGone as error:
                raise CommandError(str(error)) from None
            except OSError as error:
                raise CommandError(f"{error.filename} can't be made: {error.strerror}.") from None
        super().handle(*arguments, **options)
