"""`manage.py stop [<destination> ...] [--source <chain> | --signer <address>] [--reason <sentence>]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from accounts import operator_log
from proving import stops
from proving.management import destinations


class Command(BaseCommand):
    help = (
        "Stops all sending on these destination chains, or on all, before the next signature. Batches wait. With "
        "--source or --signer only that connection, or that signer, is stopped. `manage.py resume` takes it back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        destinations.add_arguments(parser)
        parser.add_argument("--reason", default="", help="a sentence, which users see")

    def handle(self, *, destination: list[int], source: int, signer: str, reason: str, **_: Any) -> None:
        chains = destinations.chosen(destination)
        for chain in chains:
            if source:
                destinations.connection(source, chain.id)
        addresses = [destinations.signer(chain, signer) if signer else "" for chain in chains]
        for chain, address in zip(chains, addresses, strict=True):
            with transaction.atomic():
                stop = stops.stop(chain.id, by=operator_log.COMMAND, reason=reason, source=source, signer=address)
                operator_log.record([stop], "Stopped.", reason=reason)
            self.stdout.write(stop.sentence)
