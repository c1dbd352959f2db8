"""`manage.py resume_signing [<destination> ...]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from accounts import operator_log
from accounts.models import AdminActionKind
from proving.management.destinations import chosen
from proving.transactions import stop_switch


class Command(BaseCommand):
    help = "Takes `manage.py stop_signing` back on these destination chains, or on all."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, nargs="*", help="chain ids (default: all)")

    def handle(self, *, destination: list[int], **_: Any) -> None:
        for chain in chosen(destination):
            with transaction.atomic():
                if was_stopped := stop_switch.resume(chain.id):
                    operator_log.record(operator_log.COMMAND, AdminActionKind.RESUMED, chain.label)
            self.stdout.write(f"{chain.label}: {'goes on.' if was_stopped else 'was not stopped.'}")
