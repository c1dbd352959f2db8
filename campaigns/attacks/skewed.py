"""A clock that jumps: by as many seconds as stand in a file, which may be written anew at any time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone


def skewed_now(ahead: Callable[[], float]) -> Callable[..., tuple[str, Any]]:
    """`Now.as_sqlite` or `Now.as_postgresql` of a clock that is so many seconds ahead."""

    def as_sql(self: Now, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:
        if connection.vendor == "postgresql":
            template = f"(STATEMENT_TIMESTAMP() + INTERVAL '{ahead():+f} seconds')"
        else:
            # Django's own form, with a modifier (https://www.sqlite.org/lang_datefunc.html).
            template = f"STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW', '{ahead():+f} seconds')"
        return self.as_sql(compiler, connection, template=template, **context)

    return as_sql


def skew(file: Path) -> None:
    """Make this process's clock, and that of its database, so many seconds wrong. `time.monotonic` never is."""

    def ahead() -> float:
        # Empty while it is being written.
        return float(file.read_text() or 0)

    right = time.time
    time.time = lambda: right() + ahead()
    timezone.now = lambda: datetime.fromtimestamp(right(), UTC) + timedelta(seconds=ahead())
    Now.as_sqlite = Now.as_postgresql = skewed_now(ahead)  # type: ignore[method-assign]
