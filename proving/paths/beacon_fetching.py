"""The fetching of beacon data, which proves old blocks, from era files and beacon nodes.

All data is verified before it is used, so a source with false data can only cause delays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, ClassVar, TypeVar

from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from chains.beacon import jumps, shipped, ssz
from chains.beacon.beacon_client import BeaconClient
from chains.beacon.blocks import BeaconHeader, ExecutionBranch
from chains.beacon.era_files import EraFiles, split
from chains.beacon.jumps import BLOCK_ROOTS, RECORDS_DEPTH, Anchor, BeaconChain, CannotProve
from chains.chains_file import Chain, UnknownChain
from chains.encoding import hex_data
from chains.nodes.node_errors import NodeUnavailable
from config.configured_chains import get_beacon_client, get_chains, get_era_files
from config.database import due_rows
from proving.models import BeaconAnchor, JumpLeaves, JumpLeavesKind
from proving.sources import NotYet
from proving.working.lanes import HeldLane
from queries.waits import wait

Result = TypeVar("Result")

# Number of blocks whose branches a process caches, because each reconcile asks for them again.
_BLOCKS = 512
# Bytes of a root of a period, and of a record of an epoch.
_ROOT, _RECORD = 32, 64
# Minimum time between two updates of when a row was used, and for which a failed request for a state counts.
_USED_WITHIN = timedelta(days=1)


def _first_of(
    source_id: int,
    by_files: Callable[[EraFiles], Result] | None,
    by_nodes: Callable[[BeaconClient], Result] | None = None,
) -> Result:
    """Return data from era files, or else from beacon nodes. Raises `NodeUnavailable` with the errors of both.

    Files come first. They have blocks of any age, and one file has the roots of a whole period, for which a node needs
    thousands of requests. Most nodes only keep blocks of some months.
    """
    files, client = get_era_files(source_id), get_beacon_client(source_id)
    problems: list[str] = []
    if files and by_files:
        try:
            return by_files(files)
        except NodeUnavailable as problem:
            problems.append(str(problem))
    if client and by_nodes:
        try:
            return by_nodes(client)
        except NodeUnavailable as problem:
            problems.append(str(problem))
    raise NodeUnavailable(" ".join(problems) or f"Chain {source_id} has no source of this beacon data: set era_files.")


@lru_cache(maxsize=_BLOCKS)
def block(source_id: int, root: bytes, slot: int, period_root: bytes) -> ExecutionBranch:
    """Return the execution block of a beacon block, verified against `root`.

    `period_root` is empty if the slot's period isn't over. Raises `NodeUnavailable`, `CannotProve`.
    """

    def by_files(files: EraFiles) -> ExecutionBranch:
        return files.block(slot, period_root, root)

    return _first_of(source_id, by_files if period_root else None, lambda client: client.block(root))


# --- Anchors ----------------------------------------------------------------------------------------------------------


def anchor(source: Chain, chain: BeaconChain, root: bytes) -> Anchor:
    """Return the beacon block with this root, and its state's summaries. Only nodes have summaries.

    Raises `NodeUnavailable`, `CannotProve`.
    """
    rows = BeaconAnchor.objects.filter(chain_id=source.id, root=hex_data(root))
    row = rows.first()
    if row is not None:
        stored = _stored_anchor(row)
        if stored.header.root == root and stored.is_true(chain):
            _note_use(rows, row.used_at)
            return stored
        rows.delete()
    client = get_beacon_client(source.id)
    if client is None:
        raise NodeUnavailable(f"{source.label} has no beacon_urls, which have the data for proofs.")
    header = client.header(root)
    if not chain.capella <= header.slot < chain.end:
        raise CannotProve(f"The state of slot {header.slot}, which the header to jump from names, has no known layout.")
    fetched = client.summaries(header)
    row = BeaconAnchor(
        chain_id=source.id,
        root=hex_data(header.root),
        slot=header.slot,
        proposer=header.proposer,
        parent_root=hex_data(header.parent_root),
        state_root=hex_data(header.state_root),
        body_root=hex_data(header.body_root),
        summaries=b"".join(b"".join(each) for each in fetched.summaries),
        branch=b"".join(fetched.branch),
    )
    # Another worker may have stored the same row.
    BeaconAnchor.objects.bulk_create([row], ignore_conflicts=True)
    return fetched


# --- Leaves of trees --------------------------------------------------------------------------------------------------
# Jumps lead through block roots of a period of the beacon chain, through the last block roots in a state, or through
# records of an epoch before the Merge. All leaves of a tree are fetched together, and none is stored before all are
# verified.


@dataclass(frozen=True)
class Period:
    """A period of the beacon chain.

    Its leaves are its block roots. Before Capella, the root of the state roots follows.
    """

    source: Chain
    chain: BeaconChain
    number: int
    root: bytes
    """The root of the whole period: one of the historical roots, or that of a summary."""
    block_roots_root: bytes | None = None
    """The root of the block roots. None before Capella, because it isn't known then."""

    kind: ClassVar = JumpLeavesKind.PERIOD

    @property
    def slots(self) -> range:
        return range(self.number << self.chain.period_depth, self.number + 1 << self.chain.period_depth)

    @property
    def size(self) -> int:
        return _ROOT << self.chain.period_depth

    def fetch(self) -> bytes:
        """Return all leaves, verified. Raises `NodeUnavailable`."""
        root = self.block_roots_root
        return _first_of(
            self.source.id, self._from_files, (lambda client: client.block_roots(self.number, root)) if root else None
        )

    def _from_files(self, files: EraFiles) -> bytes:
        roots = files.roots(self.number, self.root)
        if self.block_roots_root:
            return roots.blocks
        return roots.blocks + ssz.tree_root(split(roots.states), self.chain.period_depth)

    def has(self, content: bytes) -> bool:
        """Return whether the content has exactly this tree's leaves."""
        states = content[self.size :]
        root = ssz.tree_root(split(content[: self.size]), self.chain.period_depth)
        if self.block_roots_root:
            return root == self.block_roots_root and not states
        return ssz.merge(root, states) == self.root


@dataclass(frozen=True)
class LastSlots:
    """The slots before a beacon block whose roots the state after the block contains: as many as a period has.

    Its leaves are these roots, by their places in a period. The branch from their root to the state's root follows.
    """

    source: Chain
    chain: BeaconChain
    anchor: BeaconHeader

    kind: ClassVar = JumpLeavesKind.STATE
    root: ClassVar = b""

    @property
    def number(self) -> int:
        return self.anchor.slot

    @property
    def slots(self) -> range:
        return range(max(0, self.anchor.slot - (1 << self.chain.period_depth)), self.anchor.slot)

    @property
    def size(self) -> int:
        return _ROOT << self.chain.period_depth

    def fetch(self) -> bytes:
        """Return all leaves, verified. Raises `NodeUnavailable`."""
        roots, branch = _first_of(self.source.id, None, lambda client: client.last_roots(self.anchor))
        return b"".join([roots, *branch])

    def has(self, content: bytes) -> bool:
        """Return whether the content has exactly this tree's leaves and their branch."""
        root = ssz.tree_root(split(content[: self.size]), self.chain.period_depth)
        return self.chain.is_in_state(self.anchor, BLOCK_ROOTS, root, split(content[self.size :]))


@dataclass(frozen=True)
class Epoch:
    """An epoch of 8,192 blocks before the Merge. Its leaves are records: hash and total difficulty of each block."""

    source: Chain
    chain: BeaconChain
    number: int
    root: bytes

    kind: ClassVar = JumpLeavesKind.EPOCH

    def fetch(self) -> bytes:
        """Return all leaves, verified. Raises `NodeUnavailable`."""
        records = _first_of(self.source.id, lambda files: files.records(self.number, self.root))
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


def leaves(tree: Period | LastSlots | Epoch) -> bytes | NotYet:
    """Return the stored leaves of a tree, verified and joined.

    If none are stored, return `NotYet` and let a worker fetch them (`fetch_leaves`). Raises `NodeUnavailable` if the
    last fetch has failed.
    """
    row, _ = JumpLeaves.objects.get_or_create(chain_id=tree.source.id, kind=tree.kind, number=tree.number)
    rows = JumpLeaves.objects.filter(pk=row.pk)
    # Stored leaves are wrong if the database was damaged, or if the configuration has changed.
    if row.is_complete and tree.has(content := bytes(row.content)):
        _note_use(rows, row.used_at)
        return content
    rows.filter(due_at=None).update(due_at=Now())
    if row.problem:
        raise NodeUnavailable(row.problem)
    return NotYet(wait("beacon_data", kind=tree.kind.value, number=tree.number))


def lack_states(source: Chain) -> bool:
    """Return whether no node served the last state that was needed, within a day."""
    rows = JumpLeaves.objects.filter(chain_id=source.id, kind=JumpLeavesKind.STATE, used_at__gt=Now() - _USED_WITHIN)
    asked = rows.exclude(is_complete=False, problem="").order_by("-used_at", "-number")
    return asked.values_list("is_complete", flat=True).first() is False


def fetch_leaves(lane: HeldLane, key: object) -> None:
    """Fetch leaves, and store them. A worker calls this."""
    claim = lane.write(partial(due_rows.claim, JumpLeaves.objects.all(), [key]))
    for row in claim.rows:
        content, problem = b"", ""
        try:
            content = _tree_of(row).fetch()
        except (NodeUnavailable, UnknownChain) as error:
            problem = str(error)
        # After a failure the row isn't due again. Blocks that still need the leaves will make it due.
        lane.write(partial(claim.end, [row], None, content=content, is_complete=not problem, problem=problem))


def _tree_of(row: JumpLeaves) -> Period | LastSlots | Epoch:
    """Return the tree of a row, from shipped lists or stored anchors. Raises `NodeUnavailable`."""
    source = get_chains().chain(row.chain_id)
    if (chain := source.beacon_chain) is None:
        raise NodeUnavailable(f"{source.label} has no known beacon chain.")
    if row.kind == JumpLeavesKind.EPOCH:
        return Epoch(source, chain, row.number, shipped.epochs(chain)[row.number])
    anchors = BeaconAnchor.objects.filter(chain_id=source.id)
    if row.kind == JumpLeavesKind.STATE:
        for anchor_row in anchors.filter(slot=row.number).order_by("-pk"):
            if hex_data((header := _stored_anchor(anchor_row).header).root) == anchor_row.root:
                return LastSlots(source, chain, header)
        raise NodeUnavailable(f"No beacon block of {source.label} at slot {row.number} is known.")
    index = row.number - chain.periods_before_capella
    if index < 0:
        return Period(source, chain, row.number, shipped.historical_roots(chain)[row.number])
    for stored in map(_stored_anchor, anchors.order_by("-slot")):
        if stored.is_true(chain) and index < len(stored.summaries):
            summary = stored.summaries[index]
            return Period(source, chain, row.number, ssz.merge(*summary), summary[0])
    raise NodeUnavailable(f"No state of {source.label} is known with a summary of period {row.number}.")


def _stored_anchor(row: BeaconAnchor) -> Anchor:
    """Return a stored beacon block. It isn't verified yet."""
    roots = (bytes.fromhex(root[2:]) for root in (row.parent_root, row.state_root, row.body_root))
    hashes = split(bytes(row.summaries))
    summaries = list(zip(hashes[::2], hashes[1::2], strict=True))
    return Anchor(BeaconHeader(row.slot, row.proposer, *roots), summaries, split(bytes(row.branch)))


def _note_use(rows: QuerySet[Any], used_at: datetime) -> None:
    """Store the time of use, unless it was stored recently. Rows that aren't used are pruned."""
    if used_at < timezone.now() - _USED_WITHIN:
        rows.update(used_at=Now())
