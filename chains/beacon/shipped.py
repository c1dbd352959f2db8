"""Lists of mainnet's beacon chain that are shipped: what a branch to an old block needs and that never changes.

They are compared with known roots when they are loaded. Two roots are constants of the contract. The list of historical
summaries grows by one in 27 hours; its beginning is shipped, because rows of versions before 0.3 go on from there.
"""

from functools import cache
from pathlib import Path

from chains.beacon import ssz
from chains.beacon.era_files import split
from chains.beacon.jumps import EPOCHS_DEPTH, HISTORY_DEPTH, MAINNET, BeaconChain

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


@cache
def _shipped(name: str, root: bytes) -> list[bytes]:
    try:
        content = (FOLDER / name).read_bytes()
    except OSError as error:
        raise WrongList(f"{name}, which is shipped, can't be read: {error.strerror}.") from None
    hashes = split(content)
    pairs = range(0, len(content), 64)
    leaves = (
        [ssz.merge(content[at : at + 32], content[at + 32 : at + 64]) for at in pairs] if name == SUMMARIES else hashes
    )
    if ssz.list_root(leaves, EPOCHS_DEPTH if name == EPOCHS else HISTORY_DEPTH) != root:
        raise WrongList(f"{name} is not what was shipped.")
    return hashes
