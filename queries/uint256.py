"""The place where migrations name the field of `queries.columns`."""

from queries.columns import Uint256Field

__all__ = ["Uint256Field"]
