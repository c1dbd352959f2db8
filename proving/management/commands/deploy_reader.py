"""`manage.py deploy_reader <destination>`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chains.chains_file import UnknownChain
from chains.nodes.node_errors import ChainError
from chains.signer_keys import SignerError
from proving.registries.creations import DeploymentError
from proving.registries.registry_setup import deploy_reader


class Command(BaseCommand):
    help = "Deploys the FactsReader of all registries in use on a chain. A second run deploys nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="id of the chain where facts are readable")

    def handle(self, *, destination: int, **_: Any) -> None:
        try:
            address = deploy_reader(destination, tell=self.stderr.write)
        except ChainError as error:
            raise CommandError(error.for_operators) from None
        except UnknownChain:
            raise CommandError(f"chains.toml has no chain {destination}.") from None
        except (DeploymentError, SignerError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"The facts reader on chain {destination} is at {address}")
