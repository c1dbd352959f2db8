"""Branches of the beacon chain to old blocks of a source chain: from where the data come, and that they are true.

What beacon nodes and era files say is verified before it is used: one that lies can only delay.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial

from chains.beacon import jumps, shipped, ssz
from chains.beacon.blocks import BeaconHeader, ExecutionBranch
from chains.beacon.era_files import split
from chains.beacon.jumps import RECORDS_DEPTH, Anchor, BeaconChain, CannotProve
from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.header import Header
from chains.node_errors import NodeUnavailable
from chains.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, OLD_BLOCK, BlockBranch
from config.configured_chains import get_beacon_client, get_era_files
from proving import jump_leaves
from proving.jump_leaves import Epoch, Period
from proving.models import BeaconAnchor
from proving.sources import NotYet

# Blocks whose branches a process remembers: a reconcile asks again and again.
_BLOCKS = 512
# The last second that a `datetime` can tell.
_LATEST = 253_402_300_799


def why_not(source: Chain, target: Header | int) -> str:
    """Say in a sentence why no jump to a block can be had; empty where one may be. Asks no node.

    Of a `target` by its number less is known than of a header.
    """
    chain = source.beacon_chain
    if chain is None:
        return f"{source.label} has no known beacon chain, by which old blocks are proven."
    number = target if isinstance(target, int) else target.number
    if number < chain.blocks_before_merge:
        return _why_not_by_files(source, shipped.epochs(chain))
    if isinstance(target, int):
        has_some = source.beacon_urls or source.era_files
        return "" if has_some else f"{source.label} has neither beacon_urls nor era_files, which tell of old blocks."
    try:
        slot = chain.slot_at(target.timestamp)
        chain.layout(slot)
    except CannotProve as cannot:
        return f"Block {number} of {source.label} can't be proven by the beacon chain: {cannot}"
    if slot < chain.capella:
        return _why_not_by_files(source, shipped.historical_roots(chain))
    return "" if source.beacon_urls else f"{source.label} has no beacon_urls, which tell what blocks are proven by."


def _why_not_by_files(source: Chain, shipped_list: Sequence[bytes]) -> str:
    if not shipped_list:
        return f"No list is known by which blocks of {source.label} before Capella are proven."
    return (
        "" if source.era_files else f"{source.label} has no era_files, and blocks before Capella are proven by these."
    )


def operation(source: Chain, target: Header) -> int:
    """Return the operation of the packed format that a jump to a block is. Only an `OLD_BLOCK` begins at a header."""
    chain = source.beacon_chain
    if chain and target.number < chain.blocks_before_merge:
        return BLOCK_BEFORE_MERGE
    return BLOCK_BEFORE_CAPELLA if chain and target.timestamp < chain.time_of(chain.capella) else OLD_BLOCK


def branch_to(
    source: Chain, origin: Header | None, target: Header, *, extend_lease: Callable[[], None]
) -> BlockBranch | NotYet:
    """Return the branch from the beacon root in the header of `origin`, its field 19, to the hash of `target`.

    `origin` is needed for an `OLD_BLOCK` alone. The branch is verified: it leads to both. `NotYet` where the state of
    that beacon root does not yet summarise the target's period, or another worker is just fetching what is needed.
    `extend_lease` is called between steps that take long. Raises `NodeUnavailable`, a sentence.
    """
    if why := why_not(source, target):
        raise NodeUnavailable(why)
    chain = source.beacon_chain
    assert chain is not None, "why_not has asked"
    try:
        if (kind := operation(source, target)) == OLD_BLOCK:
            return _old(source, chain, origin, target, extend_lease)
        before = _before_merge if kind == BLOCK_BEFORE_MERGE else _before_capella
        return before(source, chain, target, extend_lease)
    except CannotProve as cannot:
        raise NodeUnavailable(f"Block {target.number} of {source.label} can't be proven: {cannot}") from None


def _old(
    source: Chain, chain: BeaconChain, origin: Header | None, target: Header, extend_lease: Callable[[], None]
) -> BlockBranch | NotYet:
    root = origin.beacon_root if origin else b""
    if origin is None or not root:
        raise CannotProve("The header to jump from names no beacon block.")
    anchor = _anchor(source, chain, root, extend_lease)
    period = chain.period(chain.slot_at(target.timestamp))
    index = period - chain.periods_before_capella
    if index >= len(anchor.summaries):
        ends = datetime.fromtimestamp(min(chain.time_of((period + 1) << chain.period_depth), _LATEST), UTC)
        return NotYet(
            f"Block {target.number} of {source.label} is too new for a jump from block {origin.number}: the beacon "
            f"chain summarises it from {ends:%Y-%m-%d %H:%M:%S} UTC on."
        )
    summary = anchor.summaries[index]
    wanted = Period(source, chain, period, ssz.merge(*summary), summary[0])
    roots = jump_leaves.find(wanted, extend_lease=extend_lease)
    if isinstance(roots, NotYet):
        return roots
    extend_lease()
    block_roots = split(roots)
    block = _block_of(chain, target, block_roots, wanted.root)
    return BlockBranch(OLD_BLOCK, jumps.old(chain, block, block_roots, anchor))


def _before_capella(
    source: Chain, chain: BeaconChain, target: Header, extend_lease: Callable[[], None]
) -> BlockBranch | NotYet:
    historical_roots = shipped.historical_roots(chain)
    period = chain.period(chain.slot_at(target.timestamp))
    wanted = Period(source, chain, period, historical_roots[period], None)
    roots = jump_leaves.find(wanted, extend_lease=extend_lease)
    if isinstance(roots, NotYet):
        return roots
    extend_lease()
    block_roots, state_roots_root = split(roots[: wanted.size]), roots[wanted.size :]
    block = _block_of(chain, target, block_roots, wanted.root)
    branch = jumps.before_capella(chain, block, block_roots, state_roots_root, historical_roots)
    return BlockBranch(BLOCK_BEFORE_CAPELLA, branch)


def _before_merge(
    source: Chain, chain: BeaconChain, target: Header, extend_lease: Callable[[], None]
) -> BlockBranch | NotYet:
    epochs = shipped.epochs(chain)
    number, place = divmod(target.number, 1 << RECORDS_DEPTH)
    content = jump_leaves.find(Epoch(source, chain, number, epochs[number]), extend_lease=extend_lease)
    if isinstance(content, NotYet):
        return content
    records = jump_leaves.records_of(content)
    if records[place][0] != target.hash:
        raise CannotProve("Another block was at this number.")
    return BlockBranch(BLOCK_BEFORE_MERGE, jumps.before_merge(chain, target.number, records, epochs))


# --- Blocks -----------------------------------------------------------------------------------------------------------


def _block_of(chain: BeaconChain, target: Header, block_roots: Sequence[bytes], period_root: bytes) -> ExecutionBranch:
    """Return the beacon block of an execution block, verified. Raises `NodeUnavailable`, `CannotProve`."""
    slot = chain.slot_at(target.timestamp)
    place = chain.place(slot)
    if place and block_roots[place] == block_roots[place - 1]:
        raise CannotProve(f"The beacon chain has no block at slot {slot}.")
    block = _beacon_block(chain.id, block_roots[place], slot, period_root)
    if block.block_hash != target.hash:
        raise CannotProve(f"The beacon chain has another block at slot {slot}.")
    return block


@lru_cache(maxsize=_BLOCKS)
def _beacon_block(source_id: int, root: bytes, slot: int, period_root: bytes) -> ExecutionBranch:
    client, files = get_beacon_client(source_id), get_era_files(source_id)
    ways: list[Callable[[], ExecutionBranch]] = []
    if client:
        ways.append(partial(client.block, root, slot))
    if files:
        ways.append(partial(files.block, slot, period_root, root))
    return jump_leaves.first_of(ways)


# --- Anchors ----------------------------------------------------------------------------------------------------------


def _anchor(source: Chain, chain: BeaconChain, root: bytes, extend_lease: Callable[[], None]) -> Anchor:
    """Return the beacon block with this root, and what its state summarises. Raises as `branch_to`, `CannotProve`."""
    rows = BeaconAnchor.objects.filter(chain_id=source.id, root=hex_data(root))
    row = rows.first()
    if row is not None:
        anchor = _stored(chain, row)
        if anchor.header.root == root and anchor.is_true:
            jump_leaves.note_use(rows, row.used_at)
            return anchor
        rows.delete()
    client = get_beacon_client(source.id)
    if client is None:
        raise NodeUnavailable(f"{source.label} has no beacon_urls, which tell what blocks are proven by.")
    extend_lease()
    header = client.header(root)
    extend_lease()
    if not chain.capella <= header.slot < chain.end:
        raise CannotProve(f"The state of slot {header.slot}, which the header to jump from names, has no known layout.")
    anchor = client.summaries(header)
    _store(source, anchor)
    return anchor


def _store(source: Chain, anchor: Anchor) -> None:
    header = anchor.header
    row = BeaconAnchor(
        chain_id=source.id,
        root=hex_data(header.root),
        slot=header.slot,
        proposer=header.proposer,
        parent_root=hex_data(header.parent_root),
        state_root=hex_data(header.state_root),
        body_root=hex_data(header.body_root),
        shipped=0,
        summaries=b"".join(b"".join(each) for each in anchor.summaries),
        branch=b"".join(anchor.branch),
    )
    # Another worker may have stored the same.
    BeaconAnchor.objects.bulk_create([row], ignore_conflicts=True)


def _stored(chain: BeaconChain, row: BeaconAnchor) -> Anchor:
    roots = (bytes.fromhex(root[2:]) for root in (row.parent_root, row.state_root, row.body_root))
    summaries = [*shipped.summaries(chain)[: row.shipped], *shipped.pairs(bytes(row.summaries))]
    return Anchor(BeaconHeader(row.slot, row.proposer, *roots), summaries, split(bytes(row.branch)))
