"""The leaves of trees that jumps lead through, kept in the database: block roots of a period of the beacon chain, and
records of an epoch before the Merge.

They come from an era file at once, or from nodes bit by bit. What has come is kept where a worker is killed or a node
fails. Nothing counts before the whole is verified.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Protocol

from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from chains.beacon import jumps, ssz
from chains.beacon.era_files import InvalidEra, split, with_totals
from chains.beacon.jumps import RECORDS_DEPTH, BeaconChain
from chains.chains_file import Chain
from chains.encoding import read_object, read_quantity
from chains.node_errors import NodeUnavailable, RpcRefused
from config.configured_chains import get_beacon_client, get_era_files, get_rpc
from database import leases, row_locks
from database.leases import Lease, LeaseLost
from proving.models import JumpLeaves, JumpLeavesKind
from proving.sources import NotYet

_ROOT, _RECORD = 32, 64
# Slots, or blocks, that are asked for at a time; and bytes after which what has come is written.
_PER_PART, _PER_WRITE = 256, 32 * 1024
# How many seconds may pass on parts of which some is missing: who waits for them has other work. What came is kept.
_MOST_SECONDS = 60
# How often a use is written down.
_USED_WITHIN = timedelta(days=1)


class WrongLeaves(Exception):
    """The whole is not what its root says: a node lied, or lacks blocks. The message is one sentence."""


class Tree(Protocol):
    """A tree whose leaves are wanted: where they come from."""

    kind: ClassVar[JumpLeavesKind]

    @property
    def source(self) -> Chain: ...

    @property
    def number(self) -> int: ...

    @property
    def leaf_size(self) -> int:
        """Return how many bytes each leaf has."""

    @property
    def size(self) -> int:
        """Return how many bytes all leaves have."""

    @property
    def sources(self) -> int:
        """Return how many nodes may be asked one by one."""

    def whole(self, go_on: Callable[[], None]) -> bytes | None:
        """Return all from an era file, verified; None where none has it. Raises `NodeUnavailable`.

        `go_on` is called before each exchange.
        """

    def part(self, known: bytes, only: int | None) -> bytes:
        """Return some of what follows, unverified. With `only`, one node alone is asked. Raises `NodeUnavailable`.

        `WrongLeaves` where what is known can't be right.
        """

    def check(self, content: bytes) -> None:
        """Raise `WrongLeaves` unless these are all leaves of the tree."""


@dataclass(frozen=True)
class Period:
    """The block roots of a period of the beacon chain. Of one before Capella, the root of its state roots follows."""

    source: Chain
    chain: BeaconChain
    number: int
    root: bytes
    """The period's own: one of the historical roots, or that of a summary."""
    block_roots_root: bytes | None
    """None before Capella, when it isn't known by itself."""

    kind: ClassVar = JumpLeavesKind.PERIOD
    leaf_size: ClassVar = _ROOT

    @property
    def size(self) -> int:
        return _ROOT << self.chain.period_depth

    @property
    def sources(self) -> int:
        client = get_beacon_client(self.source.id)
        return client.count if client else 0

    def whole(self, go_on: Callable[[], None]) -> bytes | None:
        files = get_era_files(self.source.id)
        roots = files.roots(self.number, self.root, go_on=go_on) if files else None
        if roots is None or self.block_roots_root is not None:
            return roots.blocks if roots else None
        return roots.blocks + ssz.tree_root(split(roots.states), self.chain.period_depth)

    def part(self, known: bytes, only: int | None) -> bytes:
        client = get_beacon_client(self.source.id)
        if self.block_roots_root is None:
            raise NodeUnavailable(
                f"The roots of period {self.number} of {self.source.label} are in era files alone, because it was "
                "before Capella; no place of era_files has them."
            )
        if client is None:
            raise NodeUnavailable(
                f"No place of era_files of {self.source.label} has the roots of period {self.number}."
            )
        first = self.number << self.chain.period_depth
        start, end = first + len(known) // _ROOT, first + self.size // _ROOT
        found = client.block_roots(range(start, min(start + _PER_PART, end)), only=only)
        last = known[-_ROOT:]
        if not last and found[0] is None:
            before = client.block_roots(range(max(0, start - _PER_PART), start), only=only) if start else []
            last = next((root for root in reversed(before) if root), b"")
            if not last and not any(found):
                raise NodeUnavailable(
                    f"No beacon node of {self.source.label} has the blocks of slot {start} and after it."
                )
            # Before the first block of the chain there is none.
            last = last or bytes(_ROOT)
        roots = b""
        for root in found:
            last = root or last
            roots += last
        return roots

    def check(self, content: bytes) -> None:
        states = content[self.size :]
        root = ssz.tree_root(split(content[: self.size]), self.chain.period_depth)
        if self.block_roots_root is not None:
            is_right = root == self.block_roots_root and not states
        else:
            is_right = ssz.merge(root, states) == self.root
        if not is_right:
            raise WrongLeaves(
                f"The block roots that beacon nodes of {self.source.label} tell of period {self.number} are not the "
                "chain's: a node lacks blocks, or lies."
            )


@dataclass(frozen=True)
class Epoch:
    """The records of an epoch of 8,192 blocks before the Merge: hash and total difficulty of each."""

    source: Chain
    chain: BeaconChain
    number: int
    root: bytes

    kind: ClassVar = JumpLeavesKind.EPOCH
    leaf_size: ClassVar = _RECORD
    sources: ClassVar = 1

    @property
    def first_block(self) -> int:
        return self.number << RECORDS_DEPTH

    @property
    def size(self) -> int:
        return _RECORD * min(1 << RECORDS_DEPTH, self.chain.blocks_before_merge - self.first_block)

    def whole(self, go_on: Callable[[], None]) -> bytes | None:
        files = get_era_files(self.source.id)
        records = files.records(self.number, self.root, go_on=go_on) if files else None
        return None if records is None else _encoded(records)

    def part(self, known: bytes, only: int | None) -> bytes:
        rpc = get_rpc(self.source.id)
        start = self.first_block + len(known) // _RECORD
        numbers = range(start, min(start + _PER_PART, self.first_block + self.size // _RECORD))
        try:
            total = int.from_bytes(known[-_ROOT:], "little") if known else None
            headers = rpc.known_headers(numbers) if known else [rpc.known_header(start)]
            difficulties = [int.from_bytes(header.fields[7]) for header in headers]
            first_total = self._total_difficulty() if total is None else total + difficulties[0]
        except RpcRefused as refused:
            raise NodeUnavailable(
                f"The nodes of {self.source.label} refuse blocks before the Merge ({refused.code}), and no place of "
                f"era_files has epoch {self.number}."
            ) from None
        try:
            return _encoded(with_totals([header.hash for header in headers], difficulties, first_total))
        except InvalidEra as invalid:
            # The total that is known already may be the wrong one: then no header fits behind it.
            raise WrongLeaves(f"A node of {self.source.label} tells wrong headers: {invalid}") from None

    def _total_difficulty(self) -> int:
        """Ask for that of the first block: of the others it follows. Verified with the whole."""
        block = get_rpc(self.source.id).call("eth_getBlockByNumber", hex(self.first_block), False)
        try:
            return read_quantity(read_object(block).get("totalDifficulty"))
        except ValueError:
            raise NodeUnavailable(
                f"The node of {self.source.label} doesn't tell total difficulties, and no place of era_files has epoch "
                f"{self.number}: one of the two is needed for blocks before the Merge."
            ) from None

    def check(self, content: bytes) -> None:
        has_all = len(content) == self.size
        if not has_all or ssz.list_root(jumps.record_leaves(records_of(content)), RECORDS_DEPTH) != self.root:
            raise WrongLeaves(
                f"The headers that nodes of {self.source.label} tell of epoch {self.number} before the Merge, or its "
                "total difficulty, are not the chain's."
            )


def _encoded(records: list[tuple[bytes, int]]) -> bytes:
    return b"".join(block_hash + ssz.integer_leaf(total) for block_hash, total in records)


def records_of(content: bytes) -> list[tuple[bytes, int]]:
    """Return the records of an epoch: hash and total difficulty of each block."""
    hashes = split(content)
    totals = (int.from_bytes(total, "little") for total in hashes[1::2])
    return list(zip(hashes[::2], totals, strict=True))


# --- Keeping them -----------------------------------------------------------------------------------------------------


def find(tree: Tree, *, extend_lease: Callable[[], None]) -> bytes | NotYet:
    """Return the leaves of a tree, one after the other, verified; from the database, else from where they come from.

    `NotYet` while another worker fetches them. `extend_lease` is called meanwhile. Raises `NodeUnavailable`.
    """
    rows = JumpLeaves.objects.filter(chain_id=tree.source.id, kind=tree.kind, number=tree.number)
    row = rows.first()
    if row is not None and row.is_complete:
        content = bytes(row.content)
        try:
            tree.check(content)
        except WrongLeaves:
            # The database was damaged, or the configuration says something else than it did.
            row_locks.delete_free(rows.filter(is_complete=True))
            row = None
        else:
            note_use(rows, row.used_at)
            return content
    if row is None:
        row, _ = JumpLeaves.objects.get_or_create(chain_id=tree.source.id, kind=tree.kind, number=tree.number)
    lease = leases.claim(rows.filter(is_complete=False), row.pk)
    if lease is None:
        return _fetched_by_another(tree)
    try:
        return _fill(lease, tree, extend_lease)
    except _Taken:
        return _fetched_by_another(tree)


def note_use(rows: QuerySet[Model], used_at: object) -> None:
    """Write down that rows were used, if that was not done lately: what nobody uses is pruned."""
    if used_at is None or used_at < timezone.now() - _USED_WITHIN:  # type: ignore[operator]
        row_locks.update_free(rows, used_at=Now())


class _Taken(Exception):
    """Another worker has taken over the row of leaves."""


def _fetched_by_another(tree: Tree) -> NotYet:
    return NotYet(f"Another worker fetches what blocks of {tree.kind.value} {tree.number} are proven by.")


def _fill(lease: Lease[JumpLeaves], tree: Tree, extend_lease: Callable[[], None]) -> bytes:
    """Fetch what is missing, and note it as complete. Raises `NodeUnavailable`, `_Taken`."""
    # After leaves that were wrong, one node alone is asked at a time, the next after each failure: a liar is passed.
    attempts = lease.row.attempts
    try:
        content = _fetched(lease, tree, extend_lease)
        tree.check(content)
        _write(lease, content, is_complete=True)
        attempts = 0
    except WrongLeaves as wrong:
        attempts += 1
        _write(lease, b"")
        raise NodeUnavailable(str(wrong)) from None
    except NodeUnavailable:
        if attempts and tree.sources > 1:
            attempts += 1
            _write(lease, b"")
        raise
    finally:
        lease.release(None, attempts=attempts)
    return content


def _fetched(lease: Lease[JumpLeaves], tree: Tree, extend_lease: Callable[[], None]) -> bytes:
    def go_on() -> None:
        extend_lease()
        try:
            lease.extend()
        except LeaseLost:
            raise _Taken from None

    unreadable = ""
    try:
        whole = tree.whole(go_on)
    except NodeUnavailable as problem:
        whole, unreadable = None, f"{problem} "
    if whole is not None:
        return whole
    try:
        return _in_parts(lease, tree, go_on)
    except NodeUnavailable as problem:
        raise NodeUnavailable(f"{unreadable}{problem}") from None


def _in_parts(lease: Lease[JumpLeaves], tree: Tree, go_on: Callable[[], None]) -> bytes:
    known = bytes(lease.row.content)
    written = len(known)
    only = lease.row.attempts - 1 if lease.row.attempts else None
    seconds = 0.0
    try:
        while len(known) < tree.size:
            go_on()
            began = time.monotonic()
            part = tree.part(known, only)
            all_of_it = min(_PER_PART * tree.leaf_size, tree.size - len(known))
            known += part
            if len(part) < all_of_it:
                seconds += time.monotonic() - began
            _check_pace(tree, seconds)
            if len(known) - written >= _PER_WRITE:
                _write(lease, known)
                written = len(known)
    except NodeUnavailable:
        if len(known) > written:
            _write(lease, known)
        raise
    return known


def _check_pace(tree: Tree, seconds: float) -> None:
    if seconds > _MOST_SECONDS:
        raise NodeUnavailable(f"A node of {tree.source.label} answers too slowly.")


def _write(lease: Lease[JumpLeaves], content: bytes, *, is_complete: bool = False) -> None:
    rows = JumpLeaves.objects.filter(pk=lease.row.pk)
    try:
        lease.write(lambda: rows.update(content=content, is_complete=is_complete))
    except LeaseLost:
        raise _Taken from None
