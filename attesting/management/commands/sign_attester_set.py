"""`manage.py sign_attester_set`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from attesting.attest import own_account
from chains.addresses import checksummed
from chains.attestation import Domain, attester_set_message, sign
from chains.config import MAX_ATTESTERS, ChainsError, SignerError


class Command(BaseCommand):
    help = "Signs, with this attester's key, that a contract's attesters shall be others. Prints it; sends nothing."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--destination", type=int, required=True, help="id of the chain that the contract is on")
        parser.add_argument("--contract", required=True, help="address of the AttestedBlockHashSource")
        parser.add_argument("--nonce", type=int, required=True, help="how many changes the contract has had")
        parser.add_argument("--threshold", type=int, required=True, help="how many of them must agree from then on")
        parser.add_argument("attesters", nargs="+", metavar="address", help="the attesters from then on, all of them")

    def handle(
        self, *, destination: int, contract: str, nonce: int, threshold: int, attesters: list[str], **_: Any
    ) -> None:
        # In the one order that the contract takes.
        ordered = sorted({_address(written) for written in attesters}, key=lambda address: int(address, 16))
        if len(ordered) < len(attesters):
            raise CommandError("An attester is there twice.")
        if int(ordered[0], 16) == 0:
            raise CommandError("The zero address can't be an attester: nobody has its key.")
        if len(ordered) > MAX_ATTESTERS:
            raise CommandError(f"There are {len(ordered)} attesters; a contract takes {MAX_ATTESTERS} at most.")
        if not 1 <= threshold <= len(ordered):
            raise CommandError(f"The threshold must be from 1 to {len(ordered)}, the number of attesters.")
        if destination < 1 or nonce < 0:
            raise CommandError("The destination's id must be at least 1, and the nonce at least 0.")
        domain = Domain(destination, _address(contract))
        try:
            account = own_account()
        except (ChainsError, SignerError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"For the contract {domain.contract} on chain {destination}, as its change {nonce}:")
        self.stdout.write(f"{threshold} of these {len(ordered)} attesters must agree from then on:")
        for address in ordered:
            self.stdout.write(f"  {address}")
        signature = sign(account, attester_set_message(domain, ordered, threshold, nonce))
        self.stdout.write(f"The signature of {account.address}:")
        self.stdout.write(f"0x{signature.hex()}")


def _address(written: str) -> str:
    address = checksummed(written)
    if address is None:
        raise CommandError(
            f"{written} is no address: write 0x and 40 hexadecimal digits, with the right EIP-55 checksum if they are "
            "in mixed case."
        )
    return address
