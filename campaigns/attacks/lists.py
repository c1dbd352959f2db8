"""One key asks again and again for the dearest lists, of many rows: others are answered beside it."""

import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import requests

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.bodies import balances
from campaigns.rows import BATCH_ID, multiply
from devnet.devchain import ACCOUNTS

_ROWS, _AT_ONCE, _PROBES = 100_000, 16, 20
# Of a small answer to another user.
_MOST_SECONDS = 1.0
_ENOUGH = 60  # seconds after which a batch is taken for stuck


def run(_: int) -> Iterator[Seen]:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "db.sqlite3"
        with target(SQLITE_FILE=str(database)) as attacked:
            heavy, newcomer = attacked.key(0), attacked.key(1)
            (mine, _), (others, _) = ACCOUNTS[:2]
            for key, account in ((heavy, mine), (newcomer, others)):
                attacked.seconds_to_done(key, balances([attacked.chain.head()], [account]), _ENOUGH)
            _fill(database, {"E": mine, "F": others})
            alone = statistics.median(_seconds(attacked, newcomer) for _ in range(_PROBES))
            for parameters in ({"account": others}, {"account": others, "status": "REJECTED"}):
                answers, beside = _beside(attacked, heavy, newcomer, parameters)
                yield Seen(
                    f"{_AT_ONCE} requests at once for GET /batch-queries?{'&'.join(parameters)}= of one key, whose "
                    f"{_ROWS:,} batches and {_ROWS:,} queries about the account have nothing in common",
                    f"half of another user's small answers come within {_MOST_SECONDS:.0f} s",
                    f"alone {1000 * alone:.0f} ms; beside it {1000 * beside:.0f} ms; {answers} lists were answered",
                    kept=beside < _MOST_SECONDS and answers > 0,
                )


def _fill(database: Path, accounts: Mapping[str, str]) -> None:
    """Copy the batch about each account, and its query."""
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
    """Return how many lists were answered, and the median of the seconds of the newcomer's small answers meanwhile."""
    answered, is_over = [], threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            url, headers = f"{attacked.url}/batch-queries", {"api-key": heavy}
            answered.append(requests.get(url, params=parameters, headers=headers, timeout=_ENOUGH).ok)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    beside = statistics.median(_seconds(attacked, newcomer) for _ in range(_PROBES))
    is_over.set()
    for thread in threads:
        thread.join()
    return sum(answered), beside


def _seconds(attacked: Target, key: str) -> float:
    began = time.monotonic()
    parameters = {"limit": "1"}
    url = f"{attacked.url}/batch-queries"
    requests.get(url, params=parameters, headers={"api-key": key}, timeout=_ENOUGH).raise_for_status()
    return time.monotonic() - began
