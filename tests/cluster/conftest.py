"""A service on several machines, as separate processes. Everything but workers is running; a test starts those."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import kombu
import psycopg
import pytest
import requests
from eth_account import Account

from demo import client
from demo.cluster import Cluster
from demo.installation import CHAIN_ID, CHAINS_TOML, SIGNER_ADDRESS, SIGNER_KEY
from devnet.devchain import DevChain
from devnet.ports import free_port
from devnet.servers import Postgres, Redis
from tests.cluster.rabbitmq import RabbitMQ
from tests.factories import until
from tests.proving.chain_state import ACCOUNT_PROVEN, HEADER_ACCUMULATED

SECONDS = 90
LEASE_SECONDS = 3


class Machines:
    """A chain, PostgreSQL, a broker, a web server, and a test's workers."""

    def __init__(self, running: ExitStack, folder: "pytest.TempPathFactory", broker: Redis | RabbitMQ) -> None:
        self.chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=0.5))
        self.chain.mine(200)
        self.chain.rpc("anvil_setBalance", SIGNER_ADDRESS, hex(10**22))
        self.postgres = running.enter_context(Postgres())
        self.broker = broker
        running.enter_context(broker)
        self.cluster = Cluster(
            running,
            folder.mktemp("cluster"),
            CHAINS_TOML % self.chain.url,
            SIGNER_KEY,
            free_port(),
            DATABASE_URL=self.postgres.url(),
            BROKER_URL=self.broker.url(),
            LEASE_SECONDS=str(LEASE_SECONDS),
        )
        self.registry = self.cluster.deploy_registry(CHAIN_ID, CHAIN_ID)
        self.cluster.start_web_at(self.cluster.port, "web")
        self._block = 0
        self._accounts = iter(range(1, 1_000_000))

    def begin(self) -> None:
        """Begin a test with a new user and unused blocks."""
        with psycopg.connect(self.postgres.url()) as connection:
            # These are heartbeats and lanes of workers that earlier tests have killed.
            connection.execute("DELETE FROM proving_workerheartbeat")
            connection.execute("UPDATE proving_lane SET until = now()")
        account = Account.create()
        self.until(self.answers, "the web server")
        key = account.key.to_0x_hex()
        self._api_key = client.take_api_key(self.cluster.base_url, account.address, key, CHAIN_ID)
        self._headers, self._proofs, self._sent = (
            self._found(HEADER_ACCUMULATED),
            self._found(ACCOUNT_PROVEN),
            self.sent(),
        )
        self._submitted: list[str] = []
        self.blocks: set[int] = set()

    def answers(self) -> bool:
        try:
            return "codes" in self.health()
        except requests.RequestException:
            return False

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = requests.get(f"{self.cluster.base_url}/healthz", timeout=20).json()
        return answer

    def submit(self, count: int = 1, *, per_block: int = 1) -> float:
        """Submit `count` batches, `per_block` for each block. Return the duration of the slowest
        submission in seconds.
        """
        slowest = 0.0
        for number in range(count):
            self._block += number % per_block == 0
            self.blocks.add(self._block)
            accounts = {f"0x{next(self._accounts):040x}": {"props": ["BALANCE"], "slots": []}}
            data = {str(CHAIN_ID): {f"block:{self._block}": {"accounts": accounts}}}
            body = {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data}
            began = time.monotonic()
            self._submitted.append(client.submit(self.cluster.base_url, self._api_key, body))
            slowest = max(slowest, time.monotonic() - began)
        return slowest

    def done(self) -> int:
        return self.count("queries_batch WHERE status = 'DONE' AND id = ANY(%s)", self._submitted)

    def until_all_are_done(self, seconds: float = SECONDS) -> None:
        self.until(lambda: self.done() == len(self._submitted), "DONE", seconds)

    def assert_nothing_was_done_twice(self) -> None:
        """Assert that each header and account is proven once, and that each transaction is part of a batch."""
        assert self._found(HEADER_ACCUMULATED) - self._headers == len(self.blocks)
        assert self._found(ACCOUNT_PROVEN) - self._proofs == len(self._submitted)
        named = set[str]()
        for internal_id in self._submitted:
            named |= client.transactions(self.cluster.base_url, internal_id)
        assert self.sent() - self._sent == len(named)
        rows = self.count("proving_transaction")
        assert self.count("(SELECT DISTINCT signer_id, nonce FROM proving_transaction) AS nonces") == rows

    def sent(self) -> int:
        return int(self.chain.rpc("eth_getTransactionCount", SIGNER_ADDRESS, "latest"), 16)

    def count(self, rows: str, *values: object) -> int:
        with psycopg.connect(self.postgres.url()) as connection:
            row = connection.execute(f"SELECT COUNT(*) FROM {rows}", values).fetchone()
        assert row
        return int(row[0])

    def waiting_messages(self) -> int:
        with kombu.Connection(self.broker.url()) as connection:
            channel: Any = connection.default_channel
            return int(channel.queue_declare("ticks", durable=True, auto_delete=False).message_count)

    def in_hand(self) -> int:
        return self.count("proving_lane WHERE until > now()")

    def kill_workers(self) -> None:
        for name in self.cluster.names():
            if name != "web":
                self.cluster.kill(name)

    def _found(self, topic: str) -> int:
        return len(self.chain.rpc("eth_getLogs", {"address": self.registry, "topics": [topic], "fromBlock": "0x0"}))

    def until(self, condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        until(condition, what, seconds, says=self.cluster.names)


@pytest.fixture(scope="session")
def all_machines(tmp_path_factory) -> Iterator[Machines]:
    with ExitStack() as running:
        yield Machines(running, tmp_path_factory, Redis())


@pytest.fixture
def machines(all_machines: Machines) -> Iterator[Machines]:
    """Yield the machines with an empty broker and no worker."""
    all_machines.broker.stop()
    all_machines.broker.start()
    all_machines.begin()
    yield all_machines
    all_machines.kill_workers()


def celery(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a Celery worker until it ends."""
    command = [sys.executable, "-m", "celery", "-A", "proving.celery_app", "worker", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
