"""Branches of the beacon chain to old blocks of a source chain: from where the data come, and that they are true.

What beacon nodes and era files say is verified before it is used: one that lies can only delay.
"""

from collections.abc import Callable

from chains.chains_file import Chain
from chains.header import Header
from chains.packed import BlockBranch
from proving.sources import NotYet


def why_not(source: Chain, target: Header | int) -> str:
    """Say in a sentence why no jump to a block can be had; empty where one may be. Asks no node.

    Of a `target` by its number less is known than of a header.
    """
    raise NotImplementedError


def branch_to(
    source: Chain, origin: Header | None, target: Header, *, extend_lease: Callable[[], None]
) -> BlockBranch | NotYet:
    """Return the branch from the beacon root in the header of `origin`, its field 19, to the hash of `target`.

    `origin` is not needed where `needs_origin` says so. The branch is verified: it leads to both. `NotYet` where the
    state of that beacon root does not yet summarise the target's period, or another worker is just fetching what is
    needed. `extend_lease` is called between steps that take long. Raises `NodeUnavailable`, a sentence.
    """
    raise NotImplementedError


def needs_origin(source: Chain, target: Header) -> bool:
    """Return whether a jump to a block begins at a trusted header. Up to Capella a constant serves instead."""
    raise NotImplementedError


def anchored(source: Chain, headers: list[Header]) -> list[Header]:
    """Return those headers, in order, whose anchor is stored: from these a jump takes no node that serves states."""
    raise NotImplementedError
