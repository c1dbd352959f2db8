"""A worker on a machine whose clock is wrong: `python -m campaigns.incidents.skewed_worker SECONDS`."""

import sys
import time
from datetime import UTC, datetime, timedelta

from django.utils import timezone

import manage

_skew, _true_time = float(sys.argv.pop()), time.time
time.time = lambda: _true_time() + _skew
timezone.now = lambda: datetime.now(UTC) + timedelta(seconds=_skew)
sys.argv[1:] = ["runworker"]
manage.main()
