"""Lists of mainnet's beacon chain that are shipped: all that a branch to an old block needs and that never changes.

`python -m chains.beacon.shipped` checks them; with files, or a beacon node, it makes them anew. Two are frozen, and
their roots are constants of the contract. The list of historical summaries grows by one in 27 hours; that up to a
release is shipped, so that later ones alone are stored.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from chains.beacon import ssz
from chains.beacon.beacon_client import BeaconClient
from chains.beacon.era_files import split
from chains.beacon.jumps import EPOCHS_DEPTH, HISTORY_DEPTH, MAINNET, BeaconChain
from chains.chains_file import chain_of_beacon_node
from chains.node_errors import NodeUnavailable

FOLDER = Path(__file__).parent / "mainnet"
HISTORICAL_ROOTS, EPOCHS, SUMMARIES = "historical_roots.ssz", "epochs.ssz", "historical_summaries.ssz"
# The root of the shipped list of summaries: those of the state of slot 11,658,496.
SUMMARIES_ROOT = bytes.fromhex("20fe6633a65ec454429cb6333443e64054791daf2d0d1025213b68dbbf3aaed6")


class WrongList(ValueError):
    """A list isn't the one that is known by its root; the message is one sentence."""


def historical_roots(chain: BeaconChain) -> list[bytes]:
    """Return the roots of the periods before Capella; none where they aren't shipped. Raises `WrongList`."""
    return _shipped(HISTORICAL_ROOTS, chain.historical_roots) if chain == MAINNET else []


def epochs(chain: BeaconChain) -> list[bytes]:
    """Return the roots of the epochs before the Merge; none where they aren't shipped. Raises `WrongList`."""
    return _shipped(EPOCHS, chain.accumulator) if chain == MAINNET else []


def summaries(chain: BeaconChain) -> list[tuple[bytes, bytes]]:
    """Return the oldest historical summaries; none where they aren't shipped. Raises `WrongList`."""
    return pairs(b"".join(_shipped(SUMMARIES, SUMMARIES_ROOT))) if chain == MAINNET else []


def pairs(summaries: bytes) -> list[tuple[bytes, bytes]]:
    """Return encoded summaries one by one."""
    hashes = split(summaries)
    return list(zip(hashes[::2], hashes[1::2], strict=True))


def summaries_root(summaries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the root of a list of summaries."""
    return ssz.list_root([ssz.merge(*each) for each in summaries], HISTORY_DEPTH)


@cache
def _shipped(name: str, root: bytes) -> list[bytes]:
    try:
        content = (FOLDER / name).read_bytes()
    except OSError as error:
        raise WrongList(f"{name}, which is shipped, can't be read: {error.strerror}.") from None
    if len(content) % 32 or _root_of(name, content) != root:
        raise WrongList(f"{name} is not what was shipped.")
    return split(content)


def _root_of(name: str, content: bytes) -> bytes:
    if name == SUMMARIES:
        return summaries_root(pairs(content)) if len(content) % 64 == 0 else b""
    return ssz.list_root(split(content), HISTORY_DEPTH if name == HISTORICAL_ROOTS else EPOCHS_DEPTH)


# --- Making them ------------------------------------------------------------------------------------------------------


def _take(name: str, content: bytes) -> None:
    """Write a list over the shipped one. Raises `WrongList`."""
    if name == SUMMARIES:
        before = (FOLDER / name).read_bytes() if (FOLDER / name).exists() else b""
        if len(content) % 64 or not content.startswith(before):
            raise WrongList("These summaries don't begin with those that are shipped.")
    elif len(content) % 32 or _root_of(name, content) != {
        HISTORICAL_ROOTS: MAINNET.historical_roots,
        EPOCHS: MAINNET.accumulator,
    }.get(name):
        raise WrongList(f"This is not mainnet's {name}.")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / name).write_bytes(content)


def _summaries_of(url: str) -> bytes:
    """Return the summaries of a node's final state, verified against it. Raises `NodeUnavailable`, `ValueError`."""
    client = BeaconClient(chain_of_beacon_node(url, os.environ), MAINNET)
    told = client.summaries(client.header("finalized"))
    return b"".join(b"".join(each) for each in told.summaries)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 where a list isn't mainnet's."""
    parser = argparse.ArgumentParser(prog="python -m chains.beacon.shipped", description="Check or make shipped lists.")
    parser.add_argument("files", nargs="*", type=Path, help=f"{HISTORICAL_ROOTS}, {EPOCHS} or {SUMMARIES}, made anew")
    parser.add_argument("--node", help="URL of a beacon node, for summaries; it may hold ${VARIABLES}")
    given = parser.parse_args(arguments)
    try:
        for path in given.files:
            _take(path.name, path.read_bytes())
        if given.node:
            _take(SUMMARIES, _summaries_of(given.node))
        content = (FOLDER / SUMMARIES).read_bytes()
        sys.stdout.write(
            f"{len(content) // 64} summaries. In chains/beacon/shipped.py they are told by\n"
            f'SUMMARIES_ROOT = bytes.fromhex("{_root_of(SUMMARIES, content).hex()}")\n'
        )
        counts = len(historical_roots(MAINNET)), len(epochs(MAINNET)), len(summaries(MAINNET))
    except (NodeUnavailable, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{counts[0]} historical roots, {counts[1]:,} epochs and {counts[2]} summaries are as known.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
