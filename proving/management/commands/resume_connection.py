"""`manage.py resume_connection <destination> <source>`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from accounts import operator_log
from accounts.models import AdminActionKind
from proving.transactions import pauses


class Command(BaseCommand):
    help = "Takes `manage.py pause_connection` back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="chain id")
        parser.add_argument("source", type=int, help="chain id")

    def handle(self, *, destination: int, source: int, **_: Any) -> None:
        subject = f"{source} to {destination}"
        with transaction.atomic():
            if was_paused := pauses.resume_connection(source, destination):
                operator_log.record(operator_log.COMMAND, AdminActionKind.RESUMED_CONNECTION, subject)
        self.stdout.write(f"{subject}: {'goes on.' if was_paused else 'was not paused.'}")
