"""Lanes: parts of the work. At any time each lane is held by one worker among all processes and machines.

A worker holds a lane by a new token and an expiry, which a thread renews. It writes only inside `HeldLane.writing`, a
database transaction that fails if the lane has another token. So a worker that was paused for too long can't overwrite
its successor's rows. It sends nothing either, because transactions are stored before they are sent. The database
transaction locks the lane's row, and on SQLite the whole database, so it must contain no RPC call.

All state is in rows, so the next holder of a killed worker's lane repeats the unfinished work.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from config.configured_chains import get_chains
from config.database import statements
from config.database.due_rows import Claim, DueRow
from config.error_answers import why_unavailable
from proving.models import JumpLeaves, Lane, Problem, Signer
from queries import clock
from queries.models import OPEN_STATUSES, Batch, Block, Webhook
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

Row = TypeVar("Row", bound=DueRow)
Result = TypeVar("Result")

# Seconds for which a lane is renewed. After that its work must be hanging, and another worker may take the lane.
LONGEST_SECONDS = 300
MANY_BLOCKS = 100
"""Batches with more blocks have a separate lane, because their admission takes seconds of requests to the chains."""
# Values of a lane that nobody holds.
_FREE: dict[str, Any] = {"token": "", "until": None}
# The beginning of the token of a lane that a command has seized.
_SEIZED = "seized-"


class LaneKind(StrEnum):
    DESTINATION = "destination"
    """Monitors the transactions on a chain. Commands that send also hold this lane."""
    ADMISSION = "admission"
    LARGE_ADMISSION = "large-admission"
    """Admits batches with so many blocks that other batches would wait for them."""
    CONNECTION = "connection"
    """Proves blocks of a source chain on a destination, and checks the registry there."""
    HISTORY = "history"
    """Fetches proofs for jumps to old blocks, which takes minutes."""
    WEBHOOKS = "webhooks"
    WATCH = "watch"
    """Observes chains and attesters."""
    HOUSE = "house"
    """Rejects batches past their deadline, and prunes."""
    PROBLEMS = "problems"
    """Tells the operator's webhook of problems."""


class LaneName(NamedTuple):
    kind: LaneKind
    destination: int = 0
    source: int = 0

    def __str__(self) -> str:
        chains = f"{self.source}>{self.destination}" if self.source else str(self.destination or "")
        return f"{self.kind}:{chains}" if chains else self.kind


class LaneLost(Exception):
    """Another worker now holds the lane. Nothing was written."""


@dataclass(eq=False)
class HeldLane:
    name: LaneName
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    since: float = field(default_factory=time.monotonic)
    is_ending: bool = False
    """True if the lane may be released together with the last write of the work that follows."""
    is_released: bool = False

    @contextmanager
    def writing(self, behind: "QuerySet[Any] | None" = None, *, is_last: bool = False) -> Iterator[None]:
        """Open a database transaction, as the only writer in this lane. Raises `LaneLost`.

        The rows `behind` are locked before the lane (`config.database.statements` has the order of locks).
        """
        with transaction.atomic():
            if behind is not None:
                statements.lock(behind)
            self.fence(is_last=is_last)
            yield

    def fence(self, *, is_last: bool = False) -> None:
        """Lock the lane in the caller's transaction, and renew it, or release it (`is_last`). Raises `LaneLost`."""
        if not _tokens([self]).update(advanced_at=Now(), **(_FREE if is_last else {"until": _expiry()})):
            raise LaneLost

    def write(
        self, change: Callable[[], Result], behind: "QuerySet[Any] | None" = None, *, is_last: bool = False
    ) -> Result:
        """Call `change` inside `writing`. Call it again if the database ends the transaction because of others.

        If this is the last write of the lane's last work, the same database transaction releases the lane.
        """
        is_last = is_last and self.is_ending

        def whole() -> Result:
            with self.writing(behind, is_last=is_last):
                return change()

        result = statements.retried(whole)
        self.is_released = is_last
        return result

    def keep(self) -> None:
        """Renew the lane for work that waits, and doesn't hang. It counts as no advance. Raises `LaneLost`."""
        if not statements.retried(partial(_tokens([self]).update, until=_expiry())):
            raise LaneLost
        self.since = time.monotonic()


@contextmanager
def in_hand(lane: HeldLane, claim: Claim[Row], rows: Sequence[Row]) -> Iterator[None]:
    """Keep the age of rows if the database fails in the block, because the metric of queues shows it.

    The worker then pauses before the lane's next turn.
    """
    try:
        yield
    except Exception as error:
        if why_unavailable(error):
            # It may take no write at all.
            signers = Signer.objects.filter(pk__in=[row.pk for row in rows if isinstance(row, Signer)])
            with suppress(DatabaseError, LaneLost):
                lane.write(partial(claim.keep_age, rows), behind=signers)
        raise


def work_on(
    lane: HeldLane,
    claim: Claim[Row],
    rows: Sequence[Row],
    work: Callable[[Sequence[Row]], None],
    give_up: Callable[[Row], None],
) -> int:
    """Process the rows of a lane together. If that fails by our own error, log it and process the rows one by one.

    So a row that causes an error costs the others only a second try. `give_up` postpones that row. Return the number of
    failed rows. Raises `LaneLost`, and the errors of a database that can't be used.
    """
    try:
        with in_hand(lane, claim, rows), clock.read_once():
            work(rows)
    except LaneLost:
        raise
    except Exception as error:
        if why_unavailable(error):
            raise
        if len(rows) > 1:
            logger.warning("working on %d rows one by one: together they failed", len(rows), exc_info=True)
            for row in rows:
                # The failed work may have changed the row.
                row.refresh_from_db()
            return sum(work_on(lane, claim, [row], work, give_up) for row in rows)
        logger.exception("a part of a turn failed")
        give_up(rows[0])
        return 1
    return 0


def every() -> list[LaneName]:
    """Return the lanes of the configured chains, in the order in which work passes through them."""
    chains = get_chains()
    destinations = [chain.id for chain in chains.destinations()]
    return [
        LaneName(LaneKind.WATCH),
        LaneName(LaneKind.HOUSE),
        *(LaneName(LaneKind.DESTINATION, chain) for chain in destinations),
        *(LaneName(LaneKind.ADMISSION, chain) for chain in destinations),
        *(LaneName(LaneKind.LARGE_ADMISSION, chain) for chain in destinations),
        *(LaneName(LaneKind.CONNECTION, each.destination_id, each.source_id) for each in chains.connections),
        LaneName(LaneKind.HISTORY),
        LaneName(LaneKind.WEBHOOKS),
        *([LaneName(LaneKind.PROBLEMS)] if settings.OPERATOR_WEBHOOK_URL else []),
    ]


def rows(name: LaneName) -> QuerySet[Any]:
    """Return the rows of a lane, due or not."""
    match name.kind:
        case LaneKind.DESTINATION:
            return Signer.objects.filter(chain_id=name.destination)
        case LaneKind.ADMISSION | LaneKind.LARGE_ADMISSION:
            opened = Batch.objects.filter(destination_chain_id=name.destination, status__in=OPEN_STATUSES)
            large = Q(block_count__gt=MANY_BLOCKS)
            return opened.filter(large if name.kind == LaneKind.LARGE_ADMISSION else ~large)
        case LaneKind.CONNECTION:
            return Block.objects.filter(destination_chain_id=name.destination, source_chain_id=name.source)
        case LaneKind.HISTORY | LaneKind.WEBHOOKS | LaneKind.PROBLEMS:
            return _TABLES[name.kind]._default_manager.all()
        case LaneKind.WATCH | LaneKind.HOUSE:
            # These lanes get a turn at heartbeats, without rows.
            return Batch.objects.none()


_TABLES: dict[LaneKind, type[DueRow]] = {
    LaneKind.HISTORY: JumpLeaves,
    LaneKind.WEBHOOKS: Webhook,
    LaneKind.PROBLEMS: Problem,
}


@contextmanager
def hold(name: LaneName) -> Iterator[HeldLane | None]:
    """Hold a lane until the end of the `with` block. Yield None if another worker holds it."""
    lane = HeldLane(name)
    if not _take(lane):
        yield None
        return
    with _kept(lane):
        yield lane


@contextmanager
def seize(name: LaneName) -> Iterator[HeldLane]:
    """Take a lane from its holder, who can't write any more. Hold it until the end of the `with` block."""
    lane = HeldLane(name, f"{_SEIZED}{secrets.token_hex(12)}")
    Lane.objects.bulk_create([Lane(name=str(name))], ignore_conflicts=True)
    Lane.objects.filter(name=str(name)).update(token=lane.token, until=_expiry())
    with _kept(lane):
        yield lane


def replacing(destination: int, sources: Collection[int]) -> dict[int, WaitReason]:
    """Return, by source chain, the waits for commands that replace a connection's registry now."""
    names = {str(LaneName(LaneKind.CONNECTION, destination, source)): source for source in sources}
    seized = Lane.objects.filter(name__in=names, token__startswith=_SEIZED, until__gt=Now())
    return {
        names[name]: wait("registry_being_replaced", chain=destination, source=names[name])
        for name in seized.order_by("name").values_list("name", flat=True)
    }


@contextmanager
def _kept(lane: HeldLane) -> Iterator[None]:
    _renewal.add(lane)
    try:
        yield
    finally:
        _renewal.remove(lane)
        if not lane.is_released:
            _tokens([lane]).update(**_FREE)


def _take(lane: HeldLane) -> bool:
    # A lease that lasts too long was written by a clock that was ahead.
    too_long = Now() + timedelta(seconds=2 * settings.LEASE_SECONDS)
    rows = Lane.objects.filter(name=str(lane.name))
    free = rows.filter(Q(until=None) | Q(until__lt=Now()) | Q(until__gt=too_long))
    take = partial(free.update, token=lane.token, until=_expiry())
    if take():
        return True
    if rows.exists():
        return False
    Lane.objects.bulk_create([Lane(name=str(lane.name))], ignore_conflicts=True)
    return bool(take())


def _tokens(lanes: list[HeldLane]) -> QuerySet[Lane]:
    return Lane.objects.filter(token__in=[lane.token for lane in lanes])


def _expiry() -> Combinable:
    return Now() + timedelta(seconds=settings.LEASE_SECONDS)


class _Renewal:
    """A thread that renews this process's lanes. Most lanes are released before their first renewal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[HeldLane] = set()
        self._thread: threading.Thread | None = None

    def add(self, lane: HeldLane) -> None:
        with self._lock:
            self._held.add(lane)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lanes", daemon=True)
                self._thread.start()

    def remove(self, lane: HeldLane) -> None:
        with self._lock:
            self._held.discard(lane)

    def _run(self) -> None:
        while True:
            time.sleep(settings.LEASE_SECONDS / 4)
            with self._lock:
                if not self._held:
                    self._thread = None
                    return
                ages = {lane: time.monotonic() - lane.since for lane in self._held}
            held = [lane for lane, age in ages.items() if settings.LEASE_SECONDS / 4 < age < LONGEST_SECONDS]
            if held:
                self._renew(held)

    def _renew(self, held: list[HeldLane]) -> None:
        try:
            _tokens(held).update(until=_expiry())
        except DatabaseError:
            # Each write checks whether the lane is still held.
            logger.warning("lanes could not be renewed", exc_info=True)
        finally:
            connection.close()


_renewal = _Renewal()
