"""Bars that show how long each step of a batch took, on the scale of the whole batch."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min
from django.utils import timezone

from queries.models import Batch, BatchStatus, Step

# Maximum queries of a batch with bars. Reading the steps of more queries takes too long for a page.
MOST_QUERIES = 1000
# Minimum width in percent, so that short steps are visible.
_THINNEST = 0.8
# The scale of an open batch grows in steps of this factor, so that a page changes seldom and not each second.
_GROWTH = 1.25


@dataclass(frozen=True)
class Bar:
    kind: str  # class of the style sheet: ok, run or stopped
    start: datetime
    end: datetime | None  # None: the step goes on
    x: float  # percent
    width: float

    @property
    def took(self) -> timedelta | None:
        return self.end - self.start if self.end else None


def bars(batch: Batch) -> dict[str, Bar]:
    """Return a bar for each step, from the first query that began it until the last one completed it."""
    rows = Step.objects.filter(query__batch=batch).order_by().values_list("kind")
    known = rows.annotate(Min("started_at"), Max("completed_at"), Count("pk"), Count("completed_at"))
    return {
        kind: bar(batch, start, last if completed == begun else None) for kind, start, last, begun, completed in known
    }


def bar(batch: Batch, start: datetime, completed: datetime | None) -> Bar:
    """Return the bar of a step. If a batch was rejected, the bar of its open step ends with the batch."""
    whole = max((batch.finished_at or timezone.now()) - batch.created_at, timedelta(milliseconds=1))
    if batch.is_open:
        steps = math.ceil(math.log(max(1, whole.total_seconds()), _GROWTH))
        whole = timedelta(seconds=_GROWTH**steps)
    end = batch.finished_at if batch.status == BatchStatus.REJECTED and not completed else completed
    state = "ok" if completed else "stopped" if end else "run"
    # If a reorg reopened a DONE batch, times may be outside of its duration.
    x = min(max(100 * (start - batch.created_at) / whole, 0), 100 - _THINNEST)
    until = min(100 * (end - batch.created_at) / whole, 100) if end else 100
    return Bar(state, start, end, round(x, 1), round(max(until - x, _THINNEST), 1))
