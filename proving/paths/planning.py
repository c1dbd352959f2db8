"""How a registry comes to trust a block that its block hash source doesn't vouch for.

From a block whose state root it trusts, a proof of one slot of the history contract (EIP-2935) makes the hash of any of
the `window` blocks before known: a *hop*. Where there is no history, or few blocks lie between, headers are *walked* by
their parent hashes. A path begins at a block that the registry trusts already, or at one that the block hash source
vouches for.

No plan is stored, and nothing is sent here. Each reconcile plans anew from what the chain has by then: a path that was
interrupted continues where it was, and what others have sent shortens it.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from chains import history
from chains.header import Header
from chains.rpc import RpcRefused
from database.chunks import chunks
from proving import sources
from proving.connections import OpenConnection
from proving.gas_model.proof_gas import Likely, Route
from proving.gas_model.remaining_work import HOP_GAS, WALKED_HEADER_GAS
from proving.paths import checkpoints
from proving.registry import deployments
from proving.sources import NotYet, Start
from queries.models import PathUnit

# Blocks whose hashes one hop makes known beside the one that it leads to.
MAX_RIDERS = 50
# Gas of the header that a path begins with, rounded up (make bench-gas).
_HEADER_GAS = 60_000
# How many of the blocks that the registry may trust it is asked about, the nearest first.
_CHECKPOINTS = 20
# How many blocks are read between two calls of `extend_lease`.
_PER_READ = 200


@dataclass(frozen=True)
class TooFar:
    """The path is longer than the configured limits."""

    sentence: str  # with its length and its gas


class StatesRefused(RpcRefused):
    """No node of the source chain serves the states that the path leads over."""


@dataclass(frozen=True)
class Plan:
    """From where, over which blocks, to which block.

    `start` is None where the registry trusts the state root of `origin` already (and its hash, if it is walked from).
    `hops` are the blocks hopped to, falling; then `walk` headers are walked, from that of the last hop, or of `origin`,
    on.
    """

    origin: int
    target: int
    start: Start | None = None
    hops: Sequence[int] = ()
    walk: int = 0

    @property
    def gas(self) -> int:
        """Return about how much gas it takes, without what the start takes."""
        header = _HEADER_GAS if self.start and self.hops else 0
        return header + len(self.hops) * HOP_GAS + self.walk * WALKED_HEADER_GAS

    @property
    def unit(self) -> PathUnit:
        return PathUnit.HEADERS if self.walk else PathUnit.HOPS

    @property
    def length(self) -> int:
        """Return its length in `unit`s: of a path with both, the headers are what takes long."""
        return self.walk or len(self.hops)


# --- Planning ---------------------------------------------------------------------------------------------------------


def survey(
    connection: OpenConnection,
    target: int,
    *,
    extend_lease: Callable[[], None],
    others: Collection[int] = (),
    trusted: Collection[int] = (),
    hints: Collection[int] = (),
) -> Plan | NotYet | TooFar:
    """Find the cheapest path to a block's hash within the limits: what it takes, without proofs.

    `NotYet` where none can begin at this moment. `others` are blocks of the connection that wait too, `trusted` ones
    that will be trusted by then, `hints` ones that the registry is asked about beside those that rows name.
    `extend_lease` is called between steps that take long. Raises `NodeUnavailable`, `RpcRefused`.
    """
    extend_lease()
    points = list(_checkpoints(connection, target, hints))
    roots = [*(point.number for point in points if point.has_root), *(one for one in trusted if one > target)]
    plans: list[Plan] = []
    refused: RpcRefused | None = None
    if roots:
        try:
            through = _through_history(connection, Plan(min(roots), target), extend_lease)
            plans += [through] if through is not None else []
        except RpcRefused as error:
            # No node serves so old a state any more; the source may vouch for a younger block.
            refused = error
    not_yet: NotYet | None = None
    if not plans or len(plans[0].hops) > 1:
        from_source = _from_source(connection, target, others, extend_lease)
        if isinstance(from_source, NotYet):
            not_yet = from_source
        else:
            plans.append(from_source)
    hashes = [*(point.number for point in points if point.has_hash), *(one for one in trusted if one > target)]
    if hashes:
        plans.append(Plan(min(hashes), target, walk=min(hashes) - target))
    if not plans and refused is not None:
        raise refused
    if not plans and not_yet is not None:
        return not_yet
    cheapest = _cheapest_within_limits(connection, plans)
    # What is too far now may be near when the source vouches for more.
    return not_yet if not_yet is not None and isinstance(cheapest, TooFar) else cheapest


def route_to(
    connection: OpenConnection, targets: Sequence[Header], *, extend_lease: Callable[[], None]
) -> Route | TooFar:
    """Find the paths to the hashes of all these blocks, the highest first.

    What one path leads over shortens the next. `extend_lease` is called between steps that take long. Raises
    `NodeUnavailable`, `RpcRefused`.
    """
    route = Route()
    trusted: set[int] = set()
    hopped_to: set[int] = set()
    # How many ride along, by the block that is hopped from.
    riding: dict[int, int] = {}
    numbers = [header.number for header in targets]
    known: list[tuple[Header, bool]] = []
    for chunk in chunks(targets, _PER_READ):
        asked = [(header.number, header.hash) for header in chunk]
        known += zip(chunk, deployments.vouches(connection.destination_rpc, connection.registry, asked), strict=True)
        extend_lease()
    for header, vouched in known:
        passed = (
            at
            for at, riders in riding.items()
            if at - connection.config.window <= header.number < at and riders < MAX_RIDERS
        )
        at = next(passed, None)
        if not vouched and at is not None:
            riding[at] += 1
            route = replace(route, riders=route.riders + 1)
        elif not vouched:
            plan = survey(connection, header.number, extend_lease=extend_lease, others=numbers, trusted=trusted)
            if isinstance(plan, TooFar):
                return plan
            if isinstance(plan, NotYet):
                # It will begin at the block itself, or near it.
                route = replace(route, waits=[*route.waits, plan.sentence])
                plan = Plan(header.number, header.number, Start(header.number))
            if not plan.hops and plan.origin in hopped_to and plan.walk <= connection.config.window:
                # The path to the lowest block hops past the others, even if a walk from one of them were cheaper.
                plan = replace(plan, hops=[plan.target], walk=0)
            route = _with(route, plan, connection, goes_on=plan.origin in hopped_to)
            stops = [plan.origin, *plan.hops]
            riding |= dict.fromkeys(stops[:-1], 0)
            hopped_to.update(plan.hops)
            trusted.update(stops)
        trusted.add(header.number)
    return route


def _with(route: Route, plan: Plan, connection: OpenConnection, *, goes_on: bool) -> Route:
    """Return the route with this path, which may be the same that leads to a block before it."""
    start = sources.of(connection.config).gas(connection.config) if plan.start else Likely()
    return replace(
        route,
        paths=route.paths + (not goes_on),
        hops=route.hops + len(plan.hops),
        ends=route.ends + bool(plan.hops and not plan.walk),
        walked=route.walked + plan.walk,
        headers=route.headers + bool(plan.start and plan.hops),
        newest=max(route.newest, plan.origin),
        start_gas=route.start_gas + start,
    )


def _from_source(
    connection: OpenConnection, target: int, others: Collection[int], extend_lease: Callable[[], None]
) -> Plan | NotYet:
    extend_lease()
    source = sources.of(connection.config)
    start = source.reach(connection, target, others)
    if isinstance(start, NotYet):
        return start
    if start.number != target:
        through = _through_history(connection, Plan(start.number, target, start), extend_lease)
        if through is not None:
            return through
        # Without a history another start may be nearer.
        start = source.reach(connection, target, ())
        if isinstance(start, NotYet):
            return start
    return Plan(start.number, target, start, walk=start.number - target)


def _cheapest_within_limits(connection: OpenConnection, plans: Collection[Plan]) -> Plan | TooFar:
    refusals: list[TooFar] = []
    for plan in sorted(plans, key=attrgetter("gas")):
        too_far = _why_too_far(connection, plan)
        if too_far is None:
            return plan
        refusals.append(too_far)
    return refusals[0]


def _why_too_far(connection: OpenConnection, plan: Plan) -> TooFar | None:
    for length, most, what in (
        (len(plan.hops), connection.config.max_hops, "hops"),
        (plan.walk, connection.config.max_headers_walked, "headers"),
    ):
        if length > most:
            return TooFar(
                f"Block {plan.target} of chain {connection.config.source_id} is {length:,} {what} before block "
                f"{plan.origin}, about {plan.gas:,} gas. This service goes back at most {most:,} {what}."
            )
    return None


@dataclass(frozen=True)
class _Checkpoint:
    number: int
    has_root: bool
    has_hash: bool


def _checkpoints(connection: OpenConnection, target: int, hints: Collection[int]) -> Iterator[_Checkpoint]:
    """Yield the nearest blocks above that the registry trusts, as of the newest block: rows only tell which to ask for.

    What is pending may fail, or be mined after what builds on it, where two signers send.
    """
    rows = checkpoints.rows(connection).filter(number__gt=target).order_by("number")
    numbers = {*rows.values_list("number", flat=True)[:_CHECKPOINTS], *(number for number in hints if number > target)}
    found = checkpoints.headers(connection, sorted(numbers)[:_CHECKPOINTS])
    if not found:
        return
    contract = connection.registry.contract
    roots = connection.destination_rpc.eth_calls([contract.state_root(header.number) for header in found], "latest")
    asked = [(header.number, header.hash) for header in found]
    known = deployments.vouches(connection.destination_rpc, connection.registry, asked, at="latest")
    for header, root, has_hash in zip(found, roots, known, strict=True):
        point = _Checkpoint(header.number, root == header.state_root, has_hash)
        if point.has_root or point.has_hash:
            yield point


def _through_history(connection: OpenConnection, plan: Plan, extend_lease: Callable[[], None]) -> Plan | None:
    """Return the plan with its hops, as far as there is a history; None where there is none at its origin."""
    window = connection.config.window
    stops = [*range(plan.origin - window, plan.target, -window), plan.target]
    froms = [plan.origin, *stops[:-1]]
    # One more than may be hopped to tells enough: the rest is too far, wherever the history begins.
    asked = list(zip(froms, stops, strict=True))[: connection.config.max_hops + 1]
    values: list[int] = []
    for chunk in chunks(asked, _PER_READ):
        values += _hashes(connection, chunk)
        extend_lease()
    kept = list(itertools.takewhile(bool, values))
    if len(kept) == len(asked):
        return replace(plan, hops=stops)
    # Here the history begins: the fork that introduced it lies between.
    last = froms[len(kept)]
    oldest = _oldest_in_history(connection, last, stops[len(kept)], extend_lease)
    if oldest < last:
        stops = [*stops[: len(kept)], oldest]
    elif kept:
        stops = stops[: len(kept)]
    else:
        return None
    return replace(plan, hops=stops, walk=stops[-1] - plan.target)


def _hashes(connection: OpenConnection, wanted: Sequence[tuple[int, int]]) -> list[int]:
    """Return, for each (at, number), the hash of block `number` that the state of block `at` knows, or zero."""
    try:
        return connection.source_rpc.storages(
            [(history.CONTRACT, connection.history_slot(number), at) for at, number in wanted]
        )
    except RpcRefused as refused:
        if refused.may_pass:
            raise
        raise StatesRefused(refused.code, refused.message, refused.data) from None


def _oldest_in_history(connection: OpenConnection, at: int, missing: int, extend_lease: Callable[[], None]) -> int:
    """Return the oldest block after `missing` whose hash the state of block `at` knows; `at` if it knows none."""
    low, high = missing, at
    while high - low > 1:
        extend_lease()
        middle = (low + high) // 2
        if any(_hashes(connection, [(at, middle)])):
            high = middle
        else:
            low = middle
    return high
