"""The service as operators run it: PostgreSQL on a disk of its own, a web server, three workers, and proxied nodes."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import requests

from campaigns.chaos.engines import OLD_BLOCKS, WORKERS, Installed
from campaigns.chaos.judge import Expected
from campaigns.chaos.load import DEAR_FEE, Load
from campaigns.incidents.watcher import Watcher
from demo.client import TIMEOUT
from demo.installation import CHAIN_ID, CHAINS_TOML, Service
from devnet.devchain import ACCOUNTS, DevChain
from devnet.ports import free_port
from devnet.servers import Postgres
from tests.chains.lying_node import Raw, lying_node
from tests.proving.money_node import Liar
from tests.proving.proxy import Proxy

SIGNER = ACCOUNTS[3][0]
WORKER_NAMES = ["worker", *(f"worker {number}" for number in range(2, WORKERS + 1))]
# A chain of value: its clock is compared with the machine's, and limits of money hold.
TOML = CHAINS_TOML.replace("test_network = true", 'daily_limit = "1000"\ndaily_limit_per_user = "1000"').replace(
    "confirmations = 1", "confirmations = 2"
)
# Blocks behind which a block is final: reorganisations are less deep.
_EPOCH = 32
_DISK = "700m"
_TOOK = "SELECT id, extract(epoch FROM finished_at - created_at) FROM queries_batch WHERE finished_at IS NOT NULL"
_OPEN = "SELECT id FROM queries_batch WHERE finished_at IS NULL"
# Bytes of calldata above which the node may hang at an estimate. Transactions of the load are smaller.
_LARGE_BYTES = 1500
_RESTING = "SELECT 1 FROM proving_chainwatch WHERE resting_nodes::text <> '[]'"


@dataclass
class ProxiedNode(Liar):
    """A node that hangs, refuses, lags, lies, or loses what it takes, according to `lie`."""

    is_honest: threading.Event = field(default_factory=threading.Event)
    lies_told: int = 0

    def __call__(self, body: Any) -> Any:
        if self.lie == "hanging" or (self.lie == "slow-estimate" and _has_large_estimate(body)):
            self.is_honest.wait()
        return Raw(b"Too many requests", 429) if self.lie == "limited" else super().__call__(body)

    def _reply(self, question: Any, reply: Any) -> Any:
        told = super()._reply(question, reply)
        self.lies_told += told != reply or self.lie == "stale"
        return told


def _has_large_estimate(body: Any) -> bool:
    questions = body if isinstance(body, list) else [body]
    estimated = [question["params"][0] for question in questions if question["method"] == "eth_estimateGas"]
    return any(len(transaction.get("data", "")) // 2 > _LARGE_BYTES for transaction in estimated)


class SmallDisk(Postgres):
    """PostgreSQL whose files are on a small disk, if root runs it, because only root can mount one."""

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=700", "tmpfs", self.folder], check=True)
        super()._prepare()

    def remove(self) -> None:
        self.stop()
        if os.path.ismount(self.folder):
            subprocess.run(["umount", "--lazy", self.folder], check=True)
        super().remove()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def has_ended(self) -> bool:
        return self._process is None or self._process.has_ended()


@dataclass(frozen=True)
class Site(Installed):
    postgres: SmallDisk
    service: Service
    nodes: Sequence[ProxiedNode]
    """In the order of chains.toml. All are of one chain."""
    proxy: Proxy
    """Stands before the first node."""
    watcher: Watcher
    load: Load
    expected: Expected

    def restart(self, *names: str) -> None:
        """Kill processes if they run, and start them."""
        for name in names:
            if name in self.service.names():
                self.service.kill(name)
            if name == "web":
                self.service.start_web()
            else:
                self.service.start_worker(name)

    def pids(self, name: str) -> list[int]:
        """Return a process and its children."""
        pid = self.postgres.pid if name == "database" else self.service.process(name).pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def signal(self, number: signal.Signals, names: Iterable[str]) -> None:
        """Send a signal to processes and their children."""
        for name in names:
            for pid in self.pids(name):
                os.kill(pid, number)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Execute statements as the database's owner, even where others may only read."""
        options = "-c default_transaction_read_only=off"
        with psycopg.connect(self.postgres.url(database), autocommit=True, options=options) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def wait_until_ended(self, batches: Sequence[str], seconds: float) -> tuple[int, float]:
        """Wait until the batches have ended. Return how many are open after `seconds`, and how long one took."""
        deadline = time.monotonic() + seconds
        while True:
            is_over = time.monotonic() > deadline
            took = {name: float(took) for name, took in self.rows(_TOOK)}
            left = set(batches).difference(took, self.expected.lost)
            if is_over or not left:
                return len(left), max((took[name] for name in batches if name in took), default=0)
            time.sleep(0.5)

    def waits(self) -> list[str]:
        """Return the codes that say what open batches wait for."""
        urls = [f"{self.base_url}/explorer/query/{name}.json" for (name,) in self.rows(_OPEN)]
        return sorted({wait["code"] for url in urls for wait in requests.get(url, timeout=TIMEOUT).json()["waits"]})

    def wait_until_no_node_rests(self, seconds: float) -> None:
        """Wait until workers ask all nodes in the order of chains.toml again, or for so long."""
        deadline = time.monotonic() + seconds
        while self.rows(_RESTING) and time.monotonic() < deadline:
            time.sleep(0.5)

    def configure(self, chains_toml: str) -> None:
        (self.service.folder / "chains.toml").write_text(chains_toml)


@contextmanager
def site(seed: int, *, nodes: int = 1, fee: int | str = DEAR_FEE) -> Iterator[Site]:
    """Start a service with so many nodes. The load isn't started; its batches have this `fee`, in wei or `auto`."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, slots_in_an_epoch=_EPOCH))
        chain.mine(OLD_BLOCKS)
        proxied = [ProxiedNode(chain) for _ in range(nodes)]
        first, *others = [running.enter_context(lying_node(node)) for node in proxied]
        proxy = running.enter_context(Proxy(first))
        postgres = running.enter_context(SmallDisk(settings=["max_wal_size=64MB", "min_wal_size=32MB"]))
        variables = {"DATABASE_URL": postgres.url(), "MAX_BATCHES_PER_MINUTE": "100000", "ALLOWED_ADDRESSES": "*"}
        service = Service(
            running,
            folder / "state",
            TOML % '", "'.join([proxy.url, *others]),
            ACCOUNTS[3][1],
            free_port(),
            **variables,
        )
        registry = service.deploy_registry(CHAIN_ID, CHAIN_ID)
        service.serve()
        for name in WORKER_NAMES[1:]:
            service.start_worker(name)
        watcher = Watcher(service.base_url)
        named = ("postgresql", service.base_url, chain, registry, postgres.url())
        load = Load(Installed(*named), seed, batches=1_000_000, pause=1, is_mixed=True, fee=fee)
        watcher.start()
        yield Site(*named, postgres, service, proxied, proxy, watcher, load, Expected())
