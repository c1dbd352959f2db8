"""What one user may do: what the installation lets everybody, unless an operator has set another limit for the user.

The user's own limits are columns of `accounts.models.User`, null where the installation's holds.
"""

from collections.abc import Mapping

from chains.chains_file import Chain


def own_or(own: int | None, installations: int) -> int:
    """Return the user's own limit if there is one. It may be higher or lower than the installation's, down to 0."""
    return installations if own is None else own


def daily_wei(own: Mapping[str, str] | None, chain: Chain) -> int | None:
    """Return what the user's batches may cost in 24 hours on this destination, in wei. None: any amount."""
    limit = (own or {}).get(str(chain.id))
    return chain.daily_limit_per_user_wei if limit is None else int(limit)
