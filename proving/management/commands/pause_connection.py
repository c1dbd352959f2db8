"""`manage.py pause_connection <destination> <source> [--reason <sentence>]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from accounts import operator_log
from accounts.models import AdminActionKind
from proving.management import destinations
from proving.transactions import pauses


class Command(BaseCommand):
    help = (
        "Sends nothing new for this connection, before the next signature. Its batches wait. What was sent before is "
        "followed. `manage.py resume_connection` takes it back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="chain id")
        parser.add_argument("source", type=int, help="chain id")
        parser.add_argument("--reason", default="", help="a sentence, which users see")

    def handle(self, *, destination: int, source: int, reason: str, **_: Any) -> None:
        destinations.connection(source, destination)
        with transaction.atomic():
            pause = pauses.pause_connection(source, destination, reason)
            operator_log.record(
                operator_log.COMMAND, AdminActionKind.PAUSED_CONNECTION, f"{source} to {destination}", reason=reason
            )
        self.stdout.write(pauses.sentence(pause))
