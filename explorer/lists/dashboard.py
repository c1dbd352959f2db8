"""What a user sees first: the results of the newest batches, the rest of the day's budget, and the last 30 days."""

from dataclasses import dataclass

from accounts.key_views import ShownKey, newest_keys
from accounts.models import User
from explorer.lists import batch_list, daily_charts, daily_history
from explorer.lists.batch_rows import BatchRow
from explorer.lists.daily_charts import Chart
from proving.budget import allowance
from proving.budget.allowance import DailyAllowance

_BATCHES, _KEYS = 6, 3


@dataclass(frozen=True)
class Dashboard:
    latest: tuple[BatchRow, ...]
    allowances: tuple[DailyAllowance, ...]
    charts: tuple[Chart, ...]  # empty: nothing has ended in these days
    counts_all: bool  # whether the charts are about all batches of these days
    counted: int  # the maximum that is counted
    keys: tuple[ShownKey, ...]  # the newest
    key_count: int


def read(user: User) -> Dashboard:
    latest = batch_list.newest(user, _BATCHES)
    history = daily_history.read(user) if latest else None
    keys, key_count = newest_keys(user, _KEYS)
    return Dashboard(
        latest=tuple(latest),
        allowances=tuple(allowance.of_user(user)),
        charts=daily_charts.of(history) if history and history.any else (),
        counts_all=history is None or history.is_whole,
        counted=daily_history.MOST_BATCHES,
        keys=tuple(keys),
        key_count=key_count,
    )
