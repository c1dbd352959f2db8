"""Era files: beacon blocks and roots of a period (`.era`), and execution headers before the Merge (`.era1`).

Their names follow from roots that are known, so no list of files is needed. Only what is needed of a file is read, from
a folder or by ranges over HTTP. Everything is verified against those roots: a false file is none.
(Forms: github.com/eth-clients/e2store-format-specs.)
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar
from urllib.parse import urlsplit

from eth_utils.crypto import keccak

from chains import bounded_http, together
from chains.beacon import jumps, snappy, ssz
from chains.beacon.jumps import RECORDS_DEPTH, BeaconChain
from chains.beacon.snappy import InvalidSnappy
from chains.bounded_http import Post
from chains.encoding import decode_rlp
from chains.node_errors import BadStatus, InvalidReply, NodeUnavailable
from chains.request_batches import without_answer

# Types of entries. What an index leads to is known by what is in it.
_HEADER, _SLOT_INDEX, _BLOCK_INDEX = b"\x03\x00", b"i2", b"f2"
_HEAD, _ROOT = 8, 32
# An index: its head, what it begins at, and how many there are.
_INDEX_FRAME = _HEAD + 8 + 8
# In a state, what comes before the block roots and the state roots of a period.
_BEFORE_ROOTS = 176
# Bytes of a block, of its compressed form, and of a header before the Merge, at most (MAX_PAYLOAD_SIZE of the consensus
# specifications). Such a header has fewer than 700 bytes, in either form.
MOST_BLOCK, _MOST_PACKED_BLOCK, _MOST_HEADER = 10 * 1024**2, 12 * 1024**2, 1024
# Bytes that are read of an entry at first: most blocks and all headers fit.
_USUAL_BLOCK, _USUAL_HEADER = 128 * 1024, 1024
# Ranges with no more between them are read as one, up to so many bytes.
_GAP, _MOST_READ = 16 * 1024, 1024**2
_AT_ONCE = 16
# Bytes for which one task may ask together with others.
_MOST_SHARED = 512 * 1024
# How long one place is read from at most, in seconds. One that failed after so long that it was felt rests for a
# multiple of that: who waits for it has other work.
_MOST_SECONDS, _FELT_SECONDS, _REST = 300, 5, 10
# Bytes of a snappy frame at most, and a little more.
_FRAME = 80 * 1024

Answer = TypeVar("Answer")


class InvalidEra(ValueError):
    """The file is no era file of what its name tells; the message is one sentence."""


@dataclass(frozen=True)
class PeriodRoots:
    """The roots of all blocks of a period, and of all states, 32 bytes each."""

    blocks: bytes
    states: bytes


class _Place(Protocol):
    """A folder of files, by a path or a URL."""

    @property
    def label(self) -> str:
        """Return what messages call it."""

    def tail(self, name: str, size: int) -> tuple[bytes, int] | None:
        """Return the last bytes of a file, and its size. None if there is no such file. Raises `NodeUnavailable`."""

    def parts(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes from each start to before each end; fewer beyond the file's end. Raises as `tail`."""


@dataclass(frozen=True)
class _Timed:
    """A place that is read from until a time by the clock. `go_on` is called before each exchange."""

    place: _Place
    go_on: Callable[[], None]
    clock: Callable[[], float]
    ends: float

    @property
    def label(self) -> str:
        return self.place.label

    def tail(self, name: str, size: int) -> tuple[bytes, int] | None:
        self._begin()
        return self.place.tail(name, size)

    def parts(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._begin()
        return self.place.parts(name, ranges)

    def _begin(self) -> None:
        self.go_on()
        if self.clock() > self.ends:
            raise NodeUnavailable(f"{self.label} is too slow")


def _nothing() -> None:
    """Do nothing."""


class EraFiles:
    """The places where a chain's era files may be, asked in this order."""

    def __init__(
        self,
        chain: BeaconChain,
        places: Sequence[Path | str],
        *,
        timeout_seconds: float = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chain = chain
        self._clock = clock
        self._rests_until: dict[int, float] = {}
        self._places: list[_Place] = [
            _Folder(place) if isinstance(place, Path) else _Site(place, timeout_seconds) for place in places
        ]

    def roots(self, period: int, root: bytes, *, go_on: Callable[[], None] = _nothing) -> PeriodRoots | None:
        """Return the roots of a period whose own root is this one. None if no place has the file.

        `go_on` is called before each exchange. Raises `NodeUnavailable`, where a place can't be asked or has a false
        file, and no other has the right one.
        """
        name = self.era_name(period, root)
        return self._first(name, lambda place, name: self._read_roots(place, name, root), go_on)

    def block(self, slot: int, root: bytes) -> bytes | None:
        """Return the `SignedBeaconBlock` of a slot, not verified. None if no place has the file of its period.

        `root` is the period's. Raises as `roots`.
        """
        name = self.era_name(self._chain.period(slot), root)
        return self._first(name, lambda place, name: self._read_block(place, name, slot), _nothing)

    def records(
        self, epoch: int, root: bytes, *, go_on: Callable[[], None] = _nothing
    ) -> list[tuple[bytes, int]] | None:
        """Return hash and total difficulty of each block of an epoch before the Merge, whose root is this one.

        None if no place has the file. Asks and raises as `roots`.
        """
        name = self.era1_name(epoch, root)
        return self._first(name, lambda place, name: _read_records(place, name, root), go_on)

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has. None if no place has it. Raises as `roots`."""
        found = self._first(name, lambda place, name: place.tail(name, 1), _nothing)
        return found and found[1]

    def era1_name(self, epoch: int, root: bytes) -> str:
        """Return the name of the file of an epoch before the Merge."""
        return f"{self._chain.config_name}-{epoch:05}-{root[:4].hex()}.era1"

    def era_name(self, period: int, root: bytes) -> str:
        """Return the name of the file of a period."""
        # An era is numbered by where it ends.
        return f"{self._chain.config_name}-{period + 1:05}-{root[:4].hex()}.era"

    def _first(
        self, name: str, read: Callable[[_Place, str], Answer | None], go_on: Callable[[], None]
    ) -> Answer | None:
        problems: list[NodeUnavailable] = []
        for number, place in enumerate(self._places):
            began = self._clock()
            if began < self._rests_until.get(number, began):
                problems.append(NodeUnavailable(f"{place.label} was too slow a short while ago"))
                continue
            try:
                found = read(_Timed(place, go_on, self._clock, began + _MOST_SECONDS), name)
            except NodeUnavailable as problem:
                problems.append(problem)
            except (InvalidEra, InvalidSnappy) as invalid:
                problems.append(InvalidReply(f"{place.label} has a wrong {name}: {str(invalid).removesuffix('.')}"))
            else:
                if found is not None:
                    return found
            if (took := self._clock() - began) >= _FELT_SECONDS:
                self._rests_until[number] = began + took + _REST * took
        if problems:
            raise NodeUnavailable(f"No era file {name} can be read: {'; '.join(map(str, problems))}.")
        return None

    def _read_roots(self, place: _Place, name: str, root: bytes) -> PeriodRoots | None:
        indices = self._indices(place, name)
        if indices is None:
            return None
        _, at = indices
        size = _ROOT << self._chain.period_depth
        needed = _BEFORE_ROOTS + 2 * size
        # Roots are random, so frames of them are hardly smaller, or a little larger. The last one is read whole.
        data = _entry(place, name, at, usual=needed + needed // 64 + _FRAME, most=None)
        state = snappy.unpack(data, needed + _FRAME, enough=needed)
        found = PeriodRoots(state[_BEFORE_ROOTS : _BEFORE_ROOTS + size], state[_BEFORE_ROOTS + size : needed])
        if period_root(self._chain, found) != root:
            raise InvalidEra("Its roots are not those of the period.")
        return found

    def _read_block(self, place: _Place, name: str, slot: int) -> bytes | None:
        indices = self._indices(place, name)
        if indices is None:
            return None
        at = indices[0][self._chain.place(slot)]
        if at is None:
            raise InvalidEra(f"It has no block of slot {slot}.")
        data = _entry(place, name, at, usual=_USUAL_BLOCK, most=_MOST_PACKED_BLOCK)
        return snappy.unpack(data, MOST_BLOCK)

    def _indices(self, place: _Place, name: str) -> tuple[list[int | None], int] | None:
        """Return where the block of each slot begins, and where the state does."""
        count = 1 << self._chain.period_depth
        of_state, of_blocks = _INDEX_FRAME + 8, _INDEX_FRAME + 8 * count
        found = place.tail(name, of_state + of_blocks)
        if found is None:
            return None
        tail, size = found
        _, blocks = _index(tail[:of_blocks], _SLOT_INDEX, size - len(tail))
        _, (state,) = _index(tail[of_blocks:], _SLOT_INDEX, size - of_state)
        if state is None:
            raise InvalidEra("It has no state.")
        return blocks, state


def period_root(chain: BeaconChain, roots: PeriodRoots) -> bytes:
    """Return the root of a period: one of the historical roots, and since Capella that of a summary."""
    return ssz.merge(*(ssz.tree_root(split(each), chain.period_depth) for each in (roots.blocks, roots.states)))


def split(roots: bytes) -> list[bytes]:
    """Return roots one by one."""
    return [roots[at : at + _ROOT] for at in range(0, len(roots), _ROOT)]


def read_headers(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield the headers of era1 files, one after the other. Raises `InvalidEra`."""
    for path in files:
        with path.open("rb") as file:
            yield from _headers(file, path.name)


def _headers(file: BinaryIO, name: str) -> Iterator[bytes]:
    while head := file.read(_HEAD):
        size = int.from_bytes(head[2:6], "little")
        if head[:2] != _HEADER:
            # Beyond the end there is nothing to read, and that is found out below.
            file.seek(size - 1 if size else 0, 1)
            cut = bool(size) and not file.read(1)
        else:
            entry = file.read(min(size, _MOST_HEADER))
            cut = len(entry) != size
        if cut or len(head) != _HEAD:
            raise InvalidEra(f"{name} is cut.")
        if head[:2] == _HEADER:
            try:
                yield snappy.unpack(entry, _MOST_HEADER)
            except InvalidSnappy as invalid:
                raise InvalidEra(f"{name} has a header that can't be read: {invalid}") from None


def _read_records(place: _Place, name: str, root: bytes) -> list[tuple[bytes, int]] | None:
    tail = place.tail(name, _INDEX_FRAME + (8 << RECORDS_DEPTH))
    if tail is None:
        return None
    data, size = tail
    count = int.from_bytes(data[-8:], "little")
    length = _INDEX_FRAME + 8 * count
    _, places = _index(data[-length:], _BLOCK_INDEX, size - length)
    starts = [at for at in places if at is not None]
    if not starts or len(starts) != count or starts != sorted(starts):
        raise InvalidEra("Its blocks are not one after the other.")
    ends = [*starts[1:], size - length]
    ranges = [(start, min(start + _USUAL_HEADER, end)) for start, end in zip(starts, ends, strict=True)]
    read = _read_ranges(place, name, ranges, _hash_and_difficulty)
    # The first block's total difficulty stands at its end, where another block follows.
    (told,) = place.parts(name, [(max(0, ends[0] - _ROOT), ends[0])])
    hashes, difficulties = zip(*read, strict=True)
    records = with_totals(hashes, difficulties, int.from_bytes(told, "little"))
    if ssz.list_root(jumps.record_leaves(records), RECORDS_DEPTH) != root:
        raise InvalidEra("Its blocks are not those of the epoch.")
    return records


def with_totals(hashes: Sequence[bytes], difficulties: Sequence[int], first_total: int) -> list[tuple[bytes, int]]:
    """Return hash and total difficulty of each block, from the difficulties and the first total."""
    total = first_total - difficulties[0]
    records: list[tuple[bytes, int]] = []
    for block_hash, difficulty in zip(hashes, difficulties, strict=True):
        total += difficulty
        if not 0 <= total < 1 << 256:
            raise InvalidEra("Its total difficulty is beyond all bounds.")
        records.append((block_hash, total))
    return records


def _hash_and_difficulty(entry: bytes) -> tuple[bytes, int]:
    """Return these of the header in an entry."""
    length = int.from_bytes(entry[2:6], "little")
    encoded = snappy.unpack(entry[_HEAD : _HEAD + length], _MOST_HEADER)
    try:
        fields = decode_rlp(encoded)
    except ValueError:
        fields = []
    if len(fields) < 15 or not isinstance(fields[7], bytes) or len(fields[7]) > _ROOT:
        raise InvalidEra("One of its headers can't be read.")
    return keccak(encoded), int.from_bytes(fields[7])


def _index(data: bytes, kind: bytes, at: int) -> tuple[int, list[int | None]]:
    """Return what an index begins at, and where each of its entries is. `at` is where itself is."""
    count = (len(data) - _INDEX_FRAME) // 8
    if data[:2] != kind or int.from_bytes(data[-8:], "little") != count:
        raise InvalidEra("It has no index where one belongs.")
    first, *offsets = (
        int.from_bytes(data[_HEAD + 8 * i : _HEAD + 8 * i + 8], "little", signed=True) for i in range(count + 1)
    )
    places = [at + offset if offset else None for offset in offsets]
    if any(place is not None and not 0 <= place < at for place in places):
        raise InvalidEra("Its index leads beyond it.")
    return first, places


def _entry(place: _Place, name: str, at: int, *, usual: int, most: int | None) -> bytes:
    """Return the content of an entry: all of it where `most` is given, else what `usual` bytes have of it."""
    (data,) = place.parts(name, [(at, at + _HEAD + usual)])
    size = int.from_bytes(data[2:6], "little")
    if most is None:
        return data[_HEAD : _HEAD + size]
    if size > most:
        raise InvalidEra(f"An entry has more than {most} bytes.")
    if size > usual:
        data += place.parts(name, [(at + _HEAD + usual, at + _HEAD + size)])[0]
    if len(data) < _HEAD + size:
        raise InvalidEra("It is cut.")
    return data[_HEAD : _HEAD + size]


def _read_ranges(
    place: _Place, name: str, ranges: Sequence[tuple[int, int]], read: Callable[[bytes], Answer]
) -> list[Answer]:
    """Return what `read` makes of each range. Those near each other are read as one."""
    wide: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if wide and start <= wide[-1][1] + _GAP and end - wide[-1][0] <= _MOST_READ:
            wide[-1] = (wide[-1][0], max(wide[-1][1], end))
        else:
            wide.append((start, end))
    found: dict[tuple[int, int], Answer] = {}
    at = 0
    # A few at a time: other tasks may be about the same with other files, so only what is made of the bytes is kept.
    waiting = sorted(set(ranges))
    for first in range(0, len(wide), _AT_ONCE):
        some = wide[first : first + _AT_ONCE]
        for (start, end), data in zip(some, place.parts(name, some), strict=True):
            while at < len(waiting) and waiting[at][1] <= end:
                one = waiting[at]
                found[one] = read(data[one[0] - start : one[1] - start])
                at += 1
    return [found[one] for one in ranges]


# --- Places -----------------------------------------------------------------------------------------------------------


class _Folder:
    label = "A folder of era_files"

    def __init__(self, path: Path) -> None:
        self._path = path

    def tail(self, name: str, size: int) -> tuple[bytes, int] | None:
        try:
            total = (self._path / name).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(name, error) from None
        (data,) = self.parts(name, [(max(0, total - size), total)])
        return data, total

    def parts(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        try:
            with (self._path / name).open("rb") as file:
                return [self._part(file, *one) for one in ranges]
        except OSError as error:
            raise self._unreadable(name, error) from None

    def _part(self, file: BinaryIO, start: int, end: int) -> bytes:
        file.seek(start)
        return file.read(end - start)

    def _unreadable(self, name: str, error: OSError) -> NodeUnavailable:
        return NodeUnavailable(f"{name} can't be read: {error.strerror}")


class _Site:
    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self.label = urlsplit(url).netloc.rpartition("@")[2]

    def tail(self, name: str, size: int) -> tuple[bytes, int] | None:
        (answer,) = self._ask(name, [f"-{size}"], [size])
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        self._check(answer)
        total = re.fullmatch(r"bytes \d+-\d+/(\d{1,18})", answer.range)
        if total is None:
            raise InvalidReply(f"{self.label} doesn't tell how long a file is")
        return answer.content, int(total[1])

    def parts(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        wanted = [f"{start}-{end - 1}" for start, end in ranges]
        answers = self._ask(name, wanted, [end - start for start, end in ranges])
        for answer in answers:
            self._check(answer)
        return [answer.content for answer in answers]

    def _ask(self, name: str, ranges: Sequence[str], sizes: Sequence[int]) -> list[bounded_http.Answer]:
        parts = urlsplit(self._url)
        url = parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()
        posts = [
            Post(
                url,
                b"",
                max_bytes=size,
                silence_seconds=self._timeout,
                total_seconds=3 * self._timeout,
                read_statuses={HTTPStatus.PARTIAL_CONTENT},
                method="GET",
                headers={"Range": f"bytes={wanted}", "Accept-Encoding": "identity"},
            )
            for wanted, size in zip(ranges, sizes, strict=True)
        ]
        # Tasks beside this one may ask for as much. What they share is in memory at the same time.
        is_short = sum(sizes) <= _MOST_SHARED
        several = together.share_exchange("era files", posts, _post_each) if is_short else bounded_http.post_all(posts)
        answers: list[bounded_http.Answer] = []
        for answer in several:
            if isinstance(answer, bounded_http.Failed):
                raise without_answer(self.label, answer)
            answers.append(answer)
        return answers

    def _check(self, answer: bounded_http.Answer) -> None:
        if answer.status == HTTPStatus.OK:
            raise BadStatus(f"{self.label} doesn't serve parts of files (HTTP range requests)")
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            raise BadStatus(f"{self.label} answered with HTTP status {answer.status}")


def _post_each(several: Sequence[Sequence[Post]]) -> list[list[bounded_http.Answer | bounded_http.Failed]]:
    """Post what several tasks ask for, and return the answers to each."""
    answers = iter(bounded_http.post_all([post for posts in several for post in posts]))
    return [[next(answers) for _ in posts] for posts in several]
