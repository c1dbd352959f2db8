"""A user requests many expensive lists at once. Other users must still get answers."""

import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import requests

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.bodies import balances
from campaigns.rows import BATCH_ID, multiply
from devnet.devchain import ACCOUNTS

_ROWS, _AT_ONCE = 100_000, 16
_PROBING_SECONDS, _PAUSE_SECONDS = 15, 0.05
# Maximum seconds for a small answer to another user.
_MOST_SECONDS = 1.0
_ENOUGH = 60  # seconds after which a batch counts as stuck


def run(_: int) -> Iterator[Seen]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        database = Path(folder) / "db.sqlite3"
        with target(SQLITE_FILE=str(database)) as attacked:
            heavy, newcomer = attacked.key(0), attacked.key(1)
            mine, others = (address for address, _ in ACCOUNTS[:2])
            for whose, account in ((heavy, mine), (newcomer, others)):
                attacked.seconds_to_done(whose, balances([attacked.chain.head()], [account]), _ENOUGH)
            _fill(database, {"E": mine, "F": others})
            alone = _median(attacked, newcomer)
            for parameters in ({"account": others}, {"account": others, "status": "REJECTED"}):
                answers, beside = _beside(attacked, heavy, newcomer, parameters)
                yield Seen(
                    f"{_AT_ONCE} requests at once for GET /batch-queries?{'&'.join(parameters)}= of one key, whose "
                    f"{_ROWS:,} batches and {_ROWS:,} queries about the account have nothing in common",
                    f"half of another user's small answers come within {_MOST_SECONDS:.0f} s, for {_PROBING_SECONDS} s",
                    f"alone {1000 * alone:.0f} ms; beside it {1000 * beside:.0f} ms; {answers} lists were answered",
                    kept=beside < _MOST_SECONDS and answers == _AT_ONCE,
                )


def _fill(database: Path, accounts: Mapping[str, str]) -> None:
    """Copy the batch and its query for each account."""
    with closing(sqlite3.connect(database, timeout=60)) as rows, rows:
        for place, account in accounts.items():
            batch, query = rows.execute(
                "SELECT batch_id, id FROM queries_query WHERE address = ?", [account]
            ).fetchone()
            new = BATCH_ID.format(place)
            for table, which, changed in (
                ("queries_batch", batch, {"id": new}),
                ("queries_query", query, {"batch_id": new}),
            ):
                columns = ",".join(name for _, name, *_ in rows.execute(f"PRAGMA table_info({table})"))
                multiply(rows.execute, table, columns, f"id = '{which}'", _ROWS, **changed)


def _beside(attacked: Target, heavy: str, newcomer: str, parameters: Mapping[str, str]) -> tuple[int, float]:
    """Return the number of answered lists, and the median seconds until a newcomer's lists are answered."""
    answered = []

    def ask() -> None:
        url, headers = f"{attacked.url}/batch-queries", {"api-key": heavy}
        with suppress(requests.Timeout):
            answered.append(requests.get(url, params=parameters, headers=headers, timeout=_ENOUGH).ok)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    beside = _median(attacked, newcomer)
    for thread in threads:
        thread.join()
    return sum(answered), beside


def _median(attacked: Target, key: str) -> float:
    """Return the median seconds of small requests that are sent one after another."""
    taken, end = [], time.monotonic() + _PROBING_SECONDS
    url, parameters = f"{attacked.url}/batch-queries", {"limit": "1"}
    while time.monotonic() < end:
        began = time.monotonic()
        with suppress(requests.Timeout):
            requests.get(url, params=parameters, headers={"api-key": key}, timeout=_ENOUGH).raise_for_status()
        taken.append(time.monotonic() - began)
        time.sleep(_PAUSE_SECONDS)
    return statistics.median(taken)
