"""Batches a second with 1, 2 and 4 workers, a node 50 ms away: on SQLite, on PostgreSQL, and by Celery on PostgreSQL.

`python -m campaigns.benchmarks.scale [--batches 200] [--accounts 5] [--workers 1,2,4] [--engines runworker-sqlite]`.
Workers are stopped while everything is submitted. Beside the time there are, for each batch, exchanges with the node,
PostgreSQL's statements, transactions and new connections, and messages; and its transactions while nothing is to do.
"""

import argparse
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import redis
from eth_account import Account

from campaigns.benchmarks.distant_node import DistantNode
from demo import client
from demo.cluster import Cluster
from demo.installation import CHAIN_ID, CHAINS_TOML, SIGNER_KEY, Service
from devnet.devchain import DevChain
from devnet.ports import free_port
from devnet.servers import Postgres, Redis

ENGINES = ("runworker-sqlite", "runworker-postgresql", "celery-postgresql")
_LIMITS = {"MAX_BATCHES_PER_MINUTE": "1000000", "MAX_QUERIES_PER_MINUTE": "10000000", "MAX_OPEN_BATCHES": "100000"}
_IDLE_SECONDS = 10
_START_SECONDS = 180
_PATIENCE_SECONDS = 60
# PostgreSQL reports its counts about every second.
_COUNTS_SECONDS = 2
# A line of PostgreSQL's log.
_STATEMENT = re.compile(rb"LOG:  (?:statement|execute [^:]*): ")


@dataclass
class Counts:
    exchanges: int = 0
    transactions: int = 0
    connections: int = 0
    messages: int = 0

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(
            self.exchanges - other.exchanges,
            self.transactions - other.transactions,
            self.connections - other.connections,
            self.messages - other.messages,
        )


class Measured:
    """An installation of one engine with so many workers."""

    def __init__(self, running: ExitStack, engine: str, workers: int, milliseconds: int) -> None:
        chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1))
        chain.mine(1000)
        self.node = running.enter_context(DistantNode(chain.url, milliseconds / 1000))
        self.postgres = running.enter_context(Postgres()) if "postgresql" in engine else None
        self.redis = running.enter_context(Redis()) if "celery" in engine else None
        variables = dict(_LIMITS)
        if self.postgres:
            variables["DATABASE_URL"] = self.postgres.url()
        if self.redis:
            variables["BROKER_URL"] = self.redis.url()
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        kind = Cluster if self.redis else Service
        toml = CHAINS_TOML % self.node.url
        self.service = kind(running, folder, toml, SIGNER_KEY, free_port(), **variables)
        self.service.deploy_registry(CHAIN_ID, CHAIN_ID)
        self.service.start_web_at(self.service.port, "web")
        self.workers = [f"worker-{number}" for number in range(1, workers + 1)]
        for name in self.workers:
            self.service.start_worker(name)
        deadline = time.monotonic() + _START_SECONDS
        while not self.service.is_healthy():
            self.service.require_running()
            assert time.monotonic() < deadline, "it does not start"
            time.sleep(0.2)
        account = Account.create()
        self.api_key = client.take_api_key(self.service.base_url, account.address, account.key.to_0x_hex(), CHAIN_ID)

    def prove(self, count: int, accounts: int, first_block: int) -> float:
        """The seconds from when the workers begin until so many batches, each of a block of its own, are DONE."""
        self._signal(signal.SIGSTOP)
        names = [f"0x{first_block * 1000 + number:040x}" for number in range(accounts)]
        asked = {key: {"props": ["BALANCE"], "slots": []} for key in names}
        ids = []
        for number in range(count):
            data = {str(CHAIN_ID): {f"block:{first_block + number}": {"accounts": asked}}}
            body = {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data}
            ids.append(self._patiently(partial(client.submit, self.service.base_url, self.api_key, body), self._go_on))
        began = time.monotonic()
        self._signal(signal.SIGCONT)
        for internal_id in ids:
            ask = partial(client.status, self.service.base_url, self.api_key, internal_id)
            while self._patiently(ask) != "DONE":
                time.sleep(0.2)
        return time.monotonic() - began

    @staticmethod
    def _patiently(ask: Callable[[], str], before_next: Callable[[], None] = lambda: None) -> str:
        """Ask again for a while where the answer is 503, as any client must."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return ask()
            except client.Unavailable:
                if time.monotonic() > deadline:
                    raise
                before_next()
                time.sleep(0.2)

    def _go_on(self) -> None:
        """Let the workers end what they were stopped in: in the middle of a write they hold the database's lock."""
        self._signal(signal.SIGCONT)
        time.sleep(0.2)
        self._signal(signal.SIGSTOP)

    def counts(self) -> Counts:
        counts = Counts(exchanges=len(self.node.exchanges))
        if self.postgres:
            with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
                row = connection.execute(
                    "SELECT xact_commit + xact_rollback, sessions FROM pg_stat_database WHERE datname = 'postgres'"
                ).fetchone()
            assert row
            counts.transactions, counts.connections = map(int, row)
        if self.redis:
            with redis.Redis.from_url(self.redis.url()) as broker:
                counts.messages = int(broker.info("commandstats").get("cmdstat_lpush", {}).get("calls", 0))
        return counts

    def statements(self, count: int, accounts: int, first_block: int) -> int | None:
        """Prove such batches while PostgreSQL logs each SQL statement, which is slower. Return how many there were.

        None where the database is another one.
        """
        if self.postgres is None:
            return None
        with logging_statements(self.postgres):
            self.prove(count, accounts, first_block)
        return statements_in(self.postgres)

    def _signal(self, number: signal.Signals) -> None:
        for name in self.workers:
            os.kill(self.service.process(name).pid, number)


@contextmanager
def logging_statements(postgres: Postgres) -> Iterator[None]:
    """Let PostgreSQL log each SQL statement, which is slower."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET log_statement = 'all'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM SET log_statement = 'none'")
            connection.execute("SELECT pg_reload_conf()")


def statements_in(postgres: Postgres) -> int:
    """Return how many statements PostgreSQL has logged."""
    return len(_STATEMENT.findall((postgres.folder / "log").read_bytes()))


def measure(engine: str, workers: int, options: argparse.Namespace) -> None:
    with ExitStack() as running:
        measured = Measured(running, engine, workers, options.milliseconds)
        measured.prove(4 * workers, 1, 20)  # what each process does once
        time.sleep(_COUNTS_SECONDS)
        before = measured.counts()
        seconds = measured.prove(options.batches, options.accounts, 100)
        time.sleep(_COUNTS_SECONDS)
        counts = measured.counts() - before
        # Until everything is final.
        time.sleep(_IDLE_SECONDS)
        before = measured.counts()
        time.sleep(_IDLE_SECONDS)
        idle = measured.counts() - before
        statements = measured.statements(options.batches, options.accounts, 100 + options.batches)
    count = options.batches
    print(
        f"{engine:22} {workers:7} {seconds:8.1f} {count / seconds:9.1f} {count * options.accounts / seconds:9.0f} "
        f"{counts.exchanges / count:10.2f} {'-' if statements is None else f'{statements / count:.1f}':>10} "
        f"{counts.transactions / count:13.1f} {counts.connections / count:12.2f} "
        f"{counts.messages / count:9.2f} {idle.transactions / _IDLE_SECONDS:12.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--accounts", type=int, default=5, help="of each batch: as many facts")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--milliseconds", type=int, default=50, help="to the node and back")
    options = parser.parse_args()
    print(f"{options.batches} batches of {options.accounts} accounts, a node {options.milliseconds} ms away")
    print("of a batch: exchanges with the node, statements, transactions and connections of PostgreSQL, messages")
    print(
        f"{'engine':22} {'workers':>7} {'seconds':>8} {'batches/s':>9} {'facts/s':>9} {'exchanges':>10} "
        f"{'statements':>10} {'transactions':>13} {'connections':>12} {'messages':>9} {'idle tx/s':>12}"
    )
    for engine in options.engines.split(","):
        for workers in options.workers.split(","):
            measure(engine, int(workers), options)


if __name__ == "__main__":
    main()
