"""How a registry comes to trust a block that its block hash source doesn't vouch for.

From a block whose state root it trusts, a proof of one slot of the history contract (EIP-2935) makes the hash of any of
the `window` blocks before known: a *hop*. Where there is no history, or few blocks lie between, headers are *walked* by
their parent hashes. A way begins at a block that the registry trusts already, or at one that the block hash source
vouches for.

Nothing of a plan is kept. Each look plans anew from what the chain has by then, so that a way that was interrupted goes
on where it was, and what others have sent shortens it.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from chains import history
from chains.header import Header
from chains.packed import HISTORY_ADDRESS, AccountToProve, encode_parent_hash
from chains.rpc import AccountProof, InvalidReply, NodeUnavailable, ProofRequest, RpcRefused
from chains.trie import InvalidProof, verify_account, verify_slot
from config.configured_chains import get_chains
from proving import sources
from proving.connections import OpenConnection
from proving.models import SignedTransaction, Transaction, TransactionState
from proving.paths import checkpoints
from proving.registry import deployments
from proving.registry.contract import Call
from proving.sources import NotYet, Preparation, Start
from proving.spending.estimates import HOP_GAS, RIDER_GAS, WALKED_HEADER_GAS
from proving.transactions import sending
from queries import leases
from queries.chunks import chunks
from queries.models import WayUnit

# Nodes take no transaction above 128 KiB.
_MAX_BYTES = 110_000
# Beside what its trie nodes and headers take; packed, nodes are no longer than they were.
_CALL_BYTES = 500
# EIP-7825 bounds a transaction's gas at 16,777,216; what a hop and a walked header take at the most.
_MAX_HOPS, _MAX_HEADERS = 40, 250
# Blocks whose hashes one hop makes known beside the one that it leads to.
_MAX_RIDERS = 50
# Of the header that a way begins with, rounded up (make bench-gas).
_HEADER_GAS = 60_000
# Of the blocks that the registry may trust, the nearest so many are looked at.
_WAYPOINTS = 20
# Of many blocks, so many are read before `keep` is called.
_PER_READ = 200
# Reverted transactions that are counted.
_FAILURES = 10


class TooFar(Exception):
    """The way is longer than the configured limits: a sentence with its length and its gas."""


class StatesRefused(RpcRefused):
    """No node of the source chain serves the states that the way leads over."""


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
        """About, without what the start takes."""
        header = _HEADER_GAS if self.start and self.hops else 0
        return header + len(self.hops) * HOP_GAS + self.walk * WALKED_HEADER_GAS

    @property
    def unit(self) -> WayUnit:
        return WayUnit.HEADERS if self.walk else WayUnit.HOPS

    @property
    def length(self) -> int:
        """In `unit`s: of a way with both, the headers are what takes long."""
        return self.walk or len(self.hops)


@dataclass(frozen=True)
class Way:
    """What to send now, in one transaction, all or nothing; and the blocks that the registry trusts afterwards."""

    plan: Plan
    calls: Sequence[Call]
    waypoints: Sequence[Header] = ()
    riders: Sequence[int] = ()

    @property
    def data(self) -> Sequence[bytes]:
        """The calldata of each call."""
        return [data for _, data in self.calls]

    @property
    def arrives(self) -> bool:
        """Whether the registry trusts the block's hash after these calls."""
        at_start = not self.plan.length and self.plan.origin == self.plan.target
        return at_start or any(header.number == self.plan.target for header in self.waypoints)


# --- Planning ---------------------------------------------------------------------------------------------------------


def survey(
    connection: OpenConnection,
    target: int,
    *,
    keep: Callable[[], None],
    others: Collection[int] = (),
    trusted: Collection[int] = (),
) -> Plan:
    """The cheapest way to a block's hash within the limits: what it takes, without proofs.

    `others` are blocks of the connection that wait too, `trusted` ones that will be trusted by then. `keep` is called
    between steps that take long. Raises `TooFar`, `NotYet` when the way can't begin at this moment, `NodeUnavailable`,
    `RpcRefused`.
    """
    keep()
    points = list(_waypoints(connection, target))
    roots = [*(point.number for point in points if point.has_root), *(one for one in trusted if one > target)]
    plans: list[Plan] = []
    refused: RpcRefused | None = None
    if roots:
        try:
            plans += _through_history(connection, Plan(min(roots), target), keep)
        except RpcRefused as error:
            # No node serves so old a state any more; the source may vouch for a younger block.
            refused = error
    not_yet: NotYet | None = None
    if not plans or len(plans[0].hops) > 1:
        try:
            plans += _from_source(connection, target, others, keep)
        except NotYet as sentence:
            not_yet = sentence
    hashes = [*(point.number for point in points if point.has_hash), *(one for one in trusted if one > target)]
    if hashes:
        plans.append(Plan(min(hashes), target, walk=min(hashes) - target))
    if not plans and (why := refused or not_yet) is not None:
        raise why
    try:
        return _cheapest_within_limits(connection, plans)
    except TooFar:
        # What is too far now may be near when the source vouches for more.
        if not_yet is not None:
            raise not_yet from None
        raise


def estimate(connection: OpenConnection, targets: Collection[int], *, keep: Callable[[], None]) -> int:
    """Gas of the ways to the hashes of all these blocks, on the high side.

    What one way leads over shortens the next. `keep` is called between steps that take long. Raises `TooFar`,
    `NodeUnavailable`, `RpcRefused`.
    """
    gas = 0
    trusted: set[int] = set()
    # By block that is hopped from: how many ride along.
    riding: dict[int, int] = {}
    numbers = sorted(targets, reverse=True)
    known: list[tuple[Header, bool]] = []
    for chunk in chunks(numbers, _PER_READ):
        found = [header for header in connection.source.headers(chunk) if header is not None]
        keep()
        asked = [(header.number, header.hash) for header in found]
        known += zip(found, deployments.vouches(connection.destination, connection.registry, asked), strict=True)
        keep()
    for header, vouched in known:
        passed = (
            at
            for at, riders in riding.items()
            if at - connection.config.window <= header.number < at and riders < _MAX_RIDERS
        )
        at = next(passed, None)
        if not vouched and at is not None:
            riding[at] += 1
            gas += RIDER_GAS
        elif not vouched:
            try:
                plan = survey(connection, header.number, keep=keep, others=numbers, trusted=trusted)
            except NotYet:
                # It will begin at the block itself, or near it.
                plan = Plan(header.number, header.number, Start(header.number))
            gas += plan.gas + (sources.of(connection.config).gas(connection.config) if plan.start else 0)
            stops = [plan.origin, *plan.hops]
            riding |= dict.fromkeys(stops[:-1], 0)
            trusted.update(stops)
        trusted.add(header.number)
    return gas


def _from_source(
    connection: OpenConnection, target: int, others: Collection[int], keep: Callable[[], None]
) -> Iterator[Plan]:
    keep()
    source = sources.of(connection.config)
    start = source.reach(connection, target, others)
    if start.number != target:
        through = list(_through_history(connection, Plan(start.number, target, start), keep))
        if through:
            yield from through
            return
        # Without a history another start may be nearer.
        start = source.reach(connection, target, ())
    yield Plan(start.number, target, start, walk=start.number - target)


def _cheapest_within_limits(connection: OpenConnection, plans: Collection[Plan]) -> Plan:
    refusals: list[TooFar] = []
    for plan in sorted(plans, key=lambda plan: plan.gas):
        try:
            return _within_limits(connection, plan)
        except TooFar as refusal:
            refusals.append(refusal)
    raise refusals[0]


def _within_limits(connection: OpenConnection, plan: Plan) -> Plan:
    for length, most, what in (
        (len(plan.hops), connection.config.max_hops, "hops"),
        (plan.walk, connection.config.max_headers_walked, "headers"),
    ):
        if length > most:
            raise TooFar(
                f"Block {plan.target} of chain {connection.config.source} is {length} {what} before block "
                f"{plan.origin}, about {plan.gas} gas; this service goes at most {most} {what}."
            )
    return plan


@dataclass(frozen=True)
class _Waypoint:
    number: int
    has_root: bool
    has_hash: bool


def _waypoints(connection: OpenConnection, target: int) -> Iterator[_Waypoint]:
    """The nearest blocks above that the registry trusts, as of the pending block: rows only tell which to ask for."""
    rows = checkpoints.rows(connection).filter(number__gt=target).order_by("number")
    found = checkpoints.headers(connection, rows[:_WAYPOINTS])
    if not found:
        return
    contract = connection.registry.contract
    roots = connection.destination.eth_calls([contract.state_root(header.number) for header in found], "pending")
    known = deployments.vouches(
        connection.destination, connection.registry, [(header.number, header.hash) for header in found]
    )
    for header, root, has_hash in zip(found, roots, known, strict=True):
        point = _Waypoint(header.number, root == header.state_root, has_hash)
        if point.has_root or point.has_hash:
            yield point


def _through_history(connection: OpenConnection, plan: Plan, keep: Callable[[], None]) -> Iterator[Plan]:
    """The plan with its hops, as far as there is a history; nothing where there is none at its origin."""
    window = connection.config.window
    stops = [*range(plan.origin - window, plan.target, -window), plan.target]
    froms = [plan.origin, *stops[:-1]]
    # One more than may be hopped to tells enough: the rest is too far, wherever the history begins.
    asked = list(zip(froms, stops, strict=True))[: connection.config.max_hops + 1]
    values: list[int] = []
    for chunk in chunks(asked, _PER_READ):
        values += _hashes(connection, chunk)
        keep()
    kept = list(itertools.takewhile(bool, values))
    if len(kept) == len(asked):
        yield replace(plan, hops=stops)
        return
    # Here the history begins: the fork that introduced it lies between.
    last = froms[len(kept)]
    oldest = _oldest_in_history(connection, last, stops[len(kept)], keep)
    if oldest < last:
        stops = [*stops[: len(kept)], oldest]
    elif kept:
        stops = stops[: len(kept)]
    else:
        return
    yield replace(plan, hops=stops, walk=stops[-1] - plan.target)


def _hashes(connection: OpenConnection, wanted: Sequence[tuple[int, int]]) -> list[int]:
    """For each (at, number): the hash of block `number` that the state of block `at` knows, or zero."""
    try:
        return connection.source.storages([(history.CONTRACT, _slot(connection, number), at) for at, number in wanted])
    except RpcRefused as refused:
        if refused.may_pass:
            raise
        raise StatesRefused(refused.code, refused.message, refused.data) from None


def _slot(connection: OpenConnection, number: int) -> int:
    return history.slot(number, connection.source.chain.history_window)


def _oldest_in_history(connection: OpenConnection, at: int, missing: int, keep: Callable[[], None]) -> int:
    """The oldest block after `missing` whose hash the state of block `at` knows; `at` if it knows none."""
    low, high = missing, at
    while high - low > 1:
        keep()
        middle = (low + high) // 2
        if any(_hashes(connection, [(at, middle)])):
            high = middle
        else:
            low = middle
    return high


# --- Going ------------------------------------------------------------------------------------------------------------


def begin(connection: OpenConnection, plan: Plan) -> Plan | Preparation:
    """The plan with all that its block hash source needs to begin; or what must be sent before. Raises as `survey`."""
    if plan.start is None:
        return plan
    start = sources.of(connection.config).begin(connection, plan.start.number)
    return start if isinstance(start, Preparation) else replace(plan, start=start)


def go(connection: OpenConnection, plan: Plan, *, others: Collection[int] = ()) -> Way:
    """The next transaction of a way that can begin: as much of it as fits. `others` ride along where a hop passes them.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    calls: Sequence[Call] = plan.start.calls if plan.start else ()
    if plan.hops:
        way = _hop(connection, plan, others)
    elif plan.walk:
        way = _walk(connection, plan, others)
    else:
        way = Way(plan, ())
    return replace(way, calls=[*calls, *way.calls])


def _hop(connection: OpenConnection, plan: Plan, others: Collection[int]) -> Way:
    headers = _headers(connection, [plan.origin, *plan.hops][: _MAX_HOPS + 1])
    passed = _riders(connection, [header.number for header in headers], others)
    requests = [
        ProofRequest(at.number, at.hash, history.CONTRACT, [_slot(connection, one) for one in (to.number, *riders)])
        for (at, to), riders in zip(itertools.pairwise(headers), passed, strict=True)
    ]
    calls: list[Call] = []
    size = 0
    for place, answer in enumerate(connection.source.proofs(requests)):
        if isinstance(answer, RpcRefused):
            raise answer
        header, following = headers[place], headers[place + 1]
        account = _history_to_prove(connection, header, following, answer)
        block = header.number if place == 0 and plan.start is None else header.encode()
        data = connection.registry.contract.prove(
            block, header.state_root, [account], history_window=connection.source.chain.history_window
        )
        size += len(data) + _CALL_BYTES
        if calls and size > _MAX_BYTES:
            break
        calls.append((connection.registry.contract.address, data))
    taken = [rider for riders in passed[: len(calls)] for rider in riders]
    return Way(plan, calls, waypoints=headers[: len(calls) + 1], riders=taken)


def _riders(connection: OpenConnection, stops: Sequence[int], others: Collection[int]) -> list[list[int]]:
    """For each hop: those of the waiting blocks whose hashes the state that it is made from knows."""
    riders: list[list[int]] = []
    passed = range(stops[-1] - connection.config.window, stops[0])
    waiting = _unknown(connection, sorted(set(others).intersection(passed).difference(stops), reverse=True))
    for at, _ in itertools.pairwise(stops):
        riders.append([one for one in waiting if at - connection.config.window <= one < at][:_MAX_RIDERS])
        waiting = [one for one in waiting if one not in riders[-1]]
    return riders


def _unknown(connection: OpenConnection, numbers: Sequence[int]) -> list[int]:
    """Those of the blocks whose hashes the registry does not trust yet: many wait for no more than confirmations."""
    headers = [header for header in connection.source.headers(numbers) if header is not None]
    asked = [(header.number, header.hash) for header in headers]
    vouched = deployments.vouches(connection.destination, connection.registry, asked)
    return [header.number for header, known in zip(headers, vouched, strict=True) if not known]


def _history_to_prove(
    connection: OpenConnection, header: Header, following: Header, answer: AccountProof
) -> AccountToProve:
    """The history contract at one block, verified: it knows the hash of `following`."""
    try:
        account = verify_account(header.state_root, answer.address, answer.nodes)
        values = {slot.slot: verify_slot(account.storage_root, slot.slot, slot.nodes) for slot in answer.slots}
    except InvalidProof as invalid:
        raise InvalidReply(
            f"A node sent a proof of the history contract at block {header.number} that does not verify: {invalid}"
        ) from None
    if values[_slot(connection, following.number)] != int.from_bytes(following.hash):
        raise InvalidReply(
            f"Nodes disagree about block {following.number}: its header has another hash than the history."
        )
    hashes = {slot.slot: slot.nodes for slot in answer.slots if values[slot.slot]}
    return AccountToProve(HISTORY_ADDRESS, 0, answer.nodes, history=hashes)


def _walk(connection: OpenConnection, plan: Plan, others: Collection[int]) -> Way:
    last = max(plan.target + 1, plan.origin - _MAX_HEADERS + 1)
    waiting = _unknown(
        connection, sorted(set(others).intersection(range(last, plan.origin)), reverse=True)[:_MAX_RIDERS]
    )
    # The one whose hash becomes known comes too: the next transaction begins with it.
    *headers, following = _headers(connection, range(plan.origin, last - 2, -1))
    # A call for each of the others that it passes: it makes their hashes known, and the next one begins there.
    parts: list[list[bytes]] = [[]]
    points: list[Header] = []
    size = 0
    for header, parent in zip(headers, [*headers[1:], following], strict=True):
        if header.parent_hash != parent.hash:
            raise InvalidReply(f"Nodes disagree about block {parent.number}: it is not the parent of the next one.")
        encoded = header.encode()
        size += len(encoded) + 1
        if size > _MAX_BYTES and parts[0]:
            following = header
            break
        parts[-1].append(encoded)
        if parent.number in waiting:
            points.append(parent)
            parts.append([])
            size += _CALL_BYTES
    calls = [(connection.registry.contract.address, encode_parent_hash(sent)) for sent in parts if sent]
    riders = [point.number for point in points]
    return Way(plan, calls, waypoints=[*points, following], riders=riders)


def _headers(connection: OpenConnection, numbers: Sequence[int]) -> list[Header]:
    headers = [header for header in connection.source.headers(numbers) if header is not None]
    if len(headers) < len(numbers):
        raise NodeUnavailable(f"A node of chain {connection.config.source} lacks headers that it must have.")
    return headers


def pause_after_failures(connection: OpenConnection) -> float:
    """Seconds to wait before the registry's trust is extended again, because that reverted; longer with each time."""
    # One that was emptied, because nobody wanted it any more, says nothing.
    emptied = SignedTransaction.objects.filter(transaction=OuterRef("pk"), hash=OuterRef("hash"), is_empty=True)
    mined = Transaction.objects.filter(~Exists(emptied), extends=connection.registry.row_id).exclude(succeeded=None)
    newest = mined.order_by("-pk")
    sent = list(newest.values_list("succeeded", "created_at")[:_FAILURES])
    failures = len(list(itertools.takewhile(lambda one: not one[0], sent)))
    if not failures:
        return 0
    # Bounded also where the clock was ahead when it was sent.
    pause = leases.backoff(failures, first=10, longest=600)
    left = min(pause, sent[0][1] + pause - timezone.now())
    return max(0, left.total_seconds())


def extending(connection: OpenConnection, seen: int) -> QuerySet[Transaction]:
    """What is on its way to extend the registry's trust: one transaction at a time, because the next builds on it.

    `seen` is the destination's newest block that is looked at: what is in a later one would be paid again.
    """
    signer = sending.sender(get_chains().chain(connection.config.destination))
    unseen = Q(state=TransactionState.PENDING) | Q(block_number__gt=seen)
    return Transaction.objects.filter(unseen, extends=connection.registry.row_id, signer__address=signer)
