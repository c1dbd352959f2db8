"""An installed service on SQLite or PostgreSQL, with Celery or without, and a development chain."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import requests

from demo.client import TIMEOUT, take_api_key
from demo.installation import CHAIN_ID
from devnet.devchain import ACCOUNTS, DevChain

# With `celery`, workers of Celery on PostgreSQL; else `runworker`.
ENGINES = ("sqlite", "postgresql", "celery")
WORKERS = 3
# Number of blocks that batches name, which no reorganisation reaches.
OLD_BLOCKS = 120


@dataclass(frozen=True)
class Installed:
    engine: str
    base_url: str
    chain: DevChain
    registry: str
    database_url: str

    def key(self, user: int) -> str:
        """Return an API key of one of the development chain's accounts."""
        address, private_key = ACCOUNTS[user]
        return take_api_key(self.base_url, address, private_key, CHAIN_ID)

    def codes(self) -> list[str]:
        """Return the codes of problems and notices in `/healthz`."""
        health = requests.get(f"{self.base_url}/healthz", timeout=TIMEOUT).json()
        return [*health["codes"]]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows that a statement selects."""
        if self.database_url.startswith("sqlite:///"):
            with closing(sqlite3.connect(self.database_url.removeprefix("sqlite:///"))) as connection:
                return connection.execute(statement).fetchall()
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(statement.encode()).fetchall()


@contextmanager
def a_chain() -> Iterator[DevChain]:
    """Start a chain with old blocks. No block becomes final during the chaos."""
    with DevChain(chain_id=CHAIN_ID, block_seconds=1, slots_in_an_epoch=1000) as chain:
        chain.mine(OLD_BLOCKS)
        yield chain
