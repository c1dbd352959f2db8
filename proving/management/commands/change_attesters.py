"""`manage.py change_attesters <destination> <source> <attester> ... --threshold <number> --signature <hex> ...`."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from proving.management.command_failures import told_in_a_sentence
from proving.registries.registry_setup import change_attesters


class Command(BaseCommand):
    help = "Replaces a connection's attesters. The present attesters must first sign the change (sign_attester_set)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="id of the chain where facts are readable")
        parser.add_argument("source", type=int, help="id of the attested chain")
        parser.add_argument("attesters", nargs="+", metavar="address", help="all attesters after the change")
        parser.add_argument(
            "--threshold", type=int, required=True, help="number of attesters that must agree after the change"
        )
        parser.add_argument(
            *("--signature", "-s"),
            action="append",
            required=True,
            help="a present attester's signature; once for each attester",
            type=_hex,
        )

    def handle(
        self,
        *,
        destination: int,
        source: int,
        attesters: list[str],
        threshold: int,
        signature: list[bytes],
        **_: Any,
    ) -> None:
        with told_in_a_sentence():
            ordered = change_attesters(destination, source, attesters, threshold, signature)
        self.stdout.write(
            f"{threshold} of these attesters must agree from now on. Set them and the threshold in chains.toml:"
        )
        for address in ordered:
            self.stdout.write(f"  {address}")


def _hex(written: str) -> bytes:
    try:
        return bytes.fromhex(written.removeprefix("0x"))
    except ValueError:
        raise ArgumentTypeError("must be hexadecimal, as sign_attester_set prints it") from None
