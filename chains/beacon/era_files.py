"""Era files: beacon blocks and roots of a period (`.era`), and execution headers before the Merge (`.era1`).

A file's name follows from a known root, so no list of files is needed. Only the needed parts of a file are read, from a
folder or by ranges over HTTP. Everything is verified against that root, so a false file does no harm.
(Forms: github.com/eth-clients/e2store-format-specs.)
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from eth_utils.crypto import keccak

from chains import bounded_http
from chains.beacon import blocks, jumps, ssz
from chains.beacon.blocks import ExecutionBranch
from chains.beacon.jumps import RECORDS_DEPTH, BeaconChain
from chains.beacon.ssz import InvalidSsz
from chains.encoding import decode_rlp
from chains.nodes.node_batches import without_answer
from chains.nodes.node_errors import BadStatus, InvalidReply, NodeUnavailable

_HEAD, _ROOT = 8, 32
# Bytes of an index without its offsets: the entry's head, the first slot or block number, and the number of offsets.
_INDEX_FRAME = _HEAD + 8 + 8
# Offset in an encoded state of the two lists of a period: block roots, then state roots.
_BEFORE_ROOTS = 176
# Maximum bytes of a block (MAX_PAYLOAD_SIZE of the consensus specifications), of a compressed block, and of a header
# before the Merge. The largest such header has fewer than 700 bytes.
MOST_BLOCK, _MOST_PACKED_BLOCK, _MOST_HEADER = 10 * 1024**2, 12 * 1024**2, 1024
# Maximum headers that are read at the same time.
_AT_ONCE = 16
# Maximum seconds to read a file from one folder or URL.
_MOST_SECONDS = 300
# Bytes of the largest snappy frame, rounded up.
_FRAME = 80 * 1024

Answer = TypeVar("Answer")
_EraFile: TypeAlias = "_LocalFile | _RemoteFile"
"""A file in a folder or at a URL. Its methods raise `NodeUnavailable`.

`tail` returns the last bytes and the file's size, and `parts` the bytes of each range (start, end). A range that goes
beyond the file's end is cut short.
"""


class InvalidEra(ValueError):
    """The file isn't the era file that its name promises. The message is one sentence."""


class NoEraFile(NodeUnavailable):
    """The folder or server has no such file."""


@dataclass(frozen=True)
class PeriodRoots:
    """The block roots and the state roots of a period, 32 bytes each."""

    blocks: bytes
    states: bytes


class EraFiles:
    """The folders and URLs that may have a chain's era files, tried in order.

    If none has a valid file, `NodeUnavailable` says why for each.
    """

    def __init__(
        self,
        chain: BeaconChain,
        places: Sequence[Path | str],
        *,
        timeout_seconds: float = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chain = chain
        self._places = places
        self._timeout = timeout_seconds
        self._clock = clock

    def roots(self, period: int, root: bytes) -> PeriodRoots:
        """Return the roots of a period, verified against the period's own root."""
        return self._first(self.era_name(period, root), lambda file: self._read_roots(file, root))

    def block(self, slot: int, period_root: bytes, root: bytes) -> ExecutionBranch:
        """Return the execution block of the beacon block with this root, and its proof."""
        name = self.era_name(self._chain.period(slot), period_root)
        return self._first(name, lambda file: self._read_block(file, slot, root))

    def records(self, epoch: int, root: bytes) -> list[tuple[bytes, int]]:
        """Return hash and total difficulty of each block of an epoch before the Merge, verified against `root`."""
        return self._first(self.era1_name(epoch, root), lambda file: _read_records(file, root))

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes. None if the file doesn't exist."""
        with suppress(NoEraFile):
            return self._first(name, lambda file: file.tail(1)[1])
        return None

    def era1_name(self, epoch: int, root: bytes) -> str:
        """Return the name of the file of an epoch before the Merge."""
        return f"{self._chain.config_name}-{epoch:05}-{root[:4].hex()}.era1"

    def era_name(self, period: int, root: bytes) -> str:
        """Return the name of the file of a period."""
        # The file of an era has the roots of the period before it.
        return f"{self._chain.config_name}-{period + 1:05}-{root[:4].hex()}.era"

    def _first(self, name: str, read: Callable[[_EraFile], Answer]) -> Answer:
        problems: list[NodeUnavailable] = []
        for place in self._places:
            label = "A folder of era_files" if isinstance(place, Path) else urlsplit(place).netloc.rpartition("@")[2]
            try:
                return read(self._file(place, name, label, self._clock() + _MOST_SECONDS))
            except NodeUnavailable as problem:
                problems.append(problem)
            except (InvalidEra, InvalidSsz) as invalid:
                problems.append(InvalidReply(f"{label} has a wrong {name}: {str(invalid).removesuffix('.')}"))
        kind = NoEraFile if all(isinstance(problem, NoEraFile) for problem in problems) else NodeUnavailable
        raise kind(f"No era file {name} can be read: {'; '.join(map(str, problems))}.")

    def _file(self, place: Path | str, name: str, label: str, ends: float) -> _EraFile:
        def begin() -> None:
            if self._clock() > ends:
                raise NodeUnavailable(f"{label} is too slow")

        if isinstance(place, Path):
            return _LocalFile(place / name, label)
        return _RemoteFile(place, name, label, self._timeout, begin)

    def _read_roots(self, file: _EraFile, root: bytes) -> PeriodRoots:
        _, at = self._indices(file)
        size = _ROOT << self._chain.period_depth
        state = bytearray(_BEFORE_ROOTS + 2 * size)
        # Roots are random bytes, so compression may even make them larger. The last frame must be read whole.
        (entry,) = file.parts([(at, at + _HEAD + len(state) + len(state) // 64 + _FRAME)])
        # The read bytes end in the middle of the stream, behind the needed roots.
        _unpack_into(state, entry[_HEAD:])
        roots = PeriodRoots(bytes(state[_BEFORE_ROOTS:-size]), bytes(state[-size:]))
        if period_root(self._chain, roots) != root:
            raise InvalidEra("Its roots belong to another period.")
        return roots

    def _read_block(self, file: _EraFile, slot: int, root: bytes) -> ExecutionBranch:
        offsets, state = self._indices(file)
        at = offsets[self._chain.place(slot)]
        if at is None:
            raise InvalidEra(f"It has no block of slot {slot}.")
        end = min(offset for offset in (*offsets, state) if offset is not None and offset > at)
        if end - at > _MOST_PACKED_BLOCK:
            raise InvalidEra(f"An entry has more than {_MOST_PACKED_BLOCK} bytes.")
        (entry,) = file.parts([(at, end)])
        encoded = _unpacked(entry[_HEAD:], MOST_BLOCK)
        branch = blocks.execution_branch(encoded, self._chain.layout(slot), preset=self._chain.preset)
        if branch.header.root != root:
            raise InvalidEra(f"It has a block from another slot than {slot}.")
        return branch

    def _indices(self, file: _EraFile) -> tuple[list[int | None], int]:
        """Return the offsets of each slot's block (None: missed) and of the state."""
        of_state, of_blocks = _INDEX_FRAME + 8, _INDEX_FRAME + (8 << self._chain.period_depth)
        tail, size = file.tail(of_blocks + of_state)
        if len(tail) != of_blocks + of_state:
            raise InvalidEra("It is cut.")
        (state,) = _index(tail[of_blocks:], size - of_state)
        offsets = _index(tail[:of_blocks], size - len(tail))
        if state is None or any(offset is not None and offset >= state for offset in offsets):
            raise InvalidEra("It has no state after its blocks.")
        return offsets, state


def period_root(chain: BeaconChain, roots: PeriodRoots) -> bytes:
    """Return the root of a period: before Capella the historical root, since Capella the root of the summary."""
    return ssz.merge(*(ssz.tree_root(split(each), chain.period_depth) for each in (roots.blocks, roots.states)))


def split(roots: bytes) -> list[bytes]:
    """Split concatenated roots of 32 bytes into a list."""
    return [roots[at : at + _ROOT] for at in range(0, len(roots), _ROOT)]


def _read_records(file: _EraFile, root: bytes) -> list[tuple[bytes, int]]:
    tail, size = file.tail(_INDEX_FRAME + (8 << RECORDS_DEPTH))
    length = _INDEX_FRAME + 8 * int.from_bytes(tail[-8:], "little")
    starts = [at for at in _index(tail[-length:], size - length) if at is not None]
    if len(starts) < 2:
        raise InvalidEra("It has no blocks.")
    # The first block's entries end with its total difficulty, just before the next block.
    (total,) = file.parts([(max(0, starts[1] - _ROOT), starts[1])])
    read: list[tuple[bytes, int]] = []
    for first in range(0, len(starts), _AT_ONCE):
        ranges = [(at, at + _HEAD + _MOST_HEADER) for at in starts[first : first + _AT_ONCE]]
        read += map(_hash_and_difficulty, file.parts(ranges))
    hashes, difficulties = zip(*read, strict=True)
    before = int.from_bytes(total, "little") - difficulties[0]
    records = list(zip(hashes, list(accumulate(difficulties, initial=before))[1:], strict=True))
    try:
        leaves = jumps.record_leaves(records)
    except OverflowError:
        raise InvalidEra("Its total difficulty is too large.") from None
    if ssz.list_root(leaves, RECORDS_DEPTH) != root:
        raise InvalidEra("Its blocks belong to another epoch.")
    return records


def _hash_and_difficulty(entry: bytes) -> tuple[bytes, int]:
    """Return the hash and the difficulty of the header in an entry."""
    length = int.from_bytes(entry[2:6], "little")
    encoded = _unpacked(entry[_HEAD : _HEAD + length], _MOST_HEADER)
    try:
        difficulty = int.from_bytes(decode_rlp(encoded)[7])  # type: ignore[arg-type]
    except (ValueError, IndexError, TypeError):
        raise InvalidEra("One of its headers can't be read.") from None
    return keccak(encoded), difficulty


def _unpacked(framed: bytes, most: int) -> bytes:
    out = bytearray(most)
    size = _unpack_into(out, framed)
    if size is None:
        raise InvalidEra(f"It has no valid compressed data of at most {most} bytes where an entry must be.")
    return bytes(out[:size])


def _unpack_into(out: bytearray, framed: bytes) -> int | None:
    """Decompress as much as `out` can hold, and return the size. None if the data is cut off, wrong or larger."""
    # A service without era files doesn't need this package (the extra `era`).
    from cramjam import DecompressionError, snappy  # noqa: PLC0415

    try:
        return snappy.decompress_into(framed, out)
    except DecompressionError:
        return None


def _index(data: bytes, at: int) -> list[int | None]:
    """Return the offset of each entry of an index, None for a missing entry. `at` is the index's own offset."""
    offsets = (int.from_bytes(data[i : i + 8], "little", signed=True) for i in range(_HEAD + 8, len(data) - 8, 8))
    positions = [at + offset if offset else None for offset in offsets]
    if any(position is not None and not 0 <= position < at for position in positions):
        raise InvalidEra("Its index points beyond its end.")
    return positions


# --- Files in folders and behind URLs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LocalFile:
    path: Path
    label: str

    def tail(self, size: int) -> tuple[bytes, int]:
        try:
            total = self.path.stat().st_size
        except FileNotFoundError:
            raise NoEraFile(f"{self.label} has none") from None
        except OSError as error:
            raise self._unreadable(error) from None
        (data,) = self.parts([(max(0, total - size), total)])
        return data, total

    def parts(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        parts: list[bytes] = []
        try:
            with self.path.open("rb") as file:
                for start, end in ranges:
                    file.seek(start)
                    parts.append(file.read(end - start))
        except OSError as error:
            raise self._unreadable(error) from None
        return parts

    def _unreadable(self, error: OSError) -> NodeUnavailable:
        return NodeUnavailable(f"{self.path.name} can't be read: {error.strerror}")


@dataclass(frozen=True)
class _RemoteFile:
    place: str = field(repr=False)
    name: str
    label: str
    timeout: float
    begin: Callable[[], None]

    def tail(self, size: int) -> tuple[bytes, int]:
        (answer,) = self._ask([(f"-{size}", size)])
        total = answer.range.rpartition("/")[2]
        if not answer.range.startswith("bytes ") or not (total.isascii() and total.isdigit() and len(total) < _ROOT):
            raise InvalidReply(f"{self.label} doesn't report a file's size")
        return answer.content, int(total)

    def parts(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        answers = self._ask([(f"{start}-{end - 1}", end - start) for start, end in ranges])
        return [answer.content for answer in answers]

    def _ask(self, ranges: Sequence[tuple[str, int]]) -> list[bounded_http.HttpReply]:
        self.begin()
        path, status = f"/{self.name}", HTTPStatus.PARTIAL_CONTENT
        requests = [
            bounded_http.get(self.place, path, {"Range": f"bytes={span}"}, size, seconds=self.timeout, status=status)
            for span, size in ranges
        ]
        return [self._checked(answer) for answer in bounded_http.send_all(requests)]

    def _checked(self, answer: bounded_http.HttpReply | bounded_http.Failed) -> bounded_http.HttpReply:
        if isinstance(answer, bounded_http.Failed):
            raise without_answer(self.label, answer)
        if answer.status == HTTPStatus.NOT_FOUND:
            raise NoEraFile(f"{self.label} has none")
        if answer.status == HTTPStatus.OK:
            raise BadStatus(f"{self.label} doesn't serve parts of files (HTTP range requests)")
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            raise BadStatus(f"{self.label} {answer.status_text}")
        return answer
