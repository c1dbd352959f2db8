"""`manage.py deploy_registry <destination> <source>`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from proving.management.command_failures import told_in_a_sentence
from proving.registries.registry_setup import deploy
from proving.registries.replacing import MAX_WAIT_SECONDS, WAIT_SECONDS


class Command(BaseCommand):
    help = "Deploys the facts registry of a connection and records its address. A second run deploys nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="id of the chain where facts become readable")
        parser.add_argument("source", type=int, help="id of the chain that the facts are about")
        parser.add_argument(
            "--replace",
            action="store_true",
            help="deploy a new registry if the recorded one is unusable, can't jump, or ends at a known fork",
        )
        parser.add_argument(
            "--wait",
            type=int,
            default=WAIT_SECONDS,
            metavar="SECONDS",
            help="how long --replace waits for the facts of a usable registry to be final, before it gives up. "
            f"Meanwhile the connection proves nothing. At most {MAX_WAIT_SECONDS}. Default: %(default)s",
        )

    def handle(self, *, destination: int, source: int, replace: bool, wait: int, **_: Any) -> None:
        if not 0 <= wait <= MAX_WAIT_SECONDS:
            raise CommandError(f"--wait must be 0 to {MAX_WAIT_SECONDS} seconds. Nothing was changed.")
        with told_in_a_sentence():
            registry = deploy(destination, source, replace=replace, wait_seconds=wait, tell=self.stderr.write)
        self.stdout.write(f"The facts registry for chain {source} on chain {destination} is at {registry.address}")
