"""The service on each of its engines: real processes on this machine, and a development chain."""

import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import requests

from demo.client import TIMEOUT, take_api_key
from demo.installation import CHAIN_ID, CHAINS_TOML, MANAGE, Service
from devnet.devchain import ACCOUNTS, DevChain
from devnet.ports import free_port
from devnet.servers import Postgres, Redis

# Two flags for each engine: PostgreSQL instead of SQLite, and Celery instead of `runworker`.
ENGINES = {"sqlite": (False, False), "postgresql": (True, False), "celery": (True, True)}
WORKERS = 3
# Number of blocks that batches name, and depth of the deepest reorganisation, which doesn't reach those blocks.
OLD_BLOCKS, DEEPEST_REORG = 120, 20
_CELERY = (sys.executable, "-m", "celery", "-A", "proving.celery_app", "-q", "worker")


class ChaosService(Service):
    def __init__(self, running: ExitStack, folder: Path, chains_toml: str, **variables: str) -> None:
        super().__init__(running, folder, chains_toml, ACCOUNTS[3][1], free_port(), **variables)

    def start_worker(self, name: str = "worker 1") -> None:
        if "BROKER_URL" in self.environment:
            self.start(name, *_CELERY, "-n", f"{name.replace(' ', '-')}@%h")
        else:
            self.start(name, *MANAGE, "runworker")


@dataclass(frozen=True)
class Installed:
    """An installed service. `folder` has its state."""

    engine: str
    base_url: str
    folder: Path
    chain: DevChain
    registry: str
    postgres: Postgres | None
    redis: Redis | None

    def key(self, user: int) -> str:
        """Return an API key of one of the development chain's accounts."""
        address, private_key = ACCOUNTS[user]
        return take_api_key(self.base_url, address, private_key, CHAIN_ID)

    def codes(self) -> list[str]:
        """Return the codes of problems and notices in `/healthz`."""
        health = requests.get(f"{self.base_url}/healthz", timeout=TIMEOUT).json()
        return [*health["codes"]]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows that a statement selects, on either database."""
        if self.postgres:
            with psycopg.connect(self.postgres.url()) as postgres:
                return postgres.execute(statement).fetchall()
        file = self.folder / "db.sqlite3"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=20)) as connection:
            return connection.execute(statement).fetchall()


@dataclass(frozen=True)
class Target(Installed):
    """A healthy service with three workers."""

    service: ChaosService


@contextmanager
def target(engine: str) -> Iterator[Target]:
    has_postgres, has_celery = ENGINES[engine]
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        chain = running.enter_context(a_chain())
        postgres = running.enter_context(Postgres()) if has_postgres else None
        redis = running.enter_context(Redis()) if has_celery else None
        variables = {"LEASE_SECONDS": "2", "MAX_BATCHES_PER_MINUTE": "100000"}
        variables |= {"DATABASE_URL": postgres.url()} if postgres else {}
        variables |= {"BROKER_URL": redis.url()} if redis else {}
        service = ChaosService(running, folder / "state", CHAINS_TOML % chain.url, **variables)
        registry = service.deploy_registry(CHAIN_ID, CHAIN_ID)
        chain.mine(DEEPEST_REORG + 1)
        service.serve()
        for number in range(2, WORKERS + 1):
            service.start_worker(f"worker {number}")
        yield Target(engine, service.base_url, service.folder, chain, registry, postgres, redis, service)


@contextmanager
def a_chain() -> Iterator[DevChain]:
    """Start a chain with old blocks. No block becomes final during the chaos."""
    with DevChain(chain_id=CHAIN_ID, block_seconds=1, slots_in_an_epoch=1000) as chain:
        chain.mine(OLD_BLOCKS)
        yield chain
