"""manage.py with a clock that jumps: `python -m tests.attacks.skewed FILE COMMAND`; FILE says by how many seconds.

It may be written anew at any time. SQLite's clock jumps with it, as on one machine; `time.monotonic` never does.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone


def skewed_now(ahead: Callable[[], float]) -> Callable[..., tuple[str, Any]]:
    """`Now.as_sqlite` of a clock that is so many seconds ahead."""

    def as_sqlite(self: Now, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:
        # Django's own form, with a modifier (https://www.sqlite.org/lang_datefunc.html).
        template = f"STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW', '{ahead():+f} seconds')"
        return self.as_sql(compiler, connection, template=template, **context)

    return as_sqlite


def _main(file: Path, arguments: list[str]) -> None:
    def ahead() -> float:
        return float(file.read_text())

    right = time.time
    time.time = lambda: right() + ahead()
    timezone.now = lambda: datetime.now(UTC) + timedelta(seconds=ahead())
    Now.as_sqlite = skewed_now(ahead)  # type: ignore[method-assign]
    # Only now: models take the function that tells the time as it is when they are made.
    from manage import main  # noqa: PLC0415

    sys.argv = ["manage.py", *arguments]
    main()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
