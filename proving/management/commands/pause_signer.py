"""`manage.py pause_signer <destination> <address> [--reason <sentence>]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from accounts import operator_log
from accounts.models import AdminActionKind
from proving.management import destinations
from proving.transactions import pauses


class Command(BaseCommand):
    help = (
        "Signs and broadcasts nothing more by this signer, before the next signature. Others of the chain send "
        "instead; where there is none, batches wait. `manage.py resume_signer` takes it back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="chain id")
        parser.add_argument("address", help="of the signer")
        parser.add_argument("--reason", default="", help="a sentence, which users see")

    def handle(self, *, destination: int, address: str, reason: str, **_: Any) -> None:
        address = destinations.signer(destination, address)
        with transaction.atomic():
            signer = pauses.pause_signer(destination, address, reason)
            operator_log.record(operator_log.COMMAND, AdminActionKind.PAUSED_SIGNER, str(signer), reason=reason)
        self.stdout.write(signer.notice)
