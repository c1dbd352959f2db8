"""`manage.py migrate`, which refuses a database that it would only make worse, before anything is changed."""

import time
from typing import Any

from django.core.checks import Tags
from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as DjangosCommand
from django.db import connections

from config.sqlite.base import DatabaseWrapper, FileGone
from queries import schema

_WAIT_SECONDS = 0.5


class Command(DjangosCommand):
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
        is_told = False
        while not self._migrate_alone(*arguments, **options):
            if not is_told:
                self.stderr.write("The database is being migrated by another process: waiting until it has ended.")
                is_told = True
            time.sleep(_WAIT_SECONDS)

    def _migrate_alone(self, *arguments: Any, **options: Any) -> bool:
        """Migrate, and return True; or False while another process does."""
        connection = connections[options["database"]]
        with schema.lock(connection) as is_held:
            if is_held:
                if found := schema.difference(connection):
                    raise CommandError(found)
                super().handle(*arguments, **options)
            return is_held
