"""Computes the accumulator of all blocks before the Merge from era1 files.

`python -m chains.beacon.before_merge FILE...`, from the first file on. Their headers are hashed, each must be the child
of the one before, and difficulties are added up from genesis on. So nothing that a file says of itself is believed.
(Forms: ethereum `era1`, github.com/eth-clients/e2store-format-specs.)
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from eth_utils.crypto import keccak

from chains.beacon import ssz
from chains.beacon.era_files import InvalidEra, read_headers
from chains.beacon.jumps import EPOCHS_DEPTH, MAINNET, RECORDS_DEPTH, record_leaves
from chains.encoding import decode_rlp, read_integer

_EPOCH_BLOCKS = 1 << RECORDS_DEPTH


def accumulate(headers: Iterable[bytes]) -> tuple[int, list[bytes]]:
    """Return how many headers there are, from genesis on, and the roots of their epochs. Raises `InvalidEra`."""
    epochs: list[bytes] = []
    records: list[tuple[bytes, int]] = []
    number, parent, difficulty = 0, bytes(32), 0
    for number, encoded in enumerate(headers, 1):
        try:
            fields = decode_rlp(encoded)
        except ValueError:
            fields = []
        if isinstance(fields, bytes) or len(fields) < 15 or fields[0] != parent or fields[8] != _shortest(number - 1):
            raise InvalidEra(f"There is no block {number - 1} whose parent is the one before.")
        parent = keccak(encoded)
        try:
            difficulty += read_integer(fields[7], 32)
            ssz.integer_leaf(difficulty)
        except (ValueError, OverflowError):
            raise InvalidEra(f"The difficulty of block {number - 1} is none.") from None
        records.append((parent, difficulty))
        if len(records) == _EPOCH_BLOCKS:
            epochs.append(ssz.list_root(record_leaves(records), RECORDS_DEPTH))
            records.clear()
    if records:
        epochs.append(ssz.list_root(record_leaves(records), RECORDS_DEPTH))
    return number, epochs


def _shortest(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 where the root isn't that of mainnet's blocks before the Merge."""
    parser = argparse.ArgumentParser(
        prog="python -m chains.beacon.before_merge",
        description="Compute the accumulator of the blocks before the Merge.",
    )
    parser.add_argument("files", nargs="+", type=Path, help="era1 files, from the first on")
    try:
        count, epochs = accumulate(read_headers(parser.parse_args(arguments).files))
    except (InvalidEra, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    root = ssz.list_root(epochs, EPOCHS_DEPTH)
    is_mainnet = (count, root) == (MAINNET.blocks_before_merge, MAINNET.accumulator)
    sys.stdout.write(f"{count:,} blocks, root 0x{root.hex()}: {'' if is_mainnet else 'not '}mainnet's.\n")
    return 0 if is_mainnet else 1


if __name__ == "__main__":
    sys.exit(main())
