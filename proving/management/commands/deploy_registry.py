"""`manage.py deploy_registry <destination> <source>`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chains.nodes.node_errors import ChainError
from chains.signer_keys import SignerError
from proving.registries.creations import DeploymentError
from proving.registries.registry_setup import deploy


class Command(BaseCommand):
    help = "Deploys the facts registry of a connection and records its address. A second run deploys nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="id of the chain where facts become readable")
        parser.add_argument("source", type=int, help="id of the chain that the facts are about")
        parser.add_argument(
            "--replace",
            action="store_true",
            help="deploy a new registry if the recorded one is unusable, or can't jump",
        )

    def handle(self, *, destination: int, source: int, replace: bool, **_: Any) -> None:
        try:
            registry = deploy(destination, source, replace=replace, tell=self.stderr.write)
        except ChainError as error:
            raise CommandError(error.for_operators) from None
        except (DeploymentError, SignerError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"The facts registry for chain {source} on chain {destination} is at {registry.address}")
