"""`manage.py deploy_reader <destination>`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from proving.management.command_failures import told_in_a_sentence
from proving.registries.registry_setup import deploy_reader


class Command(BaseCommand):
    help = "Deploys the FactsReader of all registries in use on a chain. A second run deploys nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="id of the chain where facts are readable")

    def handle(self, *, destination: int, **_: Any) -> None:
        with told_in_a_sentence():
            address = deploy_reader(destination, tell=self.stderr.write)
        self.stdout.write(f"The facts reader on chain {destination} is at {address}")
