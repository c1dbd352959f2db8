"""`manage.py resume_signer <destination> <address>`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from accounts import operator_log
from accounts.models import AdminActionKind
from chains.address_checksum import checksummed
from proving.transactions import pauses


class Command(BaseCommand):
    help = "Takes `manage.py pause_signer` back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="chain id")
        parser.add_argument("address", help="of the signer")

    def handle(self, *, destination: int, address: str, **_: Any) -> None:
        # It may be one that the file names no more.
        address = checksummed(address) or address
        subject = f"{address} on chain {destination}"
        with transaction.atomic():
            if was_paused := pauses.resume_signer(destination, address):
                operator_log.record(operator_log.COMMAND, AdminActionKind.RESUMED_SIGNER, subject)
        self.stdout.write(f"{subject}: {'goes on.' if was_paused else 'was not paused.'}")
