"""Batches a second with 1, 2 and 4 workers, a node 50 ms away: on SQLite, on PostgreSQL, and by Celery on PostgreSQL.

`python -m campaigns.benchmarks.scale [--batches 200] [--workers 1,2,4]`. Workers are stopped while everything is
submitted. Beside the time there are, for each batch, exchanges with the node and PostgreSQL's transactions.
"""

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg

from campaigns.benchmarks.distant_node import DistantNode
from campaigns.benchmarks.web import UNLIMITED
from demo import client
from demo.cluster import Cluster
from demo.installation import CHAIN_ID, CHAINS_TOML, SIGNER_KEY, WALLET_ADDRESS, WALLET_KEY, Service
from devnet.devchain import DevChain
from devnet.ports import free_port
from devnet.servers import Postgres, Redis

ENGINES = ("runworker-sqlite", "runworker-postgresql", "celery-postgresql")
_ACCOUNTS, _AWAY_SECONDS = 5, 0.05
_PATIENCE_SECONDS = 60
# PostgreSQL reports its counts about every second.
_COUNTS_SECONDS = 2


class Measured:
    """An installation of one engine with so many workers."""

    def __init__(self, running: ExitStack, engine: str, workers: int) -> None:
        chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1))
        chain.mine(1000)
        self.node = running.enter_context(DistantNode(chain.url, _AWAY_SECONDS))
        self.postgres = running.enter_context(Postgres()) if "postgresql" in engine else None
        variables = dict(UNLIMITED)
        if self.postgres:
            variables["DATABASE_URL"] = self.postgres.url()
        if "celery" in engine:
            variables["BROKER_URL"] = running.enter_context(Redis()).url()
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        kind = Cluster if "celery" in engine else Service
        self.service = kind(running, folder, CHAINS_TOML % self.node.url, SIGNER_KEY, free_port(), **variables)
        self.service.deploy_registry(CHAIN_ID, CHAIN_ID)
        self.service.start_web_at(self.service.port, "web")
        self.workers = [f"worker-{number}" for number in range(1, workers + 1)]
        for name in self.workers:
            self.service.start_worker(name)
        self.service.wait_until(self.service.is_healthy)
        self.api_key = client.take_api_key(self.service.base_url, WALLET_ADDRESS, WALLET_KEY, CHAIN_ID)

    def prove(self, count: int, first_block: int) -> float:
        """Return the seconds from when the workers begin until so many batches, at a block each, are DONE."""
        self._signal(signal.SIGSTOP)
        asked = {f"0x{first_block * 1000 + number:040x}": {"props": ["BALANCE"]} for number in range(_ACCOUNTS)}
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

    def transactions(self) -> int:
        """Return how many PostgreSQL has counted; 0 where there is none."""
        if not self.postgres:
            return 0
        time.sleep(_COUNTS_SECONDS)
        with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
            row = connection.execute(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'"
            ).fetchone()
        assert row
        return int(row[0])

    def _signal(self, number: signal.Signals) -> None:
        for name in self.workers:
            os.kill(self.service.process(name).pid, number)


def measure(engine: str, workers: int, count: int) -> None:
    with ExitStack() as running:
        measured = Measured(running, engine, workers)
        measured.prove(4 * workers, 20)  # what each process does once
        before = measured.transactions()
        measured.node.forget()
        seconds = measured.prove(count, 100)
        exchanges, transactions = len(measured.node.exchanges), measured.transactions() - before
    print(
        f"{engine:22} {workers:7} {seconds:8.1f} {count / seconds:9.1f} {exchanges / count:10.2f} "
        f"{transactions / count:13.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--workers", default="1,2,4")
    options = parser.parse_args()
    print(f"{options.batches} batches of {_ACCOUNTS} accounts, a node {1000 * _AWAY_SECONDS:.0f} ms away")
    print(f"{'engine':22} workers  seconds batches/s  exchanges  transactions (of a batch)")
    for engine in ENGINES:
        for workers in options.workers.split(","):
            measure(engine, int(workers), options.batches)


if __name__ == "__main__":
    main()
