"""Lists of mainnet's beacon chain that are shipped with the service. Branches to old blocks need them.

The lists never change. Each is checked on loading against its root, which is a constant of the contract.
"""

from functools import cache
from pathlib import Path

from chains.beacon import ssz
from chains.beacon.era_files import split
from chains.beacon.jumps import EPOCHS_DEPTH, HISTORY_DEPTH, MAINNET, BeaconChain

FOLDER = Path(__file__).parent / "mainnet"
HISTORICAL_ROOTS, EPOCHS = "historical_roots.ssz", "epochs.ssz"


class WrongList(ValueError):
    """A shipped list can't be read or doesn't have its known root. The message is one sentence."""


def historical_roots(chain: BeaconChain) -> list[bytes]:
    """Return the roots of the periods before Capella. Empty if the chain isn't mainnet. Raises `WrongList`."""
    return _shipped(HISTORICAL_ROOTS, chain.historical_roots) if chain == MAINNET else []


def epochs(chain: BeaconChain) -> list[bytes]:
    """Return the roots of the epochs before the Merge. Empty if the chain isn't mainnet. Raises `WrongList`."""
    return _shipped(EPOCHS, chain.accumulator) if chain == MAINNET else []


@cache
def _shipped(name: str, root: bytes) -> list[bytes]:
    try:
        content = (FOLDER / name).read_bytes()
    except OSError as error:
        raise WrongList(f"{name}, which is shipped, can't be read: {error.strerror}.") from None
    hashes = split(content)
    if ssz.list_root(hashes, EPOCHS_DEPTH if name == EPOCHS else HISTORY_DEPTH) != root:
        raise WrongList(f"{name} is not what was shipped.")
    return hashes
