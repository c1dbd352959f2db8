"""`manage.py stop [<destination> ...] [--source <chain> | --signer <address>] [--reason <sentence>]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chains.chains_file import Chain
from chains.encoding import checksummed
from config.configured_chains import get_chains
from proving import stops
from proving.management.reasons import reason_in
from proving.models import Signer, Stop


class Command(BaseCommand):
    help = (
        "Stops all sending on these destination chains, or on all, before the next signature. Batches wait. With "
        "--source or --signer only that connection, or that signer, is stopped. `manage.py resume` removes the stop."
    )

    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add_subject(parser)
        parser.add_argument("--reason", default="", help="a sentence that users see")

    def handle(self, *, destination: list[int], source: int, signer: str, reason: str, **_: Any) -> None:
        why = reason_in(reason)
        destinations = {chain.id: chain for chain in get_chains().destinations()}
        if unknown := [str(chain_id) for chain_id in destination if chain_id not in destinations]:
            raise CommandError(f"Not a destination chain: {', '.join(unknown)}.")
        chains = [destinations[chain_id] for chain_id in destination or destinations]
        for chain in chains:
            if source and get_chains().connection(source, chain.id) is None:
                raise CommandError(f"Chain {source} is not connected to chain {chain.id}.")
        addresses = [_signer(chain, signer) if signer else "" for chain in chains]
        for chain, address in zip(chains, addresses, strict=True):
            subject = Stop(chain_id=chain.id, source_chain_id=source, signer=address)
            self.stdout.write(stops.stop_by_operator(subject, reason=why).sentence_for_operators)


def add_subject(parser: CommandParser) -> None:
    """Add the arguments that say what to stop or resume."""
    parser.add_argument("destination", type=int, nargs="*", help="chain ids (default: all)")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--source", type=int, default=0, help="chain id: only the connection from it")
    part.add_argument("--signer", default="", help="an address: only this signer")


def _signer(chain: Chain, address: str) -> str:
    """Return the address with its checksum. Raises `CommandError` if the destination has no such signer."""
    # Only a signer that has no row yet is looked for among the keys, which are slow to read and may be out of reach.
    signer = checksummed(address)
    stored = Signer.objects.filter(chain_id=chain.id, address=signer)
    if signer is None or not (stored.exists() or signer in chain.signers_by_address()):
        raise CommandError(f"Not a signer of {chain.label}: {address}.")
    return signer
