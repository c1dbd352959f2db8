"""The leaves of trees that jumps lead through, kept in the database: block roots of a period of the beacon chain, and
records of an epoch before the Merge.

All leaves of a tree are fetched at once, and none is kept before all are verified.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from chains.beacon import jumps, ssz
from chains.beacon.era_files import EraFiles, split
from chains.beacon.jumps import RECORDS_DEPTH, BeaconChain
from chains.chains_file import Chain
from chains.node_errors import NodeUnavailable
from config.configured_chains import get_beacon_client, get_era_files
from database import leases, row_locks
from database.leases import LeaseLost
from proving.models import JumpLeaves, JumpLeavesKind
from proving.sources import NotYet

Result = TypeVar("Result")

_ROOT, _RECORD = 32, 64
# How often a use is written down.
_USED_WITHIN = timedelta(days=1)


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

    @property
    def size(self) -> int:
        return _ROOT << self.chain.period_depth

    def fetch(self, go_on: Callable[[], None]) -> bytes:
        """Return all leaves, verified. `go_on` is called before each exchange. Raises `NodeUnavailable`."""
        files, client = get_era_files(self.source.id), get_beacon_client(self.source.id)
        ways: list[Callable[[], bytes]] = []
        if files:
            ways.append(lambda: self._of_files(files, go_on))
        if client and (root := self.block_roots_root):
            ways.append(lambda: client.block_roots(self.number, root, go_on=go_on))
        return first_of(ways)

    def _of_files(self, files: EraFiles, go_on: Callable[[], None]) -> bytes:
        roots = files.roots(self.number, self.root, go_on=go_on)
        if self.block_roots_root:
            return roots.blocks
        return roots.blocks + ssz.tree_root(split(roots.states), self.chain.period_depth)

    def has(self, content: bytes) -> bool:
        """Return whether these are all leaves."""
        states = content[self.size :]
        root = ssz.tree_root(split(content[: self.size]), self.chain.period_depth)
        if self.block_roots_root:
            return root == self.block_roots_root and not states
        return ssz.merge(root, states) == self.root


@dataclass(frozen=True)
class Epoch:
    """The records of an epoch of 8,192 blocks before the Merge: hash and total difficulty of each."""

    source: Chain
    chain: BeaconChain
    number: int
    root: bytes

    kind: ClassVar = JumpLeavesKind.EPOCH

    def fetch(self, go_on: Callable[[], None]) -> bytes:
        files = get_era_files(self.source.id)
        assert files is not None, "jump_branches.why_not has asked"
        records = files.records(self.number, self.root, go_on=go_on)
        return b"".join(block_hash + ssz.integer_leaf(total) for block_hash, total in records)

    def has(self, content: bytes) -> bool:
        size = _RECORD * min(1 << RECORDS_DEPTH, self.chain.blocks_before_merge - (self.number << RECORDS_DEPTH))
        if len(content) != size:
            return False
        return ssz.list_root(jumps.record_leaves(records_of(content)), RECORDS_DEPTH) == self.root


def records_of(content: bytes) -> list[tuple[bytes, int]]:
    """Return the records of an epoch: hash and total difficulty of each block."""
    hashes = split(content)
    totals = (int.from_bytes(total, "little") for total in hashes[1::2])
    return list(zip(hashes[::2], totals, strict=True))


def first_of(ways: Iterable[Callable[[], Result]]) -> Result:
    """Return what the first of several ways leads to that leads anywhere. Raises `NodeUnavailable`, what all said."""
    problems: list[str] = []
    for way in ways:
        try:
            return way()
        except NodeUnavailable as problem:
            problems.append(str(problem))
    raise NodeUnavailable(" ".join(problems))


def find(tree: Period | Epoch, *, extend_lease: Callable[[], None]) -> bytes | NotYet:
    """Return the leaves of a tree, one after the other, verified; from the database, else from where they come from.

    `NotYet` while another worker fetches them. `extend_lease` is called meanwhile. Raises `NodeUnavailable`.
    """
    row, _ = JumpLeaves.objects.get_or_create(chain_id=tree.source.id, kind=tree.kind, number=tree.number)
    # What is stored isn't right where the database was damaged, or the configuration said something else then.
    if row.is_complete and tree.has(content := bytes(row.content)):
        note_use(JumpLeaves.objects.filter(pk=row.pk), row.used_at)
        return content
    lease = leases.claim(JumpLeaves.objects.all(), row.pk)
    if lease is None:
        return NotYet(f"Another worker fetches what blocks of {tree.kind.value} {tree.number} are proven by.")

    def go_on() -> None:
        extend_lease()
        # Where another has taken it over, both come to the same.
        with suppress(LeaseLost):
            lease.extend()

    found: dict[str, Any] = {}
    try:
        content = tree.fetch(go_on)
        found = {"content": content, "is_complete": True}
    finally:
        lease.release(None, **found)
    return content


def note_use(rows: QuerySet[Model], used_at: object) -> None:
    """Write down that rows were used, if that was not done lately: what nobody uses is pruned."""
    if used_at is None or used_at < timezone.now() - _USED_WITHIN:  # type: ignore[operator]
        row_locks.update_free(rows, used_at=Now())
