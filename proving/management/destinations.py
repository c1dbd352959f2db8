"""The destination chains that a command is about."""

from collections.abc import Sequence

from django.core.management.base import CommandError

from chains.chains_file import Chain
from config.configured_chains import get_chains


def chosen(ids: Sequence[int]) -> list[Chain]:
    """Those of these ids, or all. Raises `CommandError` for one that is no destination."""
    destinations = {chain.id: chain for chain in get_chains().destinations()}
    if unknown := [str(one) for one in ids if one not in destinations]:
        raise CommandError(f"Not a destination chain: {', '.join(unknown)}.")
    return [destinations[one] for one in ids or destinations]
