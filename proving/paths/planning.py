"""Plans of paths by which a registry comes to trust a block that its block hash source doesn't vouch for.

A *hop* is a proof of one slot of the history contract (EIP-2935). It starts at a block whose state root the registry
trusts, and makes the hash of one of the `window` blocks before it known. Hops begin at a block that the registry
already trusts, or at a block that the block hash source vouches for. A *jump* leads from such a block to a block of any
age, by the beacon chain.

No path is stored, and nothing is sent here. Each reconcile plans anew from the chain's current state. So an interrupted
path continues, and transactions of others shorten it.
"""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from chains.encoding import HISTORY_CONTRACT
from chains.nodes.node_errors import RpcRefused
from chains.prices import Load
from chains.tries.header import Header
from chains.tries.packed import OLD_BLOCK
from config.database.statements import chunks
from proving import sources
from proving.connections import OpenConnection
from proving.packing.gas import HOP, PARENT_HASH, Amount, Paths, jump_load
from proving.paths import checkpoints
from proving.paths.checkpoints import Jump
from proving.sources import NotYet, Start, WrongHash
from proving.working import heads
from queries.waits import WaitReason, wait

# The header at which a path begins, rounded up (make bench-gas).
_HEADER = Load(650, 27_500, 1)
# Maximum number of blocks in one request.
_PER_READ = 200


@dataclass(frozen=True)
class TooFar:
    """No path leads to the block within the configured limits."""

    reason: WaitReason


class StatesRefused(RpcRefused):
    """No node of the source chain serves the states that a path needs."""


@dataclass(frozen=True)
class Hops:
    """Hops from the block `origin` through the `stops`, whose numbers descend. The last stop is the target."""

    origin: int
    stops: Sequence[int]
    start: Start | None = None
    """The calls that make the origin trusted. None: the registry trusts its state root already."""

    @property
    def target(self) -> int:
        return self.stops[-1]

    @property
    def is_to_parent(self) -> bool:
        """Return whether the header at which the path starts has the target's hash, so that no state is needed."""
        return self.start is not None and self.origin == self.target + 1


Path = Start | Hops | Jump
"""A path to a block. A `Start` alone is one for which the block hash source itself vouches."""


def goes_with_proofs(path: Path) -> bool:
    """Return whether the transaction with the block's own proofs can make its hash trusted.

    Such a path needn't wait for other paths.
    """
    if isinstance(path, Jump):
        return path.start is None
    # A start with several calls first proves something about a parent chain. It is sent separately, so that it is paid
    # for only once for all blocks that need it.
    return isinstance(path, Start) and len(path.calls) < 2


def over(origin: int, points: Sequence[int], window: int) -> list[int]:
    """Return the stops of hops from a block to all of these points, in descending order."""
    stops: list[int] = []
    for at, to in itertools.pairwise([origin, *points]):
        stops += [*range(at - window, to, -window), to]
    return stops


def jump_to(connection: OpenConnection, target: Header, *, by_roots: bool = False) -> Jump | None:
    """Plan the cheapest jump to a block. None if there is no beacon chain, or if it doesn't lead there now.

    `by_roots`: through the last block roots in the origin's state, instead of its summaries. Raises `NodeUnavailable`,
    `RpcRefused`.
    """
    if connection.beacon_chain is None:
        return None
    from proving.paths import jumping  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

    return jumping.plan(connection, target, by_roots=by_roots)


def may_jump(connection: OpenConnection, target: Header) -> bool:
    """Return whether a jump may lead to a block now. Raises `NodeUnavailable`."""
    if connection.beacon_chain is None:
        return False
    from proving.paths import jumping  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

    return jumping.may_be_had(connection, target)


# --- One block --------------------------------------------------------------------------------------------------------


def survey(
    connection: OpenConnection,
    header: Header,
    *,
    hints: Collection[int] = (),
) -> Start | Hops | NotYet | TooFar:
    """Find the cheapest path to a block's hash within the limits, without its proofs and without jumps.

    Return `NotYet` if no path can begin now. `hints` are blocks to ask the registry about, in addition to stored
    checkpoints. Raises `NodeUnavailable`, `RpcRefused`.
    """
    config, target, rpc = connection.config, header.number, connection.source_rpc
    vouched = sources.of(config).vouched(config, keeps_hashes=True)
    if vouched is None:
        # A source that vouches for any block costs less than a hop.
        return sources.of(config).reach(connection, target)
    candidates: list[Start | Hops | NotYet | None] = []
    refused: RpcRefused | None = None
    trusted = checkpoints.nearest(connection, target, hints)
    if trusted is not None:
        try:
            candidates.append(_through_history(connection, trusted, header))
        except RpcRefused as error:
            # No node serves such an old state any more, but the source may vouch for a younger block.
            refused = error
    is_near = any(isinstance(path, Hops) and len(path.stops) == 1 for path in candidates)
    # For such a recent block, the source itself may vouch.
    if not is_near or target > heads.recent(rpc.chain, rpc).latest.number - vouched:
        candidates.append(_from_source(connection, header))
    paths = [path for path in candidates if isinstance(path, Start | Hops)]
    if not paths and refused is not None:
        raise refused
    within = [path for path in paths if len(_stops(path)) <= config.max_hops]
    if within:
        return min(within, key=lambda path: _gas(connection, path))
    for obstacle in candidates:
        if isinstance(obstacle, WrongHash):
            return TooFar(obstacle.reason)
        if isinstance(obstacle, NotYet):
            # A block that is too far away now may become near when the source vouches for more blocks.
            return obstacle
    return TooFar(_why_too_far(connection, header, paths))


def cheapest(
    connection: OpenConnection, header: Header, *, hints: Collection[int] = ()
) -> Start | Hops | Jump | NotYet | TooFar:
    """Find a path as `survey` does, or a jump through the last block roots of a state if no other path costs less.

    A block for which the block hash source itself vouches needs no jump. Raises `NodeUnavailable`, `RpcRefused`.
    """
    refused, path = None, None
    try:
        path = survey(connection, header, hints=hints)
    except RpcRefused as error:
        refused = error
    jump = None if isinstance(path, Start) else jump_to(connection, header, by_roots=True)
    if jump and not (isinstance(path, Hops) and _are_better(connection, path, jump)):
        return jump
    if path is None:
        assert refused is not None, "a survey ends in either"
        raise refused
    return path


def _are_better(connection: OpenConnection, path: Hops, jump: Jump) -> bool:
    """Return whether hops cost no more than a jump through block roots, or no node serves the states for such jumps."""
    from proving.paths import beacon_fetching, jumping  # noqa: PLC0415 (slow to load, and rarely needed)

    start = jumping.gas(connection).expected if jump.start else 0
    gas_of_jump = int(connection.prices.gas_of(jump_load(OLD_BLOCK, by_roots=True))) + start
    return _gas(connection, path) <= gas_of_jump or beacon_fetching.lack_states(connection.source_rpc.chain)


def _stops(path: Start | Hops) -> Sequence[int]:
    return path.stops if isinstance(path, Hops) else ()


def _gas(connection: OpenConnection, path: Start | Hops) -> int:
    """Return the approximate gas of a path."""
    start = sources.of(connection.config).gas(connection.config).expected
    if isinstance(path, Start):
        return start
    return _gas_of_hops(connection, path) + (start if path.start else 0)


def _gas_of_hops(connection: OpenConnection, path: Hops) -> int:
    prices = connection.prices
    if path.is_to_parent:
        return int(prices.gas_of(PARENT_HASH))
    return int(len(path.stops) * prices.gas_of(HOP) + (prices.gas_of(_HEADER) if path.start else 0))


def _from_source(connection: OpenConnection, header: Header) -> Start | Hops | NotYet | None:
    target = header.number
    start = sources.of(connection.config).reach(connection, target)
    if isinstance(start, NotYet) or start.number == target:
        return start
    if start.number == target + 1:
        after = connection.source_rpc.header(start.number)
        if after and after.parent_hash == header.hash:
            return Hops(start.number, [target], start)
    try:
        through = _through_history(connection, start.number, header)
    except StatesRefused:
        if connection.source_rpc.header(start.number) is not None:
            raise
        if start.number <= heads.recent(connection.source_rpc.chain, connection.source_rpc).latest.number:
            return sources.not_there(connection.config, start.number)
        source = connection.config.source_id
        return NotYet(wait("origin_to_come", source=source, origin=start.number, block=target))
    return replace(through, start=start) if isinstance(through, Hops) else through


def _through_history(connection: OpenConnection, origin: int, header: Header) -> Hops | WrongHash | None:
    """Return the hops from a block to a header's block. None if the history doesn't reach back that far."""
    target = header.number
    stops = over(origin, [target], connection.config.window)
    # More than `max_hops` hops are too far, wherever the history begins, so one hop more is enough to check.
    pairs = list(itertools.pairwise([origin, *stops]))[: connection.config.max_hops + 1]
    for chunk in chunks(pairs, _PER_READ):
        hashes = _hashes(connection, chunk)
        if not all(hashes):
            return None
        if chunk[-1][1] == target and hashes[-1] != int.from_bytes(header.hash):
            source = connection.source_rpc.chain
            slot, slots = connection.history_slot(target), source.history_window
            return WrongHash(wait("wrong_history", block=target, chain=source.id, slot=slot, slots=slots))
    return Hops(origin, stops)


def _hashes(connection: OpenConnection, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return, for each (at, number), the hash of block `number` in the state of block `at`, or zero."""
    try:
        return connection.source_rpc.storages(
            [(HISTORY_CONTRACT, connection.history_slot(number), at) for at, number in pairs]
        )
    except RpcRefused as refused:
        if refused.may_pass:
            raise
        raise StatesRefused(refused.code, refused.message, refused.data) from None


def _why_too_far(connection: OpenConnection, target: Header, paths: Sequence[Start | Hops]) -> WaitReason:
    config, way_out = connection.config, _way_out(connection, target)
    hops = [path for path in paths if isinstance(path, Hops)]
    if not hops:
        return wait("out_of_reach", block=target.number, chain=config.source_id, way_out=way_out)
    path = min(hops, key=partial(_gas_of_hops, connection))
    hops_of = {
        "hops": len(path.stops),
        "origin": path.origin,
        "gas": _gas_of_hops(connection, path),
        "most": config.max_hops,
    }
    return wait("too_many_hops", block=target.number, chain=config.source_id, way_out=way_out, **hops_of)


def _way_out(connection: OpenConnection, target: Header) -> WaitReason | str:
    """Return how the operator can make blocks of any age reachable. Empty if the beacon chain can't help."""
    source = connection.source_rpc.chain
    if source.beacon_chain is None:
        return ""
    from proving.paths import jumping  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

    if why_not := jumping.why_not(source, target):
        return why_not
    if (chain := connection.beacon_chain) is None:
        return "The registry was deployed without a beacon history, which is necessary for blocks of any age."
    why = connection.registry.why_history_ends
    is_over = why and heads.recent(source, connection.source_rpc).latest.timestamp > chain.time_of(chain.end)
    return why if why and is_over else ""


# --- Many blocks, for an estimate -------------------------------------------------------------------------------------


def paths_to(
    connection: OpenConnection,
    targets: Sequence[Header],
    *,
    deadline: datetime,
) -> Paths | TooFar | NotYet:
    """Find the paths to the hashes of these blocks, which are in descending order. The registry can't take them now.

    Return `NotYet` if a path can't begin before the deadline. A path stops at the blocks that it passes. Raises
    `NodeUnavailable`, `RpcRefused`, and `OutOfTime` between paths.
    """
    paths = _jumps(connection, targets)
    missing: Sequence[Header] = [header for header in targets if header.number not in paths.jumps]
    while missing:
        connection.check_time()
        path = cheapest(connection, missing[-1])
        if isinstance(path, TooFar):
            return path
        if isinstance(path, Jump):
            paths, missing = _with_jump(connection, paths, path, missing[-1]), missing[:-1]
            continue
        if isinstance(path, NotYet):
            if path.expected_at is not None and path.expected_at > deadline:
                return path
            # Later the path will begin at the block itself, or near it.
            paths = replace(paths, waits=[*paths.waits, path.reason])
            path = Start(missing[-1].number)
        if isinstance(path, Start):
            # A source that vouches for any block vouches for all the missing blocks.
            for_any = sources.of(connection.config).vouched(connection.config, keeps_hashes=True) is None
            passed, stops = missing if for_any else missing[-1:], []
        else:
            passed = [header for header in missing if header.number < path.origin]
            stops = over(path.origin, [header.number for header in passed], connection.config.window)
        paths = _with(connection, paths, path, passed, stops)
        missing = missing[: -len(passed)]
    return paths


def _jumps(connection: OpenConnection, targets: Sequence[Header]) -> Paths:
    """Return the jumps to those of the blocks that the beacon chain reaches."""
    if connection.beacon_chain is None:
        return Paths()
    from proving.paths import jumping  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

    jumps: dict[int, Load] = {}
    last: dict[int, Jump] = {}
    start_gas = Amount()
    for header in targets:
        connection.check_time()
        operation = jumping.operation(connection.source_rpc.chain, header)
        before = last.get(operation) if jumping.may_be_had(connection, header) else None
        leads_on = before and (before.origin is None or jumping.leads_to(connection, before.origin, header))
        jump = before if leads_on else jumping.plan(connection, header)
        if jump is None:
            continue
        if jump.start and jump is not before:
            start_gas += jumping.gas(connection)
        jumps[header.number], last[operation] = jump_load(operation), jump
    begin_at = [jump.origin.number for jump in last.values() if jump.origin]
    return Paths(start_gas=start_gas, jumps=jumps, jump_origin=next(iter(begin_at), None))


def _with_jump(connection: OpenConnection, paths: Paths, jump: Jump, header: Header) -> Paths:
    """Return the paths with this jump through a state's block roots. Jumps with one origin share its start."""
    from proving.paths import jumping  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

    assert jump.origin is not None, "such a jump begins at a header"
    begins = jump.start is not None and paths.jump_origin != jump.origin.number
    jumps = {**paths.jumps, header.number: jump_load(OLD_BLOCK, by_roots=True)}
    start_gas = paths.start_gas + (jumping.gas(connection) if begins else Amount())
    return replace(paths, jumps=jumps, start_gas=start_gas, jump_origin=jump.origin.number)


def _with(
    connection: OpenConnection,
    paths: Paths,
    path: Start | Hops,
    passed: Sequence[Header],
    stops: Sequence[int],
) -> Paths:
    """Return the paths with this path over these stops. A `Start` is added once for each of the `passed` blocks."""
    direct = len(passed) if isinstance(path, Start) else 0
    starts = direct or int(isinstance(path, Hops) and path.start is not None)
    gas = sources.of(connection.config).gas(connection.config)
    if isinstance(path, Hops) and path.is_to_parent:
        kept = _gas_of_hops(connection, path)
        return replace(paths, count=paths.count + 1, start_gas=paths.start_gas + gas + Amount(kept, kept))
    return replace(
        paths,
        count=paths.count + (direct or 1),
        direct=paths.direct + direct,
        hops=paths.hops + len(stops),
        headers=paths.headers + (0 if direct else len(stops) - len(passed) + starts),
        newest=max(paths.newest, path.origin if isinstance(path, Hops) else 0),
        start_gas=paths.start_gas + Amount(gas.expected * starts, gas.bound * starts),
    )
