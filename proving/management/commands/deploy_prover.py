"""`manage.py deploy_prover <destination> <source>`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from chains.encoding import hex_data
from proving.management.command_failures import told_in_a_sentence
from proving.registries.registry_setup import deploy_prover


class Command(BaseCommand):
    help = (
        "Deploys a state prover for a connection's facts registry, and a pointer to the prover (ERC-7888). Nobody can "
        "change "
        "either. A second run deploys nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="id of the chain with the registry: the home chain")
        parser.add_argument("source", type=int, help="id of the chain whose messages are received: the target chain")
        parser.add_argument(
            "--by-hash",
            action="store_true",
            help="use block hashes as commitments, for routes that continue with another kind of prover",
        )
        parser.add_argument(
            "--copy", type=int, action="append", default=[], metavar="CHAIN", help="deploy a copy on this chain, too"
        )

    def handle(self, *, destination: int, source: int, by_hash: bool, copy: list[int], **_: Any) -> None:
        with told_in_a_sentence():
            prover = deploy_prover(destination, source, by_hash=by_hash, copies=copy, tell=self.stderr.write)
        inputs = "uint256 blockNumber, bytes32 blockHash" if prover.by_hash else "uint256 blockNumber"
        for name, value in (
            ("prover", prover.address),
            ("pointer", prover.pointer),
            ("code hash", hex_data(prover.code_hash)),
            ("scpInputs", f"abi.encode({inputs})"),
            ("trusted", f"the block hash source at {prover.registry.block_hash_source}, and nothing else"),
        ):
            self.stdout.write(f"{name:<10} {value}")
