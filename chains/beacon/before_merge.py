"""Computes the accumulator of all blocks before the Merge from era1 files.

`python -m chains.beacon.before_merge FILE...`, from the first file on. Their headers are hashed, each must be the child
of the one before, and difficulties are added up from genesis on. So nothing that a file says of itself is believed.
(Forms: ethereum `era1`, github.com/eth-clients/e2store-format-specs.)
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from eth_utils.crypto import keccak

from chains.beacon import ssz
from chains.beacon.jumps import EPOCHS_DEPTH, MAINNET, RECORDS_DEPTH, record_leaves
from chains.encoding import decode_rlp

_EPOCH_BLOCKS = 1 << RECORDS_DEPTH
_COMPRESSED_HEADER = b"\x03\x00"
_ENTRY_HEAD = 8


class InvalidEra(ValueError):
    """The files hold no blocks from genesis on, one after the other; the message is one sentence."""


def accumulate(headers: Iterable[bytes]) -> tuple[int, list[bytes]]:
    """Return how many headers there are, and the roots of their epochs. Raises `InvalidEra`."""
    epochs: list[bytes] = []
    records: list[tuple[bytes, int]] = []
    number, parent, difficulty = 0, bytes(32), 0
    for number, encoded in enumerate(headers, 1):
        fields = decode_rlp(encoded)
        if len(fields) < 15 or fields[0] != parent or fields[8] != _shortest(number - 1):
            raise InvalidEra(f"There is no block {number - 1} whose parent is the one before.")
        assert isinstance(fields[7], bytes)
        parent = keccak(encoded)
        difficulty += int.from_bytes(fields[7])
        records.append((parent, difficulty))
        if len(records) == _EPOCH_BLOCKS:
            epochs.append(ssz.list_root(record_leaves(records), RECORDS_DEPTH))
            records.clear()
    if records:
        epochs.append(ssz.list_root(record_leaves(records), RECORDS_DEPTH))
    return number, epochs


def read_headers(files: Iterable[Path]) -> Iterator[bytes]:
    """Yield the headers of era1 files. Raises `InvalidEra`."""
    for path in files:
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at + 2 : at + 6], "little")
            entry = data[at + _ENTRY_HEAD : at + _ENTRY_HEAD + size]
            if len(entry) != size:
                raise InvalidEra(f"{path.name} is cut.")
            if data[at : at + 2] == _COMPRESSED_HEADER:
                try:
                    yield unpack(entry)
                except (IndexError, StopIteration):
                    raise InvalidEra(f"{path.name} has a header that is not compressed by snappy.") from None
            at += _ENTRY_HEAD + size


def _shortest(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8)


# --- Snappy -----------------------------------------------------------------------------------------------------------


def unpack(framed: bytes) -> bytes:
    """Return what a stream of snappy frames holds (google/snappy, `framing_format.txt`). Checksums aren't compared."""
    out, at = bytearray(), 0
    while at < len(framed):
        size = int.from_bytes(framed[at + 1 : at + 4], "little")
        # After the checksum.
        frame = framed[at + 8 : at + 4 + size]
        if framed[at] == 0:
            out += _unpack_block(frame)
        elif framed[at] == 1:
            out += frame
        at += 4 + size
    return bytes(out)


def _unpack_block(data: bytes) -> bytes:
    out = bytearray()
    # The length comes first, in bytes of which all but the last have the highest bit.
    at = next(place for place, byte in enumerate(data) if byte < 0x80) + 1
    while at < len(data):
        tag, at = data[at], at + 1
        size, kind = (tag >> 2) + 1, tag & 3
        if kind == 0:
            if size > 60:
                width = size - 60
                size, at = int.from_bytes(data[at : at + width], "little") + 1, at + width
            out += data[at : at + size]
            at += size
            continue
        width = 1 if kind == 1 else 2 if kind == 2 else 4
        distance, at = int.from_bytes(data[at : at + width], "little"), at + width
        if kind == 1:
            size, distance = (tag >> 2 & 7) + 4, tag >> 5 << 8 | distance
        for _ in range(size):
            out.append(out[-distance])
    return bytes(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 where the root isn't that of mainnet's blocks before the Merge."""
    parser = argparse.ArgumentParser(
        prog="python -m chains.beacon.before_merge",
        description="Compute the accumulator of the blocks before the Merge.",
    )
    parser.add_argument("files", nargs="+", type=Path, help="era1 files, from the first on")
    try:
        count, epochs = accumulate(read_headers(parser.parse_args(arguments).files))
    except InvalidEra as invalid:
        sys.stderr.write(f"{invalid}\n")
        return 1
    root = ssz.list_root(epochs, EPOCHS_DEPTH)
    is_mainnet = (count, root) == (MAINNET.blocks_before_merge, MAINNET.accumulator)
    sys.stdout.write(f"{count:,} blocks, root 0x{root.hex()}: {'' if is_mainnet else 'not '}mainnet's.\n")
    return 0 if is_mainnet else 1


if __name__ == "__main__":
    sys.exit(main())
