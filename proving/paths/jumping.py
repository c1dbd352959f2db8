"""Jumps: from a block that the registry trusts, whose header has a beacon root, to a block of any age.

A jump may begin at any final block that is recent enough, because the state of its beacon block summarises all earlier
periods. Data that was fetched for one origin serves all later jumps. So the origin of the last jump is used as long as
the registry trusts it.

Only connections whose registry has a beacon history import this module.
"""

from collections.abc import Sequence

from chains.beacon import jumps, shipped, ssz
from chains.beacon.blocks import ExecutionBranch
from chains.beacon.era_files import split
from chains.beacon.jumps import RECORDS_DEPTH, BeaconChain, CannotProve
from chains.chains_file import Chain
from chains.nodes.node_errors import NodeUnavailable
from chains.tries.header import Header
from chains.tries.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, OLD_BLOCK, BlockBranch, encode_parent_hash
from proving import sources
from proving.connections import OpenConnection
from proving.packing.gas import Amount
from proving.paths import beacon_fetching, checkpoints
from proving.paths.beacon_fetching import Epoch, Period
from proving.paths.checkpoints import Jump
from proving.registries import deployments
from proving.sources import NotYet, Preparation, Start
from proving.working import heads
from queries.waits import wait

# The last second of a `datetime`, in unix seconds.
_LATEST = 253_402_300_799
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


def may_be_had(connection: OpenConnection, target: Header) -> bool:
    """Return whether a jump may lead to a block now. The only possible request is for the source's head.

    Raises `NodeUnavailable`.
    """
    source = connection.source_rpc.chain
    if connection.beacon_chain is None or why_not(source, target):
        return False
    if operation(source, target) != OLD_BLOCK:
        return True
    # The registry may still trust an earlier block, at which a jump began before a fork.
    latest = heads.recent(source, connection.source_rpc).latest.timestamp
    return _is_summarised(connection.beacon_chain, min(latest, _last_origin(connection.beacon_chain)), target)


# --- Origins ----------------------------------------------------------------------------------------------------------


def plan(connection: OpenConnection, target: Header) -> Jump | None:
    """Plan the cheapest jump to a block. None if the beacon chain doesn't lead there now.

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
    # A reorganisation would waste a jump from a younger block. For a chain's own blocks, the next header must be final
    # too.
    youngest = heads.recent(rpc.chain, rpc).final - connection.is_own
    starts = [source.reach(connection, number) for number in (youngest, target.number)]
    usable = _usable(connection, [start.number for start in starts if isinstance(start, Start)], target)
    if trusted := _trusted(connection, usable):
        return Jump(trusted)
    return Jump(usable[0], Start(usable[0].number)) if usable else None


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


def leads_to(connection: OpenConnection, origin: Header, target: Header) -> bool:
    """Return whether the registry knows the beacon state of `origin`, and whether it summarises `target`'s period.

    Their times decide.
    """
    chain = connection.beacon_chain
    assert chain is not None, "only then a jump is asked about"
    return origin.timestamp <= _last_origin(chain) and _is_summarised(chain, origin.timestamp, target)


def _last_origin(chain: BeaconChain) -> int:
    """Return the time of the last header whose beacon root is certainly that of a block before the chain's end."""
    return chain.time_of(chain.end)


def _is_summarised(chain: BeaconChain, at: int, target: Header) -> bool:
    """Return whether the beacon state in a header of the time `at` summarises the period of `target`."""
    try:
        slot, of_target = (chain.slot_at(timestamp) for timestamp in (at, target.timestamp))
    except CannotProve:
        return False
    # The header's beacon root is that of the beacon block before its own. The block that names the target may come some
    # slots later.
    before = slot - 1 - (1 << chain.period_depth) // _MARGIN
    return before >= 0 and chain.period(before) > chain.period(of_target + (of_target >= chain.gloas))


def _usable(connection: OpenConnection, numbers: list[int], target: Header) -> list[Header]:
    """Return the current headers from which a jump leads to the target."""
    return [header for header in checkpoints.headers(connection, numbers) if leads_to(connection, header, target)]


def _trusted(connection: OpenConnection, headers: list[Header]) -> Header | None:
    if not headers:
        return None
    blocks = [(_NO_BLOCK if connection.is_own else header.number, header.hash) for header in headers]
    # Pending transactions don't count, because if one fails, the jump fails too.
    vouched = deployments.vouches(connection.destination_rpc, connection.registry, blocks, at="latest")
    return next((header for header, is_vouched_for in zip(headers, vouched, strict=True) if is_vouched_for), None)


# --- Branches ---------------------------------------------------------------------------------------------------------


def branch_to(source: Chain, origin: Header | None, target: Header) -> BlockBranch | NotYet:
    """Return the branch from the beacon root in the header of `origin` to the hash of `target`.

    Only an `OLD_BLOCK` needs `origin`. The branch is verified at both ends. Return `NotYet` if the beacon root's state
    doesn't summarise the target's period yet, or if data is being fetched. Raises `NodeUnavailable`.
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


def _old(source: Chain, chain: BeaconChain, origin: Header | None, target: Header) -> BlockBranch | NotYet:
    if origin is None or not origin.beacon_root:
        raise CannotProve("The header to jump from names no beacon block.")
    anchor = beacon_fetching.anchor(source, chain, origin.beacon_root)
    slot = chain.slot_at(target.timestamp)
    period, before = chain.period(slot), b""
    # The block that names the target may be the first one of the next period.
    while True:
        index = period - chain.periods_before_capella
        if index >= len(anchor.summaries):
            ends = min(chain.time_of((period + 1) << chain.period_depth), _LATEST)
            values = {"block": target.number, "source": source.id, "origin": origin.number, "expected": ends}
            return NotYet(wait("summary_to_come", **values))
        summary = anchor.summaries[index]
        tree = Period(source, chain, period, ssz.merge(*summary), summary[0])
        roots = beacon_fetching.leaves(tree)
        if isinstance(roots, NotYet):
            return roots
        block_roots = split(roots)
        naming = _naming_slot(chain, slot, period, block_roots, before)
        if naming is not None:
            block = _block_of(chain, target, naming, block_roots, tree.root)
            return BlockBranch(OLD_BLOCK, jumps.old(chain, block, block_roots, anchor))
        period, before = period + 1, block_roots[-1]


def _naming_slot(chain: BeaconChain, slot: int, period: int, block_roots: Sequence[bytes], before: bytes) -> int | None:
    """Return the slot of the beacon block that names the execution block of a slot. None: it is in a later period.

    It is the slot's own block, and since Gloas the next block after it. A slot without a block has the root of the slot
    before. `before` is the last root of the period before this one, if that period has the slot.
    """
    if slot < chain.gloas:
        return slot
    first = period << chain.period_depth
    for place, root in enumerate(block_roots):
        if first + place > slot and root != (block_roots[place - 1] if place else before):
            return first + place
    return None


def _before_capella(source: Chain, chain: BeaconChain, target: Header) -> BlockBranch | NotYet:
    historical_roots = shipped.historical_roots(chain)
    period = chain.period(chain.slot_at(target.timestamp))
    tree = Period(source, chain, period, historical_roots[period])
    roots = beacon_fetching.leaves(tree)
    if isinstance(roots, NotYet):
        return roots
    block_roots, state_roots_root = split(roots[: tree.size]), roots[tree.size :]
    block = _block_of(chain, target, chain.slot_at(target.timestamp), block_roots, tree.root)
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


def _block_of(
    chain: BeaconChain, target: Header, slot: int, block_roots: Sequence[bytes], period_root: bytes
) -> ExecutionBranch:
    """Return the beacon block of a slot, verified, which names an execution block.

    Raises `NodeUnavailable`, `CannotProve`.
    """
    place = chain.place(slot)
    if place and block_roots[place] == block_roots[place - 1]:
        raise CannotProve(f"The beacon chain has no block at slot {slot}.")
    block = beacon_fetching.block(chain.id, block_roots[place], slot, period_root)
    if block.block_hash != target.hash:
        raise CannotProve(f"The beacon chain has another block at slot {slot}.")
    return block
