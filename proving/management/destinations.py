"""The destination chains, connections and signers that a command is about."""

from collections.abc import Sequence

from django.core.management.base import CommandError, CommandParser

from chains.chains_file import Chain, Connection
from config.configured_chains import get_chains


def add_arguments(parser: CommandParser) -> None:
    """Add the arguments that say what is stopped, or resumed."""
    parser.add_argument("destination", type=int, nargs="*", help="chain ids (default: all)")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--source", type=int, default=0, help="chain id: only the connection from it")
    part.add_argument("--signer", default="", help="an address: only this signer")


def chosen(ids: Sequence[int]) -> list[Chain]:
    """Return the destinations of these ids, or all. Raises `CommandError` for one that is no destination."""
    destinations = {chain.id: chain for chain in get_chains().destinations()}
    if unknown := [str(one) for one in ids if one not in destinations]:
        raise CommandError(f"Not a destination chain: {', '.join(unknown)}.")
    return [destinations[one] for one in ids or destinations]


def connection(source: int, destination: int) -> Connection:
    """Find a configured connection. Raises `CommandError` where it isn't configured."""
    found = get_chains().connection(source, destination)
    if found is None:
        raise CommandError(f"Chain {source} is not connected to chain {destination}.")
    return found


def signer(chain: Chain, address: str) -> str:
    """Return the address with its checksum. Raises `CommandError` where no key of the destination is its."""
    found = next((one.address for one in chain.accounts() if one.address.lower() == address.lower()), None)
    if found is None:
        raise CommandError(f"Not a signer of {chain.label}: {address}.")
    return found
