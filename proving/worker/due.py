"""What is there to do, in which order, and the functions that do it. Who calls them is not their concern.

Users take turns, whatever each has waiting, so that nobody waits behind another's thousands. It is round robin over
users with something due, and within a user by `queue_at`. Rows say what is due for whom (`queries.turns`). Each worker
remembers by itself who had the last turn, and forgets it when it is killed: what is fair in each is fair in all.

Each function takes a row's primary key, claims the row by its lease and may be called at any time, any number of times,
by any number of workers.
"""

import itertools
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Count, Func, IntegerField, OuterRef, Q, QuerySet, Subquery, Sum, Window
from django.db.models.functions import Now, RowNumber
from django.db.models.sql.compiler import SQLCompiler

from config.configured_chains import get_chains
from database import leases, row_locks
from database.chunks import by_size
from proving import pruning
from proving.admission import admit
from proving.models import FactsRegistry, JumpLeaves, Signer
from proving.paths import upkeep
from proving.reconcile.block import reconcile
from proving.transactions import transaction_monitor
from proving.webhooks import delivery
from queries import clock, progress
from queries.error_codes import RejectionCode
from queries.models import OPEN_STATUSES, Batch, Block, Pruning, Query, Step, StepStatus, Webhook


class Route(NamedTuple):
    kind: str
    """The kind of `proving.worker.due.Task`."""
    lane: tuple[int, ...]
    """The destination, and the source where there is always one."""

    def rows(self) -> "QuerySet[Any]":
        """Return the rows of the route, due or not."""
        destination = self.lane[0]
        if self.kind == "signer":
            return Signer.objects.filter(chain_id=destination)
        if self.kind == "batch":
            return Batch.objects.filter(destination_chain_id=destination, status__in=OPEN_STATUSES)
        model: Any = FactsRegistry.in_use if self.kind == "registry" else Block.objects
        rows: QuerySet[Any] = model.filter(source_chain_id=self.lane[1], destination_chain_id=destination)
        return rows


def every() -> list[Route]:
    """Return the routes of the configured chains: what is for all, which is signers and registries, first."""
    destinations = [(chain.id,) for chain in get_chains().destinations()]
    connections = [(each.destination_id, each.source_id) for each in get_chains().connections]
    return [
        *(Route("signer", lane) for lane in destinations),
        *(Route("registry", lane) for lane in connections),
        *(Route("batch", lane) for lane in destinations),
        *(Route("block", lane) for lane in connections),
    ]


logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_PER_POLL = 100
# After its deadline a batch that no newer block contradicts is kept for so long.
_FURTHER = timedelta(days=1)
# Accepting a batch of more asks the chains for seconds.
_MANY_BLOCKS = 100
# Proofs of more, accounts and slots, take a good part of a second to verify and pack.
_MANY_PROOFS = 100
# Webhooks of one receiver, and of one user, that a process delivers at a time.
_MOST_OF_A_RECEIVER, _MOST_OF_A_USER = 4, 8
# The maximum that a worker remembers. A user who is forgotten comes first once.
_REMEMBERED = 100_000


# Tasks that stand in line together: the user whose they are, their kind, and their lane.
Queue = tuple[int | None, str, tuple[int, ...]]


@dataclass(frozen=True)
class Task:
    """One thing to do. Two are equal when they concern the same row."""

    kind: str
    key: object
    lane: tuple[int, ...] = field(compare=False)  # the destination, and the source where there is always one
    do: Callable[[object], None] = field(compare=False)
    user: int | None = field(default=None, compare=False)  # whose turn it takes; None: nobody's, it is for all
    is_long: bool = field(default=False, compare=False)  # it may take many seconds
    size: int = field(default=1, compare=False)  # accounts, slots and headers that it asks nodes for, at the most
    sources: frozenset[int] = field(default=frozenset(), compare=False)  # of a batch: of what isn't admitted yet
    receiver: str = field(default="", compare=False)  # of a webhook

    def __call__(self) -> None:
        self.do(self.key)

    @property
    def is_large(self) -> bool:
        """Return whether it computes much, while what is beside it would wait."""
        return self.size > _MANY_PROOFS

    @property
    def chains(self) -> frozenset[int]:
        """Return the chains whose nodes it asks."""
        return self.sources.union(self.lane)

    @property
    def queue(self) -> Queue:
        """Return what it stands in line with."""
        return (self.user, self.kind, self.lane)


def _always(_: Queue) -> bool:
    return True


@dataclass(frozen=True)
class Poll:
    """One poll of what is due. What can't be taken up now isn't asked for, and so costs nothing, however much it is."""

    has_room: Callable[[Queue], bool] = _always
    """True if something of this queue could be taken up; with None as its user, something of the lane."""
    ends: float = math.inf
    """The end by `time.monotonic`. Nothing is asked for after that."""
    kinds: Collection[str] | None = None
    """None: all of them."""
    asked: dict[Queue, None] = field(default_factory=dict)
    """The queues that were asked for something, in that order."""

    def routes_of(self, *kinds: str) -> list[Route]:
        """Return the routes of these kinds that it asks about."""
        return [one for one in every() if one.kind in kinds and self.includes(one.kind)]

    def includes(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds

    def is_over(self) -> bool:
        return time.monotonic() >= self.ends

    def may_ask(self, queue: Queue) -> bool:
        return not self.is_over() and self.has_room(queue)

    def asking(self, queue: Queue, tasks: Iterator[Task]) -> Iterator[Task]:
        """Yield the tasks of the queue while it has room: what is taken up meanwhile may leave none."""
        while self.may_ask(queue):
            self.asked[queue] = None
            task = next(tasks, None)
            if task is None:
                return
            yield task


class Turns:
    """The users' last turns. They come again in that order, after users who never had one."""

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._count = itertools.count(1)

    def note(self, *keys: Hashable) -> None:
        """Note that these users and queues have a turn now."""
        if len(self._last) > _REMEMBERED:
            self._last.clear()
        turn = next(self._count)
        self._last |= dict.fromkeys(keys, turn)

    def last(self, key: Hashable) -> int:
        return self._last.get(key, 0)


def round_robin(queues: Iterable[Iterator[_T]]) -> Iterator[_T]:
    """Yield the first of each, then the second of each, and so on. No queue is asked before it is its turn."""
    left = list(queues)
    while left:
        in_turn, left = left, []
        for queue in in_turn:
            for one in itertools.islice(queue, 1):
                left.append(queue)
                yield one


def due(turns: Turns | None = None, poll: Poll | None = None) -> Iterator[Task]:
    """Yield what can be done now: first what is for all, then one thing for each user, then the second for each.

    The users, and of each user the lanes and kinds, come in the order of their last `turns`: a long queue or a chain
    that hangs holds up nobody.
    """
    turns, poll = turns or Turns(), poll or Poll()
    duties, asked = _for_all(poll), [one for one in poll.routes_of("batch", "block") if poll.may_ask((None, *one))]
    users = [leases.parties(route.rows(), "user" if route.kind == "batch" else "turn_of") for route in asked]
    yield from round_robin(
        iter([Task(kind, key, lane, do, is_long=kind == "leaves") for key in leases.due(rows)])
        for kind, lane, rows, do in duties
    )
    yield from _in_turns(_for_users(zip(asked, users, strict=True), poll), turns, poll)


def due_webhooks(busy: Iterable[Task] = ()) -> Iterator[Task]:
    """Yield the webhooks that something can be sent to now, one for each user in turn. They are no part of `due`.

    A user, and a receiver, have so few at a time, with those in hand, that a slow one holds up nobody else.
    """
    in_hand = list(busy)
    users, receivers = Counter(task.user for task in in_hand), Counter(task.receiver for task in in_hand)
    rows = leases.due_and_free(Webhook.objects.exclude(pk__in=[task.key for task in in_hand]))
    rows = rows.exclude(user__in=[user for user, count in users.items() if count >= _MOST_OF_A_USER])
    rows = rows.exclude(receiver__in=[one for one, count in receivers.items() if count >= _MOST_OF_A_RECEIVER])
    place = Window(RowNumber(), partition_by=["user", "receiver"], order_by="due_at")
    found = rows.annotate(place=place).filter(place__lte=_MOST_OF_A_RECEIVER).order_by("place", "due_at")
    by_user: dict[int, list[Task]] = defaultdict(list)
    for key, user, receiver in found.values_list("pk", "user", "receiver"):
        by_user[user].append(Task("webhook", key, (), delivery.deliver, user, receiver=receiver))
    for task in round_robin(map(iter, by_user.values())):
        if users[task.user] < _MOST_OF_A_USER and receivers[task.receiver] < _MOST_OF_A_RECEIVER:
            users[task.user] += 1
            receivers[task.receiver] += 1
            yield task


def _in_turns(of_users: Iterable[tuple[Queue, Iterator[Task]]], turns: Turns, poll: Poll) -> Iterator[Task]:
    queues: dict[int | None, dict[Queue, Iterator[Task]]] = defaultdict(dict)
    for queue, tasks in of_users:
        queues[queue[0]][queue] = poll.asking(queue, tasks)
    users = sorted(queues, key=turns.last)
    yield from round_robin([_of_user(queues[user], turns) for user in users])


def _of_user(queues: Mapping[Queue, Iterator[Task]], turns: Turns) -> Iterator[Task]:
    return round_robin([queues[queue] for queue in sorted(queues, key=turns.last)])


_Duty = tuple[str, tuple[int, ...], "QuerySet[Any]", Callable[[Any], None]]
"""A kind of work for all: its name, its lane, the rows, and the function that does it."""


def _for_all(poll: Poll) -> list[_Duty]:
    duties: list[_Duty] = [
        (route.kind, route.lane, route.rows(), _monitor if route.kind == "signer" else upkeep.look_after)
        for route in poll.routes_of("signer", "registry")
    ]
    if poll.includes("leaves"):
        duties.append(("leaves", (), JumpLeaves.objects.all(), upkeep.fetch_leaves))
    if poll.includes("pruning"):
        duties.append(("pruning", (), Pruning.objects.all(), pruning.prune_when_due))
    return duties


def _for_users(
    asked: Iterable[tuple[Route, Iterable[int | None]]], poll: Poll
) -> Iterator[tuple[Queue, Iterator[Task]]]:
    for route, users in asked:
        # What is for all may have taken the room.
        for user in users if poll.may_ask((None, *route)) else ():
            yield (user, *route), (_batches if route.kind == "batch" else _blocks)(route.rows(), route.lane, user)


# Nothing of a user is prepared before it is the user's turn: most polls end before they come to all.


def _batches(of_all: "QuerySet[Batch]", lane: tuple[int, ...], user: int | None) -> Iterator[Task]:
    rows = leases.due_and_free(of_all.filter(user=user)).order_by("due_at").values_list("pk", "block_count")
    for several in by_size(rows[:_PER_POLL], itemgetter(1), _MANY_BLOCKS):
        sources = admit.undecided([key for key, _ in several])
        for key, size in several:
            chains = frozenset(sources[key])
            yield Task("batch", key, lane, admit.admit, user, is_long=size > _MANY_BLOCKS, size=size, sources=chains)


class _Length(Func):
    """The length of a JSON array."""

    function = "json_array_length"
    output_field = IntegerField()

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **more: Any) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, function="jsonb_array_length", **more)


def _blocks(of_all: "QuerySet[Block]", lane: tuple[int, ...], user: int | None) -> Iterator[Task]:
    asked = Query.objects.filter(block=OuterRef("pk"), step__isnull=False).order_by().values("block")
    size = Subquery(asked.annotate(size=Count("pk") + Sum(_Length("slots"))).values("size"))
    rows = leases.due_and_free(of_all.filter(turn_of=user)).order_by("queue_at").annotate(size=size)
    for key, asked_for in rows.values_list("pk", "size")[:_PER_POLL]:
        yield Task("block", key, lane, reconcile, user, size=asked_for or 1)


def reject_overdue() -> None:
    """Reject the batches whose deadline has passed by the database's clock: nothing waits for ever.

    A rejection can't be taken back, and that clock may have jumped. So the newest block that was seen must agree; where
    none does because a chain stands still, a further day must pass.
    """
    opened = Batch.objects.filter(status__in=OPEN_STATUSES)
    early = opened.exclude(overdue_since=None).filter(Q(deadline_at__gte=Now()) | Q(overdue_since__gt=Now()))
    if early.exists():  # The clock was ahead when it said so.
        row_locks.update_free(early, overdue_since=None)
    overdue = opened.filter(deadline_at__lt=Now())
    unnoticed = overdue.filter(overdue_since=None)
    if unnoticed.exists():
        row_locks.update_free(unnoticed, overdue_since=Now())
    agreed = Q(overdue_since__lt=Now() - _FURTHER)
    if newest := clock.newest_block():
        agreed |= Q(deadline_at__lt=newest)
    for batch in overdue.filter(agreed)[:_PER_POLL]:
        said = [wait.sentence for wait in batch.waits()]
        errors = Step.objects.filter(query__batch=batch, status=StepStatus.IN_PROGRESS).exclude(last_error="")
        last_error = errors.values_list("last_error", flat=True).order_by("-pk").first()
        reason = "The batch could not be proven before its deadline."
        reason += f" It waited: {' '.join(said)}" if said else ""
        reason += f" Its last error: {last_error}" if last_error and last_error not in said else ""
        progress.reject(
            [batch.pk],
            code=RejectionCode.DEADLINE_EXCEEDED,
            reason=reason,
            retryable=True,
        )


def _monitor(key: object) -> None:
    assert isinstance(key, int)
    transaction_monitor.monitor(key)
