"""Jumps: from a block that the registry trusts, whose header names the root of a beacon block, to one of any age.

Any block will do to begin at that is final and young enough: the state of the beacon block remembers all periods that
were over by then. What is fetched of it serves all later jumps, so the origin of the last one comes first, for as long
as the registry trusts it.

Only a connection whose registry has a beacon history imports this.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from chains.beacon import jumps, shipped, ssz
from chains.beacon.blocks import ExecutionBranch
from chains.beacon.era_files import split
from chains.beacon.jumps import RECORDS_DEPTH, BeaconChain, CannotProve
from chains.chains_file import Chain
from chains.header import ExecutionHeader
from chains.node_errors import NodeUnavailable
from chains.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, OLD_BLOCK, BlockBranch, encode_parent_hash
from proving import deployments, heads, sources
from proving.connections import OpenConnection
from proving.gas import Amount
from proving.paths import beacon_fetching
from proving.paths.beacon_fetching import Epoch, Period
from proving.paths.checkpoints import Jump
from proving.sources import NotYet, Preparation, Start

# The last second that a `datetime` can tell.
_LATEST = 253_402_300_799
# The part of a period, in which the newest one counts as not over yet: the slots before its first block may be empty.
_MARGIN = 64
# Of having the registry keep a hash by the header after it, as measured.
_KEPT_GAS = Amount(45_000, 60_000)
# No block hash source vouches for it; a hash that the registry keeps is accepted whatever the number.
_NO_BLOCK = 2**256 - 1


# --- Whether one can be had -------------------------------------------------------------------------------------------


def why_not(source: Chain, target: ExecutionHeader | int) -> str:
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


def operation(source: Chain, target: ExecutionHeader) -> int:
    """Return the operation of the packed format that a jump to a block is. Only an `OLD_BLOCK` begins at a header."""
    chain = source.beacon_chain
    if chain and target.number < chain.blocks_before_merge:
        return BLOCK_BEFORE_MERGE
    return BLOCK_BEFORE_CAPELLA if chain and target.timestamp < chain.time_of(chain.capella) else OLD_BLOCK


def may_be_had(connection: OpenConnection, target: ExecutionHeader) -> bool:
    """Return whether a jump to a block may be had now. Asks nothing but the source's head, and that only if it may.

    Raises `NodeUnavailable`.
    """
    source = connection.source_rpc.chain
    if connection.beacon_chain is None or why_not(source, target):
        return False
    is_old = operation(source, target) == OLD_BLOCK
    return not is_old or leads_to(connection, heads.recent(source, connection.source_rpc).latest, target)


# --- Where it begins --------------------------------------------------------------------------------------------------


def plan(connection: OpenConnection, target: ExecutionHeader) -> Jump | None:
    """Plan the jump to a block that costs least; None where the beacon chain doesn't lead there now.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    if not may_be_had(connection, target):
        return None
    rpc, noted = connection.source_rpc, connection.registry.jump_origin
    if operation(rpc.chain, target) != OLD_BLOCK:
        return Jump()
    if noted is not None and (trusted := _trusted(connection, _usable(connection, [noted], target))):
        return Jump(trusted)
    source = sources.of(connection.config)
    # A reorganisation would waste what builds on a younger one. On its own chain, the header after it is final too.
    youngest = heads.recent(rpc.chain, rpc).final - connection.is_own
    starts = [source.reach(connection, number) for number in (youngest, target.number)]
    usable = _usable(connection, [start.number for start in starts if isinstance(start, Start)], target)
    if trusted := _trusted(connection, usable):
        return Jump(trusted)
    return Jump(usable[0], Start(usable[0].number)) if usable else None


def begin(connection: OpenConnection, number: int) -> Start | Preparation | NotYet:
    """Return the block, which `plan` named, with the calls that make it trusted from then on. Raises as `plan`."""
    if not connection.is_own:
        return sources.of(connection.config).begin(connection, number)
    after = connection.source_rpc.known_header(number + 1)
    return Start(number, ((connection.registry.contract.address, encode_parent_hash([after.encode()])),))


def gas(connection: OpenConnection) -> Amount:
    """Return the gas of these calls."""
    return _KEPT_GAS if connection.is_own else sources.of(connection.config).gas(connection.config)


def leads_to(connection: OpenConnection, origin: ExecutionHeader, target: ExecutionHeader) -> bool:
    """Return whether the state that a header names remembers the block, as far as their times tell."""
    chain = connection.beacon_chain
    assert chain is not None, "only then a jump is asked about"
    try:
        slot, of_target = (chain.slot_at(header.timestamp) for header in (origin, target))
    except CannotProve:
        return False
    # The header names the beacon block before its own.
    before = slot - 1 - (1 << chain.period_depth) // _MARGIN
    return before >= 0 and chain.period(before) > chain.period(of_target)


def _usable(connection: OpenConnection, numbers: list[int], target: ExecutionHeader) -> list[ExecutionHeader]:
    """Return those blocks, as the source chain has them now, that lead to the target."""
    found = connection.source_rpc.headers(numbers) if numbers else []
    return [header for header in found if header is not None and leads_to(connection, header, target)]


def _trusted(connection: OpenConnection, headers: list[ExecutionHeader]) -> ExecutionHeader | None:
    if not headers:
        return None
    asked = [(_NO_BLOCK if connection.is_own else header.number, header.hash) for header in headers]
    # What is pending may fail, and with it what was sent behind it.
    vouched = deployments.vouches(connection.destination_rpc, connection.registry, asked, at="latest")
    return next((header for header, is_vouched_for in zip(headers, vouched, strict=True) if is_vouched_for), None)


# --- What proves it ---------------------------------------------------------------------------------------------------


def branch_to(source: Chain, origin: ExecutionHeader | None, target: ExecutionHeader) -> BlockBranch | NotYet:
    """Return the branch from the beacon root in the header of `origin`, its field 19, to the hash of `target`.

    `origin` is needed for an `OLD_BLOCK` alone. The branch is verified: it leads to both. `NotYet` where the state of
    that beacon root does not yet summarise the target's period, or what is needed is being fetched.
    Raises `NodeUnavailable`, a sentence.
    """
    if why := why_not(source, target):
        raise NodeUnavailable(why)
    chain = source.beacon_chain
    assert chain is not None, "why_not has asked"
    try:
        if (kind := operation(source, target)) == OLD_BLOCK:
            return _old(source, chain, origin, target)
        before = _before_merge if kind == BLOCK_BEFORE_MERGE else _before_capella
        return before(source, chain, target)
    except CannotProve as cannot:
        raise NodeUnavailable(f"Block {target.number} of {source.label} can't be proven: {cannot}") from None


def _old(
    source: Chain, chain: BeaconChain, origin: ExecutionHeader | None, target: ExecutionHeader
) -> BlockBranch | NotYet:
    if origin is None or not origin.beacon_root:
        raise CannotProve("The header to jump from names no beacon block.")
    anchor = beacon_fetching.anchor(source, chain, origin.beacon_root)
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
    roots = beacon_fetching.leaves(wanted)
    if isinstance(roots, NotYet):
        return roots
    block_roots = split(roots)
    block = _block_of(chain, target, block_roots, wanted.root)
    return BlockBranch(OLD_BLOCK, jumps.old(chain, block, block_roots, anchor))


def _before_capella(source: Chain, chain: BeaconChain, target: ExecutionHeader) -> BlockBranch | NotYet:
    historical_roots = shipped.historical_roots(chain)
    period = chain.period(chain.slot_at(target.timestamp))
    wanted = Period(source, chain, period, historical_roots[period])
    roots = beacon_fetching.leaves(wanted)
    if isinstance(roots, NotYet):
        return roots
    block_roots, state_roots_root = split(roots[: wanted.size]), roots[wanted.size :]
    block = _block_of(chain, target, block_roots, wanted.root)
    branch = jumps.before_capella(chain, block, block_roots, state_roots_root, historical_roots)
    return BlockBranch(BLOCK_BEFORE_CAPELLA, branch)


def _before_merge(source: Chain, chain: BeaconChain, target: ExecutionHeader) -> BlockBranch | NotYet:
    epochs = shipped.epochs(chain)
    number, place = divmod(target.number, 1 << RECORDS_DEPTH)
    content = beacon_fetching.leaves(Epoch(source, chain, number, epochs[number]))
    if isinstance(content, NotYet):
        return content
    records = beacon_fetching.records_of(content)
    if records[place][0] != target.hash:
        raise CannotProve("Another block was at this number.")
    return BlockBranch(BLOCK_BEFORE_MERGE, jumps.before_merge(chain, target.number, records, epochs))


def _block_of(
    chain: BeaconChain, target: ExecutionHeader, block_roots: Sequence[bytes], period_root: bytes
) -> ExecutionBranch:
    """Return the beacon block of an execution block, verified. Raises `NodeUnavailable`, `CannotProve`."""
    slot = chain.slot_at(target.timestamp)
    place = chain.place(slot)
    if place and block_roots[place] == block_roots[place - 1]:
        raise CannotProve(f"The beacon chain has no block at slot {slot}.")
    block = beacon_fetching.block(chain.id, block_roots[place], slot, period_root)
    if block.block_hash != target.hash:
        raise CannotProve(f"The beacon chain has another block at slot {slot}.")
    return block
