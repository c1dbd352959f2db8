"""A worker. It runs the turns of each lane on a thread per lane until it is stopped.

A worker holds no state that matters. If it is killed, another worker takes its lanes when they expire.

It polls the database for due rows, and polls again as soon as a turn has ended. With a broker it polls less often, and
also when a message about a submission arrives.

Users share each turn, so that nobody waits behind thousands of rows of another user. A turn takes one row of each user,
then a second row of each, and so on. While others wait, a user gets at most half of a turn.
"""

import contextlib
import itertools
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

from django.db import Error as DatabaseError
from django.db import close_old_connections, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    Case,
    Count,
    Func,
    IntegerField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler

from chains.chains_file import ChainsError
from chains.configured_signers import SignerError
from config import logs
from config.configured_chains import get_chains, have_changed
from config.database import due_rows, schema
from config.database.statements import CompiledQuery, chunks
from proving import money
from proving.admission import admit
from proving.health import chain_watch, problem_reports, stored_problems
from proving.models import WorkerHeartbeat
from proving.paths import checkpoints
from proving.reading import provable_blocks
from proving.reconcile import turn as reconcile
from proving.sending import transaction_monitor
from proving.webhooks import delivery
from proving.working import counters, lanes, pruning
from proving.working.lanes import MANY_BLOCKS, HeldLane, LaneKind, LaneLost, LaneName
from queries import batch_states, clock
from queries.columns import RejectionCode
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Pruning, Query, QueryKind, Step, StepStatus
from queries.waits import wait

logger = logging.getLogger(__name__)

# Seconds between polls for due rows, and between heartbeats.
_POLL_SECONDS = 0.2
_BEAT_SECONDS = 5
# The longest pause of a lane whose turns fail as a whole, and so the longest delay after an outage.
_LONGEST_PAUSE_SECONDS = 15
# Lanes that get a turn although nothing is due, with the number of heartbeats between two turns.
_BEATS = {LaneKind.WATCH: 1, LaneKind.HOUSE: 12, LaneKind.PROBLEMS: 2}


def obstacle() -> str:
    """Return a sentence that says why no worker can run here; empty if one can.

    A database that doesn't answer isn't an obstacle, because the worker waits for it.
    """
    try:
        for chain in get_chains().destinations():
            chain.signers_by_address()
        return schema.problem(connection)
    except (ChainsError, SignerError) as error:
        return str(error)
    except DatabaseError:
        return ""


class Worker:
    """The worker of one process. Any number of workers may run, on any number of machines."""

    def __init__(self, *, poll_seconds: float = _POLL_SECONDS) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._poll_seconds = poll_seconds
        self._lanes = lanes.every()
        self._pool = ThreadPoolExecutor(len(self._lanes), thread_name_prefix="worker")
        self._turns: dict[LaneName, Future[None]] = {}
        # The counters must exist before their first event: Prometheus sees no increase in a series that begins with 1.
        for chain, event in itertools.product(get_chains().chains, counters.ChainEvent):
            counters.CHAIN_EVENTS.labels(str(chain.id), event)
        # The number of consecutive turns that failed as a whole, and the `time.monotonic` at which the pause ends. They
        # aren't stored, because the database may take no writes.
        self._pauses: dict[LaneName, tuple[int, float]] = {}

    def stop(self) -> None:
        """Finish the running turns without beginning new ones. May be called from a signal handler."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Poll at once. May be called from any thread."""
        self._wake.set()

    def run(self) -> None:
        """Work until `stop`. Wait for a database that doesn't answer."""
        # Lanes that wait for databases and nodes get the interpreter back sooner from those that compute. In seconds.
        sys.setswitchinterval(0.001)
        logger.info("worker %s starts", self.name)
        next_beat, beats = time.monotonic(), 0
        while not self._stopping.is_set():
            try:
                kinds: set[LaneKind] = set()
                if time.monotonic() >= next_beat:
                    logs.write_left_out()
                    # A connection that is kept would go on with a file of SQLite that was moved away.
                    close_old_connections()
                    self._beat(is_first=not beats)
                    kinds = {kind for kind, number in _BEATS.items() if beats % number == 0}
                    beats += 1
                    next_beat = time.monotonic() + _BEAT_SECONDS
                self._begin_turns(kinds)
            except DatabaseError:
                logger.exception("the database does not answer; trying again")
                connections.close_all()
                self._stopping.wait(_BEAT_SECONDS)
            self._wake.wait(self._poll_seconds)
            self._wake.clear()
        logger.info("worker %s stops, %d turns in hand", self.name, len(self._turns))
        self._pool.shutdown(wait=True)
        # On a full disk the row stays. It soon counts as that of a dead worker.
        with contextlib.suppress(DatabaseError):
            WorkerHeartbeat.objects.filter(worker=self.name).delete()
        connections.close_all()

    def _beat(self, *, is_first: bool) -> None:
        if is_first:
            # chains.toml may have changed.
            chain_watch.wake()
            provable_blocks.forget_proofs()
            checkpoints.deployed().update(due_at=Now())
        checkpoints.wake()
        has_old_chains = have_changed()
        if has_old_chains:
            logger.warning("chains.toml has changed since this worker read it: restart the worker")
        seen = {"beat_at": Now(), "has_old_chains": has_old_chains, "unanswered": chain_watch.unanswered()}
        if not WorkerHeartbeat.objects.filter(worker=self.name).update(**seen):
            WorkerHeartbeat.objects.create(worker=self.name, beat_at=Now(), started_at=Now())

    def _begin_turns(self, kinds: Collection[LaneKind]) -> None:
        self._turns = {name: running for name, running in self._turns.items() if not running.done()}
        now = time.monotonic()
        pausing = {name for name, (_, until) in self._pauses.copy().items() if now < until}
        free = [name for name in self._lanes if name not in self._turns and name not in pausing]
        # At heartbeats the house is polled, too.
        polled = tuple(name for name in free if name.kind not in _BEATS or (kinds and name.kind == LaneKind.HOUSE))
        due = {name for (name,) in _with_work(polled).all()} if polled else set()
        for name in free:
            if name.kind in kinds or str(name) in due:
                self._turns[name] = self._pool.submit(self._turn, name)

    def _turn(self, name: LaneName) -> None:
        attempts, _ = self._pauses.pop(name, (0, 0.0))

        def pause() -> None:
            seconds = due_rows.backoff(attempts, longest=_LONGEST_PAUSE_SECONDS).total_seconds()
            self._pauses[name] = attempts + 1, time.monotonic() + seconds

        try:
            if _failures(turn, name, pause) == 0:
                # Poll at once to find the rows that this turn has made due.
                self.wake()
        finally:
            connections.close_all()


def work_once() -> int:
    """Run one turn for each waiting row, due or not, in this thread. Return the number of failed turns."""
    chain_watch.wake()
    checkpoints.wake()
    every = lanes.every()
    connections = [name for name in every if name.kind == LaneKind.CONNECTION]
    # Registries come first, because transactions depend on their state. Other lanes follow in the order of the work: an
    # admitted batch makes its blocks due, and a proven batch makes its webhook due.
    return sum(_failures(look_after_registry, name) or 0 for name in connections) + sum(
        _failures(turn_of_all, name) or 0 for name in every
    )


def _failures(
    do: Callable[[LaneName], int | None], name: LaneName, pause: Callable[[], None] = lambda: None
) -> int | None:
    """Return the number of parts of a turn that failed because of an internal error. None: another worker has the lane.

    Call `pause` if the turn fails as a whole, for example because the database can't be used.
    """
    try:
        return do(name)
    except LaneLost:
        logger.warning("the lane %s now belongs to another worker; this worker wrote nothing more", name)
        return None
    except Exception:
        logger.exception("a turn of the lane %s failed", name)
        pause()
        return 1


# --- A turn of a lane -------------------------------------------------------------------------------------------------

# Maximum rows of a turn. Nodes get one request about all rows, so more rows would save little and delay the first.
_ROWS = 50
# Maximum users of a turn.
_USERS = 64
# Maximum accounts, slots and headers that a connection's turn proves, because verifying and packing them takes a good
# part of a second. The maximum of a large block is higher while one user waits, because each turn about it requests its
# facts again.
_PROOFS, _PROOFS_ALONE = 300, 1000
# The number of proofs that take as long as reading a whole block and packing some of its transactions.
_WHOLE_BLOCK = 75
# Maximum seconds of a turn that delivers webhooks.
_WEBHOOK_SECONDS = 5
# Maximum batches that one turn of the lane `house` rejects.
_OVERDUE = 1000
# Additional time before a batch is rejected while no block later than its deadline was seen.
_FURTHER = timedelta(days=1)


def turn(name: LaneName) -> int | None:
    """Do the due work of a lane. Return the number of rows with internal errors. None: another worker has the lane."""
    with lanes.hold(name) as lane:
        if lane is None:
            return None
        lane.is_ending = True
        return _TURNS[name.kind](lane, _pick(name))


def turn_of_all(name: LaneName) -> int:
    """Run a turn for each row of a lane, due or not. Return the number of failures. Skip a lane held elsewhere."""
    due_rows.wake_all(lanes.rows(name))
    keys = list(due_rows.due(lanes.rows(name)).order_by("due_at").values_list("pk", flat=True))
    failed = 0
    with lanes.hold(name) as lane:
        # Rows are processed one by one, so that a failure affects no other row. Some turns find their own rows.
        finds_rows = name.kind in {LaneKind.WEBHOOKS, LaneKind.PROBLEMS}
        several = list(chunks(keys, 1)) if keys and not finds_rows else [[]]
        for place, some in enumerate(several, 1):
            if lane is not None:
                lane.is_ending = place == len(several)
                failed += _TURNS[name.kind](lane, some)
    return failed


def look_after_registry(name: LaneName) -> int:
    """Check the registry of a connection, due or not. Return 1 if that failed."""
    due_rows.wake_all(_registries(name))
    with lanes.hold(name) as lane:
        return 0 if lane is None else _connection(lane, ())


@lru_cache(maxsize=64)
def _with_work(names: tuple[LaneName, ...]) -> CompiledQuery[tuple[str]]:
    """Return the query for the names of lanes with due rows. It is compiled once, because each poll runs it."""
    return CompiledQuery(partial(_due_names, names))


def _due_names(names: Sequence[LaneName]) -> QuerySet[Any, tuple[str]]:
    queues = [(name, lanes.rows(name)) for name in names]
    queues += [(name, _registries(name)) for name in names if name.kind == LaneKind.CONNECTION]
    queues += [(name, Pruning.objects.all()) for name in names if name.kind == LaneKind.HOUSE]
    due: list[QuerySet[Any, tuple[str]]] = [
        due_rows.due(of_lane).order_by().annotate(lane=Value(str(name))).values_list("lane") for name, of_lane in queues
    ]
    return due[0].union(*due[1:])


def _registries(name: LaneName) -> QuerySet[Any]:
    return checkpoints.deployed().filter(destination_chain_id=name.destination, source_chain_id=name.source)


# --- Choice of rows ---------------------------------------------------------------------------------------------------


def _pick(name: LaneName) -> list[Any]:
    """Return the primary keys of the rows for the next turn of a lane."""
    due = due_rows.due(lanes.rows(name))
    match name.kind:
        case LaneKind.CONNECTION:
            unproven = Query.objects.filter(block=OuterRef("pk"), step__isnull=False).order_by().values("block")
            whole = Max(Case(When(Q(kind=QueryKind.ENTRY), then=_WHOLE_BLOCK), default=0))
            size = Subquery(unproven.annotate(size=Count("pk") + Sum(_Length("slots")) + whole).values("size"))
            return _shared_by_users(due.annotate(size=size), "queued_for", _PROOFS)
        case LaneKind.ADMISSION:
            return _of_the_same_sources(_shared_by_users(due, "user", MANY_BLOCKS, size="block_count"))
        case LaneKind.LARGE_ADMISSION:
            return _shared_by_users(due, "user", MANY_BLOCKS, size="block_count")[:1]
        case LaneKind.HISTORY:
            return list(due.order_by("due_at").values_list("pk", flat=True)[:1])
        case LaneKind.WEBHOOKS | LaneKind.PROBLEMS:
            return []  # The turn itself finds due rows.
        case _:
            return list(due.values_list("pk", flat=True))


def _shared_by_users(due: QuerySet[Any], user: str, room: int, *, size: str = "size") -> list[Any]:
    """Return keys of rows with a total size of about `room`: one row of each user, then the next row of each.

    The user who has waited longest comes first. A row that is larger than `room` has a turn by itself.
    """
    waiting = due.order_by().values_list(user).annotate(first=Min("due_at")).order_by("first")
    users = [waiting_user for waiting_user, _ in waiting[:_USERS]]
    most_rows, most_room = (_ROWS, room) if len(users) == 1 else (_ROWS // 2, room // 2)
    # Rows that failed come last.
    queues = [
        [(key, waiting_user, large or 1) for key, large in of_user.values_list("pk", size)[:most_rows]]
        for waiting_user in users
        for of_user in [due.filter(**{user: waiting_user}).order_by("attempts", "due_at")]
    ]
    used: Counter[object] = Counter()
    chosen: list[Any] = []
    # The first row of each user, then the second row of each, and so on.
    for key, waiting_user, large in filter(None, itertools.chain.from_iterable(itertools.zip_longest(*queues))):
        is_first = not used[waiting_user]
        if len(chosen) == _ROWS or (chosen and sum(used.values()) + large > room):
            break
        if is_first or used[waiting_user] + large <= most_room:
            used[waiting_user] += large
            chosen.append(key)
    return chosen


def _of_the_same_sources(batches: list[str]) -> list[str]:
    """Return the batches with the first one's source chains, so a chain that hangs delays only batches that name it."""
    waiting = Query.objects.filter(Q(block=None) | Q(batch__status=BatchStatus.RECEIVED), batch__in=batches).order_by()
    sources: dict[str, set[int]] = defaultdict(set)
    for batch, source in waiting.values_list("batch", "source_chain_id").distinct():
        sources[batch].add(source)
    return [batch for batch in batches if sources[batch] == sources[batches[0]]]


class _Length(Func):
    """The length of a JSON array."""

    function = "json_array_length"
    output_field = IntegerField()

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **more: Any) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, function="jsonb_array_length", **more)


# --- Work of each kind of lane ----------------------------------------------------------------------------------------


def _connection(lane: HeldLane, keys: Sequence[Any]) -> int:
    failed = 0
    for registry in due_rows.due(_registries(lane.name)).values_list("pk", flat=True):
        failed += _failed(partial(checkpoints.look_after, lane, registry))
    return failed + (reconcile.reconcile_all(lane, keys, _PROOFS, alone=_PROOFS_ALONE) if keys else 0)


def _history(lane: HeldLane, keys: Sequence[Any]) -> int:
    from proving.paths import beacon_fetching  # noqa: PLC0415 (where a chain has a beacon chain)

    return sum(_failed(partial(beacon_fetching.fetch_leaves, lane, key)) for key in keys)


def _webhooks(lane: HeldLane, _: Sequence[Any]) -> int:
    return delivery.deliver_all(lane, seconds=_WEBHOOK_SECONDS)


def _watch(lane: HeldLane, _: Sequence[Any]) -> int:
    chain_watch.observe(lane)
    # Attesters come after the chains. An attester that hangs takes seconds, and pages wait for the chains' heads.
    if any(configured.attesters for configured in get_chains().connections):
        from proving.health import attester_checks  # noqa: PLC0415 (where a connection has attesters)

        attester_checks.watch(lane)
    provable_blocks.measure_next_proofs(lane)
    return 0


def _house(lane: HeldLane, _: Sequence[Any]) -> int:
    # Delete rows of dead workers, and rows in the future, which a wrong clock wrote.
    day = timedelta(days=1)
    WorkerHeartbeat.objects.exclude(beat_at__range=(Now() - day, Now() + WorkerHeartbeat.SILENCE)).delete()
    for name in lanes.every():
        due_rows.wake_rows_postponed_too_long(lanes.rows(name))
    _reject_overdue(lane)
    stored_problems.fade(lane)
    money.recount()
    return _failed(partial(pruning.prune_when_due, lane))


def _problems(lane: HeldLane, _: Sequence[Any]) -> int:
    problem_reports.report(lane)
    return 0


def _failed(do: Callable[[], object]) -> int:
    """Call `do`. If it fails because of an internal error, log that and return 1."""
    try:
        do()
    except lanes.LaneLost:
        raise
    except Exception:
        logger.exception("a part of a turn failed")
        return 1
    return 0


_TURNS: dict[LaneKind, Callable[[HeldLane, Sequence[Any]], int]] = {
    LaneKind.DESTINATION: transaction_monitor.monitor_all,
    LaneKind.ADMISSION: admit.admit_all,
    LaneKind.LARGE_ADMISSION: admit.admit_all,
    LaneKind.CONNECTION: _connection,
    LaneKind.HISTORY: _history,
    LaneKind.WEBHOOKS: _webhooks,
    LaneKind.WATCH: _watch,
    LaneKind.HOUSE: _house,
    LaneKind.PROBLEMS: _problems,
}


def _reject_overdue(lane: HeldLane) -> None:
    """Reject batches whose deadline has passed by the database's clock, so that none waits for ever.

    A rejection is final, and the database's clock may have jumped. So the newest known block must be later than the
    deadline, too. If there is no such block, because a chain stands still, a further day must pass.
    """
    opened = Batch.objects.filter(status__in=OPEN_STATUSES)
    # Batches that were marked as overdue while the clock was ahead.
    early = Q(deadline_at__gte=Now()) | Q(overdue_since__gt=Now())
    lane.write(partial(opened.exclude(overdue_since=None).filter(early).update, overdue_since=None))
    overdue = opened.filter(deadline_at__lt=Now())
    lane.write(partial(overdue.filter(overdue_since=None).update, overdue_since=Now()))
    agreed = Q(overdue_since__lt=Now() - _FURTHER)
    if newest := clock.newest_block():
        agreed |= Q(deadline_at__lt=newest)
    for batch in overdue.filter(agreed)[:_OVERDUE]:
        waits = tuple(each.reason for each in batch.waits())
        steps = Step.objects.filter(query__batch=batch, status=StepStatus.IN_PROGRESS)
        last = steps.exclude(error=None).values_list("error", flat=True).order_by("-pk").first()
        reason = wait("deadline_exceeded", waits=waits, error=None if last in waits else last)
        code = RejectionCode.DEADLINE_EXCEEDED
        lane.write(partial(batch_states.reject, [batch.pk], code=code, reason=reason, retryable=True))
