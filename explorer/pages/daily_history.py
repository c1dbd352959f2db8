"""What became of a user's batches on each of the last days, by the day on which they ended, in UTC.

Batches are never pruned, so nothing is missing for that. What is added up is bounded instead.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, timedelta

from django.conf import settings
from django.utils import timezone

from accounts import statements
from accounts.models import User
from queries.models import BatchStatus

DAYS = 30
# Only so many of a user's newest batches are added up.
MOST_BATCHES = 10_000


@dataclass(frozen=True)
class Day:
    date: date
    done: int = 0  # batches
    rejected: int = 0
    proven: int = 0  # accounts, slots and headers of those that were done
    gas: int = 0  # of all that ended

    @property
    def ended(self) -> int:
        return self.done + self.rejected


@dataclass(frozen=True)
class History:
    days: tuple[Day, ...]  # `DAYS` of them, the last one is today
    is_whole: bool  # whether all batches of these days are counted

    @property
    def any(self) -> bool:
        return any(day.ended for day in self.days)


def read(user: User) -> History:
    """Read the user's days by one statement. The database adds up the rows that an index finds by user and time."""
    today = timezone.now().astimezone(UTC).date()
    dates = [today - timedelta(days=ago) for ago in reversed(range(DAYS))]
    # A batch ends by its deadline. One that a reorganised chain took back may end later, within a new one.
    first = timezone.now() - timedelta(days=DAYS, seconds=2 * settings.BATCH_DEADLINE_SECONDS)
    rows = statements.every(
        f"SELECT {statements.day_of('finished_at')}, status, COUNT(*), SUM(size), SUM(gas_used) FROM ("  # noqa: S608
        "SELECT finished_at, status, size, gas_used FROM queries_batch WHERE user_id = %s AND created_at >= %s "
        "ORDER BY created_at DESC LIMIT %s) AS newest GROUP BY 1, 2",
        (user.pk, statements.stored(first), MOST_BATCHES),
    )
    sums: dict[str, dict[str, tuple[int, int, int]]] = defaultdict(dict)
    for day, status, *added in rows:
        if day is not None:
            sums[day][status] = (int(added[0]), int(added[1]), int(added[2]))
    return History(
        days=tuple(_day(day, sums.get(day.isoformat(), {})) for day in dates),
        is_whole=sum(int(count) for _, _, count, *_ in rows) < MOST_BATCHES,
    )


def _day(day: date, sums: dict[str, tuple[int, int, int]]) -> Day:
    none = (0, 0, 0)
    done, rejected = sums.get(BatchStatus.DONE, none), sums.get(BatchStatus.REJECTED, none)
    return Day(day, done=done[0], rejected=rejected[0], proven=done[1], gas=done[2] + rejected[2])
