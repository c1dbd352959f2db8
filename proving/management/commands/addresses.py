"""`manage.py addresses`: the addresses of the contracts of each connection in chains.toml, deployed or not."""

from collections import defaultdict
from typing import Any

from django.core.management.base import BaseCommand

from config.configured_chains import get_chains
from proving.registries import deployments, registry_setup


class Command(BaseCommand):
    help = "Prints the addresses of all contracts for the connections in chains.toml, deployed or not. Asks no node."

    def handle(self, **_: Any) -> None:
        chains = get_chains()
        registries: dict[int, dict[int, str]] = defaultdict(dict)
        self.stdout.write("| on chain | for chain | contract | address |\n| --- | --- | --- | --- |")
        for connection in chains.connections:
            ends = chains.chain(connection.destination_id).label, chains.chain(connection.source_id).label
            contracts = registry_setup.planned_creations(connection)
            for creation in contracts:
                depends = connection.attesters and creation.name != "Multicall"
                name = f"{creation.name} of these attesters" if depends else creation.name
                self.stdout.write(f"| {' | '.join(ends)} | {name} | `{creation.address}` |")
            registries[connection.destination_id][connection.source_id] = contracts[-1].address
        for destination, by_source in registries.items():
            if reader := deployments.reader_of(by_source):
                label = chains.chain(destination).label
                self.stdout.write(f"| {label} | all above | FactsReader | `{reader.address}` |")
