"""`manage.py sign_attester_set`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from attesting.attest import own_account
from chains.attestation import Domain, attester_set_message, ordered_attesters, sign
from chains.configured_signers import SignerError
from chains.encoding import hex_data


class Command(BaseCommand):
    help = "Signs a change of a contract's attesters with this attester's key. Prints the signature, and sends nothing."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--destination", type=int, required=True, help="id of the chain that the contract is on")
        parser.add_argument("--contract", required=True, help="address of the AttestedBlockHashSource")
        parser.add_argument("--nonce", type=int, required=True, help="number of changes that the contract has had")
        parser.add_argument(
            "--threshold", type=int, required=True, help="number of attesters that must agree after the change"
        )
        parser.add_argument("attesters", nargs="+", metavar="address", help="all attesters after the change")

    def handle(
        self, *, destination: int, contract: str, nonce: int, threshold: int, attesters: list[str], **_: Any
    ) -> None:
        try:
            ordered = ordered_attesters(attesters, threshold)
            (address,) = ordered_attesters([contract], 1)
            account = own_account()
        except (ValueError, SignerError) as error:  # includes ChainsError
            raise CommandError(str(error)) from None
        if destination < 1 or nonce < 0:
            raise CommandError("The destination's id must be at least 1, and the nonce at least 0.")
        domain = Domain(destination, address)
        self.stdout.write(f"For the contract {domain.contract} on chain {destination}, as its change {nonce}:")
        self.stdout.write(f"{threshold} of these {len(ordered)} attesters must agree from then on:")
        for address in ordered:
            self.stdout.write(f"  {address}")
        signature = sign(account, attester_set_message(domain, ordered, threshold, nonce))
        self.stdout.write(f"The signature of {account.address}:")
        self.stdout.write(hex_data(signature))
