"""Jumps: from a block that the registry trusts, whose header has a beacon root, to a block of any age.

A jump may begin at any final block that is recent enough, because the state of its beacon block summarises all earlier
periods. The state also has the block roots of the last slots. Jumps lead through these to blocks of a period that it
doesn't summarise yet. Data that was fetched for one origin serves all later jumps. So the origin of the last jump
is used as long as the registry trusts it.

Only connections whose registry has a beacon history import this module.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from chains.beacon import jumps, shipped, ssz
from chains.beacon.blocks import ExecutionBranch
from chains.beacon.era_files import split
from chains.beacon.jumps import RECORDS_DEPTH, Anchor, BeaconChain, CannotProve
from chains.chains_file import Chain
from chains.nodes.node_errors import NodeUnavailable
from chains.tries.header import Header
from chains.tries.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, OLD_BLOCK, BlockBranch, encode_parent_hash
from proving import sources
from proving.connections import OpenConnection
from proving.packing.gas import Amount
from proving.paths import beacon_fetching, checkpoints
from proving.paths.beacon_fetching import Epoch, LastSlots, Period
from proving.paths.checkpoints import Jump
from proving.registries import deployments
from proving.sources import NotYet, Preparation, Start
from proving.working import heads
from queries import clock
from queries.waits import wait

# A period counts as summarised only after this fraction (1/64) of the next period, whose first slots may be empty.
_MARGIN = 64
# Measured gas (expected, at most) of recording a block's hash in the registry. The next block's header proves it.
_KEPT_GAS = Amount(22_900, 37_900)
# No block hash source vouches for this number. The registry accepts a hash that it keeps with any number.
_NO_BLOCK = 2**256 - 1


# --- Possible jumps ---------------------------------------------------------------------------------------------------


def why_not(source: Chain, target: Header | int) -> str:
    """Return a sentence about why no jump can lead to a block. Empty if one may. No node is asked.

    If `target` is a number, fewer checks are possible than with a header.
    """
    chain = source.beacon_chain
    if chain is None:
        return f"{source.label} has no known beacon chain, which is necessary to prove old blocks."
    number = target if isinstance(target, int) else target.number
    if number < chain.blocks_before_merge:
        return _why_not_by_files(source, shipped.epochs(chain))
    if isinstance(target, int):
        has_some = source.beacon_urls or source.era_files
        return "" if has_some else f"{source.label} has neither beacon_urls nor era_files, which have old blocks."
    try:
        slot = chain.slot_at(target.timestamp)
        chain.layout(slot)
    except CannotProve as cannot:
        return f"Block {number} of {source.label} can't be proven through the beacon chain: {cannot}"
    if slot < chain.capella:
        return _why_not_by_files(source, shipped.historical_roots(chain))
    return "" if source.beacon_urls else f"{source.label} has no beacon_urls, which have the data for proofs."


def why_not_to_all(source: Chain) -> str:
    """Return a sentence about why no jump can lead to blocks before Capella. Empty if one may, or if there are none."""
    chain = source.beacon_chain
    return _why_not_by_files(source, shipped.historical_roots(chain)) if chain and chain.capella else ""


def _why_not_by_files(source: Chain, shipped_list: Sequence[bytes]) -> str:
    if not shipped_list:
        return f"No list is known for blocks of {source.label} before Capella."
    return (
        "" if source.era_files else f"{source.label} has no era_files, which are necessary for blocks before Capella."
    )


def operation(source: Chain, target: Header) -> int:
    """Return the operation in the packed format for a jump to a block. Only an `OLD_BLOCK` begins at a header."""
    chain = source.beacon_chain
    if chain and target.number < chain.blocks_before_merge:
        return BLOCK_BEFORE_MERGE
    return BLOCK_BEFORE_CAPELLA if chain and target.timestamp < chain.time_of(chain.capella) else OLD_BLOCK


def may_be_had(connection: OpenConnection, target: Header, *, by_roots: bool = False) -> bool:
    """Return whether a jump may lead to a block now: through summaries, or through the last block roots in a state.

    The only possible requests are for the source's head, and once for what the registry accepts. Raises
    `NodeUnavailable`, `RpcRefused`.
    """
    source, chain = connection.source_rpc.chain, connection.beacon_chain
    if chain is None or why_not(source, target) or (by_roots and not accepts_roots(connection)):
        return False
    if operation(source, target) != OLD_BLOCK:
        return not by_roots
    # The registry may still trust an earlier block, at which a jump began before a fork.
    latest = heads.recent(source, connection.source_rpc).latest.timestamp
    return _is_reached(chain, min(latest, _last_origin(chain)), target, by_roots=by_roots)


def accepts_roots(connection: OpenConnection) -> bool:
    """Return whether the registry accepts branches through a state's block roots. Raises the errors of `plan`."""
    return deployments.proves_by_roots(connection.destination_rpc, connection.registry.beacon_history)


# --- Origins ----------------------------------------------------------------------------------------------------------


def plan(connection: OpenConnection, target: Header, *, by_roots: bool = False) -> Jump | None:
    """Plan the cheapest jump to a block. None if the beacon chain doesn't lead there now.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    if not may_be_had(connection, target, by_roots=by_roots):
        return None
    usable = partial(_usable, connection, target=target, by_roots=by_roots)
    rpc, noted = connection.source_rpc, connection.registry.jump_origin
    if operation(rpc.chain, target) != OLD_BLOCK:
        return Jump()
    if noted is not None and (trusted := _trusted(connection, usable([noted]))):
        return Jump(trusted, by_roots=by_roots)
    source = sources.of(connection.config)
    # A reorganisation would waste a jump from a younger block. For a chain's own blocks, the next header must be final
    # too.
    youngest = heads.recent(rpc.chain, rpc).final - connection.is_own
    starts = [source.reach(connection, number) for number in (youngest, target.number)]
    origins = usable([start.number for start in starts if isinstance(start, Start)])
    if trusted := _trusted(connection, origins):
        return Jump(trusted, by_roots=by_roots)
    return Jump(origins[0], Start(origins[0].number), by_roots) if origins else None


def begin(connection: OpenConnection, number: int) -> Start | Preparation | NotYet:
    """Return the block that `plan` named, with the calls that make it trusted. Raises the errors of `plan`."""
    if not connection.is_own:
        return sources.of(connection.config).begin(connection, number)
    after = connection.source_rpc.known_header(number + 1)
    keep = connection.registry.contract.address, encode_parent_hash([after.encode()])
    return Start(number, (keep,), gas(connection).expected)


def gas(connection: OpenConnection) -> Amount:
    """Return the gas of the calls that `begin` returns."""
    if not connection.is_own:
        return sources.of(connection.config).gas(connection.config)
    word = connection.prices.new_word
    return _KEPT_GAS + Amount(word, word)


def leads_to(connection: OpenConnection, origin: Header, target: Header, *, by_roots: bool = False) -> bool:
    """Return whether the registry knows the beacon state of `origin`, and whether it summarises `target`'s period.

    `by_roots`: or whether it contains the root of the block that names `target`. Their times decide.
    """
    chain = connection.beacon_chain
    assert chain is not None, "only then a jump is asked about"
    is_known = origin.timestamp <= _last_origin(chain)
    return is_known and _is_reached(chain, origin.timestamp, target, by_roots=by_roots)


def _last_origin(chain: BeaconChain) -> int:
    """Return the time of the last header whose beacon root is certainly that of a block before the chain's end."""
    return chain.time_of(chain.end)


def _is_reached(chain: BeaconChain, at: int, target: Header, *, by_roots: bool) -> bool:
    """Return whether the beacon state in a header of the time `at` leads to `target`, as `leads_to` says."""
    try:
        slot, of_target = (chain.slot_at(timestamp) for timestamp in (at, target.timestamp))
    except CannotProve:
        return False
    # The header's beacon root is that of the beacon block before its own. The block that names the target may come some
    # slots later.
    before = slot - 1 - (1 << chain.period_depth) // _MARGIN
    naming = of_target + (of_target >= chain.gloas)
    return before > naming if by_roots else before >= 0 and chain.period(before) > chain.period(naming)


def _usable(connection: OpenConnection, numbers: list[int], target: Header, *, by_roots: bool) -> list[Header]:
    """Return the current headers from which a jump leads to the target."""
    origins = checkpoints.headers(connection, numbers)
    return [header for header in origins if leads_to(connection, header, target, by_roots=by_roots)]


def _trusted(connection: OpenConnection, headers: list[Header]) -> Header | None:
    if not headers:
        return None
    blocks = [(_NO_BLOCK if connection.is_own else header.number, header.hash) for header in headers]
    # Pending transactions don't count, because if one fails, the jump fails too.
    vouched = deployments.vouches(connection.destination_rpc, connection.registry, blocks, at="latest")
    return next((header for header, is_vouched_for in zip(headers, vouched, strict=True) if is_vouched_for), None)


# --- Branches ---------------------------------------------------------------------------------------------------------


def branch_to(
    source: Chain, origin: Header | None, target: Header, *, accepts_roots: bool = False
) -> BlockBranch | NotYet:
    """Return the branch from the beacon root in the header of `origin` to the hash of `target`.

    Only an `OLD_BLOCK` needs `origin`. The branch is verified at both ends. Return `NotYet` if the beacon root's state
    doesn't lead there yet, or if data is being fetched. Raises `NodeUnavailable`.
    """
    if why := why_not(source, target):
        raise NodeUnavailable(why)
    chain = source.beacon_chain
    assert chain is not None, "why_not has asked"
    try:
        if (kind := operation(source, target)) == OLD_BLOCK:
            return _old(source, chain, origin, target, accepts_roots=accepts_roots)
        before = _before_merge if kind == BLOCK_BEFORE_MERGE else _before_capella
        return before(source, chain, target)
    except CannotProve as cannot:
        raise NodeUnavailable(f"Block {target.number} of {source.label} can't be proven: {cannot}") from None


def _old(
    source: Chain, chain: BeaconChain, origin: Header | None, target: Header, *, accepts_roots: bool
) -> BlockBranch | NotYet:
    if origin is None or not origin.beacon_root:
        raise CannotProve("The header to jump from names no beacon block.")
    anchor = beacon_fetching.anchor(source, chain, origin.beacon_root)
    slot, before = chain.slot_at(target.timestamp), b""
    for tree in _trees(source, chain, anchor, slot, accepts_roots=accepts_roots):
        content = beacon_fetching.leaves(tree)
        if isinstance(content, NotYet):
            return content
        block_roots, branch = split(content[: tree.size]), split(content[tree.size :])
        naming = _naming_slot(chain, slot, tree.slots, block_roots, before)
        if naming is None:
            before = block_roots[-1]
            continue
        block = _block_of(tree, target, naming, block_roots)
        if isinstance(tree, Period):
            return BlockBranch(OLD_BLOCK, jumps.old(chain, block, block_roots, anchor))
        return BlockBranch(OLD_BLOCK, jumps.recent(chain, block, block_roots, anchor.header, branch), by_roots=True)
    period = max(chain.period(slot), chain.periods_before_capella + len(anchor.summaries))
    ends = min(chain.time_of((period + 1) << chain.period_depth), clock.LAST_SECOND)
    values = {"block": target.number, "source": source.id, "origin": origin.number, "expected": ends}
    return NotYet(wait("summary_to_come", **values))


def _trees(
    source: Chain, chain: BeaconChain, anchor: Anchor, slot: int, *, accepts_roots: bool
) -> Iterator[Period | LastSlots]:
    """Yield the trees with block roots from a slot on, to which the state of the anchor leads.

    The block that names a slot's execution block may be in a later tree than the slot.
    """
    first = chain.periods_before_capella
    for period in range(chain.period(slot), first + len(anchor.summaries)):
        summary = anchor.summaries[period - first]
        yield Period(source, chain, period, ssz.merge(*summary), summary[0])
    if accepts_roots and slot < anchor.header.slot - (slot >= chain.gloas):
        yield LastSlots(source, chain, anchor.header)


def _naming_slot(
    chain: BeaconChain, slot: int, slots: range, block_roots: Sequence[bytes], before: bytes
) -> int | None:
    """Return the slot of the beacon block that names the execution block of a slot. None: it is after these slots.

    It is the slot's own block, and since Gloas the next block after it. A slot without a block has the root of the slot
    before. `before` is the root of the slot before `slots`, if these begin after the slot.
    """
    if slot < chain.gloas:
        return slot if slot in slots else None
    for later in range(max(slot + 1, slots.start), slots.stop):
        earlier = block_roots[chain.place(later - 1)] if later > slots.start else before
        if block_roots[chain.place(later)] != earlier:
            return later
    return None


def _before_capella(source: Chain, chain: BeaconChain, target: Header) -> BlockBranch | NotYet:
    historical_roots = shipped.historical_roots(chain)
    period = chain.period(chain.slot_at(target.timestamp))
    tree = Period(source, chain, period, historical_roots[period])
    roots = beacon_fetching.leaves(tree)
    if isinstance(roots, NotYet):
        return roots
    block_roots, state_roots_root = split(roots[: tree.size]), roots[tree.size :]
    block = _block_of(tree, target, chain.slot_at(target.timestamp), block_roots)
    branch = jumps.before_capella(chain, block, block_roots, state_roots_root, historical_roots)
    return BlockBranch(BLOCK_BEFORE_CAPELLA, branch)


def _before_merge(source: Chain, chain: BeaconChain, target: Header) -> BlockBranch | NotYet:
    epochs = shipped.epochs(chain)
    number, place = divmod(target.number, 1 << RECORDS_DEPTH)
    content = beacon_fetching.leaves(Epoch(source, chain, number, epochs[number]))
    if isinstance(content, NotYet):
        return content
    records = beacon_fetching.records_of(content)
    if records[place][0] != target.hash:
        raise CannotProve("This number had another block.")
    return BlockBranch(BLOCK_BEFORE_MERGE, jumps.before_merge(chain, target.number, records, epochs))


def _block_of(tree: Period | LastSlots, target: Header, slot: int, block_roots: Sequence[bytes]) -> ExecutionBranch:
    """Return the beacon block of a slot, verified, which names an execution block.

    Raises `NodeUnavailable`, `CannotProve`.
    """
    root = block_roots[tree.chain.place(slot)]
    if slot > tree.slots.start and root == block_roots[tree.chain.place(slot - 1)]:
        raise CannotProve(f"The beacon chain has no block at slot {slot}.")
    block = beacon_fetching.block(tree.chain.id, root, slot, tree.root)
    if block.block_hash != target.hash:
        raise CannotProve(f"The beacon chain has another block at slot {slot}.")
    return block
