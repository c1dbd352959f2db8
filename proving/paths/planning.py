"""How a registry comes to trust a block that its block hash source doesn't vouch for.

From a block whose state root it trusts, a proof of one slot of the history contract (EIP-2935) makes the hash of any of
the `window` blocks before known: a *hop*. Where there is no history, or few blocks lie between, headers are *walked* by
their parent hashes. A path begins at a block that the registry trusts already, or at one that the block hash source
vouches for. Or the beacon chain leads from such a block to one of any age: a *jump*.

No plan is stored, and nothing is sent here. Each reconcile plans anew from what the chain has by then: a path that was
interrupted continues where it was, and what others have sent shortens it.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from chains import history
from chains.header import Header
from chains.packed import OLD_BLOCK
from chains.rpc import RpcRefused
from database.chunks import chunks
from proving import heads, jump_branches, sources
from proving.connections import OpenConnection
from proving.gas_model.proof_gas import Likely, Route
from proving.gas_model.remaining_work import HOP_GAS, JUMP_GAS, WALKED_HEADER_GAS
from proving.paths import checkpoints, origins
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
    on. Or there is a `jump`, which is an operation of the packed format. It begins with `header`, that of `origin`, or
    with a constant, where there is no header.
    """

    origin: int
    target: int
    start: Start | None = None
    hops: Sequence[int] = ()
    walk: int = 0
    jump: int = 0
    header: Header | None = None

    @property
    def gas(self) -> int:
        """Return about how much gas it takes, without what the start takes."""
        header = _HEADER_GAS if self.start and self.hops else 0
        jump = JUMP_GAS if self.jump else 0
        return header + len(self.hops) * HOP_GAS + self.walk * WALKED_HEADER_GAS + jump

    @property
    def unit(self) -> PathUnit:
        if self.jump:
            return PathUnit.JUMPS
        return PathUnit.HEADERS if self.walk else PathUnit.HOPS

    @property
    def length(self) -> int:
        """Return its length in `unit`s: of a path with both, the headers are what takes long."""
        return 1 if self.jump else self.walk or len(self.hops)


# --- Planning ---------------------------------------------------------------------------------------------------------


def survey(
    connection: OpenConnection,
    header: Header,
    *,
    extend_lease: Callable[[], None],
    others: Collection[int] = (),
    trusted: Collection[int] = (),
    hints: Collection[int] = (),
    may_jump: bool = True,
) -> Plan | NotYet | TooFar:
    """Find the cheapest path to a block's hash within the limits: what it takes, without proofs.

    `NotYet` where none can begin at this moment. `others` are blocks of the connection that wait too, `trusted` ones
    that will be trusted by then, `hints` ones that the registry is asked about beside those that rows name.
    `extend_lease` is called between steps that take long. Raises `NodeUnavailable`, `RpcRefused`.
    """
    extend_lease()
    target = header.number
    jump = _by_jump(connection, header) if may_jump else None
    if jump is not None and connection.config.always_jump:
        return jump
    points = list(_checkpoints(connection, target, hints))
    hashes = [*(point.number for point in points if point.has_hash), *(one for one in trusted if one > target)]
    walks = [Plan(min(hashes), target, walk=min(hashes) - target)] if hashes else []
    if jump is not None:
        # It is cheaper than any hop, and needs no old state.
        start = sources.of(connection.config).reach(connection, target, others)
        direct = [Plan(target, target, start)] if isinstance(start, Start) and start.number == target else []
        return _cheapest_within_limits(connection, [jump, *walks, *direct], header)
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
    if not plans or len(plans[0].hops) > 1 or _needs_no_path(connection, target):
        from_source = _from_source(connection, target, others, extend_lease)
        if isinstance(from_source, NotYet):
            not_yet = from_source
        else:
            plans.append(from_source)
    plans += walks
    if not plans and refused is not None:
        raise refused
    if not plans and not_yet is not None:
        return not_yet
    cheapest = _cheapest_within_limits(connection, plans, header)
    # What is too far now may be near when the source vouches for more.
    return not_yet if not_yet is not None and isinstance(cheapest, TooFar) else cheapest


def route_to(
    connection: OpenConnection, targets: Sequence[Header], *, deadline: datetime, extend_lease: Callable[[], None]
) -> Route | TooFar | NotYet:
    """Find the paths to the hashes of all these blocks, the highest first.

    `NotYet` where one can't begin before the deadline. What one path leads over shortens the next. `extend_lease` is
    called between steps that take long. Raises `NodeUnavailable`, `RpcRefused`.
    """
    known: list[tuple[Header, bool]] = []
    for chunk in chunks(targets, _PER_READ):
        asked = [(header.number, header.hash) for header in chunk]
        known += zip(chunk, deployments.vouches(connection.destination_rpc, connection.registry, asked), strict=True)
        extend_lease()
    vouched = {header.number for header, is_vouched_for in known if is_vouched_for}
    return _Routing(connection, deadline, extend_lease, targets, vouched).find()


class _Routing:
    """Finds the paths to many blocks."""

    def __init__(
        self,
        connection: OpenConnection,
        deadline: datetime,
        extend_lease: Callable[[], None],
        targets: Sequence[Header],
        vouched: Collection[int],
    ) -> None:
        """Take the blocks, and the numbers of those whose hashes the registry takes now."""
        self._connection = connection
        self._deadline = deadline
        self._extend_lease = extend_lease
        self._targets = targets
        self._numbers = [header.number for header in targets]
        self._vouched = vouched
        self._route = Route()
        self._trusted: set[int] = set()
        self._hopped_to: set[int] = set()
        # How many ride along, by the block that is hopped from.
        self._riding: dict[int, int] = {}
        # The last jump of each operation.
        self._last_jumps: dict[int, Plan] = {}
        self._jumps: dict[int, int] = {}

    def find(self) -> Route | TooFar | NotYet:
        for header in self._targets:
            may_jump = origins.may_jump(self._connection, header)
            if header.number in self._vouched and not (may_jump and self._connection.config.always_jump):
                self._trusted.add(header.number)
            elif may_jump and (jump := self._like_another(header)):
                self._jumps[header.number] = jump
            elif may_jump or not self._rides(header):
                obstacle = self._plan(header)
                if obstacle is not None:
                    return obstacle
        origins_of_jumps = [plan.origin for plan in self._last_jumps.values() if plan.header]
        return replace(self._route, jumps=self._jumps, jump_origin=next(iter(origins_of_jumps), None))

    def _like_another(self, header: Header) -> int:
        """Return the operation of the jump to a block, if one goes for it too that was planned for another; else 0.

        Where the source vouches for any block itself, that may be cheaper: each is planned by itself.
        """
        config = self._connection.config
        if sources.of(config).vouched(config, keeps_hashes=True) is None and not config.always_jump:
            return 0
        last = self._last_jumps.get(jump_branches.operation(self._connection.source_rpc.chain, header))
        if last is None or (last.header and not origins.leads_to(self._connection, last.header, header)):
            return 0
        return last.jump

    def _rides(self, header: Header) -> bool:
        window = self._connection.config.window
        for at, riders in self._riding.items():
            if at - window <= header.number < at and riders < MAX_RIDERS:
                self._riding[at] += 1
                self._route = replace(self._route, riders=self._route.riders + 1)
                self._trusted.add(header.number)
                return True
        return False

    def _plan(self, header: Header) -> TooFar | NotYet | None:
        plan = survey(
            self._connection,
            header,
            extend_lease=self._extend_lease,
            others=self._numbers,
            trusted=self._trusted,
        )
        if isinstance(plan, TooFar):
            return plan
        if isinstance(plan, NotYet):
            if plan.expected_at is not None and plan.expected_at > self._deadline:
                return plan
            # It will begin at the block itself, or near it.
            self._route = replace(self._route, waits=[*self._route.waits, plan.sentence])
            plan = Plan(header.number, header.number, Start(header.number))
        if plan.jump:
            self._add_jump(plan)
        else:
            self._add(plan)
        return None

    def _add_jump(self, plan: Plan) -> None:
        last = self._last_jumps.get(plan.jump)
        if plan.start and (last is None or last.origin != plan.origin):
            start_gas = self._route.start_gas + origins.gas(self._connection)
            self._route = replace(self._route, start_gas=start_gas)
        # Its header comes to be known, and its hash doesn't: nothing is walked from there.
        self._jumps[plan.target] = plan.jump
        self._last_jumps[plan.jump] = plan

    def _add(self, plan: Plan) -> None:
        if not plan.hops and plan.origin in self._hopped_to and plan.walk <= self._connection.config.window:
            # The path to the lowest block hops past the others, even if a walk from one of them were cheaper.
            plan = replace(plan, hops=[plan.target], walk=0)
        self._route = _with(self._route, plan, self._connection, goes_on=plan.origin in self._hopped_to)
        stops = [plan.origin, *plan.hops]
        self._riding |= dict.fromkeys(stops[:-1], 0)
        self._hopped_to.update(plan.hops)
        self._trusted.update([*stops, plan.target])


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


def _by_jump(connection: OpenConnection, target: Header) -> Plan | None:
    """Return the jump to a block; None where the beacon chain doesn't lead there now from anything that is trusted."""
    if not origins.may_jump(connection, target):
        return None
    operation = jump_branches.operation(connection.source_rpc.chain, target)
    if operation != OLD_BLOCK:
        return Plan(target.number, target.number, jump=operation)
    origin = origins.find(connection, target)
    if origin is None:
        return None
    number = origin.header.number
    start = None if origin.is_trusted else Start(number)
    return Plan(number, target.number, start, jump=operation, header=origin.header)


def _needs_no_path(connection: OpenConnection, target: int) -> bool:
    """Return whether the source itself vouches for so young a block, as far as it tells. Raises `NodeUnavailable`."""
    rpc, config = connection.source_rpc, connection.config
    vouched = sources.of(config).vouched(config, keeps_hashes=True)
    return vouched is not None and target > heads.recent(rpc.chain, rpc).latest.number - vouched


def _from_source(
    connection: OpenConnection, target: int, others: Collection[int], extend_lease: Callable[[], None]
) -> Plan | NotYet:
    extend_lease()
    source = sources.of(connection.config)
    start = source.reach(connection, target, others)
    if isinstance(start, NotYet):
        return start
    if start.number != target:
        try:
            through = _through_history(connection, Plan(start.number, target, start), extend_lease)
        except StatesRefused:
            if connection.source_rpc.header(start.number) is not None:
                raise
            return NotYet(
                f"Nodes of chain {connection.config.source_id} don't have block {start.number} yet, from which block "
                f"{target} is reached."
            )
        if through is not None:
            return through
        # Without a history another start may be nearer.
        start = source.reach(connection, target, ())
        if isinstance(start, NotYet):
            return start
    return Plan(start.number, target, start, walk=start.number - target)


def _cheapest_within_limits(connection: OpenConnection, plans: Collection[Plan], target: Header) -> Plan | TooFar:
    refusals: list[TooFar] = []
    of_start = sources.of(connection.config).gas(connection.config).expected
    for plan in sorted(plans, key=lambda plan: plan.gas + (of_start if plan.start else 0)):
        too_far = _why_too_far(connection, plan, target)
        if too_far is None:
            return plan
        refusals.append(too_far)
    return refusals[0]


def _way_out(connection: OpenConnection, target: Header) -> str:
    """Say what the operator may do so that blocks of any age are reached; empty where the beacon chain can't help."""
    source = connection.source_rpc.chain
    if source.beacon_chain is None:
        return ""
    why_not = jump_branches.why_not(source, target)
    if why_not:
        return f" {why_not}"
    if connection.beacon_chain is None:
        return " Its registry was deployed without a beacon history, by which blocks of any age are reached."
    return ""


def _why_too_far(connection: OpenConnection, plan: Plan, target: Header) -> TooFar | None:
    for length, most, what in (
        (len(plan.hops), connection.config.max_hops, "hops"),
        (plan.walk, connection.config.max_headers_walked, "headers"),
    ):
        if length > most:
            return TooFar(
                f"Block {plan.target} of chain {connection.config.source_id} is {length:,} {what} before block "
                f"{plan.origin}, about {plan.gas:,} gas. This service goes back at most {most:,} {what}."
                f"{_way_out(connection, target)}"
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
