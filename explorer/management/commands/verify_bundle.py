"""Checks a proof bundle: from the block's hash to the header, to the account, to each fact. Asks no network."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from explorer import bundle
from explorer.amounts import whole_units


class Command(BaseCommand):
    help = "Check a proof bundle that a batch's page offers. Uses neither a network nor the database."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="the bundle, a JSON file")

    def handle(self, *_: Any, file: Path, **__: Any) -> None:
        try:
            document = file.read_bytes()
        except OSError as error:
            raise CommandError(f"{file} can't be read: {error.strerror}.") from None
        try:
            proven = bundle.verify(document)
        except bundle.InvalidBundle as invalid:
            raise CommandError(f"The bundle does not hold: {invalid}") from None
        write = self.stdout.write
        write("The bundle holds.")
        write(f"  account  {proven.account}{'' if proven.exists else ' (does not exist)'}")
        write(f"  block    {proven.block_number} of chain {proven.source_chain_id}")
        for name, word in proven.facts.items():
            write(f"  {name:<14} {word}{_meaning(name, word)}")
        write(
            f"This is so if {proven.block_hash} is the hash of that block: compare it with a source that you trust, "
            "such as a node of your own."
        )


def _meaning(name: str, word: str) -> str:
    if name == "BALANCE":
        return f" ({whole_units(int(word, 16))} whole units)"
    return f" ({int(word, 16)})" if name == "NONCE" else ""
