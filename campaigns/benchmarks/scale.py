"""Batches per second with 1, 2 and 4 workers: on SQLite, on PostgreSQL, and with Celery.

`python -m campaigns.benchmarks.scale [--batches 200] [--workers 1,2,4]`. The node has a delay of 50 ms. Workers are
frozen during the submissions. The table also shows exchanges with the node and PostgreSQL transactions per batch.
"""

import argparse
import time
from contextlib import ExitStack

import psycopg

from campaigns.benchmarks.measured import AWAY_SECONDS, Measured
from devnet.servers import Postgres

_ENGINES = ("runworker-sqlite", "runworker-postgresql", "celery-postgresql")
_ACCOUNTS = 5
# Seconds after which PostgreSQL has updated its counts.
_COUNTS_SECONDS = 2


def transactions(postgres: Postgres | None) -> int:
    """Return PostgreSQL's count of transactions. 0 on SQLite."""
    if not postgres:
        return 0
    time.sleep(_COUNTS_SECONDS)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        counted = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'"
        row = connection.execute(counted).fetchone()
    assert row
    return int(row[0])


def measure(engine: str, workers: int, count: int) -> None:
    with ExitStack() as running:
        measured = Measured(running, engine, workers)
        measured.seconds_of(4 * workers, 1)  # each process does some work only once, which must not be measured
        before = transactions(measured.postgres)
        measured.node.forget()
        seconds = measured.seconds_of(count, _ACCOUNTS)
        exchanges, written = len(measured.node.exchanges), transactions(measured.postgres) - before
    print(
        f"{engine:22} {workers:7} {seconds:8.1f} {count / seconds:9.1f} {exchanges / count:10.2f} "
        f"{written / count:13.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--workers", default="1,2,4")
    options = parser.parse_args()
    print(f"{options.batches} batches of {_ACCOUNTS} accounts, a node {1000 * AWAY_SECONDS:.0f} ms away")
    print(f"{'engine':22} workers  seconds batches/s  exchanges  transactions (of a batch)")
    for engine in _ENGINES:
        for workers in options.workers.split(","):
            measure(engine, int(workers), options.batches)


if __name__ == "__main__":
    main()
