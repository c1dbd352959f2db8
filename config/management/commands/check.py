"""`manage.py check`. With `--deploy` it also opens the database."""

from typing import Any

from django.core.management.commands import check

from config.database import one_connection


class Command(check.Command):
    def handle(self, *arguments: Any, **options: Any) -> None:
        if options["deploy"]:
            one_connection.connect()
        super().handle(*arguments, **options)
