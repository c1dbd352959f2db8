"""How long work has stood still: whether workers advance what they could, whatever their heartbeats say.

The age of the oldest due row isn't enough, because rows of a backlog wait for their turn. So a lane stands still only
since its holder's last write. The lane of history has no stage, because one fetch takes minutes without a write.
"""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from django.db.models import Exists, Min, OuterRef, QuerySet, Value
from django.db.models.functions import Now

from config.database import due_rows
from proving.models import WATCHED_STATES, Lane, Transaction, TransactionState
from proving.working import lanes
from proving.working.lanes import LaneKind, LaneName

LONGEST = timedelta(seconds=30)
"""A lane that stands still for longer is a problem. It is longer than a node that hangs keeps a turn. Rows that a turn
has taken are due again after `LEASE_SECONDS`, so with its default a turn that hangs is told within a minute."""


class Stage(StrEnum):
    ADMISSION = "admission"
    PROVING = "proving"
    SENDING = "sending"
    CONFIRMING = "confirming"
    WEBHOOKS = "webhooks"


class Standstill(NamedTuple):
    stage: Stage
    lane: LaneName
    seconds: float


_STAGES: dict[LaneKind, Stage] = {
    LaneKind.ADMISSION: Stage.ADMISSION,
    LaneKind.LARGE_ADMISSION: Stage.ADMISSION,
    LaneKind.CONNECTION: Stage.PROVING,
    LaneKind.WEBHOOKS: Stage.WEBHOOKS,
}


def by_lane() -> list[Standstill]:
    """Return the lanes in which something is due, and for how long nothing was advanced there."""
    names = {str(name): name for name in lanes.every()}
    (first, *others) = [_oldest(stage, name, rows) for name in names.values() for stage, rows in _queues(name)]
    oldest = list(first.union(*others))
    # A time in the future was stored by a clock that was ahead.
    advanced = Lane.objects.filter(advanced_at__lte=Now() + due_rows.MILLISECOND)
    times = dict(advanced.values_list("name", "advanced_at"))
    return [
        Standstill(Stage(stage), names[lane], max(0.0, (now - max(since, times.get(lane, since))).total_seconds()))
        for stage, lane, now, since in oldest
    ]


def by_stage() -> dict[str, float]:
    """Return the longest standstill of each stage, in seconds. 0: nothing is due that isn't advanced."""
    seconds: dict[str, float] = {stage.value: 0.0 for stage in Stage}
    for stage, _, lasting in by_lane():
        seconds[stage] = max(seconds[stage], lasting)
    return seconds


def _queues(name: LaneName) -> Iterator[tuple[Stage, QuerySet[Any]]]:
    if name.kind == LaneKind.DESTINATION:
        mined = set(WATCHED_STATES) - {TransactionState.PENDING}
        for stage, states in ((Stage.SENDING, {TransactionState.PENDING}), (Stage.CONFIRMING, mined)):
            transactions = Transaction.objects.filter(signer=OuterRef("pk"), state__in=states)
            yield stage, lanes.rows(name).filter(Exists(transactions))
    elif name.kind in _STAGES:
        yield _STAGES[name.kind], lanes.rows(name)


def _oldest(stage: Stage, name: LaneName, rows: QuerySet[Any]) -> QuerySet[Any, tuple[Any, ...]]:
    """Return the lane's stage and name, the database's time, and when the oldest row became due, if one is."""
    of_lane = due_rows.due(rows).order_by().annotate(stage=Value(stage.value), lane=Value(str(name)), now=Now())
    oldest: QuerySet[Any, tuple[Any, ...]] = of_lane.values_list("stage", "lane", "now").annotate(since=Min("due_at"))
    return oldest
