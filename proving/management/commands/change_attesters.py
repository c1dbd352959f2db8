"""`manage.py change_attesters <destination> <source>`."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chains.node_errors import ChainError
from chains.signer_keys import SignerError
from proving.deploying import DeploymentError, change_attesters


class Command(BaseCommand):
    help = "Puts other attesters in the place of a connection's present ones, who have signed it (sign_attester_set)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=int, help="id of the chain on which facts are readable")
        parser.add_argument("source", type=int, help="id of the chain that is attested")
        parser.add_argument("attesters", nargs="+", metavar="address", help="the attesters from then on, all of them")
        parser.add_argument("--threshold", type=int, required=True, help="how many of them must agree from then on")
        parser.add_argument(
            *("--signature", "-s"),
            action="append",
            required=True,
            help="of a present attester; once for each",
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
        try:
            ordered = change_attesters(destination, source, attesters, threshold, signature)
        except ChainError as error:
            raise CommandError(error.for_operators) from None
        except (DeploymentError, SignerError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"From now on {threshold} of these attesters must agree; write so in chains.toml:")
        for address in ordered:
            self.stdout.write(f"  {address}")


def _hex(written: str) -> bytes:
    try:
        return bytes.fromhex(written.removeprefix("0x"))
    except ValueError:
        raise ArgumentTypeError("must be hexadecimal, as sign_attester_set prints it") from None
