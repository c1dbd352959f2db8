"""`manage.py addresses`: the addresses of the contracts of each connection in chains.toml, deployed or not."""

from typing import Any

from django.core.management.base import BaseCommand

from config.configured_chains import get_chains
from proving import deploying


class Command(BaseCommand):
    help = "Prints the address of each contract of the connections in chains.toml, deployed or not. Asks no node."

    def handle(self, **_: Any) -> None:
        chains = get_chains()
        self.stdout.write("| on chain | for chain | contract | address |\n| --- | --- | --- | --- |")
        for connection in chains.connections:
            ends = chains.chain(connection.destination_id).label, chains.chain(connection.source_id).label
            for creation in deploying.creations(connection):
                depends = connection.attesters and creation.name != "Multicall"
                name = f"{creation.name} of these attesters" if depends else creation.name
                self.stdout.write(f"| {' | '.join(ends)} | {name} | `{creation.address}` |")
