"""`manage.py stop_signing [<destination> ...] [--reason <sentence>]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from accounts import operator_log
from accounts.models import AdminActionKind
from proving.management.destinations import chosen
from proving.transactions import stop_switch


class Command(BaseCommand):
    help = (
        "Stops all sending on these destination chains, or on all, before the next signature. Batches wait. "
        "`manage.py resume_signing` takes it back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, nargs="*", help="chain ids (default: all)")
        parser.add_argument("--reason", default="", help="a sentence, which users see")

    def handle(self, *, destination: list[int], reason: str, **_: Any) -> None:
        for chain in chosen(destination):
            with transaction.atomic():
                stop_switch.stop(chain.id, reason)
                operator_log.record(operator_log.COMMAND, AdminActionKind.STOPPED, chain.label, reason=reason)
            self.stdout.write(f"{chain.label}: stopped.")
