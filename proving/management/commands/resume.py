"""`manage.py resume [<destination> ...] [--source <chain> | --signer <address>]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from chains.encoding import checksummed
from config.configured_chains import get_chains
from proving import stops
from proving.management.commands.stop import add_subject
from proving.models import Stop


class Command(BaseCommand):
    help = "Removes a stop that `manage.py stop` made with the same arguments."

    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add_subject(parser)

    def handle(self, *, destination: list[int], source: int, signer: str, **_: Any) -> None:
        # A chain or signer that is no longer configured can be resumed too.
        for chain_id in destination or [chain.id for chain in get_chains().destinations()]:
            address = checksummed(signer) or signer
            stop = Stop(chain_id=chain_id, source_chain_id=source, signer=address)
            was_stopped = stops.resume_by_operator(stop)
            self.stdout.write(f"Sending {stop.subject} {'goes on' if was_stopped else 'was not stopped'}.")
