"""Where the time of a batch went: a bar for each step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min
from django.utils import timezone

from queries.models import Batch, BatchStatus, Step, StepKind

# Steps of more queries take a page too long to read.
MOST_QUERIES = 1000
# In percent: what takes no time is seen too.
_THINNEST = 0.8
# The scale of an open batch grows by this factor, so that a page changes now and then, and not each second.
_GROWTH = 1.25
_INSTANT = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Bar:
    label: str
    kind: str = ""  # ok, run, stopped: a class of the style sheet; empty: not begun
    start: datetime | None = None
    end: datetime | None = None  # None: it lasts
    x: float = 0  # percent
    width: float = 0

    @property
    def took(self) -> timedelta | None:
        return self.end - self.start if self.start and self.end else None


def bars(batch: Batch, kinds: tuple[StepKind, ...]) -> list[Bar]:
    """Return a bar for each of these steps, from when the first query began it until the last completed it."""
    rows = Step.objects.filter(query__batch=batch).order_by().values_list("kind")
    known = {
        kind: times
        for kind, *times in rows.annotate(Min("started_at"), Max("completed_at"), Count("pk"), Count("completed_at"))
    }
    whole = (batch.finished_at or timezone.now()) - batch.created_at
    if batch.is_open:
        steps = math.ceil(math.log(max(1, whole.total_seconds()), _GROWTH))
        whole = timedelta(seconds=_GROWTH**steps)
    return [_bar(batch, kind, whole or _INSTANT, known[kind]) if kind in known else Bar(kind) for kind in kinds]


def _bar(batch: Batch, kind: str, whole: timedelta, times: Sequence[Any]) -> Bar:
    start, last, begun, completed = times
    state, end = "run", None
    if completed == begun:
        state, end = "ok", last
    elif batch.status == BatchStatus.REJECTED:
        state, end = "stopped", batch.finished_at
    # After a roll-back of a batch that was DONE, times may lie beyond its end.
    x = min(max(100 * (start - batch.created_at) / whole, 0), 100 - _THINNEST)
    until = min(100 * (end - batch.created_at) / whole, 100) if end else 100
    return Bar(kind, state, start, end, round(x, 1), round(max(until - x, _THINNEST), 1))
